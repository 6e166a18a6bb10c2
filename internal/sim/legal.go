package sim

import (
	"math"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// states is a set of states.
type states uint8

const (
	fresh     states = 1 << iota // before the enqueue
	pending   states = 1 << dispatch.Pending
	sending   states = 1 << dispatch.Sending
	unknown   states = 1 << dispatch.InDoubt
	held      states = 1 << dispatch.Held
	dead      states = 1 << dispatch.Dead
	sent      states = 1 << dispatch.Sent
	cancelled states = 1 << dispatch.Cancelled

	ends = pending | dead | cancelled // what end() may give
)

func stateOf(s dispatch.State) states { return 1 << s }

// legal is the transition table, copied from the design by hand and not from
// package decide: from which states each row may lead to which.
var legal = [41]struct{ from, to states }{
	1:  {fresh, pending},
	2:  {pending, sending},
	3:  {pending, dead | cancelled},
	4:  {pending, cancelled},
	5:  {pending, unknown},
	6:  {sending, sent},
	7:  {sending, unknown | held}, // held: the vendor says that the key was used for other bytes
	8:  {sending, unknown},
	9:  {sending, dead | cancelled},
	10: {sending, ends},
	11: {sending, dead | cancelled},
	12: {sending, ends | unknown},
	13: {sending, pending | unknown},
	14: {sending, dead | unknown},
	15: {sending, held},
	16: {sending, unknown},
	17: {sending, sending},
	18: {sending, sent},
	19: {unknown, sending},
	20: {unknown, unknown},
	21: {unknown, sent},
	22: {unknown, ends | unknown},
	23: {unknown, unknown},
	25: {unknown, unknown},
	26: {unknown, dead},
	27: {unknown, held},
	28: {unknown, ends},
	29: {unknown, dead},
	30: {unknown | held, sent},
	31: {unknown | held, ends},
	32: {unknown | held, dead},
	33: {held | dead, unknown},
	34: {held | dead, pending},
	35: {held, dead},
	36: {dead, pending},
	37: {dead, dead | cancelled},
	38: {pending | unknown | held | dead | cancelled | sent, sent}, // sent: the same acceptance, told again
	39: {sent, sent},
}

// needsIdle are the moves that no live lease allows.
func needsIdle(r decide.Rule) bool {
	switch r { //nolint:exhaustive // the others don't
	case decide.RuleClaim, decide.RuleEnd, decide.RuleSwept, decide.RuleResend, decide.RuleLookup,
		decide.RuleLapsedEnded, decide.RuleLapsedHold, decide.RuleLapsedAgain, decide.RuleLapsedDead:
		return true
	}
	return false
}

// moved checks one move against the table, and counts it.
func (w *world) moved(rule decide.Rule, before, after *row) {
	if rule <= 0 || int(rule) >= len(legal) {
		w.ref.fault("rule %d is no row of the table", rule)
		return
	}
	w.cover.Rules[rule]++
	if before.in == inQueue && before.State == dispatch.InDoubt && !before.Lease.IsZero() && before.idle(w.clock()) && (needsIdle(rule) || rule == decide.RuleLater) {
		w.cover.Rules[decide.RuleLookupLost]++
	}
	w.tellMove(rule, before, after)
	f := &w.ref
	l := legal[rule]
	from := fresh
	if before.m != nil {
		from = stateOf(before.State)
	}
	if l.from&from == 0 || l.to&stateOf(after.State) == 0 {
		f.fault("%s: rule %d leads from %s to %s", nameOf(after.Key), rule, before.State, after.State)
		if !f.blind {
			return
		}
	}
	if text := after.checks(); text != "" {
		f.fail("%s: rule %d violates the check %s", nameOf(after.Key), rule, text)
	}
	if before.m == nil {
		return
	}
	f.guards(rule, before, after)
	f.books[after.m.n].doubted(before, after)
	if after.in != nowhere || after.State == dispatch.Cancelled {
		f.ledger(after)
	}
}

// guards are the conditions of the table's rows, and what holds for all.
func (f *referee) guards(rule decide.Rule, before, after *row) {
	w, b := f.w, &f.books[after.m.n]
	now := w.clock()
	name := nameOf(after.Key)
	need := func(ok bool, what string) {
		if !ok {
			f.fault("%s: rule %d, %s → %s: %s", name, rule, before.State, after.State, what)
		}
	}
	open, waived := before.Ledger.Count(decide.Open), before.Ledger.Count(decide.Waived)
	openNow, waivedNow := after.Ledger.Count(decide.Open), after.Ledger.Count(decide.Waived)
	ended := before.Ended != decide.NotEnded
	expired := !after.Deadline.IsZero() && !after.Deadline.After(now)

	need(after.Fence >= before.Fence, "the fence went down")
	need(!ended || after.Ended == before.Ended || after.State == dispatch.Sent, "the end was forgotten")
	need(!needsIdle(rule) || before.idle(now), "a lease holds")
	switch rule {
	case decide.RuleClaim, decide.RuleResend:
		b.spent++
		need(!ended, "it was cancelled or superseded")
		need(!expired, "its deadline is over")
		need(before.Spent < before.Budget, "its budget is spent")
		need(after.Fence == before.Fence+1, "the fence must go up by one")
		need(before.Lane.Provider == "" || before.Lane.Provider == after.Provider || w.gates && rule == decide.RuleClaim,
			"the lane is another provider's")
		if rule == decide.RuleResend {
			need(open == 1, "not exactly one is open")
			need(before.Provider == after.Provider && before.Account == after.Account && before.Encoding == after.Encoding,
				"another provider, account or encoding")
			need(before.ResolveUntil.IsZero() || before.ResolveUntil.After(now), "resolve_until is over")
		}
	case decide.RuleEnd:
		need(ended || expired || before.Spent >= before.Budget, "nothing ends it")
	case decide.RuleCancelPending:
		need(open+waived == 0, "something may have been accepted")
	case decide.RuleCancelWaived:
		b.unwaive()
		need(waived > 0 && waivedNow == 0 && openNow == waived, "V must become O")
	case decide.RuleUnknown:
		leg, _ := after.Ledger.Leg(before.Provider, before.Account)
		need(leg.Mark == decide.Open, "the send isn't open")
		need(after.Lane.Provider == after.Provider || after.in != inQueue, "it isn't bound")
	case decide.RuleRefusedOpen:
		need(open+waived > 0 && waivedNow == 0, "V must become O")
	case decide.RuleMessageRefused, decide.RuleSenderRefused, decide.RuleRefused:
		need(openNow+waivedNow == 0, "something may have been accepted")
		need((after.State == dispatch.Cancelled) == ended, "it was cancelled, or was not")
	case decide.RuleUnstarted, decide.RuleClaimLost:
		b.spent--
		need(openNow == open && waivedNow == waived, "the ledger changed")
		need((after.State == dispatch.InDoubt) == (open > 0), "open rows go to unknown, others don't")
		need(after.Fence == before.Fence, "the fence changed")
	case decide.RuleDropped:
		b.spent--
		need(openNow == open && (after.State == dispatch.InDoubt) == (open > 0), "what is open is reconciled first")
		need(open == 0 || after.Ended != decide.NotEnded, "it may be sent again")
	case decide.RuleChanged:
		b.spent--
		need(openNow > 0, "nothing is open")
	case decide.RuleSwept:
		leg, _ := after.Ledger.Leg(before.Provider, before.Account)
		need(leg.Mark == decide.Open && !leg.Reach.Before(before.Lease), "the send isn't open until its lease's end")
	case decide.RuleCancelSending:
		need(after.Fence == before.Fence && after.Spent == before.Spent && after.Ended != decide.NotEnded, "more than the end changed")
	case decide.RuleLookup:
		need(after.Fence == before.Fence+1, "the fence must go up by one")
		need(openNow == open && after.Spent == before.Spent, "more changed than the lease")
	case decide.RuleLater:
		need(openNow == open && waivedNow == waived && after.Fence == before.Fence, "more changed than the time")
	case decide.RuleAbsent:
		need(openNow == open-1 && waivedNow == waived, "one open send must be proven")
		need(after.State == dispatch.InDoubt || openNow == 0, "something is still open")
		need(after.State != dispatch.InDoubt || openNow > 0, "nothing is open")
	case decide.RuleCancelUnknown:
		need(after.Fence > before.Fence && after.Ended != decide.NotEnded && openNow == open, "cancel of unknown")
	case decide.RuleLapsedEnded, decide.RuleLapsedHold, decide.RuleLapsedDead, decide.RuleLapsedAgain:
		f.lapsed(rule, before, after, need)
	case decide.RuleResolveRefused:
		b.prove(nil, "")
		need(openNow+waivedNow == 0 && after.Fence > before.Fence, "O and V must be empty, the fence higher")
	case decide.RuleResolveGiveUp:
		need(openNow == open, "O must stay")
	case decide.RuleRetry:
		need(!ended && open > 0 && after.Fence > before.Fence, "retry of an open row")
	case decide.RuleSendAnyway:
		b.waive(false)
		b.spent = 0
		need(!ended && openNow == 0 && waivedNow == open+waived && after.Fence > before.Fence && !expired, "O must become V")
	case decide.RuleCancelHeld:
		need(after.Ended != decide.NotEnded && after.Reason == dispatch.ReasonSuperseded, "it may have been accepted")
	case decide.RuleRequeue:
		b.spent = 0
		need(!ended && open+waived == 0 && !expired && after.Fence >= before.Fence, "requeue")
	case decide.RuleCancelDead:
		need((after.State == dispatch.Cancelled) == (open+waived == 0), "what may have been accepted isn't cancelled")
	case decide.RuleEnqueue, decide.RuleOK, decide.RuleTruthSending, decide.RuleFound, decide.RuleLookupLost,
		decide.RuleResolveAccepted, decide.RuleTruth, decide.RuleDouble, decide.RuleStale:
	}
	if l := legal[rule].to; l&ends == ends && after.State != dispatch.InDoubt {
		state, reason := endOf(after.Ended, after.Deadline, after.Spent, after.Budget, waivedNow, now)
		need(after.State == state && after.Reason == reason, "end() gives "+state.String()+" "+reason.String())
	}
	if after.in != nowhere {
		need(after.Spent == b.spent, "the budget is counted wrong")
	}
}

// doubted keeps the earliest resolve_until since the row was last taken: two
// workers with different accounts may see different means, and either may be
// right.
func (b *book) doubted(before, after *row) {
	if after.Fence != before.Fence || before.State != dispatch.InDoubt {
		b.doubt = never
	}
	if after.State == dispatch.InDoubt && !after.ResolveUntil.IsZero() {
		b.doubt = min(b.doubt, since(after.ResolveUntil))
	}
}

const never = time.Duration(math.MaxInt64)

// lapsed are rows 26 to 29.
func (f *referee) lapsed(rule decide.Rule, before, after *row, need func(bool, string)) {
	ended := before.Ended != decide.NotEnded
	action := before.OnUnknown.Action
	need(f.books[after.m.n].doubt <= f.w.now, "resolve_until is not over")
	need(ended == (rule == decide.RuleLapsedEnded), "ended rows end as superseded, others don't")
	need(ended || (action == dispatch.UnknownDead) == (rule == decide.RuleLapsedDead), "the policy says otherwise")
	if rule == decide.RuleLapsedAgain {
		f.books[after.m.n].waive(action == dispatch.UnknownFailover)
		need(action == dispatch.UnknownResend || action == dispatch.UnknownFailover, "nobody chose it")
		need(after.Ledger.Count(decide.Open) == 0, "O must become V")
		need(action != dispatch.UnknownFailover || after.State != dispatch.Pending || after.Lane.Provider != before.Provider, "it goes to the same provider")
	}
}
