// Package demo fills an outbox with messages in every state, for the console's
// demonstration and its browser tests. Providers are stubs: nothing leaves the
// machine.
package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// Demo is an outbox with data. Run keeps it alive.
type Demo struct {
	Box *outbox.Box
	// Twice is a message that a provider without dedupe got twice: its first
	// answer was lost, and somebody had it sent anyway.
	Twice dispatch.Key

	pool   *pgxpool.Pool
	schema string
	stubs  []*stub
}

// New makes the schema anew and fills it.
func New(ctx context.Context, pool *pgxpool.Pool, schema string) (*Demo, error) {
	d := &Demo{pool: pool, schema: pgx.Identifier{schema}.Sanitize(), stubs: stubs()}
	if _, err := pool.Exec(ctx, "drop schema if exists "+d.schema+" cascade; create schema "+d.schema); err != nil {
		return nil, err
	}
	sms, email := dispatch.SMSPolicy(), dispatch.EmailPolicy()
	sms.Backoff.Base, sms.Backoff.Cap = 50*time.Millisecond, time.Second
	email.Backoff = sms.Backoff
	var err error
	d.Box, err = outbox.New(pool, outbox.Config{
		Schema: schema,
		Routes: []dispatch.Route{
			{Name: "codes", Providers: []string{"northtext", "plainsms"}, Policy: sms},
			{Name: "alerts", Providers: []string{"plainsms"}, Policy: sms},
			{Name: "newsletter", Providers: []string{"postbox"}, Policy: email},
			{Name: "invoices", Providers: []string{"parcelmail"}, Policy: email},
		},
		Reveal: func(context.Context, dispatch.Key, outbox.Audit) error { return nil },
	})
	if err != nil {
		return nil, err
	}
	if err := d.Box.Migrate(ctx); err != nil {
		return nil, err
	}
	return d, d.fill(ctx)
}

// Run works until ctx ends, with a message now and then.
func (d *Demo) Run(ctx context.Context) error {
	worker, err := d.worker()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	tick := time.NewTicker(3 * time.Second)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			text := "Your code is 482901"
			if n%9 == 8 {
				text = "lost: " + text
			}
			// The worker's error, if any, is what ends it.
			if err := d.enqueue(ctx, code(text, n)); err != nil && ctx.Err() == nil {
				return errors.Join(err, <-done)
			}
		}
	}
}

func (d *Demo) worker() (*outbox.Worker, error) {
	providers := make([]dispatch.Provider, len(d.stubs))
	for i, s := range d.stubs {
		providers[i] = s.provider()
	}
	return outbox.NewWorker(d.Box, outbox.WorkerConfig{
		Providers: providers, Logger: slog.New(slog.DiscardHandler), PollInterval: 50 * time.Millisecond, SweepInterval: 50 * time.Millisecond,
		Health: outbox.Thresholds{FailedShare: 1},
	})
}

func (d *Demo) enqueue(ctx context.Context, intents ...dispatch.Intent) error {
	return d.Box.InTx(ctx, func(tx pgx.Tx) error {
		for _, i := range intents {
			if _, err := d.Box.Enqueue(ctx, tx, i); err != nil {
				return err
			}
		}
		return nil
	})
}

func code(text string, n int) dispatch.Intent {
	return dispatch.Intent{Key: dispatch.NewKey(), Route: "codes", Content: dispatch.SMS{To: fmt.Sprintf("+4670174%04d", n%10000), Body: text}}
}

func alert(text string, n int) dispatch.Intent {
	i := code(text, n)
	i.Route = "alerts"
	return i
}

func letter(route, subject string, n int) dispatch.Intent {
	return dispatch.Intent{
		Key: dispatch.NewKey(), Route: route, Template: dispatch.Template{Name: strings.ToLower(route), Revision: "2026-11"},
		Content: dispatch.Email{
			To: []dispatch.Address{{Name: "Åsa Öberg 山田 𠮷野", Email: fmt.Sprintf("reader%d@mail.example", n)}}, Subject: subject, Text: "Hello.",
		},
	}
}

// intents are the messages of the first minute; the first word of a text tells
// a stub what to do with it.
func intents() (all []dispatch.Intent) {
	for n := range 120 {
		text := "Your code is 482901"
		switch {
		case n%20 == 7:
			text = "lost: " + text // and sent again under its key
		case n%30 == 11:
			text = "busy: " + text
		}
		all = append(all, code(text, n))
	}
	for n := range 24 {
		text := "The door of the cold store is open"
		if n%4 == 1 {
			text = "lost: " + text // at a provider that can't be asked: held
		}
		all = append(all, alert(text, n))
	}
	for n := range 220 {
		subject := "News of the week"
		switch {
		case n%5 == 3:
			subject = "refused: " + subject
		case n%17 == 4:
			subject = `refused: <script>alert("news")</script>`
		case n%23 == 5:
			subject = "busy: " + subject
		}
		all = append(all, letter("newsletter", subject, n))
	}
	return all
}

