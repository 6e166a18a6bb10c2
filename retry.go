package dispatch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"time"
)

// Policy bounds the attempts for one message. A zero field means the value of
// SMSPolicy.
type Policy struct {
	// Backoff spaces the attempts; SMS 0.5 s up to 60 s.
	Backoff Backoff
	// Attempts is how many sends a message gets in all; SMS 8, at most 100. It
	// is frozen with each message.
	Attempts int
	// ValidFor is the time that a message makes sense where its intent doesn't
	// say; SMS 4 h, Never for no end.
	ValidFor time.Duration
	// OnUnknown is what happens to messages whose acceptance can't be found
	// out; UnknownHold.
	OnUnknown OnUnknown
}

// SMSPolicy is the policy for text messages: 8 attempts, 0.5 s doubling up to
// 60 s, valid for 4 hours, an unknown is held.
func SMSPolicy() Policy {
	return Policy{
		Backoff: Backoff{Base: 500 * time.Millisecond, Cap: time.Minute}, Attempts: 8,
		ValidFor: 4 * time.Hour, OnUnknown: OnUnknown{Action: UnknownHold},
	}
}

// EmailPolicy is the policy for mail: 5 attempts, 2 s doubling up to 32 s,
// valid for 48 hours, an unknown is held.
func EmailPolicy() Policy {
	return Policy{
		Backoff: Backoff{Base: 2 * time.Second, Cap: 32 * time.Second}, Attempts: 5,
		ValidFor: 48 * time.Hour, OnUnknown: OnUnknown{Action: UnknownHold},
	}
}

// WithDefaults fills the zero fields from SMSPolicy.
func (p Policy) WithDefaults() Policy {
	d := SMSPolicy()
	if p.Backoff.Base == 0 {
		p.Backoff.Base = d.Backoff.Base
	}
	if p.Backoff.Cap == 0 {
		p.Backoff.Cap = d.Backoff.Cap
	}
	if p.Attempts == 0 {
		p.Attempts = d.Attempts
	}
	if p.ValidFor == 0 {
		p.ValidFor = d.ValidFor
	}
	if p.OnUnknown.Action == 0 {
		p.OnUnknown.Action = d.OnUnknown.Action
	}
	return p
}

// Validate says in words what is wrong with the policy.
func (p Policy) Validate() error {
	p = p.WithDefaults()
	switch {
	case p.Backoff.Base < 0 || p.Backoff.Cap < 0:
		return errors.New("policy: backoff is negative")
	case p.Backoff.Cap < p.Backoff.Base:
		return errors.New("policy: backoff cap is below its base")
	case p.Backoff.Cap > MaxFloor:
		return fmt.Errorf("policy: backoff cap is above %v", MaxFloor)
	case p.Attempts < 1 || p.Attempts > 100:
		return fmt.Errorf("policy: %d attempts, want 1 to 100", p.Attempts)
	case p.ValidFor < 0 && p.ValidFor != Never:
		return errors.New("policy: valid for a negative time")
	case p.ValidFor > maxValidity:
		return fmt.Errorf("policy: valid for more than %v, want Never", maxValidity)
	}
	if err := p.OnUnknown.validate(); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	return nil
}

func (u OnUnknown) validate() error {
	if u.Action < 0 || u.Action > UnknownDead {
		return fmt.Errorf("on unknown: action %d is unknown", u.Action)
	}
	if u.After < 0 || u.After > maxValidity {
		return fmt.Errorf("on unknown: after %v, want 0 to %v", u.After, maxValidity)
	}
	return nil
}

// maxValidity keeps every instant that is derived from a duration inside what
// Postgres and Go can both hold.
const maxValidity = 10 * 366 * 24 * time.Hour

