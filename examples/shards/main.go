// Shards drains the outboxes of two databases by one process. A message lives
// in the database that its key leads to, each worker has its share of what the
// vendor allows, and a database that goes away, before the start or while the
// workers run, keeps only its own messages waiting.
//
//	go run ./examples/shards
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/provider/httpapi"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

// perSecond is what the vendor allows the account.
const perSecond = 20

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "shards:", err)
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context) error {
	server, err := pgtest.Start(ctx, pgtest.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	s, err := tell(ctx, server.URL(), "dispatch_shard_one", "dispatch_shard_two")
	if err != nil {
		return err
	}
	deliveries := 0
	for _, n := range s.deliveries {
		deliveries += n
	}
	fmt.Printf("Database two was away at the start: one delivered its %d messages in %v, at half of the vendor's %d a second.\n",
		s.first, s.took.Round(10*time.Millisecond), perSecond)
	fmt.Printf("It came back and delivered, and went away again: one delivered %d more, and two said: %v.\n", s.second, s.refused)
	fmt.Printf("RESULT messages=%d deliveries=%d\n", len(s.deliveries), deliveries)
	return nil
}

// story is what happened.
type story struct {
	first   int           // messages that database one delivered while two was away, at the start
	took    time.Duration // from the start until then
	early   int           // messages of two that went out while it was away
	second  int           // messages that one delivered while two was away again
	refused error         // what enqueuing on two came to meanwhile

	deliveries map[dispatch.Key]int      // by the vendor's ledger
	places     map[dispatch.Key][]string // the databases that know the message
}

// tell plays it, in two databases that it makes and drops.
func tell(ctx context.Context, url string, names ...string) (s story, err error) {
	server, err := pgx.Connect(ctx, url)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, server.Close(context.WithoutCancel(ctx))) }()
	vendor, err := providertest.NewVendor(providertest.Options{Dedupe: time.Hour})
	if err != nil {
		return s, err
	}
	defer vendor.Close()
	texts, err := httpapi.New(httpapi.Config{Name: "texts", BaseURL: vendor.URL, Window: time.Hour})
	if err != nil {
		return s, err
	}
	defer texts.Close()

	var pools []*pgxpool.Pool
	for _, name := range names {
		drop := "drop database if exists " + name + " with (force)"
		if _, err := server.Exec(ctx, drop); err != nil {
			return s, err
		}
		if _, err := server.Exec(ctx, "create database "+name); err != nil {
			return s, err
		}
		defer func() {
			_, e := server.Exec(context.WithoutCancel(ctx), drop)
			err = errors.Join(err, e)
		}()
		cfg, err := pgxpool.ParseConfig(url)
		if err != nil {
			return s, err
		}
		cfg.ConnConfig.Database = name
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return s, err
		}
		defer pool.Close()
		pools = append(pools, pool)
	}
	f, err := open(pools, texts, perSecond)
	if err != nil {
		return s, err
	}
	for _, shard := range f {
		if err := shard.box.Migrate(ctx); err != nil {
			return s, err
		}
	}
	p := &play{story: s, server: server, vendor: vendor, fleet: f}
	err = p.run(ctx)
	return p.story, err
}
