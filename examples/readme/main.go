// Readme is the program of the README: the text there is this file's, and a
// test compares them.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/console"
	"github.com/seed-8098fbb7/dispatch/provider/httpapi"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Print(err)
		return
	}
	defer pool.Close()
	if err := run(ctx, pool); err != nil {
		log.Print(err)
	}
}

func run(ctx context.Context, pool *pgxpool.Pool) error {
	box, err := outbox.New(pool, outbox.Config{
		Routes: []dispatch.Route{{
			Name:      "sms",
			Providers: []string{"acme"}, // in this order, failing over only after proof
			Senders:   dispatch.Senders{"otp": {"acme": "+15555550100"}},
			Policy:    dispatch.SMSPolicy(),
		}},
	})
	if err != nil {
		return err
	}
	if err := box.Migrate(ctx); err != nil {
		return err
	}
	acme, err := httpapi.New(httpapi.Config{
		Name:    "acme",
		BaseURL: "https://api.acme.example",
		Token:   os.Getenv("ACME_TOKEN"),
		Window:  24 * time.Hour, // as long as acme remembers an Idempotency-Key
	})
	if err != nil {
		return err
	}
	worker, err := outbox.NewWorker(box, outbox.WorkerConfig{Providers: []dispatch.Provider{acme}})
	if err != nil {
		return err
	}
	go serve(ctx, box, pool) // the application
	return worker.Run(ctx)   // blocks; drains and returns nil when ctx ends
}

func login(ctx context.Context, pool *pgxpool.Pool, box *outbox.Box, challengeID, phone, code string) error {
	key := shop.Key("login/" + challengeID) // the same for every try of this login
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into challenge (id, code) values ($1, $2)", challengeID, code); err != nil {
			return err
		}
		_, err := box.Enqueue(ctx, tx, dispatch.Intent{
			Key:      key,
			Content:  dispatch.SMS{To: phone, Sender: "otp", Body: "Your code is " + code},
			ValidFor: 5 * time.Minute,
		})
		return err
	}) // box.Wake() here saves up to a second
}

func requeue(ctx context.Context, box *outbox.Box, who string) error {
	mended := outbox.Filter{States: []dispatch.State{dispatch.Dead}, Route: "sms", Reason: dispatch.ReasonRejected}
	done, err := box.Bulk(ctx, mended, box.Retry, outbox.Audit{By: who, Why: "sender registered"}, func(p outbox.Progress) {
		fmt.Println(p.Matched, "so far")
	})
	fmt.Println(done.Done, done.Refused)
	return err
}

func operate(mux *http.ServeMux, box *outbox.Box, account func(*http.Request) (name string, support bool)) (*console.Console, error) {
	c, err := console.New(box, console.Config{
		Authorize: func(r *http.Request) console.Actor {
			name, support := account(r)
			return console.Actor{Name: name, Act: support} // without a name nothing is shown, without Act nothing is changed
		},
	})
	if err != nil {
		return nil, err
	}
	// It answers strangers with 403: wrap it where they should see a log-in page.
	mux.Handle("/outbox/", http.StripPrefix("/outbox", c))
	return c, nil // Close it at the end: it waits for the bulk verbs that run
}

// shop is the name space of this application's keys.
var shop = func() dispatch.Namespace {
	ns, err := dispatch.NewNamespace("shop-production")
	if err != nil {
		log.Panic(err)
	}
	return ns
}()

// serve stands for the application.
func serve(ctx context.Context, box *outbox.Box, pool *pgxpool.Pool) {
	ctx, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	if err := login(ctx, pool, box, "challenge-1", "+15555550123", "482901"); err != nil {
		log.Print(err)
	}
	box.Wake()
	pages, err := operate(http.NewServeMux(), box, func(*http.Request) (string, bool) { return "", false })
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = pages.Close() }() // it has no error of its own
	if err := requeue(ctx, box, "ada"); err != nil {
		log.Print(err)
	}
}
