package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// Audit says who does something by hand, and why. Both are required, and kept
// in the message's history.
type Audit struct{ By, Why string }

// Why a verb is refused. Nothing was changed.
var (
	// ErrAudit: By or Why is missing.
	ErrAudit = errors.New("audit needs by and why")
	// ErrTooLate: the message was sent already.
	ErrTooLate = decide.ErrTooLate
	// ErrMayHaveBeenAccepted: sending again could be a second message. What is
	// wanted is Resolve, SendAnyway or ResendAsNew.
	ErrMayHaveBeenAccepted = decide.ErrMayHaveBeenAccepted
	// ErrNotParked: the message is in motion, or final, and the verb is for
	// messages that are held or dead (Resolve: held or unknown).
	ErrNotParked = decide.ErrNotParked
	// ErrExpired: the message's deadline has passed, or its content was
	// scrubbed.
	ErrExpired = decide.ErrExpired
	// ErrEnded: the message was cancelled or superseded.
	ErrEnded = decide.ErrEnded
)

// Cancel ends a message: no send of it begins any more. The state tells what
// became of it: Cancelled is a promise that nothing was accepted or will be;
// Sending and InDoubt mean that a send is under way or uncertain, and that the
// message will end as Sent, Cancelled or Dead once that is known; Dead means
// that it may have been accepted. It returns ErrNotFound or ErrTooLate.
func (b *Box) Cancel(ctx context.Context, key dispatch.Key, a Audit) (dispatch.State, error) {
	return b.verb(ctx, key, a, "", func(engine.View) decide.Verb { return decide.Cancel(decide.EndedCancelled) })
}

// Supersede ends an old message and enqueues another in its place, in the
// caller's transaction. old is what became of the old one, as for Cancel: with
// anything but Cancelled it may have been, or may still be, accepted, and the
// recipient may see both. Where the old one was sent already it is ErrTooLate,
// and nothing is written.
func (b *Box) Supersede(ctx context.Context, tx pgx.Tx, key dispatch.Key, i dispatch.Intent, a Audit) (old dispatch.State, err error) {
	if err := a.check(); err != nil {
		return 0, err
	}
	if i.Linked.IsZero() {
		i.Linked = key
	}
	m, err := b.freeze(i)
	if err != nil {
		return 0, err
	}
	if i.Key == key {
		return 0, &dispatch.FieldError{Field: "Key", Reason: "is that of the message to supersede: a correction needs a new key"}
	}
	m.supersedes = key
	// Two calls for the same pair, and one for each direction, take their
	// locks in the order of the keys.
	first := func() error {
		old, err = b.verbTx(ctx, tx, key, a, saysSuperseded+i.Key.String(), func(engine.View) decide.Verb { return decide.Cancel(decide.EndedSuperseded) })
		return err
	}
	second := func() error {
		_, err := m.answer(tx.QueryRow(ctx, b.sql.enqueue, m.args()...))
		return err
	}
	if i.Key.Compare(key) < 0 {
		first, second = second, first
	}
	// A refusal must leave nothing behind: a savepoint.
	err = pgx.BeginFunc(ctx, tx, func(pgx.Tx) error {
		if err := first(); err != nil {
			return err
		}
		return second()
	})
	if err != nil {
		return 0, err
	}
	b.wake.hint(m.lane)
	return old, nil
}

// Retry puts a held or dead message back under its own key, by whatever means
// is left: one that may have been accepted into unknown, where it is looked up
// or sent again inside the dedupe window, and held again where neither is
// possible; one that certainly was not into pending, with a fresh budget.
func (b *Box) Retry(ctx context.Context, key dispatch.Key, a Audit) (dispatch.State, error) {
	return b.verb(ctx, key, a, "", retryVerb)
}

func retryVerb(v engine.View) decide.Verb { return decide.Retry(v.Scrubbed) }

// SendAnyway sends a held or dead message once more, under its own key, though
// it may have been accepted: the recipient may get it twice.
func (b *Box) SendAnyway(ctx context.Context, key dispatch.Key, a Audit) (dispatch.State, error) {
	return b.verb(ctx, key, a, "", func(v engine.View) decide.Verb { return decide.SendAnyway(v.Scrubbed) })
}

// ResolveAccepted records that a person knows an unknown or held message to be
// accepted, under the provider's id where it is known.
func (b *Box) ResolveAccepted(ctx context.Context, key dispatch.Key, providerID string, a Audit) (dispatch.State, error) {
	return b.verb(ctx, key, a, providerID, func(engine.View) decide.Verb { return decide.Accepted })
}

// ResolveNotAccepted records that a person knows that no send of an unknown or
// held message was accepted. It may be sent again, within its budget.
func (b *Box) ResolveNotAccepted(ctx context.Context, key dispatch.Key, a Audit) (dispatch.State, error) {
	return b.verb(ctx, key, a, "", func(engine.View) decide.Verb { return decide.NotAccepted })
}

// GiveUp ends an unknown or held message whose fate nobody will find out: it
// is dead, unresolved.
func (b *Box) GiveUp(ctx context.Context, key dispatch.Key, a Audit) (dispatch.State, error) {
	return b.verb(ctx, key, a, "", func(engine.View) decide.Verb { return decide.GiveUp })
}

