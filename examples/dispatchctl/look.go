package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/seed-8098fbb7/dispatch/outbox"
)

func migrate(p *program, _ *flag.FlagSet) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		if err := none(args); err != nil {
			return err
		}
		box, done, err := p.open(ctx)
		if err != nil {
			return err
		}
		defer done()
		if err := box.Migrate(ctx); err != nil {
			return err
		}
		return p.write(map[string]string{"schema": p.schema, "state": "migrated"}, func(w io.Writer) {
			say(w, "schema %s is migrated\n", p.schema)
		})
	}
}

func stats(p *program, f *flag.FlagSet) func(context.Context, []string) error {
	check := f.Bool("check", false, "exit with 3 where something is over its limit; limits are off where negative")
	var limits outbox.Alarms
	f.DurationVar(&limits.Late, "late", 0, "limit: how long a message that is due may wait for a worker; 0 is 5m")
	f.DurationVar(&limits.Unknown, "unknown", 0, "limit: how long a message may be uncertain; 0 is 1h")
	f.IntVar(&limits.DeadLastHour, "dead", 0, "limit: so many deaths in an hour are too many; 0 is 20")
	f.IntVar(&limits.Held, "held", 0, "limit: so many held messages are too many; 0 is 100")
	f.DurationVar(&limits.Holdback, "holdback", 0, "limit: how long a transaction may hold vacuum back; 0 is 30m")
	f.IntVar(&limits.Unmatched, "unmatched", 0, "limit: so many receipts without a message are too many; 0 is 1000")
	f.DurationVar(&limits.Account, "account", 0, "limit: how long a provider may refuse the account; 0 is 1m")
	return func(ctx context.Context, args []string) error {
		if err := none(args); err != nil {
			return err
		}
		if !*check && limits != (outbox.Alarms{}) {
			return usagef("limits are for --check")
		}
		box, done, err := p.open(ctx)
		if err != nil {
			return err
		}
		defer done()
		s, err := box.Stats(ctx)
		if err != nil {
			return err
		}
		doc := statsOf(s)
		over := error(nil)
		if *check {
			over = box.Check(ctx, limits)
			doc.Within = over == nil
			if errors.Is(over, outbox.ErrUnready) {
				doc.Over = over.Error()
			}
		}
		return errors.Join(p.write(doc, doc.text), over)
	}
}

func history(p *program, f *flag.FlagSet) func(context.Context, []string) error {
	words := f.Bool("words", false, "with --json, show the vendor's own words too; they may quote the recipient")
	space := f.String("namespace", "", "name space of the application's keys: the argument is a natural name, such as order-123/shipped")
	return func(ctx context.Context, args []string) error {
		k, ok, err := natural(*space, args)
		if err != nil {
			return err
		}
		if !ok {
			return usagef("which message? history wants a key")
		}
		box, done, err := p.open(ctx)
		if err != nil {
			return err
		}
		defer done()
		h, err := box.History(ctx, k)
		if err != nil {
			return err
		}
		if p.json {
			return p.write(historyOf(h, *words), nil)
		}
		_, err = io.WriteString(p.out, h.String())
		return err
	}
}

func list(p *program, f *flag.FlagSet) func(context.Context, []string) error {
	var which filter
	which.add(f)
	limit := f.Int("limit", 100, "how many, at most 1000")
	cursor := f.String("cursor", "", "go on from here: what the call before told")
	return func(ctx context.Context, args []string) error {
		if err := none(args); err != nil {
			return err
		}
		if *limit < 1 || *limit > outbox.MaxList {
			return usagef("--limit: %d, want 1 to %d", *limit, outbox.MaxList)
		}
		pick, err := which.filter(p.now())
		if err != nil {
			return err
		}
		box, done, err := p.open(ctx)
		if err != nil {
			return err
		}
		defer done()
		found, next, err := box.List(ctx, pick, *cursor, *limit)
		if err != nil {
			return err
		}
		doc := listDoc{Messages: []message{}, Next: next}
		for _, m := range found {
			doc.Messages = append(doc.Messages, messageOf(m))
		}
		if err := p.write(doc, doc.text); err != nil || len(found) > 0 || next != "" || *cursor != "" {
			return err
		}
		return p.unheard(ctx, box, pick)
	}
}

// unheard says on the other stream that a name of the filter is nobody's, where
// one look is enough to know: it may be mistyped.
func (p *program) unheard(ctx context.Context, box *outbox.Box, pick outbox.Filter) error {
	for _, n := range []struct {
		kind, name string
		filter     outbox.Filter
	}{{"route", pick.Route, outbox.Filter{Route: pick.Route}}, {"provider", pick.Provider, outbox.Filter{Provider: pick.Provider}}} {
		if n.name == "" {
			continue
		}
		found, next, err := box.List(ctx, n.filter, "", 1)
		if err != nil {
			return err
		}
		if len(found) == 0 && next == "" {
			say(p.err, "the outbox has seen no %s %q\n", n.kind, n.name)
		}
	}
	return nil
}

func (d listDoc) text(w io.Writer) {
	say(w, "KEY\tROUTE\tSTATE\tREASON\tPROVIDER\tATTEMPTS\tCHANGED\tLAST ERROR\n")
	for _, m := range d.Messages {
		last := m.Detail
		if m.Status != 0 {
			last += fmt.Sprintf(", status %d", m.Status)
		}
		if m.Code != "" {
			last += ", code " + m.Code
		}
		say(w, "%s\t%s\t%s\t%s\t%s\t%d of %d\t%s\t%s\n", m.Key, m.Route, m.State, m.Reason, m.Provider, m.Attempts, m.Budget,
			m.Changed.UTC().Format(time.RFC3339), last)
	}
	if d.Next != "" {
		say(w, "more with --cursor %s\n", d.Next)
	}
}
