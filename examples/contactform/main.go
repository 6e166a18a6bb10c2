// Contactform confirms what is written into a contact form: the category picks
// queue and template inside the transaction, and both are frozen with the
// message. While a confirmation waits for its retry, the template is edited and
// the category gets another queue: what goes out is the old one. A second
// confirmation is corrected while it waits, under a new key.
//
//	go run ./examples/contactform
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "contactform:", err)
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context) error {
	server, err := pgtest.Start(ctx, pgtest.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	pool, err := pgxpool.New(ctx, server.URL())
	if err != nil {
		return err
	}
	defer pool.Close()
	s, err := tell(ctx, pool)
	if err != nil {
		return err
	}
	for _, m := range s.delivered {
		fmt.Printf("%s, queue %s:\n    %s\n", m.Key, m.Route, m.Content.(dispatch.Email).Text)
	}
	fmt.Printf("\n%s\n%s\n", s.confirmed, s.corrected)
	fmt.Printf("RESULT deliveries=%d queue=%s superseded=%s\n", len(s.delivered), s.confirmed.Route, s.replaced.State)
	return nil
}

// story is what happened.
type story struct {
	confirmed outbox.History // sent as it was enqueued, after edits
	replaced  outbox.History // superseded while it waited
	corrected outbox.History // in its place
	delivered []dispatch.Envelope
}

// tell plays it, on a vendor that is busy until staff have made their edits.
func tell(ctx context.Context, pool *pgxpool.Pool) (s story, err error) {
	if _, err := pool.Exec(ctx, "drop schema if exists contactform cascade; create schema contactform;"+tables); err != nil {
		return s, err
	}
	policy := dispatch.EmailPolicy()
	policy.Backoff.Base = 500 * time.Millisecond // so that nobody has to wait here
	box, err := outbox.New(pool, outbox.Config{
		Schema: "contactform",
		Routes: []dispatch.Route{
			{Name: "sales", Providers: []string{"mail"}, Policy: policy},
			{Name: "support", Providers: []string{"mail"}, Policy: policy},
		},
	})
	if err != nil {
		return s, err
	}
	if err := box.Migrate(ctx); err != nil {
		return s, err
	}
	ids, err := dispatch.NewNamespace("contactform-example")
	if err != nil {
		return s, err
	}
	d := &desk{pool: pool, box: box, ids: ids}

	var edited atomic.Bool
	vendor := &outboxtest.Provider{Promise: dispatch.Contract{Name: "mail"}}
	vendor.Respond = func(_ context.Context, _ dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		if !edited.Load() {
			busy := dispatch.Evidence{Stage: dispatch.Answered, Status: 429}
			return dispatch.Accepted{}, &dispatch.Fault{Evidence: busy, Verdict: dispatch.Classify(busy)}
		}
		return accept(), nil
	}
	worker, err := outbox.NewWorker(box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{vendor}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return s, err
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- worker.Run(running) }()
	err = d.play(ctx, &s, &edited)
	stop()
	s.delivered = vendor.Accepted()
	return s, errors.Join(err, <-done)
}

func (d *desk) play(ctx context.Context, s *story, edited *atomic.Bool) error {
	first, err := d.submit(ctx, inquiry{ID: "41", Category: "Prices", Email: "ada@example.com", Text: "ten chairs"})
	if err != nil {
		return err
	}
	second, err := d.submit(ctx, inquiry{ID: "42", Category: "Prices", Email: "grace@example.com", Text: "a table"})
	if err != nil {
		return err
	}
	for _, key := range []dispatch.Key{first, second} {
		if _, err := d.await(ctx, key, func(h outbox.History) bool { return h.Attempts > 0 && h.State == dispatch.Pending }); err != nil {
			return err
		}
	}

	// Both wait for their retry. Staff edit the words and move the category.
	_, err = d.pool.Exec(ctx, `
		update contactform.template set body = 'Dear customer, our prices are on our site now.';
		update contactform.category set queue = 'support'`)
	if err != nil {
		return err
	}
	third, was, err := d.correct(ctx, "42", second, outbox.Audit{By: "staff", Why: "prices are on the site"})
	if err != nil {
		return err
	}
	if was != dispatch.Cancelled { // a try of it is under way, and ends first
		if _, err := d.await(ctx, second, func(h outbox.History) bool { return h.State == dispatch.Cancelled }); err != nil {
			return err
		}
	}
	edited.Store(true)

	sent := func(h outbox.History) bool { return h.State == dispatch.Sent }
	if s.confirmed, err = d.await(ctx, first, sent); err != nil {
		return err
	}
	if s.corrected, err = d.await(ctx, third, sent); err != nil {
		return err
	}
	s.replaced, err = d.box.History(ctx, second)
	return err
}

// await looks at a message until it is what is wanted, for half a minute.
func (d *desk) await(ctx context.Context, key dispatch.Key, wanted func(outbox.History) bool) (outbox.History, error) {
	ctx, done := context.WithTimeout(ctx, 30*time.Second)
	defer done()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		h, err := d.box.History(ctx, key)
		if err != nil || wanted(h) {
			return h, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return h, fmt.Errorf("%w:\n%s", ctx.Err(), h)
		}
	}
}
