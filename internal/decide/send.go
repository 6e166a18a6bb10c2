package decide

import (
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// AfterSend is the move after an attempt, from the state sending. now is not
// before the moment at which the attempt ended.
func (s Setup) AfterSend(r Row, e dispatch.Evidence, v dispatch.Verdict, now time.Time) Move {
	leg, _ := r.Ledger.Leg(r.Provider, r.Account)
	if e.Stage != dispatch.NotSent && leg.First.IsZero() {
		leg.First = r.Claimed
	}
	if v.Floor > 0 {
		leg.Until = later(leg.Until, now.Add(v.Floor))
	}
	switch v.Outcome {
	case dispatch.OK:
		return Move{Rule: RuleOK, To: dispatch.Sent, Spent: r.Spent, Lane: r.Lane}
	case dispatch.Rejected:
		return s.refused(r, leg, e, v, now)
	case dispatch.Unknown:
	}
	leg = leg.opened(r.Claimed)
	leg.Encoding, leg.Reach = r.Encoding, later(leg.Reach, now)
	if len(e.Request) > 0 {
		leg.Request = e.Request
	}
	l := r.Ledger.Put(leg)
	if v.Hold {
		return s.hold(RuleUnknown, r, l, r.Spent, now)
	}
	return s.doubt(RuleUnknown, r, l, r.Spent, now, s.Backoff.Wait(r.Spent, v.Floor, s.Random))
}

// parkAfter is how many refusals of the account one message may meet while
// others pass.
const parkAfter = 3

// accountWait spaces the tries of a message whose provider refuses the whole
// account: its budget is spared, so that only its deadline ends them.
var accountWait = dispatch.Backoff{Base: 30 * time.Second, Cap: 5 * time.Minute}

// refused is the move after a refusal. It proves something about its own send
// only, which was never in O: so it leaves O as it is, and any refusal
// un-waives V.
func (s Setup) refused(r Row, leg Leg, e dispatch.Evidence, v dispatch.Verdict, now time.Time) Move {
	if v.Scope == dispatch.Account {
		if leg.Faults++; leg.Faults >= parkAfter && s.Passing {
			v.Scope = dispatch.Sender
		}
	}
	if v.Scope == dispatch.Sender {
		leg.Barred = true
	}
	spent := r.Spent
	wait := s.Backoff.Wait(r.Spent, 0, s.Random)
	if v.Scope == dispatch.Account {
		spent--
		wait = accountWait.Wait(int(min(r.Fence, 100)), 0, s.Random)
	}
	if v.Scope == dispatch.Message && s.proves(r, leg, e, now) {
		leg.Mark = Closed
	}
	l := r.Ledger
	if leg.Mark != Closed || leg.Barred || leg.Faults > 0 || !leg.First.IsZero() || !leg.Until.IsZero() {
		l = l.Put(leg) // a leg that says nothing isn't written
	}
	if l.Count(Open)+l.Count(Waived) > 0 {
		l = l.unwaived(now)
		if e.Cause == dispatch.CauseChanged {
			return s.hold(RuleChanged, r, l, r.Spent-1, now)
		}
		return s.doubt(RuleRefusedOpen, r, l, spent, now, wait)
	}
	switch v.Scope {
	case dispatch.Message:
		return s.dead(RuleMessageRefused, r, l)
	case dispatch.Sender:
		if r.Pinned || !s.siblings(l) {
			return s.dead(RuleSenderRefused, r, l)
		}
	case dispatch.Moment, dispatch.Account:
	}
	return s.next(RuleRefused, r, l, spent, now, wait)
}

// proves reports whether a refusal of the message proves that no earlier send
// of this leg was accepted: the vendor looks for the key before it validates,
// the words are its own, and its memory still reaches back that far.
func (s Setup) proves(r Row, leg Leg, e dispatch.Evidence, now time.Time) bool {
	c, ok := s.Contract(r.Provider)
	return ok && c.RefusalProves && e.OwnBody && e.Stage == dispatch.Answered && c.Account == r.Account &&
		!leg.First.IsZero() && now.Before(leg.First.Add(c.Dedupe.Window-s.margin(c)))
}

// Blocked reports whether the provider that the row was claimed for refused its
// sender, or asked for a wait that is not over: a lane that is passed over for
// a held provider may hold such rows. Where every provider refused the sender,
// it is sent once more: only a refusal ends it.
func (s Setup) Blocked(r Row) bool {
	return r.Ledger.Count(Open) == 0 && (r.Ledger.until(r.Provider).After(r.Now) ||
		r.Ledger.barred(r.Provider) && !r.Pinned && s.siblings(r.Ledger))
}

// Free are the candidates that didn't refuse the row's sender, and that no
// failover has left.
func (s Setup) Free(r Row) []string {
	var free []string
	for _, c := range s.Candidates {
		if !r.Ledger.barred(c) && !r.left(r.Ledger, c) {
			free = append(free, c)
		}
	}
	return free
}

// Astray reports whether the row was claimed from the lane of a provider that
// is held, for one that it must never go to: it is a drill, or a failover on
// unknown has left that one. Such a claim is always handed back, so that
// nothing has left where its worker died.
func (r Row) Astray() bool {
	return r.Lane.Provider != "" && r.Lane.Provider != r.Provider && (r.Pinned || r.left(r.Ledger, r.Provider))
}

// Passable reports whether a row may go to the provider that it was claimed
// for, where that isn't its lane's: the lane's is held, and passed over.
func (s Setup) Passable(r Row) bool {
	return r.Lane.Provider == "" || r.Lane.Provider == r.Provider || !r.Astray() && !s.Blocked(r)
}

func (s Setup) siblings(l Ledger) bool {
	for _, c := range s.Candidates {
		if !l.barred(c) {
			return true
		}
	}
	return false
}

func (s Setup) dead(rule Rule, r Row, l Ledger) Move {
	return Move{Rule: rule, To: dispatch.Dead, Reason: dispatch.ReasonRejected, Spent: r.Spent, Lane: r.Lane, Ledger: l}
}

// hold parks an open row for a person at once. It is row 15 of the table and,
// for a key that the provider says was used with another payload, row 7
// followed by row 27 with a resolve_until of now: nothing automatic could
// resolve it any more, and a held row is never sent by itself.
func (s Setup) hold(rule Rule, r Row, l Ledger, spent int, now time.Time) Move {
	m := s.doubt(rule, r, l, spent, now, 0)
	m.To, m.Reason = dispatch.Held, dispatch.ReasonChanged
	return m
}

// Unstarted hands a claimed row back that was never given to a sender: the
// budget as it was, nothing open that wasn't.
func (s Setup) Unstarted(r Row, now time.Time, wait time.Duration) Move {
	if r.Ledger.Count(Open) > 0 {
		return s.doubt(RuleUnstarted, r, r.Ledger, r.Spent-1, now, wait)
	}
	m := Move{Rule: RuleUnstarted, To: dispatch.Pending, Spent: r.Spent - 1, Lane: r.Lane, Ledger: r.Ledger, Wait: wait}
	return m
}

// Dropped ends a claimed row that was never given to a sender because the
// application's Before hook says so. One that may have been accepted already
// is reconciled first, and sent no more.
func (s Setup) Dropped(r Row, now time.Time) Move {
	if r.Ledger.Count(Open) > 0 {
		r.Ended = EndedCancelled
		m := s.doubt(RuleDropped, r, r.Ledger, r.Spent-1, now, 0)
		m.End = EndedCancelled
		return m
	}
	return Move{
		Rule: RuleDropped, To: dispatch.Dead, Reason: dispatch.ReasonDropped, Spent: r.Spent - 1, Lane: r.Lane, Ledger: r.Ledger,
	}
}

// PutOff hands a claimed row back that was never given to a sender because the
// application's Before hook wants it later. Its deadline still counts.
func (s Setup) PutOff(r Row, now, until time.Time) Move {
	m := s.Unstarted(r, now, 0)
	m.NotBefore = later(m.NotBefore, until)
	return m
}

// Unusable hands a claimed row back whose provider can't take it: no sender in
// its frozen map, or no longer on the route. It goes to one that can, or waits
// a minute, visibly.
func (s Setup) Unusable(r Row, now time.Time) Move {
	if r.Ledger.Count(Open) > 0 || r.Pinned || len(s.Candidates) == 0 {
		return s.Unstarted(r, now, unbound)
	}
	return s.next(RuleUnstarted, r, r.Ledger, r.Spent-1, now, 0)
}

// Startable reports whether a claimed row may still be sent at now: the lease
// holds for the whole attempt, the deadline has not come, and an open row is
// inside its window.
func (s Setup) Startable(r Row, c dispatch.Contract, now time.Time) bool {
	if now.Add(c.AttemptTimeout() + StartMargin(c)).After(r.Lease) {
		return false
	}
	if !r.Deadline.IsZero() && !now.Before(r.Deadline) {
		return false
	}
	if r.Ledger.Count(Open) == 0 {
		return true
	}
	// The claim spent one already; it must not count against itself.
	r.Spent--
	return s.Resendable(r, now)
}

// StartMargin is the part of a lease that stays free between the end of the
// longest attempt and the end of the lease.
func StartMargin(c dispatch.Contract) time.Duration { return c.AttemptTimeout() / 4 }
