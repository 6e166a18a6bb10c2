package outbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// locked is what a locked move finds.
type locked struct {
	state    dispatch.State
	fence    int64 // of the row in queue or parked
	provider string
	account  string
	queued   bool
	parked   bool
	first    string      // the first acceptance: provider, account and id
	kind     engine.Kind // of the evidence for the fence in question
	outcome  dispatch.Outcome
	ref      string
}

// lock takes the locks of a locked move and reads what it decides on. A settle
// or a claim that holds the queue row is waited for; one that comes later finds
// another state and is fenced out.
func (s *store) lock(ctx context.Context, tx pgx.Tx, key dispatch.Key, fence int64) (l locked, err error) {
	id := key.String()
	var budget int64
	if err := tx.QueryRow(ctx, s.sql.lockMessage, id).Scan(&budget); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			return l, ErrNotFound
		}
		return l, err
	}
	var state int64
	scan := func(text string) (bool, error) {
		err := tx.QueryRow(ctx, text, id).Scan(&state, &l.fence, &l.provider, &l.account)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	}
	if l.queued, err = scan(s.sql.lockQueue); err != nil {
		return l, err
	}
	if !l.queued {
		if l.parked, err = scan(s.sql.lockParked); err != nil {
			return l, err
		}
	}
	var final, kind, outcome int64
	err = tx.QueryRow(ctx, s.sql.truth, id, fence).Scan(&final, &l.first, &kind, &outcome, &l.ref)
	l.kind, l.outcome, l.state = engine.Kind(kind), dispatch.Outcome(outcome), dispatch.State(final)
	if l.queued || l.parked {
		l.state = dispatch.State(state)
	}
	return l, err
}

// Late records a change that was fenced out, and lets an acceptance settle the
// row from any state.
//
// The interleavings: the sweeper took the row, and it waits, was claimed again,
// was settled, or was parked since; or this is our own settle, whose commit was
// done and whose answer was lost. The message row's lock makes all of them
// happen before or after this transaction.
func (s *store) Late(ctx context.Context, c engine.Change) (res engine.Result, err error) {
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		res, err = s.late(ctx, tx, c)
		return err
	})
	if errors.Is(err, ErrNotFound) { // retention removed it; nothing is left to settle
		return engine.Result{Status: engine.Fenced}, nil
	}
	if err != nil {
		return engine.Result{}, fmt.Errorf("record late outcome: %w", err)
	}
	return res, nil
}

func (s *store) late(ctx context.Context, tx pgx.Tx, c engine.Change) (engine.Result, error) {
	l, err := s.lock(ctx, tx, c.Key, c.Fence)
	if err != nil {
		return engine.Result{}, err
	}
	r := c.Record
	ok := r.Verdict.Outcome == dispatch.OK
	if r.Kind == engine.KindAttempt && l.kind == engine.KindAttempt && l.outcome == r.Verdict.Outcome && l.ref == label(r.ProviderID, 300) {
		return engine.Result{Status: engine.Applied, State: l.state}, nil // our own commit, done
	}
	if r.Kind == engine.KindAttempt && l.kind != engine.KindNone {
		r.Kind = engine.KindLate
	}
	res := engine.Result{Status: engine.Applied, State: l.state}
	move := decide.RuleStale
	if ok {
		move, res.Double = truthRule(l, r)
		res.State = dispatch.Sent
		if err := s.settleTruth(ctx, tx, c.Key, l, c.Fence); err != nil {
			return engine.Result{}, err
		}
	}
	_, err = tx.Exec(ctx, s.sql.record, c.Key.String(), c.Fence, int64(r.Kind), int64(move), int64(res.State), int64(r.Verdict.Outcome),
		int64(r.Verdict.Scope), int64(r.Evidence.Stage), r.Verdict.Floor.Microseconds(), r.Provider, r.Account, label(r.ProviderID, 300),
		int64(r.Evidence.Status), label(r.Evidence.Code, 100), label(r.Verdict.Reason, 300), label(r.Evidence.Reason, 500),
		r.Took.Milliseconds(), hex.EncodeToString(r.Evidence.Request), label(r.Actor, 200), label(r.Why, 1000))
	return res, err
}

// truthRule is the row of the table for an acceptance that comes late. A second
// acceptance is raised when it names another provider, account or id: at the
// same provider, it doesn't dedupe or the proof of absence was wrong.
func truthRule(l locked, r engine.Record) (rule decide.Rule, double bool) {
	at, id := r.Provider+" "+r.Account+" ", label(r.ProviderID, 300)
	first, same := strings.CutPrefix(l.first, at)
	switch {
	case l.first != "" && (!same || id != "" && first != "" && id != first): // no id compares with any
		return decide.RuleDouble, true
	case l.state == dispatch.Sending:
		return decide.RuleTruthSending, false
	}
	return decide.RuleTruth, false
}

// settleTruth takes the row out of motion. A send that is under way gets its
// one evidence row here: its worker will find itself fenced out, or is dead.
func (s *store) settleTruth(ctx context.Context, tx pgx.Tx, key dispatch.Key, l locked, fence int64) error {
	if l.state == dispatch.Sending && l.fence != fence {
		if _, err := tx.Exec(ctx, s.sql.evidence, key.String(), l.fence, l.provider, l.account); err != nil {
			return err
		}
	}
	if l.queued {
		_, err := tx.Exec(ctx, s.sql.unqueue, key.String())
		return err
	}
	if l.parked {
		_, err := tx.Exec(ctx, s.sql.unpark, key.String())
		return err
	}
	return nil
}
