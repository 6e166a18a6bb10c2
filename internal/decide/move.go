package decide

import (
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// Rule is a row of the transition table.
type Rule int

// The rules, by the number of their row.
const (
	RuleEnqueue         Rule = 1
	RuleClaim           Rule = 2
	RuleEnd             Rule = 3
	RuleCancelPending   Rule = 4
	RuleCancelWaived    Rule = 5
	RuleOK              Rule = 6
	RuleUnknown         Rule = 7
	RuleRefusedOpen     Rule = 8
	RuleMessageRefused  Rule = 9
	RuleRefused         Rule = 10
	RuleSenderRefused   Rule = 11
	RuleUnstarted       Rule = 12
	RuleClaimLost       Rule = 13
	RuleDropped         Rule = 14
	RuleChanged         Rule = 15
	RuleSwept           Rule = 16
	RuleCancelSending   Rule = 17
	RuleTruthSending    Rule = 18
	RuleResend          Rule = 19
	RuleLookup          Rule = 20
	RuleFound           Rule = 21
	RuleAbsent          Rule = 22
	RuleLater           Rule = 23
	RuleLookupLost      Rule = 24
	RuleCancelUnknown   Rule = 25
	RuleLapsedEnded     Rule = 26
	RuleLapsedHold      Rule = 27
	RuleLapsedAgain     Rule = 28
	RuleLapsedDead      Rule = 29
	RuleResolveAccepted Rule = 30
	RuleResolveRefused  Rule = 31
	RuleResolveGiveUp   Rule = 32
	RuleRetry           Rule = 33
	RuleSendAnyway      Rule = 34
	RuleCancelHeld      Rule = 35
	RuleRequeue         Rule = 36
	RuleCancelDead      Rule = 37
	RuleTruth           Rule = 38
	RuleDouble          Rule = 39
	RuleStale           Rule = 40
)

// Move is what is to become of a row. It is applied only while the row still
// has the fence and the state that the decision saw.
type Move struct {
	Rule Rule
	// To is the state to go to. Pending stands for end(): the statement that
	// applies the move decides between pending and the ends, from the row's
	// own ended, deadline and budget. Dead with ReasonRejected becomes
	// Cancelled where the row was ended meanwhile.
	To     dispatch.State
	Reason dispatch.Reason
	Spent  int
	// Wait is the time until the next step, and NotBefore its earliest moment:
	// due = greatest(clock + Wait, NotBefore), but never after the deadline of
	// a pending row or ResolveUntil of an unknown one.
	Wait      time.Duration
	NotBefore time.Time
	Lane      Lane
	// Provider, Account, Encoding and First are of the leg that an unknown row
	// is bound to.
	Provider     string
	Account      string
	Encoding     int16
	First        time.Time
	ResolveUntil time.Time
	Ledger       Ledger
	// Lease, where set, claims an unknown row for a look-up: fence + 1.
	Lease time.Duration
	// Lookups is the count of look-ups so far.
	Lookups int
	// End, where set, ends the row: nothing of it is sent any more.
	End Ended
}

// Setup is what a worker knows besides the row.
type Setup struct {
	// Contract finds a bound provider's contract; ok is false where this
	// worker has no such provider.
	Contract func(provider string) (c dispatch.Contract, ok bool)
	// Candidates are the providers that the message may still go to, in the
	// route's order: bound here, and with a sender in the frozen map.
	Candidates []string
	// Any is the provider that the lane of any claims for.
	Any string
	// Backoff spaces the attempts.
	Backoff dispatch.Backoff
	// Lease returns the lease of a provider's sends.
	Lease func(c dispatch.Contract) time.Duration
	// Random returns a number in [0, n).
	Random func(n int64) int64
	// Passing tells that the provider takes other messages: an account that is
	// refused for one message only is that message's sender.
	Passing bool
}

// margin is kept before the end of a dedupe window: a send that is claimed
// now may leave at any time until its lease ends.
func (s Setup) margin(c dispatch.Contract) time.Duration { return 2 * s.Lease(c) }

// resendEnd is the end of the time in which the leg may be sent again under
// its key by this worker; zero where it may not.
func (s Setup) resendEnd(r Row, leg Leg, spent int) time.Time {
	c, ok := s.Contract(leg.Provider)
	if !ok || s.foreign(leg) {
		return time.Time{}
	}
	return s.windowEnd(r, leg, c, spent)
}

// windowEnd is resendEnd for a worker that has the leg's account and encoding.
func (s Setup) windowEnd(r Row, leg Leg, c dispatch.Contract, spent int) time.Time {
	if r.Ended != NotEnded || spent >= r.Budget || c.Dedupe.Window <= 0 || r.Ledger.Count(Open) > 1 {
		return time.Time{}
	}
	return sooner(leg.First.Add(c.Dedupe.Window-s.margin(c)), r.Deadline)
}

// foreign reports whether this worker has the leg's provider with another
// account or encoding: while releases roll, another worker may still be able
// to do what this one can't.
func (s Setup) foreign(leg Leg) bool {
	c, ok := s.Contract(leg.Provider)
	return ok && (c.Account != leg.Account || c.Encoding != leg.Encoding)
}

// Resendable reports whether an open row may be sent again at now, under its
// key, at the provider it is bound to.
func (s Setup) Resendable(r Row, now time.Time) bool {
	leg, ok := r.Ledger.bound(r.Provider)
	return ok && now.Before(s.resendEnd(r, leg, r.Spent))
}

// Look-ups are asked early, since finding is proof at any time, and again
// with growing pauses, so that at least two fall behind the vendor's lag.
const (
	lookupFirst = 5 * time.Second
	lookupMost  = 5 * time.Minute
	lookupRoom  = 12 * time.Minute
)

func lookupPause(done int) time.Duration {
	return dispatch.Backoff{Base: lookupFirst, Cap: lookupMost}.Bound(done + 1)
}

// searchable reports whether the leg can be asked about: another account
// behind the same name proves nothing.
func (s Setup) searchable(leg Leg) bool {
	c, ok := s.Contract(leg.Provider)
	return ok && c.Search.Available && c.Account == leg.Account
}

// resolveUntil is the end of the time in which it could still be found out
// what became of the row: every means that the contracts give, and room to use
// it. Zero where a contract isn't known here.
func (s Setup) resolveUntil(r Row, spent int) time.Time {
	var end, since time.Time
	for _, leg := range r.Ledger {
		if leg.Mark != Open {
			continue
		}
		since = sooner(since, leg.Since)
		c, ok := s.Contract(leg.Provider)
		if !ok {
			return time.Time{}
		}
		t := leg.Reach
		if c.Search.Available {
			t = later(t, later(leg.Reach.Add(c.Search.Lag), r.Ledger.until(leg.Provider)).Add(lookupRoom))
		}
		if c.Echo.Reference {
			t = later(t, leg.Reach.Add(c.Echo.Grace))
		}
		again := s.windowEnd(r, leg, c, spent)
		if s.foreign(leg) { // and perhaps foreign to all by now: a release has rolled by then
			again = sooner(again, leg.Reach.Add(lookupRoom))
		}
		end = later(later(end, t), again)
	}
	if r.OnUnknown.After > 0 {
		end = sooner(end, since.Add(r.OnUnknown.After))
	}
	return end
}

// unbound is how long a row waits that no worker here knows the provider of.
const unbound = time.Minute

// doubt makes the move to, or within, unknown: it binds the row to an open
// leg and finds the next step that can resolve it.
func (s Setup) doubt(rule Rule, r Row, l Ledger, spent int, now time.Time, wait time.Duration) Move {
	leg, _ := l.bound(r.Provider)
	r.Ledger = l
	lane := r.Lane
	lane.Provider = leg.Provider
	m := Move{
		Rule: rule, To: dispatch.InDoubt, Spent: spent, Lane: lane, Ledger: l, Lookups: r.Lookups,
		Provider: leg.Provider, Account: leg.Account, Encoding: leg.Encoding, First: leg.First,
		ResolveUntil: s.resolveUntil(r, spent),
	}
	if rule == RuleRefusedOpen && !m.ResolveUntil.IsZero() {
		// What was refused just now isn't sent once more before its wait is
		// over, whatever OnUnknown says: an account's refusals spend nothing,
		// so that nothing else would end such a loop.
		m.ResolveUntil = later(m.ResolveUntil, now.Add(wait))
	}
	// A floor holds its provider, for look-ups too. It may end behind the time
	// in which the row can be sent again: the row must not be due before, or a
	// claim would take it.
	m.NotBefore = l.until(leg.Provider)
	switch again := later(now.Add(wait), m.NotBefore); {
	case m.ResolveUntil.IsZero():
		m.Wait = unbound
	case again.Before(s.resendEnd(r, leg, spent)):
		m.Wait = wait
	case s.searchable(leg):
		m.Wait = lookupPause(r.Lookups)
	case s.foreign(leg):
		m.Wait = unbound
	default:
		m.NotBefore = m.ResolveUntil
	}
	return m
}

// next makes the move to pending, to the provider that can take the message
// first: a floor holds its provider, not the row.
func (s Setup) next(rule Rule, r Row, l Ledger, spent int, now time.Time, wait time.Duration) Move {
	m := Move{Rule: rule, To: dispatch.Pending, Spent: spent, Lane: r.Lane, Ledger: l, Wait: wait}
	if r.Pinned {
		m.NotBefore = l.until(r.Lane.Provider)
		return m
	}
	to, at := s.choose(r, l, now.Add(wait))
	m.NotBefore = at
	m.Lane.Provider = to
	if to == s.Any && !r.bars(l, to, later(now.Add(wait), at)) {
		m.Lane.Provider = ""
	}
	return m
}

// choose picks the provider that can take a message first, beginning behind
// the one that just failed, in the route's order. Failover follows
// https://agentwranglers.se/playbook/notifications/text-messages/sms-provider-failover
// (Agent Wranglers notifications playbook, CC BY 4.0).
func (s Setup) choose(r Row, l Ledger, from time.Time) (provider string, at time.Time) {
	start := 0
	for i, c := range s.Candidates {
		if c == r.Provider {
			start = i + 1
		}
	}
	for i := range 2 * len(s.Candidates) {
		c := s.Candidates[(start+i)%len(s.Candidates)]
		if (l.barred(c) || r.left(l, c)) && i < len(s.Candidates) || i >= len(s.Candidates) && provider != "" {
			continue // a barred one, or one that was left, only where all are
		}
		t := later(from, l.until(c))
		if provider == "" || t.Before(at) {
			provider, at = c, t
		}
	}
	if provider == "" { // it goes to whatever another worker has: every floor counts
		for _, leg := range l {
			at = later(at, leg.Until)
		}
		return "", at
	}
	return provider, l.until(provider)
}
