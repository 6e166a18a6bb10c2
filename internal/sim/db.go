package sim

import (
	"slices"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// database is the outbox's tables in memory. Each method that is named after
// a statement is atomic, as the statement is, and does what its SQL does: the
// names of the statements stand in the comments. Its clock is the world's.
type database struct {
	w       *world
	rows    []row
	history []entry
	gates   []gate
	sub     int64 // event_number
	// Planted bugs of the database itself.
	noFence, spentFence, sameFence, blindSettle, sendEnded, sendExpired, noLease bool
}

type place int8

const (
	nowhere  place = iota // final
	inQueue               // queue
	inParked              // parked
)

// row is a message's row in queue or parked.
type row struct {
	decide.Row
	m     *message
	in    place
	claim [16]byte
	first time.Time // first_sent
}

// entry is a row of the history.
type entry struct {
	n          int // the message
	at         time.Time
	fence, sub int64
	kind       engine.Kind
	rule       decide.Rule
	state      dispatch.State
	reason     dispatch.Reason
	outcome    dispatch.Outcome
	judged     bool // outcome is not null
	provider   string
	account    string
	id         string
}

// insert is enqueueSQL: rule 1.
func (d *database) insert(m *message, later bool) {
	due := d.w.clock()
	if later {
		due = due.Add(5 * time.Second)
	}
	r := row{m: m, in: inQueue, Row: decide.Row{
		Key: m.key, Lane: decide.Lane{Route: routeName, Priority: dispatch.Normal, Provider: m.pinned}, Pinned: m.pinned != "",
		State: dispatch.Pending, Budget: m.budget, Due: due, Deadline: d.w.timeOf(m.deadline), OnUnknown: m.unknown,
	}}
	d.rows = append(d.rows, r)
	d.w.ref.enqueued(m)
	d.w.moved(decide.RuleEnqueue, &row{}, &d.rows[len(d.rows)-1])
}

func (w *world) timeOf(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return epoch.Add(d)
}

// find returns the row of a key, nil before its enqueue.
func (d *database) find(key dispatch.Key) *row {
	for i := range d.rows {
		if d.rows[i].Key == key {
			return &d.rows[i]
		}
	}
	return nil
}

// idle tells that no lease holds: coalesce(lease <= clock_timestamp(), true).
func (r *row) idle(now time.Time) bool { return r.Lease.IsZero() || !r.Lease.After(now) }

// free is idle as the sweeper's statements see it.
func (d *database) free(r *row, now time.Time) bool { return d.noLease || r.idle(now) }

// inOrder walks the rows in queue of a lane in the order of the claim index:
// due, id.
func (d *database) inOrder(lane decide.Lane, visit func(r *row) bool) {
	var order [8]*row
	list := order[:0]
	for i := range d.rows {
		if r := &d.rows[i]; r.in == inQueue && r.Lane == lane {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *row) int {
		if c := a.Due.Compare(b.Due); c != 0 {
			return c
		}
		return a.Key.Compare(b.Key)
	})
	for _, r := range list {
		if !visit(r) {
			return
		}
	}
}

// enter writes a row of the history: on conflict (id, fence, sub) do nothing.
func (d *database) enter(n int, fence int64, rule decide.Rule, state dispatch.State, reason dispatch.Reason, r *engine.Record) {
	e := entry{
		n: n, at: d.w.clock(), fence: fence, kind: r.Kind, rule: rule, state: state, reason: reason,
		outcome: r.Verdict.Outcome, provider: r.Provider, account: r.Account, id: r.ProviderID,
		judged: r.Kind >= engine.KindAttempt && r.Kind <= engine.KindReceipt,
	}
	if e.kind == engine.KindNone {
		e.kind = engine.KindMoved
	}
	if e.kind.Evidence() {
		for i := range d.history {
			if h := &d.history[i]; h.n == n && h.fence == fence && h.sub == 0 {
				return
			}
		}
	} else {
		d.sub++
		e.sub = d.sub
	}
	d.history = append(d.history, e)
}

// evidence returns the one evidence row of a send.
func (d *database) evidence(n int, fence int64) *entry {
	for i := range d.history {
		if h := &d.history[i]; h.n == n && h.fence == fence && h.sub == 0 {
			return h
		}
	}
	return nil
}

// checks are the CHECKs of the schema; it returns the first that is violated.
func (r *row) checks() string {
	open, waived := r.Ledger.Count(decide.Open), r.Ledger.Count(decide.Waived)
	switch {
	case r.in == nowhere:
		return ""
	case r.Fence < 0 || r.Spent < 0 || r.Spent > r.Budget || r.Lookups < 0:
		return "counts"
	case r.in == inParked:
		switch {
		case r.State != dispatch.Held && r.State != dispatch.Dead || r.Reason < dispatch.ReasonRejected || r.Reason > dispatch.ReasonChanged:
			return "parked_state"
		case r.State == dispatch.Held && open == 0:
			return "parked_held"
		case open+waived > 0 && r.Reason < dispatch.ReasonUnresolved:
			return "parked_reason"
		}
		return ""
	case r.Due.IsZero():
		return "queue_finite"
	}
	switch r.State {
	case dispatch.Pending:
		if open != 0 || !r.Lease.IsZero() || r.claim != [16]byte{} {
			return "queue_state of pending"
		}
	case dispatch.Sending:
		if r.Lease.IsZero() || r.claim == [16]byte{} || r.Claimed.IsZero() || r.Provider == "" || r.Spent <= 0 {
			return "queue_state of sending"
		}
	case dispatch.InDoubt:
		if open == 0 || r.claim != [16]byte{} || r.first.IsZero() || r.Provider == "" {
			return "queue_state of unknown"
		}
	case dispatch.Held, dispatch.Dead, dispatch.Sent, dispatch.Cancelled:
		return "queue_state"
	}
	return ""
}
