package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

func pause(p *program, f *flag.FlagSet) func(context.Context, []string) error {
	force := f.Bool("force", false, "also a name that the outbox has not seen")
	return p.gate(f, "paused", func(ctx context.Context, box *outbox.Box, kind, name string, who outbox.Audit) error {
		// A gate for a name that was mistyped would hold nothing, and look as if.
		if !*force {
			seen, err := known(ctx, box, kind, name)
			if err != nil {
				return err
			}
			if !seen {
				return refusal{fmt.Errorf("the outbox has seen no %s %q; --force pauses it all the same", kind, name)}
			}
		}
		if kind == "route" {
			return box.PauseRoute(ctx, name, who)
		}
		return box.Pause(ctx, name, who)
	})
}

func resume(p *program, f *flag.FlagSet) func(context.Context, []string) error {
	return p.gate(f, "resumed", func(ctx context.Context, box *outbox.Box, kind, name string, who outbox.Audit) error {
		if kind == "route" {
			return box.ResumeRoute(ctx, name, who)
		}
		return box.Resume(ctx, name, who)
	})
}

// known reports whether a message of the route, or one that the provider had
// last, is there.
func known(ctx context.Context, box *outbox.Box, kind, name string) (bool, error) {
	f := outbox.Filter{Route: name}
	if kind == "provider" {
		f = outbox.Filter{Provider: name}
	}
	for cursor := ""; ; {
		found, next, err := box.List(ctx, f, cursor, 1)
		if err != nil || len(found) > 0 || next == "" {
			return len(found) > 0, err
		}
		cursor = next
	}
}

func (p *program) gate(f *flag.FlagSet, done string, act func(ctx context.Context, box *outbox.Box, kind, name string, who outbox.Audit) error) func(context.Context, []string) error {
	var a audit
	a.add(f)
	return func(ctx context.Context, args []string) error {
		if len(args) != 2 || args[0] != "provider" && args[0] != "route" {
			return usagef("want provider or route, and a name")
		}
		who, err := a.audit()
		if err != nil {
			return err
		}
		kind, name := args[0], args[1]
		if err := dispatch.ValidName(name); err != nil {
			return usagef("%s name %w", kind, err)
		}
		route := dispatch.Route{Name: "any", Providers: []string{"any"}}
		if kind == "route" {
			route.Name = name
		}
		box, closed, err := p.open(ctx, route)
		if err != nil {
			return err
		}
		defer closed()
		if err := act(ctx, box, kind, name, who); err != nil {
			return err
		}
		return p.write(map[string]string{kind: name, "state": done}, func(w io.Writer) { say(w, "%s %s is %s\n", kind, name, done) })
	}
}

// drainDoc is what is left.
type drainDoc struct {
	Empty    bool    `json:"empty"`
	InMotion int64   `json:"in_motion"`
	Held     int64   `json:"held"`
	Dead     int64   `json:"dead"`
	Waited   float64 `json:"waited_seconds"`
}

// drain waits for the application's workers: this program has no providers, and
// sends nothing. What is held or dead waits for a person and isn't waited for.
func drain(p *program, f *flag.FlagSet) func(context.Context, []string) error {
	route := f.String("route", "", "only this route")
	timeout := f.Duration("timeout", 0, "give up after this time; 0 waits for ever")
	every := f.Duration("every", time.Second, "how often to look")
	return func(ctx context.Context, args []string) error {
		if err := none(args); err != nil {
			return err
		}
		if *timeout < 0 || *every < 10*time.Millisecond {
			return usagef("--timeout or --every is too short")
		}
		box, done, err := p.open(ctx)
		if err != nil {
			return err
		}
		defer done()
		return p.wait(ctx, box, *route, *timeout, *every)
	}
}

