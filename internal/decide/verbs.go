package decide

import (
	"errors"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// Why a verb is refused.
var (
	ErrTooLate             = errors.New("is sent already")
	ErrMayHaveBeenAccepted = errors.New("may have been accepted")
	ErrNotParked           = errors.New("is in the wrong state for this")
	ErrExpired             = errors.New("has expired")
	ErrEnded               = errors.New("was cancelled or superseded")
)

// Verb is a locked move that a person or the application asks for: it reads
// the row with its locks held and returns what the row becomes. A verb that
// puts a row back into motion raises its fence, so that no answer from before
// can be applied to it. Times that need a contract are left zero: the next
// worker that knows it fills them in.
type Verb func(r Row) (Row, Rule, error)

// Cancel ends a message: nothing of it is sent any more. Only the states
// Cancelled and Dead with ReasonSuperseded that it leads to say what became of
// what was under way. A message that was sent is too late to cancel; one that
// was cancelled stays as it is, with rule 0.
func Cancel(why Ended) Verb {
	return func(r Row) (Row, Rule, error) {
		if r.Ended == NotEnded {
			r.Ended = why
		}
		open := r.Ledger.Count(Open) + r.Ledger.Count(Waived)
		switch r.State {
		case dispatch.Pending:
			if open == 0 {
				r.State = dispatch.Cancelled
				return r, RuleCancelPending, nil
			}
			r.Ledger = r.Ledger.unwaived(r.Now)
			return r.doubted(), RuleCancelWaived, nil
		case dispatch.Sending:
			return r, RuleCancelSending, nil
		case dispatch.InDoubt:
			return r.doubted(), RuleCancelUnknown, nil
		case dispatch.Held:
			r.State, r.Reason = dispatch.Dead, dispatch.ReasonSuperseded
			return r, RuleCancelHeld, nil
		case dispatch.Dead:
			if open == 0 {
				r.State, r.Reason = dispatch.Cancelled, dispatch.NoReason
				return r, RuleCancelDead, nil
			}
			r.Reason = dispatch.ReasonSuperseded
			return r, RuleCancelDead, nil
		case dispatch.Cancelled:
			return r, 0, nil
		case dispatch.Sent:
		}
		return r, 0, ErrTooLate
	}
}

// doubted puts the row into unknown, for the next worker that knows the
// contract to say what can resolve it.
func (r Row) doubted() Row {
	leg, _ := r.Ledger.bound(r.Provider)
	r.State, r.Reason = dispatch.InDoubt, dispatch.NoReason
	r.Provider, r.Account, r.Encoding = leg.Provider, leg.Account, leg.Encoding
	r.Lane.Provider = leg.Provider
	r.Lane = r.Lane.Spent(r.Spent)
	r.Lease, r.ResolveUntil, r.Due, r.Lookups = time.Time{}, time.Time{}, r.Now, 0
	if r.Ended == NotEnded { // a claim may send it again, but not before its floor
		r.Due = later(r.Now, r.Ledger.until(leg.Provider))
	}
	r.Fence++
	return r
}

// again puts the row into pending, or where end() says.
func (r Row) again() Row {
	state, reason := End(r.Ended, r.Deadline, r.Spent, r.Budget, r.Ledger.Count(Waived), r.Now)
	r.State, r.Reason = state, reason
	r.Lease, r.ResolveUntil, r.Due, r.Lookups = time.Time{}, time.Time{}, r.Now, 0
	if !r.Pinned {
		r.Lane.Provider = ""
	}
	r.Lane = r.Lane.Spent(r.Spent)
	for _, leg := range r.Ledger { // floors stand, of any provider: the row may go to any
		r.Due = later(r.Due, leg.Until)
	}
	r.Due = sooner(r.Due, r.Deadline)
	r.Fence++
	return r
}

// Accepted records that a person knows the message to be accepted.
func Accepted(r Row) (Row, Rule, error) {
	if r.State != dispatch.InDoubt && r.State != dispatch.Held {
		return r, 0, ErrNotParked
	}
	r.State, r.Reason = dispatch.Sent, dispatch.NoReason
	return r, RuleResolveAccepted, nil
}

// NotAccepted records that a person knows that no send was accepted: the
// message may be sent again. It is refused while a send is under way.
func NotAccepted(r Row) (Row, Rule, error) {
	if r.State != dispatch.InDoubt && r.State != dispatch.Held {
		return r, 0, ErrNotParked
	}
	r.Ledger = r.Ledger.Remark(Open, Closed).Remark(Waived, Closed)
	return r.again(), RuleResolveRefused, nil
}

// GiveUp ends a message whose fate nobody will find out.
func GiveUp(r Row) (Row, Rule, error) {
	if r.State != dispatch.InDoubt && r.State != dispatch.Held {
		return r, 0, ErrNotParked
	}
	r.State, r.Reason = dispatch.Dead, dispatch.ReasonUnresolved
	return r, RuleResolveGiveUp, nil
}

// Retry puts a parked message back under its key, by whatever means is left:
// one that may have been accepted into unknown, one that certainly was not
// into pending with a fresh budget.
func Retry(scrubbed bool) Verb {
	return func(r Row) (Row, Rule, error) {
		if r.State != dispatch.Held && r.State != dispatch.Dead {
			return r, 0, ErrNotParked
		}
		if r.Ended != NotEnded {
			return r, 0, ErrEnded
		}
		if r.Ledger.Count(Open) > 0 {
			r.Ledger = r.Ledger.since(r.Now)
			return r.doubted(), RuleRetry, nil
		}
		if r.Ledger.Count(Waived) > 0 {
			return r, 0, ErrMayHaveBeenAccepted
		}
		if scrubbed || !r.Deadline.IsZero() && !r.Deadline.After(r.Now) {
			return r, 0, ErrExpired
		}
		r.Spent = 0
		r.Ledger = r.Ledger.mended()
		return r.again(), RuleRequeue, nil
	}
}

// mended lifts what senders were refused: a person says that it was mended.
func (l Ledger) mended() Ledger {
	out := append(Ledger(nil), l...)
	for i := range out {
		out[i].Barred = false
	}
	return out
}

// since restarts the clock of OnUnknown.After.
func (l Ledger) since(t time.Time) Ledger {
	out := append(Ledger(nil), l...)
	for i := range out {
		if out[i].Mark == Open {
			out[i].Since = t
		}
	}
	return out
}

// SendAnyway sends a parked message once more though it may have been
// accepted: what is open is waived, and late truth about it still counts.
func SendAnyway(scrubbed bool) Verb {
	return func(r Row) (Row, Rule, error) {
		switch {
		case r.State != dispatch.Held && r.State != dispatch.Dead:
			return r, 0, ErrNotParked
		case r.Ended != NotEnded:
			return r, 0, ErrEnded
		case scrubbed, !r.Deadline.IsZero() && !r.Deadline.After(r.Now):
			return r, 0, ErrExpired
		}
		r.Spent = 0
		r.Ledger = r.Ledger.Remark(Open, Waived).mended()
		return r.again(), RuleSendAnyway, nil
	}
}
