package sim

import (
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// settles tells which of the two statements of Apply a change goes through.
func settles(c *engine.Change) bool {
	return c.Move.Rule == decide.RuleOK && c.Record.Kind == engine.KindAttempt
}

// match finds the row that a change was made from, nil where it is fenced out.
func (d *database) match(c *engine.Change) *row {
	r := d.find(c.Key)
	if r == nil || r.in != inQueue || r.State != c.From || r.Fence != c.Fence && !d.noFence {
		return nil
	}
	return r
}

// applySent is applySentSQL: rule 6.
func (d *database) applySent(c *engine.Change) engine.Result {
	r := d.match(c)
	if r == nil {
		return engine.Result{Status: engine.Fenced}
	}
	before := *r
	d.gone(r, dispatch.Sent)
	d.enter(r.m.n, c.Fence, decide.RuleOK, dispatch.Sent, dispatch.NoReason, &c.Record)
	d.w.settled(c, &before, r)
	return engine.Result{Status: engine.Applied, State: dispatch.Sent}
}

func (d *database) gone(r *row, state dispatch.State) {
	r.in, r.State, r.Reason = nowhere, state, dispatch.NoReason
	r.Lease, r.claim = time.Time{}, [16]byte{}
}

// applyRest is applySQL. end() is decided here, from what the row says.
func (d *database) applyRest(c *engine.Change) engine.Result {
	now := d.w.clock()
	r := d.match(c)
	if r == nil || c.Idle && !d.free(r, now) {
		return engine.Result{Status: engine.Fenced, Now: now}
	}
	before := *r
	m := &c.Move
	r.Ended = max(r.Ended, m.End)
	if d.blindSettle {
		r.Ended = decide.NotEnded
	}
	ended := r.Ended
	waived := m.Ledger.Count(decide.Waived)
	state, reason := m.To, m.Reason
	switch {
	case m.To == dispatch.Pending:
		state, reason = endOf(ended, r.Deadline, m.Spent, r.Budget, waived, now)
	case m.To == dispatch.Dead && m.Reason == dispatch.ReasonRejected && ended != decide.NotEnded:
		state, reason = dispatch.Cancelled, dispatch.NoReason
	}
	if state != dispatch.Held && state != dispatch.Dead {
		reason = dispatch.NoReason
	}
	switch state {
	case dispatch.Pending, dispatch.InDoubt:
		d.keep(r, m, state, now)
	case dispatch.Held, dispatch.Dead:
		d.gone(r, state)
		r.in, r.Reason, r.Spent, r.Lane, r.Ledger = inParked, reason, m.Spent, m.Lane, m.Ledger
		r.Provider, r.Account, r.Encoding = m.Provider, m.Account, m.Encoding
	case dispatch.Sent, dispatch.Cancelled:
		r.Ledger, r.Spent = m.Ledger, m.Spent
		d.gone(r, state)
	case dispatch.Sending:
		d.w.ref.fail("a change leads to sending")
	}
	if c.Record.Kind != engine.KindNone || state >= dispatch.Held {
		d.enter(r.m.n, c.Fence, m.Rule, state, reason, &c.Record)
	}
	d.w.settled(c, &before, r)
	return engine.Result{Status: engine.Applied, State: state, Reason: reason, Now: now}
}

// keep is the part of applySQL that leaves a row in the queue.
func (d *database) keep(r *row, m *decide.Move, state dispatch.State, now time.Time) {
	due := now.Add(m.Wait.Truncate(time.Microsecond))
	if m.NotBefore.After(due) {
		due = m.NotBefore
	}
	limit := m.ResolveUntil
	if state == dispatch.Pending {
		limit = r.Deadline
	}
	if !limit.IsZero() && limit.Before(due) {
		due = limit
	}
	r.State, r.Due, r.Spent, r.Lane, r.Ledger, r.Lookups = state, due, m.Spent, m.Lane, m.Ledger, m.Lookups
	r.claim, r.Lease = [16]byte{}, time.Time{}
	r.first, r.ResolveUntil = time.Time{}, time.Time{}
	if m.Lease > 0 {
		if !d.sameFence {
			r.Fence++
		}
		r.Lease = now.Add(m.Lease)
	}
	if state == dispatch.InDoubt {
		r.Provider, r.Account, r.Encoding = m.Provider, m.Account, m.Encoding
		r.first, r.ResolveUntil = m.First, m.ResolveUntil
	}
}

// endOf is end() of the table, as the statement has it. It is a copy of
// decide.End on purpose: the two are compared by every move.
func endOf(ended decide.Ended, deadline time.Time, spent, budget, waived int, now time.Time) (dispatch.State, dispatch.Reason) {
	late := !deadline.IsZero() && !deadline.After(now)
	switch {
	case ended != decide.NotEnded && waived == 0:
		return dispatch.Cancelled, dispatch.NoReason
	case ended != decide.NotEnded:
		return dispatch.Dead, dispatch.ReasonSuperseded
	case !late && spent < budget:
		return dispatch.Pending, dispatch.NoReason
	case waived > 0:
		return dispatch.Dead, dispatch.ReasonUnresolved
	case late:
		return dispatch.Dead, dispatch.ReasonDeadline
	}
	return dispatch.Dead, dispatch.ReasonBudget
}
