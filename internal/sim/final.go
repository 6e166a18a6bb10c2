package sim

import (
	"fmt"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// final checks what must hold when all is quiet.
func (f *referee) final() {
	for i := range f.books {
		b := &f.books[i]
		if b.m == nil {
			continue
		}
		r := f.w.db.find(b.m.key)
		if r == nil {
			f.fail("m%d: is lost", i+1)
			continue
		}
		f.evidence(b)
		f.acceptances(b)
		f.truth(b, r)
	}
}

// evidence: one row for each send, none for a claim that was handed back.
func (f *referee) evidence(b *book) {
	for i := range b.sends {
		s := &b.sends[i]
		e := f.w.db.evidence(b.m.n, s.fence)
		switch {
		case s.back && e != nil:
			f.fail("m%d: attempt %d was never made and has evidence", b.m.n+1, s.fence)
		case !s.back && e == nil:
			f.fail("m%d: attempt %d has no evidence", b.m.n+1, s.fence)
		}
	}
}

// stray tells that the request arrived later than anything promises: its
// process was stopped between its last check and the write until its lease had
// ended, or the bytes were kept on their way beyond the lag. No client can
// close this gap; what comes of it is the residue.
func (s *send) stray() bool {
	c := s.vendor.contract
	if c.Search.Available && s.acceptedAt+s.vendor.index > s.reach+c.Search.Lag {
		return true
	}
	return s.acceptedAt > s.lease
}

// acceptances: at most one for each key, and one more for each waiver. Two are
// residue where without the stray ones there is one at most.
func (f *referee) acceptances(b *book) {
	for epoch := range b.epoch + 1 {
		all, kept := 0, 0
		for i := range b.sends {
			if s := &b.sends[i]; s.accepted && s.epoch == epoch {
				all++
				if !s.stray() {
					kept++
				}
			}
		}
		switch {
		case kept > 1:
			f.fail("m%d: was accepted %d times", b.m.n+1, all)
		case all > 1:
			f.left("m%d: was accepted %d times, %d of them after every promise had ended", b.m.n+1, all, all-kept)
		}
	}
}

func (f *referee) left(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	f.residue = append(f.residue, text)
	f.w.tell("RESIDUE " + text)
}

// truth: what the row says at the end, against what happened.
func (f *referee) truth(b *book, r *row) {
	all, kept := 0, 0
	for i := range b.sends {
		if s := &b.sends[i]; s.accepted {
			all++
			if !s.stray() {
				kept++
			}
		}
	}
	known, ids, raised := 0, "", false
	for i := range f.w.db.history {
		h := &f.w.db.history[i]
		if h.n != b.m.n {
			continue
		}
		raised = raised || h.rule == decide.RuleDouble
		if h.judged && h.outcome == dispatch.OK {
			id := h.provider + "/" + h.account + "/" + h.id
			if known++; known > 1 && h.id != "" && ids != id && ids != h.provider+"/"+h.account+"/" && !raised {
				f.fail("m%d: two acceptances are known, %s and %s, and nothing was raised", b.m.n+1, ids, id)
			}
			if ids == "" {
				ids = id
			}
		}
	}
	// What was waived and then dropped says so by its count.
	maybe := r.State == dispatch.Dead && r.Reason == dispatch.ReasonDropped && r.Ledger.Count(decide.Waived) > 0 || r.State == dispatch.Held || r.State == dispatch.InDoubt ||
		r.State == dispatch.Dead && (r.Reason == dispatch.ReasonUnresolved || r.Reason == dispatch.ReasonSuperseded || r.Reason == dispatch.ReasonChanged)
	switch {
	case r.State == dispatch.Sent && all == 0:
		f.fail("m%d: is sent, and nobody accepted it", b.m.n+1)
	case r.State == dispatch.Sent:
	case known > 0:
		f.fail("m%d: an acceptance is known, and it is %s", b.m.n+1, r.State)
	case maybe:
	case kept > 0:
		f.fail("m%d: was accepted, and it is %s %s, as if that were excluded", b.m.n+1, r.State, r.Reason)
	case all > 0:
		f.left("m%d: was accepted after every promise had ended, and is %s %s", b.m.n+1, r.State, r.Reason)
	}
}
