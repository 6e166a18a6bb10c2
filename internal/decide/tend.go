package decide

import (
	"slices"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// Tend is the move for a row that is due and not leased, ok false where it is
// to be left alone: a row that can be claimed is the claim's.
func (s Setup) Tend(r Row) (m Move, ok bool) {
	if !r.Lease.IsZero() && r.Lease.After(r.Now) {
		return Move{}, false
	}
	switch r.State {
	case dispatch.Sending:
		return s.swept(r), true
	case dispatch.Pending:
		if state, _ := End(r.Ended, r.Deadline, r.Spent, r.Budget, r.Ledger.Count(Waived), r.Now); state != dispatch.Pending {
			return Move{Rule: RuleEnd, To: dispatch.Pending, Spent: r.Spent, Lane: r.Lane, Ledger: r.Ledger}, true
		}
	case dispatch.InDoubt:
		return s.tendDoubt(r)
	case dispatch.Held, dispatch.Dead, dispatch.Sent, dispatch.Cancelled:
	}
	return Move{}, false
}

// swept makes a send open whose worker was not heard of until its lease
// ended. It could reach the provider until then.
func (s Setup) swept(r Row) Move {
	leg, _ := r.Ledger.Leg(r.Provider, r.Account)
	leg = leg.opened(r.Claimed)
	leg.Encoding, leg.Reach = r.Encoding, later(leg.Reach, r.Lease)
	return s.doubt(RuleSwept, r, r.Ledger.Put(leg), r.Spent, r.Now, s.Backoff.Wait(r.Spent, 0, s.Random))
}

func (s Setup) tendDoubt(r Row) (Move, bool) {
	leg, ok := r.Ledger.bound(r.Provider)
	if !ok {
		return Move{}, false // the database's CHECK refuses such a row
	}
	if r.ResolveUntil.IsZero() {
		// No worker that knew the contract has seen it yet.
		if m := s.doubt(RuleLater, r, r.Ledger, r.Spent, r.Now, 0); !m.ResolveUntil.IsZero() {
			return m, true
		}
		return s.push(r, r.Now.Add(unbound)), true
	}
	if !r.ResolveUntil.After(r.Now) {
		return s.lapsed(r, leg), true
	}
	c, known := s.Contract(leg.Provider)
	switch {
	case !known:
		return s.push(r, r.Now.Add(unbound)), true
	case r.Now.Before(s.resendEnd(r, leg, r.Spent)):
		return Move{}, false
	case s.searchable(leg):
		m := s.push(r, r.Now.Add(lookupPause(r.Lookups)))
		m.Rule, m.Lease, m.Lookups = RuleLookup, s.Lease(c), r.Lookups+1
		return m, true
	case s.foreign(leg):
		return s.push(r, r.Now.Add(unbound)), true
	}
	return s.push(r, r.ResolveUntil), true
}

// push leaves an unknown row as it is until t.
func (s Setup) push(r Row, t time.Time) Move {
	leg, _ := r.Ledger.bound(r.Provider)
	lane := r.Lane
	lane.Provider = leg.Provider
	return Move{
		Rule: RuleLater, To: dispatch.InDoubt, Spent: r.Spent, Lane: lane, Ledger: r.Ledger, Lookups: r.Lookups,
		Provider: leg.Provider, Account: leg.Account, Encoding: leg.Encoding, First: leg.First,
		ResolveUntil: r.ResolveUntil, NotBefore: t,
	}
}

// lapsed is the move at resolve_until: whatever could tell has had its time.
func (s Setup) lapsed(r Row, leg Leg) Move {
	m := s.push(r, r.Now)
	if r.Ended != NotEnded {
		m.Rule, m.To, m.Reason = RuleLapsedEnded, dispatch.Dead, dispatch.ReasonSuperseded
		return m
	}
	expired := !r.Deadline.IsZero() && !r.Deadline.After(r.Now)
	switch action := r.OnUnknown.Action; {
	case action == dispatch.UnknownDead:
		m.Rule, m.To, m.Reason = RuleLapsedDead, dispatch.Dead, dispatch.ReasonUnresolved
		return m
	case expired || r.Spent >= r.Budget || r.Pinned:
	case action == dispatch.UnknownResend:
		return s.again(r, "")
	case action == dispatch.UnknownFailover:
		if to := s.other(r.Ledger, leg.Provider); to != "" {
			return s.again(r, to)
		}
	}
	m.Rule, m.To, m.Reason = RuleLapsedHold, dispatch.Held, dispatch.ReasonUnresolved
	return m
}

// other is a provider besides those that may have accepted the message: a
// failover never comes back.
func (s Setup) other(l Ledger, not string) string {
	for _, c := range s.Candidates {
		tried := slices.ContainsFunc(l, func(leg Leg) bool { return leg.Provider == c && leg.Mark != Closed })
		if c != not && !tried && !l.barred(c) {
			return c
		}
	}
	return ""
}

// again sends a message once more that may have been accepted: the caller's
// own choice. What is open is waived, not forgotten.
func (s Setup) again(r Row, to string) Move {
	l := r.Ledger.Remark(Open, Waived)
	m := s.next(RuleLapsedAgain, r, l, r.Spent, r.Now, s.Backoff.Wait(r.Spent, 0, s.Random))
	if to != "" {
		m.Lane.Provider, m.NotBefore = to, l.until(to)
	}
	return m
}

// AfterLookup is the move after a look-up that was asked no earlier than
// asked, by the database's clock, from the state unknown.
func (s Setup) AfterLookup(r Row, f dispatch.Found, asked, now time.Time) Move {
	leg, ok := r.Ledger.bound(r.Provider)
	c, known := s.Contract(leg.Provider)
	switch {
	case f.Presence == dispatch.Present:
		return Move{Rule: RuleFound, To: dispatch.Sent, Spent: r.Spent, Lane: r.Lane}
	case f.Presence != dispatch.Absent, !ok, !known, c.Account != leg.Account, asked.Before(leg.Reach.Add(c.Search.Lag)):
		return s.doubt(RuleLater, r, r.Ledger, r.Spent, now, 0)
	}
	leg.Mark = Closed
	l := r.Ledger.Put(leg)
	if l.Count(Open) > 0 {
		return s.doubt(RuleAbsent, r, l, r.Spent, now, 0)
	}
	return s.next(RuleAbsent, r, l, r.Spent, now, s.Backoff.Wait(r.Spent, 0, s.Random))
}
