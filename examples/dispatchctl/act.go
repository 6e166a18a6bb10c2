package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

func requeue(p *program, f *flag.FlagSet) func(context.Context, []string) error {
	var a action
	a.add(f)
	anyway := f.Bool("anyway", false, "also what may have been accepted: its recipient may get it twice")
	return func(ctx context.Context, args []string) error {
		a.name, a.usual, a.rest = "requeue", []dispatch.State{dispatch.Held, dispatch.Dead}, args
		return a.do(ctx, p, func(box *outbox.Box) outbox.Verb {
			if *anyway {
				return box.SendAnyway
			}
			return box.Retry
		})
	}
}

func resolve(p *program, f *flag.FlagSet) func(context.Context, []string) error {
	var a action
	a.add(f)
	id := f.String("id", "", "with accepted and a key: the provider's id of the message")
	return func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return usagef("what became of it? resolve wants accepted, not-accepted or give-up")
		}
		a.name, a.usual, a.rest = "resolve "+args[0], []dispatch.State{dispatch.Held, dispatch.InDoubt}, args[1:]
		switch args[0] {
		case "accepted":
			if *id != "" && len(a.rest) == 0 {
				return usagef("--id wants a key: each message has an id of its own")
			}
			return a.do(ctx, p, func(box *outbox.Box) outbox.Verb {
				return func(ctx context.Context, k dispatch.Key, who outbox.Audit) (dispatch.State, error) {
					return box.ResolveAccepted(ctx, k, *id, who)
				}
			})
		case "not-accepted":
			return a.do(ctx, p, func(box *outbox.Box) outbox.Verb { return box.ResolveNotAccepted })
		case "give-up":
			return a.do(ctx, p, func(box *outbox.Box) outbox.Verb { return box.GiveUp })
		}
		return usagef("%q: resolve wants accepted, not-accepted or give-up", args[0])
	}
}

func cancel(p *program, f *flag.FlagSet) func(context.Context, []string) error {
	var a action
	a.add(f)
	return func(ctx context.Context, args []string) error {
		a.name, a.usual, a.rest = "cancel", []dispatch.State{dispatch.Pending, dispatch.Sending, dispatch.InDoubt}, args
		return a.do(ctx, p, func(box *outbox.Box) outbox.Verb { return box.Cancel })
	}
}

// action is a verb on one message, or on all that pass a filter.
type action struct {
	name   string
	usual  []dispatch.State
	rest   []string
	filter filter
	audit  audit
}

func (a *action) add(f *flag.FlagSet) {
	a.filter.add(f)
	a.audit.add(f)
}

// do checks everything before it connects.
func (a *action) do(ctx context.Context, p *program, verb func(*outbox.Box) outbox.Verb) error {
	who, err := a.audit.audit()
	if err != nil {
		return err
	}
	k, one, err := key(a.rest)
	if err != nil {
		return err
	}
	switch empty := a.filter.empty(); {
	case one && (!empty || a.filter.since != "" || a.filter.before != ""):
		return usagef("a key or a filter, not both")
	case !one && empty:
		return usagef("which messages? %s wants a key, or a filter that says more than times", a.name)
	}
	pick, err := a.filter.filter(p.now(), a.usual...)
	if err != nil {
		return err
	}
	box, done, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	if one {
		return a.one(ctx, p, k, who, verb(box))
	}
	return a.many(ctx, p, box, pick, who, verb(box))
}

func (a *action) one(ctx context.Context, p *program, k dispatch.Key, who outbox.Audit, verb outbox.Verb) error {
	state, err := verb(ctx, k, who)
	if err != nil {
		return err
	}
	doc := actionDoc{Action: a.name, Matched: 1, Done: map[string]int{state.String(): 1}, Refused: map[string]int{}}
	return p.write(doc, func(w io.Writer) { say(w, "%s: message %s is %s\n", a.name, k, state) })
}

func (a *action) many(ctx context.Context, p *program, box *outbox.Box, pick outbox.Filter, who outbox.Audit, verb outbox.Verb) error {
	total, err := expected(ctx, box, pick)
	if err != nil {
		return err
	}
	bar := p.bar(a.name, total)
	got, err := box.Bulk(ctx, pick, verb, who, func(g outbox.Progress) { bar.at(int64(g.Matched)) })
	bar.end()
	doc := actionDoc{Action: a.name, Matched: got.Matched, Done: map[string]int{}, Refused: map[string]int{}, Interrupted: ctx.Err() != nil}
	for s, n := range got.Done {
		doc.Done[s.String()] += n
	}
	refused := 0
	for r, n := range got.Refused {
		doc.Refused[r.Error()] += n
		refused += n
	}
	if err != nil && ctx.Err() == nil {
		doc.Error = err.Error()
	}
	if written := p.write(doc, doc.text); written != nil {
		return written
	}
	if err == nil && refused > 0 {
		return refusal{fmt.Errorf("%d of %d messages were left as they were", refused, got.Matched)}
	}
	return err
}

// expected is about how many messages pass a filter, 0 where that isn't cheap to
// know.
func expected(ctx context.Context, box *outbox.Box, f outbox.Filter) (n int64, err error) {
	if f.Provider != "" || f.Recipient != "" || !f.Since.IsZero() || !f.Before.IsZero() {
		return 0, nil
	}
	s, err := box.Stats(ctx)
	if err != nil {
		return 0, err
	}
	for _, d := range s.Depths {
		for _, want := range f.States {
			if d.State == want && (f.Route == "" || d.Route == f.Route) && (f.Reason == 0 || d.Reason == f.Reason) {
				n += d.Count
			}
		}
	}
	return n, nil
}
