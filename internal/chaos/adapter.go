package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// adapter is the provider of a fake. Besides what any adapter does, it tells the
// fake which attempt a request belongs to, outside of what the message is, and
// notes when each attempt began and ended: by that the checker matches calls,
// attempts and evidence one to one.
type adapter struct {
	kind   kind
	base   string
	worker int
	client *exchange.Client
	log    *journal
}

// The times of one attempt: 1.4 s in all, so that a lease is 2.8 s.
var times = exchange.Config{
	PoolWait: 200 * time.Millisecond, Connect: 300 * time.Millisecond, Write: 300 * time.Millisecond, Answer: 600 * time.Millisecond,
}

// attemptTime and leaseTime are what follows from times.
var (
	attemptTime = times.PoolWait + times.Connect + times.Write + times.Answer
	leaseTime   = 2 * attemptTime
)

func newAdapter(k kind, base string, worker int, log *journal) (*adapter, error) {
	client, err := exchange.New(times)
	if err != nil {
		return nil, err
	}
	return &adapter{kind: k, base: base, worker: worker, client: client, log: log}, nil
}

func (a *adapter) Contract() dispatch.Contract {
	c := dispatch.Contract{
		Name: a.kind.name, Account: "chaos", Encoding: 1, Timeout: a.client.Timeout(), RefusalProves: a.kind.proves,
	}
	if a.kind.window > 0 {
		c.Dedupe = dispatch.Dedupe{Window: a.kind.window, BindsBody: true, Confirmed: true, Source: "the fake"}
	}
	if a.kind.search {
		c.Search = dispatch.Search{Available: true, Lag: lag, Source: "the fake"}
	}
	if a.kind.echo {
		c.Echo = dispatch.Echo{Reference: true, Grace: grace, Source: "the fake"}
	}
	return c
}

// codes is the fakes' table.
var codes = dispatch.Codes{
	"unwanted": {Outcome: dispatch.Rejected, Scope: dispatch.Message, Reason: "the vendor refuses this text"},
}

// answer is what a fake's body says.
type answer struct {
	ID   string `json:"id,omitempty"`
	Code string `json:"code,omitempty"`
}

func (a *adapter) request(method, path string, key dispatch.Key, attempt int) exchange.Request {
	return exchange.Request{
		Method: method, URL: a.base + path, Header: http.Header{"Content-Type": {"application/json"}},
		Auth: http.Header{"Authorization": {fmt.Sprintf("Chaos %s/%d", key, attempt)}},
	}
}

func (a *adapter) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	line := attempt{Vendor: a.kind.name, Key: e.Key.String(), Attempt: int64(e.Attempt), Worker: a.worker, Begin: time.Now()}
	a.log.note(line)
	defer func() {
		line.Begin, line.End = time.Time{}, time.Now()
		a.log.note(line)
	}()
	sms, ok := e.Content.(dispatch.SMS)
	if !ok {
		return dispatch.Accepted{}, errors.New("content is no SMS")
	}
	r := a.request(http.MethodPost, "/send", e.Key, e.Attempt)
	if a.kind.window > 0 {
		r.KeyHeader, r.Key = "Idempotency-Key", e.Key.String()
	}
	r.Replay = e.Replay
	var err error
	if r.Body, err = json.Marshal(map[string]string{"to": sms.To, "body": sms.Body}); err != nil {
		return dispatch.Accepted{}, err
	}
	got, err := a.client.Do(ctx, r)
	if err != nil {
		return dispatch.Accepted{}, err
	}
	ev, body := read(got)
	if got.Status != http.StatusAccepted {
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: ev, Verdict: codes.Classify(ev)}
	}
	return dispatch.Accepted{ID: body.ID, NoID: body.ID == "", Status: "queued", Evidence: ev}, nil
}

func (a *adapter) Lookup(ctx context.Context, q dispatch.Query) (dispatch.Found, error) {
	if !a.kind.search {
		return dispatch.Found{}, dispatch.ErrNoLookup
	}
	got, err := a.client.Do(ctx, a.request(http.MethodGet, "/messages/"+q.Key.String(), q.Key, 0))
	if err != nil {
		return dispatch.Found{}, err
	}
	ev, body := read(got)
	switch {
	case got.Status == http.StatusOK && body.ID != "":
		return dispatch.Found{Presence: dispatch.Present, ID: body.ID}, nil
	case got.Status == http.StatusNotFound && body.Code == "not_found":
		return dispatch.Found{Presence: dispatch.Absent}, nil
	}
	return dispatch.Found{}, &dispatch.Fault{Evidence: ev, Verdict: codes.Classify(ev)}
}

// read decodes a whole body; half of one says nothing.
func read(got exchange.Answer) (dispatch.Evidence, answer) {
	ev := got.Evidence
	var body answer
	if !got.Whole() || json.Unmarshal(got.Body, &body) != nil {
		return ev, answer{}
	}
	if got.Status >= 300 {
		ev.Code, ev.OwnBody = body.Code, body.Code != ""
	}
	return ev, body
}