func (p *program) wait(ctx context.Context, box *outbox.Box, route string, timeout, every time.Duration) error {
	began := p.now()
	var doc drainDoc
	var bar *bar
	most := int64(0)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var err error
	for {
		var s outbox.Stats
		if s, err = box.Stats(ctx); err != nil {
			break
		}
		doc = left(s, route)
		if most = max(most, doc.InMotion); bar == nil {
			bar = p.bar("drain", most)
		}
		bar.total = most
		bar.at(most - doc.InMotion)
		if doc.Empty = doc.InMotion == 0; doc.Empty {
			break
		}
		if waited := p.now().Sub(began); timeout > 0 && waited >= timeout {
			err = refusal{fmt.Errorf("%d messages are still in motion after %v", doc.InMotion, timeout)}
			break
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-tick.C:
		}
		if err != nil {
			break
		}
	}
	if bar == nil { // nothing could be read
		return err
	}
	bar.end()
	doc.Waited = p.now().Sub(began).Seconds()
	if written := p.write(doc, func(w io.Writer) {
		say(w, "%d in motion, %d held, %d dead\n", doc.InMotion, doc.Held, doc.Dead)
	}); written != nil {
		return written
	}
	return err
}

func left(s outbox.Stats, route string) (d drainDoc) {
	for _, v := range s.Depths {
		if route != "" && v.Route != route {
			continue
		}
		switch v.State {
		case dispatch.Pending, dispatch.Sending, dispatch.InDoubt:
			d.InMotion += v.Count
		case dispatch.Held:
			d.Held += v.Count
		case dispatch.Dead:
			d.Dead += v.Count
		case dispatch.Sent, dispatch.Cancelled:
		}
	}
	return d
}

// pruneDoc is what was removed.
type pruneDoc struct {
	Scrubbed    int64 `json:"scrubbed"`
	Deleted     int64 `json:"deleted"`
	Receipts    int64 `json:"receipts"`
	Interrupted bool  `json:"interrupted,omitempty"`
}

func prune(p *program, f *flag.FlagSet) func(context.Context, []string) error {
	var r outbox.Retention
	f.StringVar(&r.Route, "route", "", "only this route")
	f.DurationVar(&r.Scrub, "scrub", 0, "remove the content of sent and cancelled messages after this time")
	f.DurationVar(&r.ScrubDead, "scrub-dead", 0, "the same of dead ones")
	f.DurationVar(&r.Delete, "delete", 0, "delete sent and cancelled messages, with their keys, after this time")
	f.DurationVar(&r.DeleteDead, "delete-dead", 0, "the same of dead ones")
	valid := f.Duration("valid-for", 0, "with --delete: the longest validity of the application's routes")
	return func(ctx context.Context, args []string) error {
		if err := none(args); err != nil {
			return err
		}
		switch {
		case r.Scrub == 0 && r.ScrubDead == 0 && r.Delete == 0 && r.DeleteDead == 0:
			return usagef("prune what? set --scrub, --scrub-dead, --delete or --delete-dead")
		case (r.Delete != 0 || r.DeleteDead != 0) && *valid <= 0:
			// The outbox knows what is too early only from its routes.
			return usagef("--delete needs --valid-for: a key that is deleted earlier could be enqueued, and sent, again")
		}
		for _, d := range []time.Duration{r.Delete, r.DeleteDead} {
			if d != 0 && d < *valid+24*time.Hour {
				return usagef("--delete: %v is too early, want at least a day more than --valid-for", d)
			}
		}
		for _, d := range []time.Duration{r.Scrub, r.ScrubDead, r.Delete, r.DeleteDead} {
			if d < 0 || d > 100*365*24*time.Hour {
				return usagef("%v is no age, want 0 to a hundred years", d)
			}
		}
		route := dispatch.Route{Name: "any", Providers: []string{"any"}}
		route.Policy.ValidFor = *valid
		if r.Route != "" {
			route.Name = r.Route
		}
		box, done, err := p.open(ctx, route)
		if err != nil {
			return err
		}
		defer done()
		stop := p.busy("prune")
		got, err := box.Prune(ctx, r)
		stop()
		doc := pruneDoc{Scrubbed: got.Scrubbed, Deleted: got.Deleted, Receipts: got.Receipts, Interrupted: ctx.Err() != nil}
		if err != nil && got == (outbox.Pruned{}) && ctx.Err() == nil {
			return err
		}
		if written := p.write(doc, func(w io.Writer) {
			say(w, "%d scrubbed, %d deleted, %d receipts deleted\n", doc.Scrubbed, doc.Deleted, doc.Receipts)
		}); written != nil {
			return written
		}
		return err
	}
}
