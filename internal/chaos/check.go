package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// report is what the checker found.
type report struct {
	messages   int // committed
	lost       int // committed, and neither final nor visibly held, or final without being true
	duplicates int // messages that went out more than once, and needn't have
	held       int
	residue    int // messages that went out more than once, as no client can help
	// violations are all that must not be, the lost and the duplicates
	// included; residues are told one by one.
	violations []string
	residues   []string
	judged     map[string]int // how often each check had something to look at
}

func (r *report) blame(format string, args ...any) {
	r.violations = append(r.violations, fmt.Sprintf(format, args...))
}

// sendID names one send.
type sendID struct {
	key     string
	attempt int64
}

// send is all that is known of one send, from each side.
type send struct {
	begin, end time.Time // the adapter's; end is zero where its process died
	worker     int
	vendor     string
	calls      []call // at most one
	evidence   *evidence
	lease      time.Time // of its claim
}

// reach is the latest moment at which this send could leave as far as any
// client can tell: its process knew that it had ended, or its lease had.
func (s *send) reach() time.Time {
	if !s.end.IsZero() && s.end.Before(s.lease) {
		return s.end
	}
	return s.lease
}

// checker holds ledger and dump by key.
type checker struct {
	report
	l     ledger
	d     dump
	rows  map[string]row
	plan  map[string]planned
	sends map[sendID]*send
	byKey map[string][]sendID
	calls map[string][]call // sends only
}

// check compares the ledger with the database. It is a pure function.
func check(l ledger, d dump) report {
	c := &checker{
		l: l, d: d, rows: map[string]row{}, plan: map[string]planned{}, sends: map[sendID]*send{}, byKey: map[string][]sendID{},
		calls: map[string][]call{},
	}
	c.judged = map[string]int{}
	for n := range l.plan.messages {
		m := l.plan.message(n)
		c.plan[m.key.String()] = m
	}
	for _, m := range d.messages {
		c.rows[m.Key] = m
	}
	c.index()
	c.checkEnqueued()
	for _, m := range d.messages {
		c.checkDeliveries(m)
		c.checkState(m)
		c.checkBudget(m)
	}
	for key, calls := range c.calls {
		if _, ok := c.rows[key]; !ok {
			c.blame("%s: %d calls for a message that was never committed", key, len(calls))
		}
	}
	c.checkSends()
	c.checkFloors()
	c.checkNotices()
	slices.Sort(c.violations)
	slices.Sort(c.residues)
	return c.report
}

func (c *checker) index() {
	at := func(key string, n int64) *send {
		id := sendID{key, n}
		s := c.sends[id]
		if s == nil {
			s = &send{}
			c.sends[id] = s
			c.byKey[key] = append(c.byKey[key], id)
		}
		return s
	}
	for _, a := range c.l.attempts {
		s := at(a.Key, a.Attempt)
		s.vendor, s.worker = a.Vendor, a.Worker
		if !a.Begin.IsZero() {
			if !s.begin.IsZero() {
				c.blame("%s: attempt %d began twice", a.Key, a.Attempt)
			}
			s.begin = a.Begin
		}
		if !a.End.IsZero() {
			s.end = a.End
		}
	}
	for _, k := range c.l.calls {
		if k.Attempt == 0 {
			continue // a look-up
		}
		s := at(k.Key, k.Attempt)
		if s.calls = append(s.calls, k); len(s.calls) == 2 {
			c.blame("%s: attempt %d made more than one call", k.Key, k.Attempt)
		}
		c.calls[k.Key] = append(c.calls[k.Key], k)
	}
	for i, e := range c.d.evidence {
		at(e.Key, e.Attempt).evidence = &c.d.evidence[i]
	}
	for _, k := range c.d.claims {
		if s := c.sends[sendID{k.Key, k.Attempt}]; s != nil { // others were handed back
			s.lease = k.Lease
		}
	}
	for _, ids := range c.byKey {
		slices.SortFunc(ids, func(a, b sendID) int { return int(a.attempt - b.attempt) })
	}
}

// checkEnqueued: what a COMMIT confirmed is there, once; what was rolled back
// isn't; the order and its message have the same fate.
func (c *checker) checkEnqueued() {
	added, answered := map[int]int{}, map[int]bool{}
	for _, e := range c.l.enqueued {
		switch e.What {
		case confirmed:
			added[e.N]++
			answered[e.N] = true
		case there:
			answered[e.N] = true
			c.judged["commits whose answer was lost"]++
		case ghost:
			c.judged["rollbacks"]++
			if key := c.l.plan.ghost(e.N).key.String(); c.rows[key].Key != "" || c.calls[key] != nil {
				c.blame("%s: was rolled back, and is there", key)
			}
		}
	}
	for n := range c.l.plan.messages {
		key := c.l.plan.message(n).key.String()
		_, ok := c.rows[key]
		switch {
		case !answered[n]:
			c.blame("%s: message %d was never confirmed", key, n)
		case !ok:
			c.lost++
			c.blame("%s: message %d was committed, and is gone", key, n)
		case added[n] > 1:
			c.blame("%s: message %d was new %d times", key, n, added[n])
		}
		if ok {
			c.messages++
		}
	}
	orders := map[string]bool{}
	for _, key := range c.d.orders {
		orders[key] = true
		if _, ok := c.rows[key]; !ok {
			c.blame("%s: an order without its message", key)
		}
	}
	for key := range c.rows {
		if !orders[key] {
			c.blame("%s: a message without its order", key)
		}
		if _, ok := c.plan[key]; !ok {
			c.blame("%s: a message that nobody enqueued", key)
		}
	}
}

