// Quickstart tells the story of a lost answer on a real Postgres: a stub vendor
// takes a login code and its answer never arrives. First the loop that everyone
// has written once, then the same through the outbox.
//
//	go run ./examples/quickstart
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/httpapi"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// lost is how many answers the vendor loses for each key, after it took the
// message.
const lost = 2

func run(ctx context.Context) error {
	vendor, err := providertest.NewVendor(providertest.Options{
		Dedupe: 24 * time.Hour,
		Fault: func(c providertest.Call) providertest.Fault {
			if c.N <= lost {
				return providertest.Fault{Wire: providertest.Hang} // taken, and never answered
			}
			return providertest.Fault{}
		},
	})
	if err != nil {
		return err
	}
	defer vendor.Close()

	fmt.Println("1. The loop that everyone has written once: time out, try again.")
	naive, err := naiveLoop(ctx, vendor)
	if err != nil {
		return err
	}
	fmt.Printf("   The code was delivered %d times.\n\n", naive)

	fmt.Println("2. The same vendor, through a business transaction, the outbox and a worker.")
	h, err := throughOutbox(ctx, vendor)
	if err != nil {
		return err
	}
	deliveries := vendor.Deliveries(h.Key.String())
	fmt.Printf("   The code was delivered %d time(s). Its history:\n\n%s\n", deliveries, indent(h.String()))
	fmt.Printf("RESULT naive_deliveries=%d deliveries=%d attempts=%d state=%s\n", naive, deliveries, h.Attempts, h.State)
	return nil
}

// naiveLoop sends until somebody says yes, as if silence were a failure.
func naiveLoop(ctx context.Context, vendor *providertest.Vendor) (deliveries int, err error) {
	client := &http.Client{Timeout: 300 * time.Millisecond}
	for range lost + 1 {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, vendor.URL+"/v1/messages",
			strings.NewReader(`{"to":"+15555550123","body":"Your code is 482901"}`))
		if err != nil {
			return 0, err
		}
		res, err := client.Do(req)
		if err != nil {
			fmt.Println("   time-out: it must have failed, so send it again")
			continue
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<16))
		_ = res.Body.Close()
		break
	}
	return vendor.Deliveries(""), ctx.Err()
}

// throughOutbox is all that an application does.
func throughOutbox(ctx context.Context, vendor *providertest.Vendor) (outbox.History, error) {
	server, err := pgtest.Start(ctx, pgtest.Options{})
	if err != nil {
		return outbox.History{}, err
	}
	defer func() { _ = server.Close() }()
	pool, err := pgxpool.New(ctx, server.URL())
	if err != nil {
		return outbox.History{}, err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "drop schema if exists dispatch_quickstart cascade; create schema dispatch_quickstart"); err != nil {
		return outbox.History{}, err
	}
	if _, err := pool.Exec(ctx, "create table dispatch_quickstart.challenge (id text primary key, code text not null)"); err != nil {
		return outbox.History{}, err
	}

	policy := dispatch.SMSPolicy()
	policy.Backoff.Base = 100 * time.Millisecond // so that nobody has to wait here
	box, err := outbox.New(pool, outbox.Config{
		Schema: "dispatch_quickstart",
		Routes: []dispatch.Route{{Name: "sms", Providers: []string{"stub"}, Policy: policy}},
	})
	if err != nil {
		return outbox.History{}, err
	}
	if err := box.Migrate(ctx); err != nil {
		return outbox.History{}, err
	}
	stub, err := httpapi.New(httpapi.Config{
		Name: "stub", BaseURL: vendor.URL, Window: 24 * time.Hour,
		Exchange: exchange.Config{Answer: 300 * time.Millisecond},
	})
	if err != nil {
		return outbox.History{}, err
	}
	defer stub.Close()
	worker, err := outbox.NewWorker(box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{stub}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return outbox.History{}, err
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- worker.Run(running) }()

	h, err := login(ctx, pool, box)
	stop()
	return h, errors.Join(err, <-done)
}

// login creates a challenge and sends its code, or does neither.
func login(ctx context.Context, pool *pgxpool.Pool, box *outbox.Box) (outbox.History, error) {
	key := dispatch.NewKey()
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into dispatch_quickstart.challenge values ('challenge-1', '482901')"); err != nil {
			return err
		}
		_, err := box.Enqueue(ctx, tx, dispatch.Intent{
			Key:      key,
			Content:  dispatch.SMS{To: "+15555550123", Body: "Your code is 482901"},
			ValidFor: 5 * time.Minute,
		})
		return err
	})
	if err != nil {
		return outbox.History{}, err
	}
	box.Wake()

	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		h, err := box.History(ctx, key)
		if err != nil || h.State == dispatch.Sent || h.State == dispatch.Dead || h.State == dispatch.Held {
			return h, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return h, ctx.Err()
		}
	}
}

func indent(s string) string { return "   " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n   ") }
