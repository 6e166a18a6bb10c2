// Package outboxtest helps to test code that enqueues: a box on a fresh schema,
// a provider that records instead of sending, and a worker that runs until
// nothing is left to do. Nothing is mocked: it is the real outbox on a real
// Postgres, the application's own or a throwaway one.
//
// A test asks three things: what did this transaction enqueue ([Box.Enqueued]),
// what goes out ([Box.Work] with a [Provider]), and what becomes of it
// (Box.History).
package outboxtest

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// Provider records what it is asked to send. Its zero value accepts everything
// and is safe for concurrent use; set its fields before the first Send. With a
// Dedupe window in Promise it remembers keys, as a vendor would: a repeated key
// is answered again and not delivered again.
type Provider struct {
	// Promise is its contract; an empty Name is "test", an empty Account
	// "account".
	Promise dispatch.Contract
	// Respond, where set, decides what becomes of a send. Call accept to take
	// the message: what is returned afterwards is only the answer, which may be
	// lost.
	Respond func(ctx context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error)

	mu       sync.Mutex
	sent     []dispatch.Envelope
	times    []time.Time
	accepted []dispatch.Envelope
	ids      map[dispatch.Key]string
}

// Contract returns Promise with its defaults.
func (p *Provider) Contract() dispatch.Contract {
	c := p.Promise
	if c.Name == "" {
		c.Name = "test"
	}
	if c.Account == "" {
		c.Account = "account"
	}
	return c
}

// Send records the envelope and answers as Respond says.
func (p *Provider) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	p.mu.Lock()
	p.sent, p.times = append(p.sent, e), append(p.times, time.Now())
	p.mu.Unlock()
	accept := func() dispatch.Accepted { return p.accept(e) }
	if p.Respond == nil {
		return accept(), nil
	}
	return p.Respond(ctx, e, accept)
}

func (p *Provider) accept(e dispatch.Envelope) dispatch.Accepted {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, seen := p.ids[e.Key]
	if !seen || p.Promise.Dedupe.Window <= 0 {
		p.accepted = append(p.accepted, e)
		id = "id-" + strconv.Itoa(len(p.accepted))
	}
	if p.ids == nil {
		p.ids = map[dispatch.Key]string{}
	}
	p.ids[e.Key] = id
	return dispatch.Accepted{ID: id, Status: "queued"}
}

// Lookup answers from what was accepted, where Promise says that it can be
// asked.
func (p *Provider) Lookup(_ context.Context, q dispatch.Query) (dispatch.Found, error) {
	if !p.Promise.Search.Available {
		return dispatch.Found{}, dispatch.ErrNoLookup
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if id, ok := p.ids[q.Key]; ok {
		return dispatch.Found{Presence: dispatch.Present, ID: id, Status: "queued"}, nil
	}
	return dispatch.Found{Presence: dispatch.Absent}, nil
}

// Sends returns every attempt so far, in order.
func (p *Provider) Sends() []dispatch.Envelope {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sent)
}

// SendsOf returns the times of the attempts for one key.
func (p *Provider) SendsOf(key dispatch.Key) []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []time.Time
	for i, e := range p.sent {
		if e.Key == key {
			out = append(out, p.times[i])
		}
	}
	return out
}

// Accepted returns the messages that were taken, in order: what a recipient
// would have got.
func (p *Provider) Accepted() []dispatch.Envelope {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.accepted)
}

// Deliveries returns how often the message with this key was taken.
func (p *Provider) Deliveries(key dispatch.Key) int {
	n := 0
	for _, e := range p.Accepted() {
		if e.Key == key {
			n++
		}
	}
	return n
}
