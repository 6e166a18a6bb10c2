package outbox

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// Edit makes a locked move in a transaction of its own.
func (s *store) Edit(ctx context.Context, key dispatch.Key, fence int64, decide func(engine.View) (engine.Edit, error)) error {
	return pgx.BeginTxFunc(ctx, s.pool, steadyTx, func(tx pgx.Tx) error {
		return s.edit(ctx, tx, key, fence, decide)
	})
}

// edit makes a locked move: the message row, then the queue row, then the
// parked one, each lock a statement of its own, so that each reads what the
// one that held it before has left.
func (s *store) edit(ctx context.Context, tx pgx.Tx, key dispatch.Key, fence int64, decide func(engine.View) (engine.Edit, error)) error {
	v, err := s.view(ctx, tx, key, fence)
	if err != nil {
		return err
	}
	edit, err := decide(v)
	if err != nil {
		return err
	}
	if edit.Write {
		if err := s.rewrite(ctx, tx, v, edit.Row); err != nil {
			return err
		}
	}
	if err := s.notice(ctx, tx, v, edit); err != nil {
		return err
	}
	for _, entry := range edit.Entries {
		if err := s.enter(ctx, tx, key, entry); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) view(ctx context.Context, tx pgx.Tx, key dispatch.Key, fence int64) (v engine.View, err error) {
	id := key.String()
	v.Key = key
	var after int64
	err = tx.QueryRow(ctx, s.sql.lockMessage, id).Scan(&v.Lane.Route, &v.Lane.Priority, &v.Lane.Provider, &v.Budget, &v.OnUnknown.Action,
		&after, &v.Scrubbed)
	if errors.Is(err, pgx.ErrNoRows) {
		return v, engine.ErrNotFound
	}
	if err != nil {
		return v, err
	}
	v.Pinned, v.OnUnknown.After = v.Lane.Provider != "", micros(after)
	found, err := s.lockRow(ctx, tx, s.sql.lockQueue, &v)
	if err == nil && !found {
		found, err = s.lockRow(ctx, tx, s.sql.lockParked, &v)
	}
	if err != nil {
		return v, err
	}
	return v, s.known(ctx, tx, &v, fence, found)
}

// lockRow locks and reads the row in queue or in parked.
func (s *store) lockRow(ctx context.Context, tx pgx.Tx, text string, v *engine.View) (bool, error) {
	var lane string
	var ledger *string
	var due, claimed, lease, deadline, resolve *time.Time
	err := tx.QueryRow(ctx, text, v.Key.String()).Scan(&v.State, &v.Reason, &v.Fence, &v.Spent, &v.Lookups, &v.Ended, &v.Encoding,
		&v.Provider, &v.Account, &lane, &ledger, &due, &claimed, &lease, &deadline, &resolve)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	v.Due, v.Claimed, v.Lease, v.Deadline, v.ResolveUntil = timeOf(due), timeOf(claimed), timeOf(lease), timeOf(deadline), timeOf(resolve)
	if l, ok := decide.ParseLane(lane); ok {
		v.Lane = l
	}
	if !readLedger(ledger, &v.Ledger) {
		return false, fmt.Errorf("message %s: its ledger was written by a newer release", v.Key)
	}
	return true, nil
}

// known reads what the history says: how it ended, the first acceptance, and
// the evidence of the fence in question; and the clock, with all locks held.
func (s *store) known(ctx context.Context, tx pgx.Tx, v *engine.View, fence int64, live bool) error {
	var final dispatch.State
	var last int64
	var first engine.Truth
	var accepted bool
	err := tx.QueryRow(ctx, s.sql.known, v.Key.String(), fence).Scan(&final, &last, &accepted, &first.Provider, &first.Account, &first.ID,
		&v.Seen.Kind, &v.Seen.Verdict.Outcome, &v.Seen.ProviderID, &v.Now)
	if err != nil {
		return err
	}
	if accepted {
		v.First = &first
	}
	if !live {
		v.State, v.Fence = final, last
	}
	return nil
}

// rewrite puts the row where its state belongs. A row that is being sent is
// its worker's: only its end is marked.
func (s *store) rewrite(ctx context.Context, tx pgx.Tx, v engine.View, r decide.Row) error {
	id := r.Key.String()
	if v.State == dispatch.Sending && r.State == dispatch.Sending {
		_, err := tx.Exec(ctx, s.sql.markEnded, id, int64(r.Ended))
		return err
	}
	if _, err := tx.Exec(ctx, s.sql.unqueue, id); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s.sql.unpark, id); err != nil {
		return err
	}
	ledger := ""
	if len(r.Ledger) > 0 {
		b, err := json.Marshal(r.Ledger)
		if err != nil {
			return err
		}
		ledger = string(b)
	}
	text := ""
	switch r.State {
	case dispatch.Pending, dispatch.InDoubt:
		text = s.sql.requeue
	case dispatch.Held, dispatch.Dead:
		text = s.sql.repark
	case dispatch.Sending, dispatch.Sent, dispatch.Cancelled:
		return nil
	}
	leg, _ := r.Ledger.Leg(r.Provider, r.Account)
	_, err := tx.Exec(ctx, text, id, r.Lane.String(), nullTime(r.Due), nullTime(r.Deadline), nullTime(r.ResolveUntil), nullTime(leg.First),
		r.Fence, int64(r.State), int64(r.Reason), int64(r.Spent), int64(r.Budget), int64(r.Encoding), int64(r.Lookups),
		int64(r.Ledger.Count(decide.Open)), int64(r.Ledger.Count(decide.Waived)), int64(r.Ended), r.Provider, r.Account, ledger)
	return err
}

func (s *store) enter(ctx context.Context, tx pgx.Tx, key dispatch.Key, e engine.Entry) error {
	r := e.Record
	_, err := tx.Exec(ctx, s.sql.record, key.String(), e.Fence, int64(r.Kind), int64(e.Rule), int64(e.State), int64(e.Reason),
		int64(r.Verdict.Outcome), int64(r.Verdict.Scope), int64(r.Evidence.Stage), r.Verdict.Floor.Microseconds(), r.Provider, r.Account,
		label(r.ProviderID, 300), int64(r.Evidence.Status), label(r.Evidence.Code, 100), label(r.Verdict.Reason, 300),
		label(r.Evidence.Reason, 500), r.Took.Milliseconds(), hex.EncodeToString(r.Evidence.Request), label(r.Actor, 200), label(r.Why, 1000))
	return err
}
