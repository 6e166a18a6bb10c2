package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/seed-8098fbb7/dispatch"
)

// Verb is what Bulk does to each message: Box.Cancel, Box.Retry, Box.SendAnyway,
// Box.ResolveNotAccepted, Box.GiveUp, or a function around such methods. This one
// resolves by what the provider says it took, its ids by our keys:
//
//	func(ctx context.Context, key dispatch.Key, a outbox.Audit) (dispatch.State, error) {
//		if id, ok := took[key]; ok {
//			return box.ResolveAccepted(ctx, key, id, a)
//		}
//		return box.ResolveNotAccepted(ctx, key, a)
//	}
//
// It is called by several goroutines at once.
type Verb func(ctx context.Context, key dispatch.Key, a Audit) (dispatch.State, error)

// Progress is how far Bulk has got.
type Progress struct {
	// Matched counts the messages that passed the filter so far: Done and
	// Refused together.
	Matched int
	// Done counts those that the verb was carried out on, by the state that it
	// left them in.
	Done map[dispatch.State]int
	// Refused counts the others by the error, one of the Err variables of this
	// package. Nothing of them was changed.
	Refused map[error]int
}

// refusals are what a verb says about one message; anything else ends a Bulk.
var refusals = []error{ErrNotFound, ErrTooLate, ErrMayHaveBeenAccepted, ErrNotParked, ErrExpired, ErrEnded}

// bulkPage is how many messages Bulk takes from the list at once, and
// bulkAtOnce how many of them it works on at a time: each is a transaction of
// its own, which waits for its commit.
const (
	bulkPage   = 200
	bulkAtOnce = 4
)

// Bulk does one thing to all messages that pass the filter, each in a
// transaction of its own and recorded in its history with who and why:
//
//	box.Bulk(ctx, outbox.Filter{States: []dispatch.State{dispatch.Dead}, Route: "sms"}, box.Retry, audit, nil)
//
// What is enqueued, or parked, after it began isn't meant. It goes through them in
// List's order and calls progress, where that isn't nil, after every few, never
// twice at once. It stops when ctx ends and returns how far it got with the
// context's error, or with the first error that isn't about one message.
// Calling it again goes on: what it was done to no longer passes the filter, or
// is refused.
func (b *Box) Bulk(ctx context.Context, f Filter, verb Verb, a Audit, progress func(Progress)) (Progress, error) {
	p := Progress{Done: map[dispatch.State]int{}, Refused: map[error]int{}}
	switch {
	case b.pool == nil:
		return p, ErrNoPool
	case verb == nil:
		return p, errors.New("outbox: bulk without a verb")
	case len(f.States) == 0 && f.Route == "" && f.Provider == "" && f.Reason == 0 && f.Recipient == "":
		return p, fmt.Errorf("outbox: bulk: %w", ErrEmptyFilter)
	}
	if err := a.check(); err != nil {
		return p, err
	}
	if f.Before.IsZero() {
		// What a verb puts back, or what comes in meanwhile, must not keep it
		// going for ever.
		if err := b.pool.QueryRow(ctx, b.sql.now).Scan(&f.Before); err != nil {
			return p, missing(err)
		}
	}
	for cursor := ""; ; {
		messages, next, err := b.List(ctx, f, cursor, bulkPage)
		if err != nil {
			return p, err
		}
		for part := range slices.Chunk(messages, bulkAtOnce) {
			err := p.work(ctx, part, verb, a)
			if progress != nil {
				progress(p.clone())
			}
			if err != nil {
				return p, err
			}
		}
		if next == "" {
			return p, nil
		}
		cursor = next
	}
}

// work does the verb to a few messages at once.
func (p *Progress) work(ctx context.Context, part []Message, verb Verb, a Audit) error {
	states, errs := make([]dispatch.State, len(part)), make([]error, len(part))
	var wg sync.WaitGroup
	for i, m := range part {
		wg.Go(func() {
			if errs[i] = ctx.Err(); errs[i] == nil {
				states[i], errs[i] = verb(ctx, m.Key, a)
			}
		})
	}
	wg.Wait()
	var failed error
	for i, err := range errs {
		switch at := slices.IndexFunc(refusals, func(r error) bool { return errors.Is(err, r) }); {
		case err == nil:
			p.Done[states[i]]++
			p.Matched++
		case at >= 0:
			p.Refused[refusals[at]]++
			p.Matched++
		default: // one of several is enough
			failed = err
		}
	}
	return failed
}

func (p *Progress) clone() Progress {
	c := Progress{Matched: p.Matched, Done: make(map[dispatch.State]int, len(p.Done)), Refused: make(map[error]int, len(p.Refused))}
	for k, v := range p.Done {
		c.Done[k] = v
	}
	for k, v := range p.Refused {
		c.Refused[k] = v
	}
	return c
}