func (d *Demo) fill(ctx context.Context) error {
	first := intents()
	twice := alert("lost: The freezer is at 4 degrees", 42)
	d.Twice = twice.Key
	first = append(first, twice)
	if err := d.enqueue(ctx, first...); err != nil {
		return err
	}
	if err := d.work(ctx, func(s outbox.Stats) bool { return moving(s) == 0 }); err != nil {
		return err
	}
	if err := d.byHand(ctx); err != nil {
		return err
	}
	return d.past(ctx)
}

// byHand is what people did.
func (d *Demo) byHand(ctx context.Context) error {
	ada := outbox.Audit{By: "ada", Why: "the bill of November is unpaid, support told us at 04:10"}
	if err := d.Box.Pause(ctx, "parcelmail", ada); err != nil {
		return err
	}
	var waiting []dispatch.Intent
	for n := range 31 {
		i := letter("invoices", "Your invoice", n)
		if n%3 == 0 {
			i.NotBefore = time.Now().Add(time.Duration(n) * time.Minute)
		}
		waiting = append(waiting, i)
	}
	if err := d.enqueue(ctx, waiting...); err != nil {
		return err
	}
	for _, i := range waiting[:4] {
		if _, err := d.Box.Cancel(ctx, i.Key, outbox.Audit{By: "ada", Why: "the order was withdrawn"}); err != nil {
			return err
		}
	}
	grace := outbox.Audit{By: "grace", Why: "the customer is on the phone and says that nothing came"}
	if _, err := d.Box.SendAnyway(ctx, d.Twice, grace); err != nil {
		return err
	}
	if err := d.work(ctx, func(s outbox.Stats) bool { return moving(s) == int64(len(waiting)-4) }); err != nil {
		return err
	}
	// Both receipts come in: it was delivered twice.
	var receipts []dispatch.Receipt
	for _, s := range d.stubs {
		for _, id := range s.idsOf(d.Twice) {
			receipts = append(receipts, dispatch.Receipt{
				Provider: s.name, Account: s.provider().Contract().Account, EventKey: "delivered " + id, ProviderID: id, Key: d.Twice,
				Kind: dispatch.Delivered,
			})
		}
	}
	if err := d.Box.Receive(ctx, receipts); err != nil {
		return err
	}
	// Some whose answers are lost, with nobody to look after them for now.
	return d.doubts(ctx)
}

// silent is how many messages stay unknown.
const silent = 5

// doubts leaves messages that are unknown: their stub loses every answer.
func (d *Demo) doubts(ctx context.Context) error {
	for n := range silent {
		if err := d.enqueue(ctx, code("silent: Your code is 482901", 300+n)); err != nil {
			return err
		}
	}
	return d.work(ctx, func(s outbox.Stats) bool { return s.Total(dispatch.InDoubt).Count >= silent })
}

// moving is how many messages are in motion.
func moving(s outbox.Stats) int64 {
	return s.Total(dispatch.Pending).Count + s.Total(dispatch.Sending).Count + s.Total(dispatch.InDoubt).Count
}

// work runs a worker until it is enough.
func (d *Demo) work(ctx context.Context, enough func(outbox.Stats) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	worker, err := d.worker()
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- worker.Run(running) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := d.Box.Stats(ctx)
		if err != nil || enough(s) {
			stop()
			return errors.Join(err, <-done)
		}
		select {
		case err := <-done:
			return errors.Join(err, errors.New("demo: the worker ended"), ctx.Err())
		case <-tick.C:
		}
	}
}

// past invents the counts of the last hour, for the charts.
func (d *Demo) past(ctx context.Context) error {
	_, err := d.pool.Exec(ctx, `insert into `+d.schema+`.health (provider, country, slot, calls, failed, accepted)
		select p.name, p.country, date_trunc('minute', now()) - n * interval '1 minute' + interval '10 seconds', c.calls, c.failed, c.calls - c.failed
		from (values ('northtext', 46, 90), ('plainsms', 46, 12), ('postbox', 0, 240)) as p(name, country, rate)
		cross join generate_series(1, 59) n
		cross join lateral (select (p.rate * (1.3 + sin(n / 7.0 + p.rate)))::int as calls) r
		cross join lateral (select r.calls, case when p.name = 'northtext' and n between 22 and 29 then (r.calls * 0.6)::int
			when n % 13 = 0 then least(2, r.calls) else 0 end as failed) c
		on conflict do nothing`)
	return err
}

// Dead leaves so many letters that were refused, for a test to repair.
func (d *Demo) Dead(ctx context.Context, n int, subject string) (keys []dispatch.Key, err error) {
	var intents []dispatch.Intent
	for i := range n {
		letter := letter("newsletter", "refused: "+subject, 1000+i)
		keys, intents = append(keys, letter.Key), append(intents, letter)
	}
	before, err := d.Box.Stats(ctx)
	if err != nil {
		return nil, err
	}
	wanted := before.Total(dispatch.Dead).Count + int64(n)
	err = d.Box.InTx(ctx, func(tx pgx.Tx) error {
		_, err := d.Box.EnqueueMany(ctx, tx, intents)
		return err
	})
	if err != nil {
		return nil, err
	}
	return keys, d.work(ctx, func(s outbox.Stats) bool { return s.Total(dispatch.Dead).Count >= wanted })
}
