package outbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
	"github.com/seed-8098fbb7/dispatch/internal/form"
)

// Content returns what a message says and to whom, if Config.Reveal permits it,
// and records in its history who has read it, and why. It returns ErrDenied,
// ErrNotFound, ErrExpired where the content was scrubbed, or ErrSealed where its
// key is missing. Everything else in
// this package shows neither recipient nor text.
func (b *Box) Content(ctx context.Context, key dispatch.Key, a Audit) (dispatch.Content, error) {
	if b.pool == nil {
		return nil, ErrNoPool
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	if b.reveal == nil {
		return nil, fmt.Errorf("outbox: content of %s: %w", key, ErrDenied)
	}
	if err := b.reveal(ctx, key, a); err != nil {
		return nil, fmt.Errorf("outbox: content of %s: %w: %w", key, ErrDenied, err)
	}
	var content dispatch.Content
	// The look is recorded before the content leaves this function: in one
	// transaction, under the message's lock, so that neither a scrub nor a
	// deletion comes between.
	err := pgx.BeginTxFunc(ctx, b.pool, steadyTx, func(tx pgx.Tx) error {
		return b.store.edit(ctx, tx, key, 0, func(v engine.View) (engine.Edit, error) {
			if v.Scrubbed {
				return engine.Edit{}, fmt.Errorf("message %s %w", key, ErrExpired)
			}
			text, err := b.contentOf(ctx, tx, key)
			if err != nil {
				return engine.Edit{}, err
			}
			content = text
			rec := engine.Record{Kind: engine.KindManual, Actor: a.By, Why: a.Why, Verdict: dispatch.Verdict{Reason: "content was read"}}
			return engine.Edit{Row: v.Row, Entries: []engine.Entry{{Fence: v.Fence, State: v.State, Reason: v.Reason, Record: rec}}}, nil
		})
	})
	if err != nil {
		return nil, missing(err)
	}
	return content, nil
}

// contentOf reads and opens a message's content.
func (b *Box) contentOf(ctx context.Context, tx pgx.Tx, key dispatch.Key) (dispatch.Content, error) {
	t := engine.Task{Row: decide.Row{Key: key}}
	var metadata *string
	if err := tx.QueryRow(ctx, b.sql.load, key.String(), "").Scan(&t.Form, &t.From, &metadata, &t.Trace, &t.SealKey, &t.Digest); err != nil {
		return nil, err
	}
	if t.SealKey != "" {
		plain, err := sealing{b.seal}.OpenForm(&t)
		if err != nil {
			return nil, fmt.Errorf("message %s is %w under key %q: %w", key, ErrSealed, t.SealKey, err)
		}
		t.Form = plain
	}
	content, err := form.Decode(t.Form)
	if err != nil {
		return nil, fmt.Errorf("message %s was written by a newer release: %w", key, err)
	}
	return content, nil
}
