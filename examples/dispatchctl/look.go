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
	check := f.Bool("check", false, "exit with 3 where something is over its limit")
	return func(ctx context.Context, args []string) error {
		if err := none(args); err != nil {
			return err
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
			if over = box.Check(ctx, outbox.Alarms{}); errors.Is(over, outbox.ErrUnready) {
				doc.Over = over.Error()
			}
		}
		return errors.Join(p.write(doc, doc.text), over)
	}
}

func history(p *program, f *flag.FlagSet) func(context.Context, []string) error {
	words := f.Bool("words", false, "with --json, show the vendor's own words too; they may quote the recipient")
	return func(ctx context.Context, args []string) error {
		k, ok, err := key(args)
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
		return p.write(doc, doc.text)
	}
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
