package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// History is what happened to one message, without its text.
type History struct {
	Key       dispatch.Key
	Route     string
	Channel   dispatch.Channel
	State     dispatch.State
	Reason    dispatch.Reason
	Attempts  int // sends that were made
	Spent     int // of the budget, while it is in motion or parked
	Budget    int
	Created   time.Time
	Deadline  time.Time // zero is never
	Next      time.Time // when the next step is due, zero where there is none
	Template  dispatch.Template
	Reference string // the provider's id of the message
	Events    []Event
	// Holds are the closed gates that keep its next step waiting: its route's,
	// and those of all providers that it may go to. Where another one is free,
	// and where they open before the step is due, there are none. Of a message
	// on a route that the box doesn't have, the providers aren't known: it may
	// go to others than these.
	Holds []Gate

	unsure bool // whether Holds are all that is in its way
}

// Event is one thing that happened to a message.
type Event struct {
	At         time.Time
	Kind       string // "attempt", "swept", "late", "look-up", "receipt", "manual", "moved"
	Fence      int64  // which claim it belongs to
	Send       int    // which send, from 1; 0 where it isn't about one
	Rule       int    // the row of the transition table
	State      dispatch.State
	Reason     dispatch.Reason
	Outcome    dispatch.Outcome
	Scope      dispatch.Scope
	Provider   string
	ProviderID string
	Status     int
	Code       string
	Detail     string        // this library's words
	Words      string        // the vendor's words; may quote a recipient: not for logs
	Took       time.Duration // how long a send took
	Wait       time.Duration // until the next step, negative where there is none
	Floor      time.Duration // what the provider asked to wait
	By, Why    string
	Linked     dispatch.Key // another message that Detail names: repeated, superseding, sent again as
}

// History returns everything that happened to a message, oldest first, or
// ErrNotFound.
func (b *Box) History(ctx context.Context, key dispatch.Key) (History, error) {
	if b.pool == nil {
		return History{}, ErrNoPool
	}
	h := History{Key: key}
	err := pgx.BeginTxFunc(ctx, b.pool, steadyRead, func(tx pgx.Tx) error {
		return b.readHistory(ctx, tx, &h)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return History{}, ErrNotFound
	}
	if err != nil {
		return History{}, fmt.Errorf("history of %s: %w", key, missing(err))
	}
	return h, nil
}

func (b *Box) readHistory(ctx context.Context, tx pgx.Tx, h *History) error {
	var state *dispatch.State
	var deadline, due *time.Time
	var p standing
	if err := tx.QueryRow(ctx, b.sql.statusOf, h.Key.String()).Scan(&h.Route, &h.Channel, &h.Budget, &h.Created, &deadline, &state, &h.Reason,
		&h.Spent, &due, &h.Template.Name, &h.Template.Revision, &p.country, &p.pinned, &p.senders, &p.row.OnUnknown.Action, &p.row.Provider,
		&p.row.Ended, &p.ledger); err != nil {
		return err
	}
	h.Deadline, h.Next = timeOf(deadline), timeOf(due)
	if state != nil {
		h.State = *state
	}
	if h.State == dispatch.Pending || h.State == dispatch.InDoubt {
		if err := b.readHolds(ctx, tx, h, p); err != nil {
			return err
		}
	}
	var e Event
	var kind engine.Kind
	var stage dispatch.Stage
	var outcome, wait, floor, took int64
	sends := map[int64]int{}
	return each(ctx, tx, b.sql.historyOf, []any{h.Key.String()}, []any{
		&e.At, &e.Fence, &kind, &e.Rule, &e.State, &e.Reason, &outcome, &e.Scope, &stage, &e.Status, &e.Code, &e.Detail,
		&e.Words, &e.Provider, &e.ProviderID, &wait, &floor, &took, &e.By, &e.Why,
	}, func() error {
		e.Kind, e.Outcome = kindName(kind), outcomeOf(outcome)
		e.Wait, e.Floor, e.Took = micros(wait), micros(floor), time.Duration(took)*time.Millisecond
		if kind.Evidence() {
			h.Attempts++
			sends[e.Fence] = h.Attempts
		}
		e.Send, e.Linked = 0, linkedIn(e.Detail)
		if kind.Evidence() || kind == engine.KindLate {
			e.Send = sends[e.Fence]
		}
		if e.ProviderID != "" {
			h.Reference = e.ProviderID
		}
		h.Events = append(h.Events, e)
		return nil
	})
}

// outcomeOf reads an outcome, -1 where the event has none.
func outcomeOf(n int64) dispatch.Outcome {
	switch n {
	case int64(dispatch.OK):
		return dispatch.OK
	case int64(dispatch.Rejected):
		return dispatch.Rejected
	}
	return dispatch.Unknown
}

func kindName(k engine.Kind) string {
	switch k {
	case engine.KindAttempt:
		return "attempt"
	case engine.KindSwept:
		return "swept"
	case engine.KindLate:
		return "late"
	case engine.KindLookup:
		return "look-up"
	case engine.KindReceipt:
		return "receipt"
	case engine.KindManual:
		return "manual"
	case engine.KindMoved:
		return "moved"
	case engine.KindNone:
	}
	return "unknown"
}

// The library's own words for another message, before its key.
const (
	saysRepeats    = "repeats "
	saysSuperseded = "superseded by "
	saysSentAgain  = "sent again as new message "
)

// linkedIn finds the key of another message in the library's own words.
func linkedIn(detail string) dispatch.Key {
	for _, before := range []string{saysRepeats, saysSuperseded, saysSentAgain} {
		if rest, ok := strings.CutPrefix(detail, before); ok {
			if key, err := dispatch.ParseKey(rest); err == nil {
				return key
			}
		}
	}
	return dispatch.Key{}
}
