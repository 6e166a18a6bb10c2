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
}

// Event is one thing that happened to a message.
type Event struct {
	At         time.Time
	Kind       string // "attempt", "swept", "late", "look-up", "receipt", "manual", "moved"
	Fence      int64  // which claim it belongs to
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
}

// History returns everything that happened to a message, oldest first, or
// ErrNotFound.
func (b *Box) History(ctx context.Context, key dispatch.Key) (History, error) {
	if b.pool == nil {
		return History{}, ErrNoPool
	}
	h := History{Key: key}
	err := pgx.BeginTxFunc(ctx, b.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
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
	if err := tx.QueryRow(ctx, b.sql.statusOf, h.Key.String()).Scan(&h.Route, &h.Channel, &h.Budget, &h.Created, &deadline, &state, &h.Reason,
		&h.Spent, &due, &h.Template.Name, &h.Template.Revision); err != nil {
		return err
	}
	h.Deadline, h.Next = timeOf(deadline), timeOf(due)
	if state != nil {
		h.State = *state
	}
	var e Event
	var kind engine.Kind
	var stage dispatch.Stage
	var outcome, wait, floor, took int64
	return each(ctx, tx, b.sql.historyOf, []any{h.Key.String()}, []any{
		&e.At, &e.Fence, &kind, &e.Rule, &e.State, &e.Reason, &outcome, &e.Scope, &stage, &e.Status, &e.Code, &e.Detail,
		&e.Words, &e.Provider, &e.ProviderID, &wait, &floor, &took, &e.By, &e.Why,
	}, func() error {
		e.Kind, e.Outcome = kindName(kind), outcomeOf(outcome)
		e.Wait, e.Floor, e.Took = micros(wait), micros(floor), time.Duration(took)*time.Millisecond
		if kind.Evidence() {
			h.Attempts++
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

// String tells the history as a person would want to read it. It holds no
// recipient, text or vendor's words.
func (h History) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "message %s on route %s is %s", h.Key, h.Route, h.State)
	if h.Reason != 0 {
		fmt.Fprintf(&b, " (%s)", h.Reason)
	}
	fmt.Fprintf(&b, ", %d of %d attempts\n", h.Attempts, h.Budget)
	fmt.Fprintf(&b, "  %s  enqueued\n", clock(h.Created))
	for _, e := range h.Events {
		fmt.Fprintf(&b, "  %s  %s\n", clock(e.At), e)
	}
	return b.String()
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// String tells the event in one line.
func (e Event) String() string {
	var b strings.Builder
	b.WriteString(e.Kind)
	if e.Kind == "attempt" || e.Kind == "swept" || e.Kind == "late" {
		fmt.Fprintf(&b, " %d", e.Fence)
	}
	if e.Provider != "" {
		fmt.Fprintf(&b, " at %s", e.Provider)
	}
	switch e.Kind {
	case "attempt", "swept", "late", "look-up":
		fmt.Fprintf(&b, ": %s", e.Outcome)
		if e.Outcome == dispatch.Rejected {
			fmt.Fprintf(&b, " (%s)", e.Scope)
		}
	}
	for _, part := range []struct{ name, value string }{
		{"", e.Detail}, {"status ", itoa(e.Status)}, {"code ", e.Code}, {"id ", e.ProviderID}, {"by ", e.By}, {"why ", e.Why},
	} {
		if part.value != "" {
			fmt.Fprintf(&b, ", %s%s", part.name, part.value)
		}
	}
	if e.Took > 0 {
		fmt.Fprintf(&b, ", took %v", e.Took.Round(time.Millisecond))
	}
	fmt.Fprintf(&b, " → %s", e.State)
	if e.Reason != 0 {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	if e.Wait >= 0 && (e.State == dispatch.Pending || e.State == dispatch.InDoubt) {
		fmt.Fprintf(&b, ", next step in %v", e.Wait.Round(time.Millisecond))
	}
	return b.String()
}

func itoa(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
