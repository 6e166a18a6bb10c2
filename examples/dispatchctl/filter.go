package main

import (
	"flag"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// filter are the flags that say which messages are meant.
type filter struct {
	states, route, provider, reason, recipient, since, before string
}

func (v *filter) add(f *flag.FlagSet) {
	f.StringVar(&v.states, "state", "", "states, with commas: pending, sending, unknown, held, dead, sent, cancelled")
	f.StringVar(&v.route, "route", "", "route")
	f.StringVar(&v.provider, "provider", "", "provider that had the message last")
	f.StringVar(&v.reason, "reason", "", "why it is held or dead: rejected, budget, deadline, unresolved, superseded, dropped, changed")
	f.StringVar(&v.recipient, "recipient", "", "number or address; not where recipients are sealed")
	f.StringVar(&v.since, "since", "", "parked, or else enqueued, since: a duration before now like 24h or 90m, or a time like 2026-01-02T15:04:05Z")
	f.StringVar(&v.before, "before", "", "and before: the same")
}

// empty reports whether nothing but times is said.
func (v *filter) empty() bool {
	return v.states == "" && v.route == "" && v.provider == "" && v.reason == "" && v.recipient == ""
}

// filter reads the flags. usual are the states where none are given.
func (v *filter) filter(now time.Time, usual ...dispatch.State) (outbox.Filter, error) {
	f := outbox.Filter{Route: v.route, Provider: v.provider, Recipient: v.recipient}
	for name := range strings.SplitSeq(v.states, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		s, ok := stateOf(name)
		if !ok {
			return f, usagef("--state: %q is no state", name)
		}
		f.States = append(f.States, s)
	}
	if len(f.States) == 0 {
		f.States = usual
	}
	if v.reason != "" {
		for r := dispatch.ReasonRejected; r <= dispatch.ReasonChanged; r++ {
			if r.String() == v.reason {
				f.Reason = r
			}
		}
		if f.Reason == dispatch.NoReason {
			return f, usagef("--reason: %q is no reason", v.reason)
		}
	}
	var err error
	if f.Since, err = instant("--since", v.since, now); err != nil {
		return f, err
	}
	f.Before, err = instant("--before", v.before, now)
	return f, err
}

func stateOf(name string) (dispatch.State, bool) {
	for s := dispatch.Pending; s <= dispatch.Cancelled; s++ {
		if s.String() == name {
			return s, true
		}
	}
	return 0, false
}

// instant is a time, or a duration before now.
func instant(name, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, usagef("%s: %q is neither a duration like 24h nor a time like 2026-01-02T15:04:05Z", name, text)
	}
	return t, nil
}

// audit are the flags that say who and why.
type audit struct{ by, why string }

func (v *audit) add(f *flag.FlagSet) {
	f.StringVar(&v.by, "by", "", "who does it; required, and kept in the history")
	f.StringVar(&v.why, "why", "", "why; required, and kept in the history")
}

func (v *audit) audit() (outbox.Audit, error) {
	if v.by == "" || v.why == "" {
		return outbox.Audit{}, usagef("--by and --why are required")
	}
	return outbox.Audit{By: v.by, Why: v.why}, nil
}

// natural is key, or the key of a natural name in a name space where one is given.
func natural(space string, args []string) (k dispatch.Key, ok bool, err error) {
	if space == "" || len(args) != 1 {
		return key(args)
	}
	n, err := dispatch.NewNamespace(space)
	if err != nil {
		return k, false, usagef("--namespace: %w", err)
	}
	if k = n.Key(args[0]); k.IsZero() {
		return k, false, usagef("which message? its name is empty")
	}
	return k, true, nil
}

// key reads the one argument that may be there.
func key(args []string) (k dispatch.Key, ok bool, err error) {
	switch len(args) {
	case 0:
		return k, false, nil
	case 1:
		if k, err = dispatch.ParseKey(args[0]); err != nil {
			return k, false, usagef("%q is no key", args[0])
		}
		return k, true, nil
	}
	return k, false, usagef("%d arguments, want one key", len(args))
}

func none(args []string) error {
	if len(args) > 0 {
		return usagef("argument %q is not expected", args[0])
	}
	return nil
}
