// Package dispatch sends an SMS or an email from a Go application once, and
// knows what became of it.
//
// The application enqueues an [Intent] inside its own Postgres transaction
// (package outbox); a worker in the same process sends it through a [Provider]
// with its persisted key. An attempt ends as OK, Rejected or [Unknown]: a
// provider that accepted a message and whose answer was lost did not fail, and
// a retry under another key, or at another provider, would be a second
// message. What can't be known is reconciled: re-sent under the same key where
// the provider dedupes, looked up where it can be asked, or held visibly for a
// person.
//
// # What to use
//
// Applications import outbox for the database side, and a provider package
// (provider/httpapi for any JSON API that takes an Idempotency-Key). This
// package has the words they share: the intent, the verdicts, the back-off,
// the contract of a provider. A program without a database can call [Do]; it
// keeps its promise only as long as the process lives.
//
// # What is promised
//
// A committed intent is not lost. A message is accepted at most once wherever
// its provider gives any means to know; where it gives none, an uncertain
// message is held, never silently repeated. "Accepted" is not "delivered".
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Provider is one account at one vendor. An implementation must be safe for
// concurrent use and follow these rules, which the suite in
// provider/providertest checks:
//
//   - One Send is one request. Never retry, switch off every retry of an SDK,
//     don't follow redirects.
//   - Return a nil error only for an answer that says "accepted". Return a
//     *[Fault] for what was proven otherwise. Any other error, and a panic,
//     counts as Unknown, which is always safe.
//   - "Not sent" must be proven by the transport, never read from an error's
//     text. Package provider/exchange does so for HTTP.
//   - Return when ctx ends, and leave nothing running.
//   - Same envelope, same bytes: derive ids, boundaries and dates from the key.
//   - Keep recipients, text and credentials out of errors.
type Provider interface {
	// Contract is what the vendor promises. It is constant.
	Contract() Contract
	// Send makes one attempt.
	Send(ctx context.Context, e Envelope) (Accepted, error)
	// Lookup asks what became of a message. Embed NoLookup where the vendor
	// can't be asked.
	Lookup(ctx context.Context, q Query) (Found, error)
}

// Contract is what a provider promises, as data. What the vendor doesn't
// promise stays zero: the zero Contract is that of a provider that gives no
// means to know.
type Contract struct {
	// Name is the provider's stable name, as routes use it. 1 to 40
	// characters of a-z, 0-9, "-" and "_".
	Name string
	// Account identifies the account at the vendor: keys, look-ups and
	// receipts of one account prove nothing about another.
	Account string
	// Encoding is the version of the adapter's encoding. It changes when the
	// same envelope would give other bytes.
	Encoding int16
	// Timeout is the longest that one attempt may take, 30 s where zero.
	Timeout time.Duration
	// Dedupe is what the vendor does with a repeated key.
	Dedupe Dedupe
	// Search is how the vendor can be asked about a message.
	Search Search
	// Echo is what the vendor's receipts carry.
	Echo Echo
	// RefusalProves tells that the vendor looks for an earlier request with
	// the same key before it validates, so that a refusal of the message in
	// its own body proves that no earlier attempt was accepted.
	RefusalProves bool
}

// AttemptTimeout returns the longest time that one attempt may take.
func (c Contract) AttemptTimeout() time.Duration {
	if c.Timeout <= 0 {
		return DefaultAttemptTimeout
	}
	return min(c.Timeout, maxAttemptTimeout)
}

// Validate says in words what is wrong with the contract.
func (c Contract) Validate() error {
	if err := ValidName(c.Name); err != nil {
		return fmt.Errorf("contract %q: name %w", clean(c.Name, 40), err)
	}
	if reason := lineFault(c.Account, 200); reason != "" {
		return fmt.Errorf("contract %q: account %s", c.Name, reason)
	}
	if c.Encoding < 0 {
		return fmt.Errorf("contract %q: encoding is negative", c.Name)
	}
	if c.Timeout < 0 || c.Timeout > maxAttemptTimeout {
		return fmt.Errorf("contract %q: time-out %v, want 0 to %v", c.Name, c.Timeout, maxAttemptTimeout)
	}
	for _, d := range []struct {
		name string
		time time.Duration
	}{{"dedupe window", c.Dedupe.Window}, {"search lag", c.Search.Lag}, {"echo grace", c.Echo.Grace}} {
		if d.time < 0 || d.time > maxValidity {
			return fmt.Errorf("contract %q: %s %v, want 0 to %v", c.Name, d.name, d.time, maxValidity)
		}
	}
	return nil
}

