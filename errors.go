package dispatch

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// What a *SendError proves.
var (
	// ErrRejected: the message, its sender or the account was refused and
	// nothing was accepted. Sending it again as it is will not help.
	ErrRejected = errors.New("rejected")
	// ErrUnknown: it may have been accepted. Reconcile it; sending it again
	// under another key, or through another provider, may send it twice.
	ErrUnknown = errors.New("unknown, may have been accepted")
	// ErrDeferred: nothing was accepted, and the same key may be tried again
	// at SendError.Until.
	ErrDeferred = errors.New("deferred")
	// ErrBudget: nothing was accepted, and the policy's attempts are spent or
	// the message's validity ends before the next one.
	ErrBudget = errors.New("budget spent")
)

// FieldError says which field of an intent is wrong and why. Nothing was
// written or sent; a transaction that was passed along is still usable.
type FieldError struct {
	// Field names the field, "Content.To".
	Field string
	// Reason is in words and holds no recipient or text.
	Reason string
}

func (e *FieldError) Error() string { return e.Field + " " + e.Reason }

// ConflictError says that the key stands for another message already: same
// key, other content, recipient, sender or route. Nothing was written; a
// transaction that was passed along is still usable. A changed message needs a
// new key.
type ConflictError struct{ Key Key }

func (e *ConflictError) Error() string {
	return "key " + e.Key.String() + " already stands for another message"
}

// SendError is the error of [Do]. errors.Is tells what it proves, with
// ErrRejected, ErrUnknown, ErrDeferred and ErrBudget; exactly one of them
// holds.
type SendError struct {
	// Key is the message's key, under which a later try must go.
	Key Key
	// Attempts is how many sends were made.
	Attempts int
	// Until is the earliest moment of a next try, zero where none helps.
	Until time.Time
	// Verdict and Evidence are those of the last attempt.
	Verdict  Verdict
	Evidence Evidence

	is error
}

// Error holds no recipient, text or credentials.
func (e *SendError) Error() string {
	return fmt.Sprintf("send %s: %v after %d attempts: %s", e.Key, e.is, e.Attempts, clean(e.Verdict.Reason, maxReason))
}

func (e *SendError) Unwrap() error { return e.is }

// LogValue shows what Error does, in fields.
func (e *SendError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("key", e.Key.String()), slog.Int("attempt", e.Attempts),
		slog.String("outcome", e.Verdict.Outcome.String()), slog.String("reason", e.Verdict.Reason),
		slog.Int("status", e.Evidence.Status), slog.String("code", codeWord(e.Evidence.Code)))
}
