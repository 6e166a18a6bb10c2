// Package decide answers "what next?" for a message, as pure functions of what
// is known: no clock, no randomness of its own, no database. Every move that
// they return is a row of the transition table in docs (README, "States"), and
// carries its number. A move that the table doesn't have is a double send
// until it is proven otherwise.
//
// A message knows its opens: sends that may have been accepted. O are those
// that count; V are those that an explicit choice waived. Pending means that O
// is empty.
package decide

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// Lane is what claims are made by: each has one route, one priority and one
// provider, or any of the route's. What has spent a send stands in a lane of its
// own, so that first attempts need not wait behind the retries of an outage.
type Lane struct {
	Route    string
	Priority dispatch.Priority
	Provider string // "" is any
	Retry    bool
}

func (l Lane) String() string {
	s := l.Route + "/" + strconv.Itoa(int(l.Priority)) + "/" + l.Provider
	if l.Retry {
		return s + retrySuffix
	}
	return s
}

const retrySuffix = "/retry"

// Spent returns the lane of a message that has spent n sends.
func (l Lane) Spent(n int) Lane {
	l.Retry = n > 0
	return l
}

// ParseLane reads what String wrote; ok is false for anything else.
func ParseLane(s string) (l Lane, ok bool) {
	s, retry := strings.CutSuffix(s, retrySuffix)
	parts := strings.Split(s, "/")
	if len(parts) != 3 || parts[0] == "" {
		return Lane{}, false
	}
	n, err := strconv.ParseInt(parts[1], 10, 8)
	if err != nil || n < int64(dispatch.High) || n > int64(dispatch.Low) {
		return Lane{}, false
	}
	return Lane{Route: parts[0], Priority: dispatch.Priority(n), Provider: parts[2], Retry: retry}, true
}

// Mark says how a leg counts. The numbers are stored.
type Mark int8

// The marks.
const (
	Closed Mark = 0 // every send of it is proven unaccepted
	Open   Mark = 1 // in O
	Waived Mark = 2 // in V
)

// Leg is what is known of a message at one account of one provider.
type Leg struct {
	Provider string    `json:"p"`
	Account  string    `json:"a"`
	Encoding int16     `json:"e,omitempty"`
	Mark     Mark      `json:"m,omitempty"`
	Barred   bool      `json:"b,omitempty"` // its sender was refused here
	Faults   int       `json:"n,omitempty"` // how often the account was refused for it
	First    time.Time `json:"f,omitzero"`  // the first send that may have left; never reset
	Since    time.Time `json:"s,omitzero"`  // when it became open
	Reach    time.Time `json:"r,omitzero"`  // the latest moment an open send could reach it
	Until    time.Time `json:"u,omitzero"`  // the floor that it asked for
	Request  []byte    `json:"q,omitempty"` // digest of the open send's request
}

// Ledger is the legs of a message. A ledger is a value: its methods return
// changed copies.
type Ledger []Leg

// Count returns how many legs have the mark.
func (l Ledger) Count(m Mark) int {
	n := 0
	for _, leg := range l {
		if leg.Mark == m {
			n++
		}
	}
	return n
}

// Leg returns the leg at an account.
func (l Ledger) Leg(provider, account string) (Leg, bool) {
	for _, leg := range l {
		if leg.Provider == provider && leg.Account == account {
			return leg, true
		}
	}
	return Leg{Provider: provider, Account: account}, false
}

// Put returns the ledger with leg in the place of the one at its account.
func (l Ledger) Put(leg Leg) Ledger {
	out := slices.Clone(l)
	for i := range out {
		if out[i].Provider == leg.Provider && out[i].Account == leg.Account {
			out[i] = leg
			return out
		}
	}
	return append(out, leg)
}

// Remark returns the ledger with every mark from changed into to.
func (l Ledger) Remark(from, to Mark) Ledger {
	out := slices.Clone(l)
	for i := range out {
		if out[i].Mark == from {
			out[i].Mark = to
		}
	}
	return out
}

