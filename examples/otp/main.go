// Otp sends a login code by SMS and, where that ends without an acceptance,
// by email. Push and SMS have no second route of their own; the application
// offers another channel when it is told what became of the first.
//
//	go run ./examples/otp
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/provider/httpapi"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "otp:", err)
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// app is the application: its box, and what it knows of its users.
type app struct {
	pool   *pgxpool.Pool
	box    *outbox.Box
	keys   dispatch.Namespace
	emails map[string]string
	codes  map[string]string // stands for the application's own table of challenges
}

// login sends a code by SMS, and asks to be told if that comes to nothing.
func (a *app) login(ctx context.Context, user, phone, code string) (dispatch.Key, error) {
	key := a.keys.Key("login/" + user)
	a.codes[user] = code
	return key, a.box.InTx(ctx, func(tx pgx.Tx) error {
		_, err := a.box.Enqueue(ctx, tx, dispatch.Intent{
			Key: key, Route: "sms", Priority: dispatch.High, ValidFor: 5 * time.Minute,
			Content:  dispatch.SMS{To: phone, Body: "Your code is " + code},
			Notify:   dispatch.NotifyDead | dispatch.NotifyHeld,
			Metadata: map[string]string{"user": user}, // metadata outlives the content: no code in it
		})
		return err
	})
}

// fallBack is told of every code that will not go out by SMS. It may be told
// twice of one: the email's key is derived from the first message, so that the
// second time nothing happens.
func (a *app) fallBack(ctx context.Context, n outbox.Notice) error {
	return a.box.InTx(ctx, func(tx pgx.Tx) error {
		_, err := a.box.Enqueue(ctx, tx, dispatch.Intent{
			Key: a.keys.Key("email after " + n.Key.String()), Route: "email", Priority: dispatch.High, ValidFor: 5 * time.Minute,
			Linked: n.Key,
			Content: dispatch.Email{
				To:      []dispatch.Address{{Email: a.emails[n.Metadata["user"]]}},
				Subject: "Your login code", Text: "Your code is " + a.codes[n.Metadata["user"]],
			},
		})
		return err
	})
}

func run(ctx context.Context) error {
	vendor, err := providertest.NewVendor(providertest.Options{Dedupe: time.Hour, Fault: func(c providertest.Call) providertest.Fault {
		if c.Path == "/sms" {
			return providertest.Fault{Refuse: true, Status: 400, Code: "unreachable_number"}
		}
		return providertest.Fault{}
	}})
	if err != nil {
		return err
	}
	defer vendor.Close()
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

	a := &app{pool: pool, emails: map[string]string{"ada": "ada@example.com"}, codes: map[string]string{}}
	if a.keys, err = dispatch.NewNamespace("otp-example"); err != nil {
		return err
	}
	a.box, err = outbox.New(pool, outbox.Config{Schema: "dispatch_otp", Routes: []dispatch.Route{
		{Name: "sms", Providers: []string{"texts"}, Policy: dispatch.SMSPolicy()},
		{Name: "email", Providers: []string{"mails"}, Policy: dispatch.EmailPolicy()},
	}})
	if err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "drop schema if exists dispatch_otp cascade"); err != nil {
		return err
	}
	if err := a.box.Migrate(ctx); err != nil {
		return err
	}
	texts, err := httpapi.New(httpapi.Config{Name: "texts", BaseURL: vendor.URL, Path: "/sms", Window: time.Hour})
	if err != nil {
		return err
	}
	defer texts.Close()
	mails, err := httpapi.New(httpapi.Config{Name: "mails", BaseURL: vendor.URL, Path: "/mail", Window: time.Hour})
	if err != nil {
		return err
	}
	defer mails.Close()
	worker, err := outbox.NewWorker(a.box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{texts, mails}, Notices: a.fallBack, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- worker.Run(running) }()
	err = a.story(ctx)
	stop()
	return errors.Join(err, <-done)
}

func (a *app) story(ctx context.Context) error {
	key, err := a.login(ctx, "ada", "+15555550123", "482901")
	if err != nil {
		return err
	}
	mail := a.keys.Key("email after " + key.String())
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		h, err := a.box.History(ctx, mail)
		if err != nil && !errors.Is(err, outbox.ErrNotFound) {
			return err
		}
		if h.State == dispatch.Sent {
			text, err := a.box.History(ctx, key)
			if err != nil {
				return err
			}
			fmt.Print(text, h)
			fmt.Printf("RESULT sms=%s email=%s\n", text.State, h.State)
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