// ResendAsNew enqueues the content of an older message under a new key, linked
// to it, in the caller's transaction: a second message by intent, with a fresh
// budget and the same validity from now. Both histories tell of it. added is false where that was done
// already. It returns ErrNotFound, ErrExpired where the content was scrubbed,
// ErrSealed where its key is missing, or a *dispatch.ConflictError.
func (b *Box) ResendAsNew(ctx context.Context, tx pgx.Tx, old, key dispatch.Key, a Audit) (added bool, err error) {
	if err := a.check(); err != nil {
		return false, err
	}
	if _, err := dispatch.ParseKey(key.String()); err != nil || key == old {
		return false, &dispatch.FieldError{Field: "Key", Reason: "is not a new key"}
	}
	// Under the old message's lock: its history tells of the new one, and the
	// state that it tells is the one that it is in.
	err = b.store.edit(ctx, tx, old, 0, func(v engine.View) (engine.Edit, error) {
		if v.Scrubbed {
			return engine.Edit{}, fmt.Errorf("message %s %w", old, ErrExpired)
		}
		if added, err = b.copyAs(ctx, tx, old, key); err != nil || !added {
			return engine.Edit{}, err
		}
		entry := engine.Entry{Rule: decide.RuleEnqueue, State: dispatch.Pending, Record: engine.Record{
			Kind: engine.KindManual, Actor: a.By, Why: a.Why, Verdict: dispatch.Verdict{Reason: saysRepeats + old.String()},
		}}
		if err := b.store.enter(ctx, tx, key, entry); err != nil {
			return engine.Edit{}, err
		}
		return engine.Edit{Row: v.Row, Entries: []engine.Entry{manual(v, v.Row, 0, a, saysSentAgain+key.String())}}, nil
	})
	return added && err == nil, missing(err)
}

// copyAs copies a message under a new key.
func (b *Box) copyAs(ctx context.Context, tx pgx.Tx, old, key dispatch.Key) (added bool, err error) {
	content, sealKey, err := b.sealAgain(ctx, tx, old, key)
	if err != nil {
		return false, err
	}
	var linked, same bool
	var lane string
	err = tx.QueryRow(ctx, b.sql.resend, old.String(), key.String(), content, sealKey).Scan(&added, &linked, &same, &lane)
	switch {
	case err != nil:
		return false, err
	case !linked || !same:
		return false, &dispatch.ConflictError{Key: key}
	}
	if l, ok := decide.ParseLane(lane); ok && added {
		b.wake.hint(l)
	}
	return added, nil
}

func (a Audit) check() error {
	if a.By == "" || a.Why == "" {
		return ErrAudit
	}
	return nil
}

func (b *Box) verb(ctx context.Context, key dispatch.Key, a Audit, id string, pick func(engine.View) decide.Verb) (state dispatch.State, err error) {
	if b.pool == nil {
		return 0, ErrNoPool
	}
	err = pgx.BeginTxFunc(ctx, b.pool, steadyTx, func(tx pgx.Tx) error {
		state, err = b.verbTx(ctx, tx, key, a, id, pick)
		return err
	})
	if err != nil {
		return 0, err
	}
	b.Wake()
	return state, nil
}

// verbTx makes one locked move by hand and records it. A verb that has nothing
// to do, as a second Cancel, leaves no trace.
func (b *Box) verbTx(ctx context.Context, tx pgx.Tx, key dispatch.Key, a Audit, note string, pick func(engine.View) decide.Verb) (state dispatch.State, err error) {
	if err := a.check(); err != nil {
		return 0, err
	}
	err = b.store.edit(ctx, tx, key, 0, func(v engine.View) (engine.Edit, error) {
		row, rule, err := pick(v)(v.Row)
		switch {
		case errors.Is(err, ErrNotParked):
			return engine.Edit{}, fmt.Errorf("message %s is %s: it %w", key, v.State, err)
		case err != nil:
			return engine.Edit{}, fmt.Errorf("message %s %w", key, err)
		}
		state = row.State
		if rule == 0 {
			return engine.Edit{}, nil
		}
		b.wake.hint(row.Lane)
		return engine.Edit{Row: row, Write: true, Entries: []engine.Entry{manual(v, row, rule, a, note)}}, nil
	})
	return state, missing(err)
}

// manual is the record of a verb. note is the provider's id where the verb
// names one, else what it says of another message.
func manual(v engine.View, row decide.Row, rule decide.Rule, a Audit, note string) engine.Entry {
	rec := engine.Record{Kind: engine.KindManual, Provider: v.Provider, Account: v.Account, Actor: a.By, Why: a.Why}
	if rec.Provider == "" && v.First != nil {
		rec.Provider, rec.Account = v.First.Provider, v.First.Account // it was sent: the list names who had it last
	}
	if rule == decide.RuleResolveAccepted {
		rec.ProviderID = note
	} else {
		rec.Verdict.Reason = note
	}
	return engine.Entry{Fence: v.Fence, Rule: rule, State: row.State, Reason: row.Reason, Record: rec}
}