// unwaived returns the ledger with what was waived open again. Its clock for
// OnUnknown.After starts anew: the choice that waived it was made already.
func (l Ledger) unwaived(now time.Time) Ledger {
	out := slices.Clone(l)
	for i := range out {
		if out[i].Mark == Waived {
			out[i].Mark, out[i].Since = Open, now
		}
	}
	return out
}

// opened returns the leg as open since t, or since it was.
func (leg Leg) opened(t time.Time) Leg {
	if leg.Mark != Open {
		leg.Mark, leg.Since = Open, t
	}
	if leg.First.IsZero() {
		leg.First = t
	}
	return leg
}

// bound returns the open leg to resolve next: the one at prefer if it is open.
func (l Ledger) bound(prefer string) (Leg, bool) {
	var found Leg
	ok := false
	for _, leg := range l {
		if leg.Mark == Open && (!ok || leg.Provider == prefer && found.Provider != prefer) {
			found, ok = leg, true
		}
	}
	return found, ok
}

// barred reports whether the provider refused the message's sender.
func (l Ledger) barred(provider string) bool {
	return slices.ContainsFunc(l, func(leg Leg) bool { return leg.Provider == provider && leg.Barred })
}

// until is the floor that the provider asked for.
func (l Ledger) until(provider string) time.Time {
	var t time.Time
	for _, leg := range l {
		if leg.Provider == provider {
			t = later(t, leg.Until)
		}
	}
	return t
}

// Ended tells that no send may be claimed any more. The numbers are stored.
type Ended int8

// The reasons to end.
const (
	NotEnded        Ended = 0
	EndedCancelled  Ended = 1
	EndedSuperseded Ended = 2
)

// Row is a message as decisions see it. Its times are the database's.
type Row struct {
	Key     dispatch.Key
	Lane    Lane
	Pinned  bool // the lane's provider is the intent's own choice
	State   dispatch.State
	Reason  dispatch.Reason // of a parked row
	Fence   int64
	Spent   int
	Budget  int
	Lookups int
	Ended   Ended

	Now          time.Time // the database's clock when the row was read
	Due          time.Time
	Claimed      time.Time
	Lease        time.Time // zero is none
	Deadline     time.Time // zero is never
	ResolveUntil time.Time // zero is not known yet

	// Of the claim while sending, of the open leg while unknown.
	Provider string
	Account  string
	Encoding int16

	Ledger    Ledger
	OnUnknown dispatch.OnUnknown
}

// left reports whether a failover on unknown has left the provider: what it
// may have accepted was waived for another one, not for a second message here.
func (r Row) left(l Ledger, provider string) bool {
	return r.OnUnknown.Action == dispatch.UnknownFailover && slices.ContainsFunc(l, func(leg Leg) bool {
		return leg.Mark == Waived && leg.Provider == provider
	})
}

// bars reports whether a provider other than to can't take the message at t.
// The lane of any is claimed by each worker for the first provider that it has
// bound, which need not be the one that was chosen here.
func (r Row) bars(l Ledger, to string, t time.Time) bool {
	return slices.ContainsFunc(l, func(leg Leg) bool {
		return leg.Provider != to && (leg.Barred || leg.Until.After(t) || r.left(l, leg.Provider))
	})
}

// End is what becomes of a message with nothing open that can't be claimed:
// end() of the table. SQL computes the same in its statements, from what the
// row holds at that moment.
func End(ended Ended, deadline time.Time, spent, budget, waived int, now time.Time) (dispatch.State, dispatch.Reason) {
	switch {
	case ended != NotEnded && waived == 0:
		return dispatch.Cancelled, dispatch.NoReason
	case ended != NotEnded:
		return dispatch.Dead, dispatch.ReasonSuperseded
	case !deadline.IsZero() && !deadline.After(now), spent >= budget:
		switch {
		case waived > 0:
			return dispatch.Dead, dispatch.ReasonUnresolved
		case !deadline.IsZero() && !deadline.After(now):
			return dispatch.Dead, dispatch.ReasonDeadline
		}
		return dispatch.Dead, dispatch.ReasonBudget
	}
	return dispatch.Pending, dispatch.NoReason
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
