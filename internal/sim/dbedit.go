package sim

import (
	"slices"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// edit is a locked move: one transaction. Its locks make it atomic.
func (d *database) edit(key dispatch.Key, fence int64, change func(engine.View) (engine.Edit, error)) error {
	r := d.find(key)
	if r == nil {
		return engine.ErrNotFound
	}
	v := d.view(r, fence)
	e, err := change(v)
	if err != nil {
		return err
	}
	before := *r
	if e.Write {
		d.rewrite(r, v, e.Row)
	}
	for i := range e.Entries {
		n := &e.Entries[i]
		d.enter(r.m.n, n.Fence, n.Rule, n.State, n.Reason, &n.Record)
	}
	d.w.edited(e.Entries, &before, r)
	return nil
}

// view reads what the locks show: lockMessageSQL, lockQueueSQL, lockParkedSQL,
// knownSQL.
func (d *database) view(r *row, fence int64) engine.View {
	m := r.m
	v := engine.View{Row: decide.Row{
		Key: m.key, Lane: decide.Lane{Route: routeName, Priority: dispatch.Normal, Provider: m.pinned}, Pinned: m.pinned != "",
		Budget: m.budget, OnUnknown: m.unknown,
	}}
	v.Now = d.w.clock()
	live := r.in != nowhere
	if live {
		v.Row = r.Row
		v.Now = d.w.clock()
		v.Ledger = slices.Clone(r.Ledger)
	}
	switch r.in {
	case inQueue:
		v.Reason = dispatch.NoReason
	case inParked:
		v.Due, v.Claimed, v.Lease, v.ResolveUntil, v.Lookups = time.Time{}, time.Time{}, time.Time{}, time.Time{}, 0
	case nowhere:
	}
	last := int64(0)
	var first, final *entry
	for i := range d.history {
		h := &d.history[i]
		if h.n != m.n {
			continue
		}
		last = max(last, h.fence)
		if h.judged && h.outcome == dispatch.OK && (first == nil || before(h, first)) {
			first = h
		}
		if (h.state == dispatch.Sent || h.state == dispatch.Cancelled) && (final == nil || before(final, h)) {
			final = h
		}
	}
	if first != nil {
		v.First = &engine.Truth{Provider: first.provider, Account: first.account, ID: first.id}
	}
	if e := d.evidence(m.n, fence); e != nil {
		v.Seen.Kind, v.Seen.Verdict.Outcome, v.Seen.ProviderID = e.kind, e.outcome, e.id
	}
	if !live {
		v.Fence = last
		if final != nil {
			v.State = final.state
		}
	}
	return v
}

// before is the order of the history: at, fence, sub.
func before(a, b *entry) bool {
	if c := a.at.Compare(b.at); c != 0 {
		return c < 0
	}
	if a.fence != b.fence {
		return a.fence < b.fence
	}
	return a.sub < b.sub
}

// rewrite puts the row where its state belongs. A row that is being sent is
// its worker's: only its end is marked.
func (d *database) rewrite(r *row, v engine.View, to decide.Row) {
	if v.State == dispatch.Sending && to.State == dispatch.Sending {
		r.Ended = to.Ended
		return
	}
	r.in, r.claim, r.Lease = nowhere, [16]byte{}, time.Time{}
	keep := r.Row
	r.Row = to
	r.Now = time.Time{}
	r.Deadline, r.Budget = keep.Deadline, keep.Budget
	r.Claimed, r.Lease, r.first = time.Time{}, time.Time{}, time.Time{}
	switch to.State {
	case dispatch.Pending, dispatch.InDoubt:
		r.in, r.Reason = inQueue, dispatch.NoReason
		if to.Due.IsZero() {
			r.Due = d.w.clock()
		}
		if to.State == dispatch.InDoubt {
			leg, _ := to.Ledger.Leg(to.Provider, to.Account)
			r.first = leg.First
		}
	case dispatch.Held, dispatch.Dead:
		r.in = inParked
	case dispatch.Sending:
		d.w.ref.fail("a locked move leads to sending")
	case dispatch.Sent, dispatch.Cancelled:
		r.Reason = dispatch.NoReason
	}
}