// DefaultAttemptTimeout is the time of one attempt where a contract names
// none: connect 5 s, write 10 s, answer 15 s.
const DefaultAttemptTimeout = 30 * time.Second

// maxAttemptTimeout bounds what leases and dedupe windows are computed from.
const maxAttemptTimeout = time.Hour

// Dedupe is what a vendor does with a repeated key.
type Dedupe struct {
	// Window is how long the vendor remembers a key, counted from its first
	// use; zero means that it doesn't dedupe.
	Window time.Duration
	// BindsBody tells that the same key with another body is refused.
	BindsBody bool
	// InFlight says in words what a concurrent request with the same key gets.
	InFlight string
	// Confirmed tells that the vendor's documents say so; otherwise it is what
	// the adapter's user says.
	Confirmed bool
	// Source is where it stands.
	Source string
}

// Search is how a vendor can be asked about a message.
type Search struct {
	// Available tells that Lookup works.
	Available bool
	// Lag is how long an accepted message may be missing from the answers.
	// "Absent" is proof only when it was asked after the lag.
	Lag time.Duration
	// Source is where it stands.
	Source string
}

// Echo is what a vendor's receipts carry.
type Echo struct {
	// Reference tells that receipts carry the key that was sent.
	Reference bool
	// Grace is how long a first receipt may take.
	Grace time.Duration
	// Source is where it stands.
	Source string
}

// Envelope is what one attempt sends: an intent, as it was frozen, addressed
// to one provider. It is a value; an adapter must not change what its slices
// and maps hold.
type Envelope struct {
	// Key is the message's key, the same in every attempt.
	Key Key
	// Route is the route's name.
	Route string
	// Content is an SMS or an Email.
	Content Content
	// From is the sender registered at this provider; empty means the
	// provider's default.
	From string
	// Attempt counts the attempts at any provider, from 1.
	Attempt int
	// Deadline is when the message stops making sense, by the database's
	// clock; zero means never.
	Deadline time.Time
	// Created is when the intent was enqueued, by the database's clock, the
	// same in every attempt; [Do] takes the time of its call.
	Created time.Time
	// Replay is the request digest of an earlier attempt that may have been
	// accepted. An attempt whose digest differs would be another message and
	// must not be sent: return a Fault with CauseChanged. Nil allows any.
	Replay []byte
	// Metadata is the intent's.
	Metadata map[string]string
	// TraceParent is the W3C trace context of the enqueue.
	TraceParent string
}

// LogValue keeps recipient, text and metadata out of logs.
func (e Envelope) LogValue() slog.Value {
	return slog.GroupValue(slog.String("key", e.Key.String()), slog.String("route", e.Route), slog.Int("attempt", e.Attempt))
}

// Accepted is a provider's word that it took the message.
type Accepted struct {
	// ID is the provider's id of the message.
	ID string
	// NoID tells that the provider gave no id, or that it could not be read,
	// and that the message was accepted all the same. An Accepted with neither
	// counts as Unknown.
	NoID bool
	// Status is the provider's own word ("queued").
	Status string
	// Evidence is what the answer was.
	Evidence Evidence
}

// Query asks a provider what became of a message.
type Query struct {
	// Key is the message's key.
	Key Key
	// Content and From are as they were sent.
	Content Content
	From    string
	// Since and Until bound the time in which the message may have been
	// accepted.
	Since, Until time.Time
}

// Found is the answer to a Query. The zero value says that nothing could be
// told.
type Found struct {
	// Presence tells whether the provider has the message.
	Presence Presence
	// ID is the provider's id of the message where it has it.
	ID string
	// Status is the provider's own word.
	Status string
}

// Presence is whether a provider has a message.
type Presence int8

// The answers. The zero value is Unclear.
const (
	Unclear Presence = 0
	Present Presence = 1
	Absent  Presence = 2
)

func (p Presence) String() string {
	switch p {
	case Unclear:
		return "unclear"
	case Present:
		return "present"
	case Absent:
		return "absent"
	}
	return "unknown presence"
}

// ErrNoLookup says that the provider can't be asked about a message.
var ErrNoLookup = errors.New("provider has no look-up")

// NoLookup is embedded by providers that can't be asked.
type NoLookup struct{}

// Lookup returns ErrNoLookup.
func (NoLookup) Lookup(context.Context, Query) (Found, error) { return Found{}, ErrNoLookup }