// WorstCase is the longest that the attempts can take without a floor: each
// attempt's time-out and each longest wait. An outer deadline below it can end
// before the budget is spent. It saturates, and a policy that Validate refuses
// has no bound: both give the longest Duration there is.
func (p Policy) WorstCase(attempt time.Duration) time.Duration {
	const longest = time.Duration(math.MaxInt64)
	if p.Validate() != nil {
		return longest
	}
	p = p.WithDefaults()
	total := time.Duration(0)
	for n := 1; n <= p.Attempts; n++ {
		step := max(0, attempt)
		if n < p.Attempts {
			step = min(step, longest-MaxFloor) + p.Backoff.Bound(n) // Bound is at most MaxFloor
		}
		if step > longest-total {
			return longest
		}
		total += step
	}
	return total
}

// Do sends one message now, for callers without a database. It tries again
// within the route's policy where that is safe, waits only inside ctx, and
// never sends once its acceptance is uncertain unless the provider dedupes.
// A ctx with less room than Policy.WorstCase may cut an attempt off, which
// leaves its message unknown.
//
// It returns nil when the provider accepted, a *[FieldError] for a bad intent,
// and a *[SendError] otherwise. What it knows is gone with the process: a
// caller that can't lose a message or the knowledge of it wants the outbox.
// The route's Providers are not used; its Senders are looked up under the
// provider's name. A name in the intent's Route or Provider that isn't that of
// r or p is an error.
func Do(ctx context.Context, p Provider, r Route, i Intent) (Accepted, error) {
	if p == nil {
		return Accepted{}, &FieldError{Field: "Provider", Reason: "is nil"}
	}
	c := p.Contract()
	if err := c.Validate(); err != nil {
		return Accepted{}, &FieldError{Field: "Provider", Reason: "has a bad " + err.Error()}
	}
	i, err := i.Normalize()
	if err != nil {
		return Accepted{}, err
	}
	if err := r.check(c, i); err != nil {
		return Accepted{}, err
	}
	from, err := r.sender(i.Content, c.Name)
	if err != nil {
		return Accepted{}, err
	}
	d := direct{provider: p, contract: c, route: r, policy: r.Policy.WithDefaults()}
	now := time.Now()
	d.env = Envelope{
		Key: i.Key, Route: cmp.Or(r.Name, i.Route), Content: i.Content, From: from,
		// Round takes the monotonic clock away: it stands still while the machine sleeps.
		Deadline: i.deadline(now.Round(0), d.policy), Created: now.Round(0),
		Metadata: maps.Clone(i.Metadata), TraceParent: i.TraceParent,
	}
	if i.NotBefore.After(now) {
		return Accepted{}, d.stop(ErrDeferred, i.NotBefore, Verdict{Outcome: Rejected, Reason: "not before"}, Evidence{Stage: NotSent})
	}
	return d.run(ctx)
}

// check is Validate as far as Do uses a route.
func (r Route) check(c Contract, i Intent) error {
	if r.Name != "" {
		if err := ValidName(r.Name); err != nil {
			return &FieldError{Field: "Route.Name", Reason: err.Error()}
		}
		if i.Route != "" && i.Route != r.Name {
			return &FieldError{Field: "Route", Reason: "is not the route that was given"}
		}
	}
	if i.Provider != "" && i.Provider != c.Name {
		return &FieldError{Field: "Provider", Reason: "is not the provider that was given"}
	}
	if err := r.Senders.validate(); err != nil {
		return &FieldError{Field: "Route.Senders", Reason: err.Error()}
	}
	if err := r.Policy.Validate(); err != nil {
		return &FieldError{Field: "Route.Policy", Reason: err.Error()}
	}
	return nil
}

// direct is one run of Do.
type direct struct {
	provider Provider
	contract Contract
	route    Route
	policy   Policy
	env      Envelope
	attempts int
	open     bool      // an attempt may have been accepted
	first    time.Time // when the first attempt that may have left was made
}

