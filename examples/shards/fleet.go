package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// shard is one of the application's databases, with the outbox in it. What is
// enqueued there is sent, and looked at, from there alone.
type shard struct {
	name   string
	pool   *pgxpool.Pool
	box    *outbox.Box
	worker *outbox.Worker
}

// fleet are all shards. Their number and order say where a message lives.
type fleet []*shard

// open makes a box and a worker for each database and connects to none. The
// account at the vendor may send perSecond in all, and a limit is kept by a
// database: each gets its share. The adapter is one for all of them.
func open(pools []*pgxpool.Pool, vendor dispatch.Provider, perSecond float64) (f fleet, err error) {
	name := vendor.Contract().Name
	for _, pool := range pools {
		s := &shard{name: pool.Config().ConnConfig.Database, pool: pool}
		s.box, err = outbox.New(pool, outbox.Config{
			Routes: []dispatch.Route{{Name: "sms", Providers: []string{name}, Policy: dispatch.SMSPolicy()}},
		})
		if err != nil {
			return nil, err
		}
		s.worker, err = outbox.NewWorker(s.box, outbox.WorkerConfig{
			Providers: []dispatch.Provider{vendor},
			Limits:    map[string]outbox.Limit{name: {PerSecond: perSecond / float64(len(pools))}},
			// Less than what whoever stops the process gives it.
			DrainTimeout: 3 * time.Second,
			Logger:       slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return nil, err
		}
		f = append(f, s)
	}
	return f, nil
}

// of returns the shard of a message, by a hash of its key. Where the tables
// that cause a message are sharded already, it is theirs: the message and its
// cause are written in one transaction.
func (f fleet) of(key dispatch.Key) *shard {
	h := fnv.New32a()
	_, _ = h.Write(key[:]) // never fails
	return f[int64(h.Sum32())%int64(len(f))]
}

// enqueue may be repeated with the same intent, whatever its error: the key
// leads to the same shard, and there it is one message.
func (f fleet) enqueue(ctx context.Context, i dispatch.Intent) error {
	s := f.of(i.Key)
	return s.box.InTx(ctx, func(tx pgx.Tx) error {
		_, err := s.box.Enqueue(ctx, tx, i)
		return err
	})
}

// run works on all shards until ctx ends, drains them, and returns what kept
// some from working until then. None waits for another.
func (f fleet) run(ctx context.Context) error {
	errs := make([]error, len(f))
	var all sync.WaitGroup
	for n, s := range f {
		all.Go(func() { errs[n] = s.run(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// run begins again where the database isn't there at the start. One that goes
// away later is waited for by the worker itself.
func (s *shard) run(ctx context.Context) error {
	for {
		err := s.box.Migrate(ctx)
		if err == nil {
			err = s.worker.Run(ctx)
		}
		if err == nil {
			return nil
		}
		slog.WarnContext(ctx, "database is not there, again in a second", slog.String("database", s.name))
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
}
