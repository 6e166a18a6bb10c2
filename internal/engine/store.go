// Package engine is the worker as steps over a Store: look, claim, begin,
// finish, settle, sweep, audit. It starts no goroutine and reads no clock:
// time that has passed since a claim is an argument, so that a simulation can
// drive the same code through any interleaving.
package engine

import (
	"context"
	"errors"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// Store is what the engine needs of a database. All times in it are the
// database's. An error of Claim, Apply or Edit means that it can't be known
// whether the call took effect.
type Store interface {
	// Lanes returns all lanes that hold rows, known to this worker or not.
	Lanes(ctx context.Context) ([]string, error)
	// Peek looks at lanes, without taking anything.
	Peek(ctx context.Context, probes []Probe) (Sight, error)
	// Claim takes rows of one lane for one provider: rules 2 and 19. It never
	// returns more than Limit rows.
	Claim(ctx context.Context, c Claim) ([]Task, error)
	// Unclaim hands back what the claim statement with this id took and nobody
	// was given: rule 13. It returns how many rows that were.
	Unclaim(ctx context.Context, id [16]byte) (int, error)
	// Apply carries out changes, in the order of their keys, each only where
	// the row still has the fence and state that the change was made from. It
	// returns one result for each, in the same order.
	Apply(ctx context.Context, changes []Change) ([]Result, error)
	// Edit makes a locked move: it locks the message's rows, waiting for
	// whoever holds them, reads them, and carries out what decide returns, in
	// one transaction. fence names the send whose evidence View.Seen is about.
	// ErrNotFound where there is no such message. An error of decide is
	// returned as it is, and nothing is written.
	Edit(ctx context.Context, key dispatch.Key, fence int64, decide func(View) (Edit, error)) error
	// Page returns the due rows of a lane behind the cursor that are not
	// leased and that a claim would not take, and the cursor to go on from; ok
	// is false at the end.
	Page(ctx context.Context, lane string, after Cursor, limit int) (rows []Task, next Cursor, ok bool, err error)
	// Load returns the content of a row that was claimed for a look-up.
	Load(ctx context.Context, t Task) (Task, error)
}

// Probe asks for the first row of a lane that is due and not leased, of those
// from From on.
type Probe struct {
	Lane string
	From Cursor
}

// Sight is what Peek saw.
type Sight struct {
	// First is each probe's row, zero where there is none.
	First []Cursor
	// Next is the time until the first row of these lanes that will be due,
	// negative for none.
	Next time.Duration
	// Now is the database's clock before it looked.
	Now time.Time
}

// Claim is what to take.
type Claim struct {
	ID       [16]byte // of this statement, for Unclaim
	Lane     decide.Lane
	Provider string
	Account  string
	Encoding int16
	// Window is how long after its first send a row may be sent again under
	// its key, 0 where never.
	Window time.Duration
	Lease  time.Duration
	Limit  int
	// From skips the rows before it.
	From Cursor
	// Probe claims although the provider is held.
	Probe bool
}

// Cursor is a place in a lane's order: by due time, then by key. Zero is the
// begin.
type Cursor struct {
	Due time.Time
	Key dispatch.Key
}

// Before reports whether c comes before d.
func (c Cursor) Before(d Cursor) bool {
	if o := c.Due.Compare(d.Due); o != 0 {
		return o < 0
	}
	return c.Key.Compare(d.Key) < 0
}

// Task is a row and what is needed to send it.
type Task struct {
	decide.Row
	Form     []byte
	From     string // the frozen sender at the claim's provider
	Senders  []byte // the frozen map as JSON; nil where each provider has its own
	Metadata []byte // JSON; nil where there is none
	Trace    string
	Created  time.Time
	Country  int
	// SealKey is the id of the key that Form is sealed under, empty where it is
	// plain; Digest is what it is bound to, besides the key.
	SealKey string
	Digest  []byte
	// Probe tells that it was claimed to see whether a held provider answers.
	Probe bool
	// Forced tells that its provider is held for its health, and every other is
	// too.
	Forced bool
}

// Kind is what a row of the history tells of. The numbers are stored.
type Kind int8

// The kinds.
const (
	KindNone    Kind = 0 // nothing is recorded
	KindAttempt Kind = 1
	KindSwept   Kind = 2
	KindLate    Kind = 3
	KindLookup  Kind = 4
	KindReceipt Kind = 5
	KindManual  Kind = 6
	KindMoved   Kind = 7
)

// Evidence tells whether the kind is the one evidence row of a send.
func (k Kind) Evidence() bool { return k == KindAttempt || k == KindSwept }

// Record is what the history keeps of a change.
type Record struct {
	Kind       Kind
	Provider   string
	Account    string
	ProviderID string
	Evidence   dispatch.Evidence
	Verdict    dispatch.Verdict
	Took       time.Duration
	Actor, Why string
	// Named tells that ProviderID names a recipient: it is not for logs.
	Named bool
}

// Change is a move of one row, and its record.
type Change struct {
	Key   dispatch.Key
	Fence int64
	From  dispatch.State
	// Idle applies the move only while no lease holds.
	Idle   bool
	Move   decide.Move
	Record Record
	// Hold, where set, closes its provider's gate; Pass counts a probe of the
	// record's provider that passed.
	Hold *Hold
	Pass bool
	// Watch is the caller's own, which comes back beside the result.
	Watch any
}

// Status is what became of a change.
type Status int8

// The statuses.
const (
	// Fenced: the row has another fence or state, or is gone.
	Fenced Status = iota
	// Applied: done.
	Applied
	// Again: another statement changed the row meanwhile without taking it.
	Again
)

// Result is what became of a change.
type Result struct {
	Status Status
	State  dispatch.State
	Reason dispatch.Reason
	// Now is the database's clock after the change.
	Now time.Time
	// Double tells that the message was accepted more than once.
	Double bool
}

// ErrNotFound says that there is no message with this key.
var ErrNotFound = errors.New("no message with this key")

// View is what a locked move sees. Row.State is one of all seven.
type View struct {
	decide.Row
	Scrubbed bool
	// First is the first acceptance that is known, nil where there is none.
	First *Truth
	// Seen is the evidence for the fence in question; its Kind is KindNone
	// where there is none.
	Seen Record
}

// Truth is an acceptance.
type Truth struct{ Provider, Account, ID string }

// Edit is what a locked move does.
type Edit struct {
	// Row is what the row becomes where Write is set. For a row that is being
	// sent, only Ended is written.
	Row   decide.Row
	Write bool
	// Entries go into the history.
	Entries []Entry
}

// Entry is a row of the history.
type Entry struct {
	Fence  int64
	Rule   decide.Rule
	State  dispatch.State
	Reason dispatch.Reason
	Record Record
}