func (d *direct) run(ctx context.Context) (Accepted, error) {
	// v and e are the last attempt's.
	v, e := Verdict{Outcome: Rejected, Reason: "not tried"}, Evidence{Stage: NotSent}
	for {
		// Time passes between the check that came before the wait and this one,
		// a lot of it if the machine slept.
		switch now := time.Now(); {
		case d.open && !d.replayable(now), d.expired(now):
			return Accepted{}, d.end(v, e)
		case ctx.Err() != nil:
			return Accepted{}, d.give(now, v, e)
		}
		var a Accepted
		var at time.Time
		a, e, v, at = d.attempt(ctx)
		if v.Outcome == OK {
			return a.bounded(), nil
		}
		if d.first.IsZero() && (e.Stage != NotSent || v.Outcome == Unknown) {
			d.first = at
		}
		if v.Outcome == Unknown {
			d.open = true
			if d.env.Replay == nil && len(e.Request) > 0 {
				d.env.Replay = bytes.Clone(e.Request)
			}
		}
		if err := d.next(ctx, e, v); err != nil {
			return Accepted{}, err
		}
	}
}

func (d *direct) attempt(ctx context.Context) (a Accepted, e Evidence, v Verdict, at time.Time) {
	d.attempts++
	d.env.Attempt = d.attempts
	at = time.Now()
	ctx, cancel := context.WithTimeout(ctx, d.contract.AttemptTimeout())
	defer cancel()
	defer func() {
		if recover() != nil {
			e, v = Evidence{Cause: CausePanic}, Verdict{Outcome: Unknown, Reason: CausePanic.String()}
		}
	}()
	a, err := d.provider.Send(ctx, d.env)
	e, v = d.route.Judge(a, err)
	return a, e, v, at
}

// next waits for the next attempt, or says why there is none.
func (d *direct) next(ctx context.Context, e Evidence, v Verdict) error {
	final := v.Hold || v.Outcome == Rejected && v.Scope != Moment
	switch {
	case d.open && v.Outcome == Rejected && v.Scope == Message && d.contract.RefusalProves && e.OwnBody && d.replayable(time.Now()):
		return d.stop(ErrRejected, time.Time{}, v, e)
	case final && d.open:
		return d.stop(ErrUnknown, time.Time{}, v, e)
	case final:
		return d.stop(ErrRejected, time.Time{}, v, e)
	case d.attempts >= d.policy.Attempts:
		return d.end(v, e)
	}
	wait := d.policy.Backoff.Wait(d.attempts, v.Floor, rand.Int64N)
	until := time.Now().Add(wait)
	switch {
	case d.open && !d.replayable(until):
		return d.stop(ErrUnknown, time.Time{}, v, e)
	case d.expired(until):
		return d.end(v, e)
	case !within(ctx, until):
		return d.give(until, v, e)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return d.give(until, v, e)
	}
}

// give ends a run that may go on later: deferred, or unknown where an attempt
// may have been accepted.
func (d *direct) give(until time.Time, v Verdict, e Evidence) error {
	if d.open {
		return d.stop(ErrUnknown, until, v, e)
	}
	return d.stop(ErrDeferred, until, v, e)
}

// end ends a run for good.
func (d *direct) end(v Verdict, e Evidence) error {
	if d.open {
		return d.stop(ErrUnknown, time.Time{}, v, e)
	}
	return d.stop(ErrBudget, time.Time{}, v, e)
}

func (d *direct) expired(t time.Time) bool {
	return !d.env.Deadline.IsZero() && !t.Before(d.env.Deadline)
}

// replayable reports whether an attempt at t is inside the provider's dedupe
// window, with room for the attempt itself. Of our two clocks the one counts
// on which more time has passed: the monotonic one may stand still while the
// machine sleeps, the other may be set back.
func (d *direct) replayable(t time.Time) bool {
	passed := max(t.Sub(d.first), t.Round(0).Sub(d.first.Round(0)))
	return passed < d.contract.Dedupe.Window-2*d.contract.AttemptTimeout()
}

func (d *direct) stop(is error, until time.Time, v Verdict, e Evidence) error {
	return &SendError{Key: d.env.Key, Attempts: d.attempts, Until: until, Verdict: v, Evidence: e, is: is}
}

func within(ctx context.Context, t time.Time) bool {
	end, ok := ctx.Deadline()
	return !ok || t.Before(end)
}
