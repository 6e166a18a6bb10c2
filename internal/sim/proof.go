package sim

import (
	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// settled checks what a worker's statement did, with what its record proves.
func (w *world) settled(c *engine.Change, before, after *row) {
	f := &w.ref
	b := &f.books[after.m.n]
	if c.Record.Kind == engine.KindAttempt {
		f.attempt(b, c, before)
	}
	if c.Move.Rule == decide.RuleUnstarted || c.Move.Rule == decide.RuleDropped {
		f.handedBack(after.m.n, before.Fence)
	}
	rule := c.Move.Rule
	if rule == decide.RuleAbsent && f.absent(b, c.Fence, before, after) {
		rule = decide.RuleLater // its answer was lost, and it is settled once more: nothing changes
	}
	w.moved(rule, before, after)
}

// attempt notes what the outcome of a send proves.
func (f *referee) attempt(b *book, c *engine.Change, before *row) {
	s := b.send(c.Fence)
	if s == nil || !s.begun || s.fence != before.Fence {
		f.fault("%s: an outcome of attempt %d settles attempt %d", nameOf(c.Key), c.Fence, before.Fence)
		if s == nil {
			return
		}
	}
	v := c.Record.Verdict
	if v.Floor > 0 && v.Outcome != dispatch.OK {
		b.floor[s.vendor.n] = max(b.floor[s.vendor.n], s.ended+v.Floor-drift(s.ended-s.claimed))
	}
	switch v.Outcome {
	case dispatch.OK:
		return
	case dispatch.Unknown:
		s.reach, s.recorded = s.ended, true
		return
	case dispatch.Rejected:
	}
	s.proven = true
	b.unwaive()
	// An account's refusals spend nothing, unless they are this message's alone
	// (while gates watch the account), nor does a probe that asks whether its
	// gate may open.
	spares := v.Scope == dispatch.Account || f.w.gates && v.Scope == dispatch.Moment
	if spared := c.Move.Spent == before.Spent-1; spares && (spared || !f.w.gates) && c.Move.Rule != decide.RuleChanged {
		b.spent--
	}
	contract := s.vendor.contract
	first := s.writtenAt
	for i := range b.sends {
		if o := &b.sends[i]; o.vendor == s.vendor && o.account == s.account && o.written {
			first = min(first, o.writtenAt)
		}
	}
	if v.Scope == dispatch.Message && contract.RefusalProves && c.Record.Evidence.OwnBody && f.w.now < first+contract.Dedupe.Window {
		b.prove(s.vendor, s.account)
	}
}

// absent checks that a look-up proves what it is taken for: it was asked at
// the account of the open send, later than the send could reach it and be
// missing from the answers. again tells that the same look-up was settled
// before.
func (f *referee) absent(b *book, fence int64, before, after *row) (again bool) {
	var l *look
	for i := range f.looks {
		if f.looks[i].n == after.m.n && f.looks[i].fence == fence {
			l = &f.looks[i]
		}
	}
	if l == nil {
		f.fault("%s: nobody asked, and the message is absent", nameOf(after.Key))
		return false
	}
	if l.settled && after.State == dispatch.InDoubt {
		return true
	}
	l.settled = true
	for i := range b.sends {
		s := &b.sends[i]
		if s.vendor != l.vendor || s.account != l.account || s.proven || s.back {
			continue
		}
		if early := s.reach + l.vendor.contract.Search.Lag - l.at; early > drift(s.reach-s.claimed) {
			f.fault("%s: absent is believed %v before the lag is over", nameOf(after.Key), early)
		}
		s.proven = true
	}
	leg, _ := before.Ledger.Leg(l.vendor.name, l.account)
	if closed, _ := after.Ledger.Leg(l.vendor.name, l.account); leg.Mark != decide.Open || closed.Mark != decide.Closed {
		f.fault("%s: a look-up at %s/%s closed another account's sends", nameOf(after.Key), l.vendor.name, l.account)
	}
	return false
}

// edited checks a locked move.
func (w *world) edited(entries []engine.Entry, before, after *row) {
	if len(entries) == 0 {
		if !same(before, after) {
			w.ref.fault("%s: a locked move leaves no trace", nameOf(after.Key))
		}
		return
	}
	last := entries[len(entries)-1]
	if last.Rule == decide.RuleStale {
		w.cover.Rules[last.Rule]++
		if !same(before, after) {
			w.ref.fault("%s: a stale answer changed the row", nameOf(after.Key))
		}
		w.tellMove(last.Rule, before, after)
		return
	}
	w.moved(last.Rule, before, after)
}

func same(a, b *row) bool {
	return a.in == b.in && a.State == b.State && a.Fence == b.Fence && a.Spent == b.Spent && a.Ended == b.Ended && a.Reason == b.Reason
}
