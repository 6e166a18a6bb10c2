package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// late records a change that was fenced out, and lets an acceptance settle the
// row from any state: rules 18, 38, 39 and 40.
//
// The interleavings: the sweeper took the row, and it waits, was claimed again,
// was settled, or was parked since; or this is our own settle, whose commit was
// done and whose answer was lost. The locks make all of them happen before or
// after this transaction.
func (e *Engine) late(ctx context.Context, c Change) (res Result, err error) {
	err = e.store.Edit(ctx, c.Key, c.Fence, func(v View) (Edit, error) {
		edit, r := Learn(v, c.Fence, c.Record)
		res = r
		return edit, nil
	})
	if errors.Is(err, ErrNotFound) { // retention removed it; nothing is left to settle
		return Result{Status: Fenced}, nil
	}
	if err != nil {
		return Result{}, fmt.Errorf("record late outcome: %w", err)
	}
	return res, nil
}

// Learn is what follows from a record that comes late: a stale worker's
// outcome, a look-up, a receipt. An acceptance settles the row from any state;
// anything else is kept as evidence and changes nothing.
func Learn(v View, fence int64, r Record) (Edit, Result) {
	res := Result{Status: Applied, State: v.State, Reason: v.Reason, Now: v.Now}
	if r.Kind == KindAttempt && v.Seen.Kind == KindAttempt && v.Seen.Verdict.Outcome == r.Verdict.Outcome && v.Seen.ProviderID == r.ProviderID {
		return Edit{}, res // our own commit, done
	}
	if r.Kind == KindAttempt && v.Seen.Kind != KindNone {
		r.Kind = KindLate
	}
	entry := Entry{Fence: fence, Rule: decide.RuleStale, State: v.State, Reason: v.Reason, Record: r}
	if r.Verdict.Outcome != dispatch.OK {
		return Edit{Entries: []Entry{entry}}, res
	}
	edit := Edit{Row: v.Row, Write: v.State != dispatch.Sent}
	edit.Row.State, edit.Row.Reason = dispatch.Sent, dispatch.NoReason
	entry.Rule, res.Double = truthRule(v, r)
	entry.State, entry.Reason = dispatch.Sent, dispatch.NoReason
	res.State, res.Reason = dispatch.Sent, dispatch.NoReason
	if own := v.Fence == fence && (r.Kind == KindAttempt || r.Kind == KindLate); v.State == dispatch.Sending && !own {
		// A send is under way: it gets its one evidence row here, since its
		// worker will find itself fenced out, or is dead.
		edit.Entries = append(edit.Entries, Entry{
			Fence: v.Fence, Rule: decide.RuleTruthSending, State: dispatch.Sent,
			Record: Record{
				Kind: KindSwept, Provider: v.Provider, Account: v.Account,
				Verdict: dispatch.Verdict{Outcome: dispatch.Unknown, Reason: "settled by late truth while it was sent"},
			},
		})
	}
	edit.Entries = append(edit.Entries, entry)
	return edit, res
}

// truthRule is the row of the table for an acceptance that comes late. A second
// acceptance is raised when it names another provider, account or id: at the
// same provider, it doesn't dedupe or the proof of absence was wrong. An
// acceptance without an id may be any of its account's.
func truthRule(v View, r Record) (rule decide.Rule, double bool) {
	switch f := v.First; {
	case f != nil && (f.Provider != r.Provider || f.Account != r.Account || f.ID != "" && r.ProviderID != "" && f.ID != r.ProviderID):
		return decide.RuleDouble, true
	case v.State == dispatch.Sending:
		return decide.RuleTruthSending, false
	}
	return decide.RuleTruth, false
}
