package engine

import (
	"context"
	"errors"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// How long Before may think, and how long a row waits whose Before failed.
const (
	beforeTimeout = time.Second
	beforeAgain   = 5 * time.Second
)

// Before asks the route's hook about a send that Begin allowed. A change hands
// the task back, drops it or puts it off. elapsed reads the time since the claim
// again, since the hook takes some.
func (e *Engine) Before(ctx context.Context, t *Task, a Attempt, elapsed func() time.Duration) (back *Change) {
	before := e.routes[t.Lane.Route].Before
	if before == nil {
		return nil
	}
	advice, err := ask(ctx, before, a.Envelope)
	now := t.Now.Add(elapsed())
	s := e.setup(t)
	switch {
	case err != nil:
		return handBack(t, s.PutOff(t.Row, now, now.Add(beforeAgain)))
	case advice.Drop != "":
		c := handBack(t, s.Dropped(t.Row, now))
		c.Record = Record{
			Kind: KindMoved, Provider: t.Provider, Account: t.Account,
			Verdict: dispatch.Verdict{Outcome: dispatch.Rejected, Reason: "dropped before it was sent"}, Why: advice.Drop,
		}
		return c
	case advice.NotBefore.After(now):
		return handBack(t, s.PutOff(t.Row, now, advice.NotBefore))
	case !s.Startable(t.Row, e.providers[t.Provider].contract, now):
		return handBack(t, s.Unstarted(t.Row, now, 0))
	}
	return nil
}

var errBefore = errors.New("hook panicked")

func ask(ctx context.Context, before func(context.Context, dispatch.Envelope) (dispatch.Advice, error), env dispatch.Envelope) (a dispatch.Advice, err error) {
	ctx, done := context.WithTimeout(ctx, beforeTimeout)
	defer done()
	defer func() {
		if recover() != nil {
			err = errBefore
		}
	}()
	if a, err = before(ctx, env); err == nil {
		err = ctx.Err()
	}
	return a, err
}
