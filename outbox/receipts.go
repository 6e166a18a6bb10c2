package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/canon"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// matchFor is how long a receipt waits for its message: one that comes before
// the send's own answer matches when that is settled.
const matchFor = 24 * time.Hour

// MaxReceipts is how many receipts one call of Receive takes.
const MaxReceipts = 10000

// Receive stores what a provider tells, and applies it: a receipt that carries
// our reference proves that the message was accepted, whatever it reports, and
// settles it from any state. A nil error means that all are stored; they are
// applied at once, or within seconds by any worker. It makes a Box a
// [dispatch.ReceiptSink].
//
// A receipt without provider, event key and a key or id is an error and nothing
// of the call is stored: an adapter drops and counts what it can't read.
func (b *Box) Receive(ctx context.Context, receipts []dispatch.Receipt) error {
	if b.pool == nil {
		return ErrNoPool
	}
	if len(receipts) == 0 {
		return nil
	}
	if len(receipts) > MaxReceipts {
		return fmt.Errorf("outbox: %d receipts, at most %d in one call", len(receipts), MaxReceipts)
	}
	var text [8][]string
	var kind, permanent []int64
	for n, r := range receipts {
		if err := checkReceipt(r); err != nil {
			return fmt.Errorf("outbox: receipt %d: %w", n, err)
		}
		key := ""
		if !r.Key.IsZero() {
			key = r.Key.String()
		}
		recipient, err := b.hidden(r.Recipient)
		if err != nil {
			return fmt.Errorf("outbox: receipt %d: seal: %w", n, err)
		}
		code := label(r.Code, 100)
		if b.seal != nil && !canon.IsCode(code) {
			code = "" // a vendor's words, which are not kept
		}
		for i, v := range [...]string{
			r.Provider, label(r.Account, 200), label(r.EventKey, 500), key, label(r.ProviderID, 300), stamp(r.At), code, recipient,
		} {
			text[i] = append(text[i], v)
		}
		kind, permanent = append(kind, int64(r.Kind)), append(permanent, flag(r.Permanent))
	}
	if _, err := b.pool.Exec(ctx, b.sql.receive, text[0], text[1], text[2], text[3], text[4], kind, permanent, text[5], text[6], text[7]); err != nil {
		return fmt.Errorf("outbox: store receipts: %w", missing(err))
	}
	// They are safe now. What isn't applied here, a worker applies.
	_, _ = b.store.applyPage(ctx)
	return nil
}

func checkReceipt(r dispatch.Receipt) error {
	if err := dispatch.ValidName(r.Provider); err != nil {
		return fmt.Errorf("provider %w", err)
	}
	switch {
	case r.EventKey == "":
		return errors.New("has no event key")
	case r.Key.IsZero() && r.ProviderID == "":
		return errors.New("has neither key nor provider id")
	case r.Kind < 0 || r.Kind > dispatch.Clicked:
		return errors.New("has an unknown kind")
	case !r.At.IsZero() && (r.At.Year() < 1990 || r.At.Year() > 2200):
		return errors.New("has a time outside the years 1990 to 2200")
	}
	return nil
}

// dueReceipt is one to apply.
type dueReceipt struct {
	provider, account, event, id, code, message string
	kind                                        dispatch.ReceiptKind
}

// applyReceipts applies the receipts that are due, a page of 200 at a time and
// a few thousand at most, each in a transaction of its own. Several workers may
// do so at once: a receipt is taken under its row's lock.
func (s *store) applyReceipts(ctx context.Context) error {
	for range 20 {
		n, err := s.applyPage(ctx)
		if err != nil || n < receiptPage {
			return err
		}
	}
	return nil
}

// receiptPage is how many receipts dueReceiptsSQL returns at most.
const receiptPage = 200

func (s *store) applyPage(ctx context.Context) (int, error) {
	rows, err := s.pool.Query(ctx, s.sql.dueReceipts)
	if err != nil {
		return 0, err
	}
	due, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r dueReceipt, err error) {
		err = row.Scan(&r.provider, &r.account, &r.event, &r.id, &r.kind, &r.code, &r.message)
		return r, err
	})
	if err != nil {
		return 0, err
	}
	for _, r := range due {
		err = errors.Join(err, s.applyReceipt(ctx, r))
	}
	return len(due), err
}

func (s *store) applyReceipt(ctx context.Context, r dueReceipt) error {
	if r.message == "" {
		return s.putOff(ctx, r)
	}
	key, err := dispatch.ParseKey(r.message)
	if err != nil {
		return err
	}
	taken := false
	err = pgx.BeginTxFunc(ctx, s.pool, steadyTx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, s.sql.takeReceipt, r.provider, r.account, r.event)
		if err != nil || tag.RowsAffected() == 0 {
			return err // another worker took it
		}
		taken = true
		return s.edit(ctx, tx, key, 0, func(v engine.View) (engine.Edit, error) { return receiptEdit(v, r), nil })
	})
	if errors.Is(err, engine.ErrNotFound) { // retention removed it since it was found
		return s.putOff(ctx, r)
	}
	if err != nil || !taken || r.kind != dispatch.Delivered {
		return err
	}
	return s.delivered(ctx, key, r.provider)
}

// putOff tries an unmatched receipt again later, for a day.
func (s *store) putOff(ctx context.Context, r dueReceipt) error {
	_, err := s.pool.Exec(ctx, s.sql.putOffReceipt, r.provider, r.account, r.event, matchFor.Microseconds())
	return err
}

// receiptEdit is what a receipt does: late truth, and an event in the history.
// On a message that is sent already it is the event alone.
func receiptEdit(v engine.View, r dueReceipt) engine.Edit {
	rec := engine.Record{
		Kind: engine.KindReceipt, Provider: r.provider, Account: r.account, ProviderID: r.id,
		Evidence: dispatch.Evidence{Stage: dispatch.Answered, Code: r.code},
		Verdict:  dispatch.Verdict{Outcome: dispatch.OK, Reason: r.kind.String()},
	}
	if !canon.IsCode(r.code) { // the vendor's words
		rec.Evidence.Code, rec.Evidence.Reason = "", r.code
	}
	fence := v.Fence
	edit, res := engine.Learn(v, fence, rec)
	if v.State == dispatch.Sent && !res.Double {
		for i := range edit.Entries {
			edit.Entries[i].Rule = decide.Rule(0)
		}
	}
	return edit
}
