package dispatch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Checks are limits of providers that are known before a message is written,
// by provider: {"resend": resend.Check, "postmark": postmark.Check}.
//
// A message is refused where nobody can take it: each provider that may send
// it has a check, and each check returns an error. A provider without one
// takes everything, and one that can't take a message leaves it to the others.
// A check must be pure, safe for concurrent use, and change nothing of the
// content. It returns a *[FieldError]; of any other error, and of a panic, the
// caller is told only that there was one, since its text may quote the message.
type Checks map[string]func(Content) error

// Freeze resolves what the route adds to an intent when it is enqueued: the
// content's logical sender as provider → registered sender. The map is the
// route's own and must not be changed. A nil map means that every provider may
// use its default; providers missing in another map are not usable for the
// message. Its error is a *[FieldError] for an intent that the route can't
// carry: a provider that isn't on it, an unknown sender, or what Checks say.
func (r Route) Freeze(i Intent) (map[string]string, error) {
	if i.Provider != "" && !slices.Contains(r.Providers, i.Provider) {
		return nil, &FieldError{Field: "Provider", Reason: fmt.Sprintf("%q is not on route %q", i.Provider, r.Name)}
	}
	m, err := r.senders(i.Content)
	if err != nil {
		return nil, err
	}
	var usable []string
	for _, p := range r.Providers {
		if (i.Provider == "" || i.Provider == p) && (m == nil || m[p] != "") {
			usable = append(usable, p)
		}
	}
	if len(usable) == 0 {
		return nil, &FieldError{Field: "Content.Sender", Reason: "has no registered sender at the pinned provider"}
	}
	return m, r.Checks.ask(i.Content, usable...)
}

func (r Route) senders(c Content) (map[string]string, error) {
	name := ""
	switch c := c.(type) {
	case SMS:
		name = c.Sender
	case Email:
		name = c.Sender
	}
	if name == "" {
		return nil, nil
	}
	m := r.Senders[name]
	if len(m) == 0 {
		return nil, &FieldError{Field: "Content.Sender", Reason: fmt.Sprintf("%q is not a sender of route %q", clean(name, 40), r.Name)}
	}
	return m, nil
}

// sender is Freeze for one provider, whether it is on the route or not.
func (r Route) sender(c Content, provider string) (string, error) {
	m, err := r.senders(c)
	if err != nil {
		return "", err
	}
	if m != nil && m[provider] == "" {
		return "", &FieldError{Field: "Content.Sender", Reason: "has no registered sender at provider " + clean(provider, 40)}
	}
	return m[provider], r.Checks.ask(c, provider)
}

// ask returns nil where one of the providers takes the content, else what all
// of them say, under the field that the first one names.
func (cs Checks) ask(c Content, providers ...string) error {
	var field string
	var reasons []string
	for _, p := range providers {
		check := cs[p]
		if check == nil {
			return nil
		}
		fault := asked(check, c)
		if fault == nil {
			return nil
		}
		reason := clean(fault.Reason, maxReason) + " (" + p + ")"
		if field == "" {
			field = clean(fault.Field, maxReason)
		} else {
			reason = clean(fault.Field, maxReason) + " " + reason
		}
		reasons = append(reasons, reason)
	}
	return &FieldError{Field: field, Reason: strings.Join(reasons, "; ")}
}

func asked(check func(Content) error, c Content) (fault *FieldError) {
	defer func() {
		if recover() != nil {
			fault = &FieldError{Field: "Content", Reason: "made the check panic"}
		}
	}()
	err := check(c)
	if err == nil {
		return nil
	}
	if !errors.As(err, &fault) || fault == nil || fault.Field == "" {
		return &FieldError{Field: "Content", Reason: "is refused by the check"}
	}
	return fault
}