// out are the deliveries of a message, at all vendors.
func (c *checker) out(key string) (out []call) {
	for _, k := range c.calls[key] {
		if k.Verdict == delivered {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b call) int { return a.At.Compare(b.At) })
	return out
}

// checkState: final, or visibly held by a kind of vendor that allows it; and
// what the state says is true.
func (c *checker) checkState(m row) {
	p, out := c.plan[m.Key], c.out(m.Key)
	late := slices.ContainsFunc(out, c.beyondReach)
	lose := func(why string) {
		c.lost++
		c.blame("%s (%s): %s %s: %s", m.Key, m.Route, m.State, m.Reason, why)
	}
	switch m.State {
	case dispatch.Sent.String():
		if len(out) == 0 {
			lose("nothing was delivered")
		}
	case dispatch.Held.String():
		c.held++
		for _, k := range providers(m.Route) {
			if !k.mayHold {
				c.blame("%s (%s): held for %s, though its vendor can tell", m.Key, m.Route, m.Reason)
				break
			}
		}
	case dispatch.Dead.String():
		switch {
		case m.Reason == dispatch.ReasonRejected.String() && p.unwanted:
		case m.Reason == dispatch.ReasonDeadline.String() && p.validFor > 0:
		case m.Reason == dispatch.ReasonBudget.String() && m.Budget == briefBudget && c.refusals(m) >= m.Budget:
		default:
			lose("for no reason")
			return
		}
		if len(out) > 0 && !late {
			lose("and delivered")
		}
	case "":
		lose("it is in no state")
	default:
		lose("still in motion at the end")
	}
	if p.unwanted && len(out) > 0 {
		c.blame("%s: a refused message was delivered", m.Key)
	}
}

// refusals are the sends of a message that its vendor proved not to have taken.
func (c *checker) refusals(m row) (n int64) {
	for _, id := range c.byKey[m.Key] {
		if e := c.sends[id].evidence; e != nil && e.Outcome == 2 {
			n++
		}
	}
	return n
}

// checkBudget: sends that may have left are never more than the budget, and
// nothing is sent after the deadline.
func (c *checker) checkBudget(m row) {
	spent := int64(0)
	for _, id := range c.byKey[m.Key] {
		s := c.sends[id]
		if s.evidence != nil && s.evidence.Outcome != 2 {
			spent++
		}
		if m.Deadline != nil && !s.begin.IsZero() {
			c.judged["deadlines"]++
			if late := s.begin.Sub(*m.Deadline); late > patience && !c.frozen(s.worker, m.Deadline.Add(-leaseTime), s.begin) {
				c.blame("%s: attempt %d began %v after the deadline", m.Key, id.attempt, late)
			}
		}
	}
	if spent > m.Budget {
		c.blame("%s: %d sends that may have left, of a budget of %d", m.Key, spent, m.Budget)
	}
	if spent == m.Budget {
		c.judged["budgets used up"]++
	}
}

// patience is how late a busy machine may carry out what was decided in time.
const patience = 500 * time.Millisecond

// frozen reports whether the worker stood still at some time of a span.
func (c *checker) frozen(worker int, from, to time.Time) bool {
	return c.struck(from, to, func(f struck) bool { return f.Fault == freeze && f.Target == fmt.Sprint("worker ", worker) })
}

func (c *checker) struck(from, to time.Time, which func(struck) bool) bool {
	return slices.ContainsFunc(c.l.faults, func(f struck) bool { return which(f) && f.From.Before(to) && from.Before(f.To) })
}

// checkNotices: who asked to hear of the end has heard of it.
func (c *checker) checkNotices() {
	heard := map[told]bool{}
	for _, t := range c.l.told {
		heard[t] = true
	}
	if c.d.untold > 0 {
		c.blame("%d notices that nobody took", c.d.untold)
	}
	for _, m := range c.d.messages {
		if m.Notify == 0 {
			continue
		}
		var want dispatch.Notify
		switch m.State {
		case dispatch.Sent.String():
			want = dispatch.NotifySent
		case dispatch.Held.String():
			want = dispatch.NotifyHeld
		case dispatch.Dead.String():
			want = dispatch.NotifyDead
		}
		if m.Notify&int64(want) == 0 {
			continue
		}
		c.judged["notices"]++
		if !heard[told{Key: m.Key, Event: int(want)}] {
			c.blame("%s: %s, and nobody was told", m.Key, m.State)
		}
	}
}
