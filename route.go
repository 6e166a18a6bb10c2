package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Route is how one kind of message goes out. It is declared where intents are
// enqueued; workers bind providers to the names. Its name, its budget and its
// senders are frozen with each message; its list of providers is live.
type Route struct {
	// Name is stored with each message. 1 to 40 characters of a-z, 0-9, "-"
	// and "_".
	Name string
	// Providers are the names of the providers to use, in order of
	// preference. The next one is used only after proof that the one before
	// did not accept the message.
	Providers []string
	// Senders maps logical senders to each provider's registered sender. A
	// provider that a sender has no entry for is never used for its messages,
	// also not for failover; a worker warns of it when it begins.
	Senders Senders
	// Checks are the limits of the providers: a message that none of them can
	// carry is refused when it is enqueued. A route has no kind of its own: an
	// Email on a route of SMS providers is stopped here only by their Checks,
	// and without them by the providers, when it is sent.
	Checks Checks
	// Policy bounds the attempts; a zero field means SMSPolicy's.
	Policy Policy
	// Priority is that of messages that don't say; zero means Normal.
	Priority Priority
	// Classify, where set, may change the verdict on an attempt, and falls
	// back by returning the one it was given; Route.Judge says what it can't
	// do. It must be pure and safe for concurrent use.
	Classify func(Evidence, Verdict) Verdict
	// Before, where set, is asked right before each send: for suppression
	// lists and quiet hours. An error, a panic or no answer within a second
	// sends nothing now, and it is asked again after a moment. It must be safe
	// for concurrent use.
	Before func(ctx context.Context, e Envelope) (Advice, error)
}

// Advice is what Route.Before says. The zero Advice sends.
type Advice struct {
	// Drop, where not empty, ends the message as dead, dropped, with this
	// reason; it must hold no personal data. A message that may have been
	// accepted by an earlier attempt is reconciled first.
	Drop string
	// NotBefore puts the send off; the message's deadline still counts.
	NotBefore time.Time
}

// Senders maps logical sender → provider → the sender registered there:
// {"otp": {"acme": "+15555550100", "bravo": "OTP"}}. With acme alone, messages
// of "otp" never go to bravo.
type Senders map[string]map[string]string

// Judge is the verdict on what Send returned, after the route's own Classify.
//
// Classify is not listened to where it panics, where it makes an acceptance of
// something, and where it makes a refusal of an attempt that has no answer or
// whose key the provider knows already: no rule of a route can prove that
// nothing was accepted. It can't shorten a floor or lift a hold. Where it
// widens a refusal to the message's, OwnBody is cleared: that refusal is the
// route's reading, which proves nothing about earlier attempts
// (Contract.RefusalProves).
func (r Route) Judge(a Accepted, err error) (Evidence, Verdict) {
	e, given := Judge(a, err)
	if r.Classify == nil || given.Outcome == OK {
		return e, given
	}
	v := r.reclassify(e, given)
	switch {
	case v.Outcome == OK:
		return e, given
	case v.Outcome == Rejected && given.Outcome != Rejected && (e.Stage == MaybeSent || e.Key != KeyFine):
		return e, given
	}
	v.Floor = max(v.Floor, given.Floor)
	v.Hold = v.Hold || given.Hold
	if v.Scope == Message && given.Scope != Message {
		e.OwnBody = false
	}
	return e, v
}

func (r Route) reclassify(e Evidence, given Verdict) (v Verdict) {
	defer func() {
		if recover() != nil {
			v = given
		}
	}()
	return r.Classify(e, given).bounded()
}

// Validate says in words what is wrong with the route.
func (r Route) Validate() error {
	if err := ValidName(r.Name); err != nil {
		return fmt.Errorf("route %q: name %w", clean(r.Name, 40), err)
	}
	if len(r.Providers) == 0 {
		return fmt.Errorf("route %q: needs at least one provider", r.Name)
	}
	seen := map[string]bool{}
	for _, p := range r.Providers {
		if err := ValidName(p); err != nil {
			return fmt.Errorf("route %q: provider %q: name %w", r.Name, clean(p, 40), err)
		}
		if seen[p] {
			return fmt.Errorf("route %q: provider %q stands twice", r.Name, p)
		}
		seen[p] = true
	}
	if err := r.Senders.validate(); err != nil {
		return fmt.Errorf("route %q: %w", r.Name, err)
	}
	for _, logical := range slices.Sorted(maps.Keys(r.Senders)) {
		for _, p := range slices.Sorted(maps.Keys(r.Senders[logical])) {
			if !seen[p] {
				return fmt.Errorf("route %q: sender %q names provider %q, which is not on the route", r.Name, clean(logical, 40), clean(p, 40))
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(r.Checks)) {
		switch {
		case !seen[p]:
			return fmt.Errorf("route %q: check of provider %q, which is not on the route", r.Name, clean(p, 40))
		case r.Checks[p] == nil:
			return fmt.Errorf("route %q: check of provider %q is nil", r.Name, p)
		}
	}
	if r.Priority < 0 || r.Priority > Low {
		return fmt.Errorf("route %q: priority %d is unknown", r.Name, r.Priority)
	}
	if err := r.Policy.Validate(); err != nil {
		return fmt.Errorf("route %q: %w", r.Name, err)
	}
	return nil
}

// validate goes through the map in order, so that the same mistake gives the
// same error.
func (s Senders) validate() error {
	for _, logical := range slices.Sorted(maps.Keys(s)) {
		for _, p := range slices.Sorted(maps.Keys(s[logical])) {
			registered := s[logical][p]
			if logical == "" || registered == "" {
				return fmt.Errorf("sender %q at %q is empty", clean(logical, 40), clean(p, 40))
			}
			if reason := lineFault(registered, 320); reason != "" {
				return fmt.Errorf("sender %q at %q %s", clean(logical, 40), clean(p, 40), reason)
			}
			if err := plausible(registered); err != nil {
				return fmt.Errorf("sender %q at %q %w", clean(logical, 40), clean(p, 40), err)
			}
		}
	}
	return nil
}

// plausible refuses what can be no sender anywhere, without quoting it. A route
// has no kind, but the sender tells: one without letters is a number, and one
// with "@" a mail address. A name may be a vendor's own id of a sender or of a
// service, longer than what a phone would show, and is left to the provider.
func plausible(registered string) error {
	switch {
	case strings.Contains(registered, "@"):
		if _, err := mail.ParseAddress(registered); err != nil {
			return errors.New("is no mail address")
		}
	case !strings.ContainsFunc(registered, unicode.IsLetter):
		return ValidSender(registered)
	}
	return nil
}
