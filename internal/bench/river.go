package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverPeer is River at its best settings: it fetches as often as it may, polls
// often, completes in batches (its default), retries nothing and has no
// maintenance to do.
type riverPeer struct {
	db     *pgxpool.Pool
	insert *river.Client[pgx.Tx] // has no queues; its notifications are 100 ms apart, the default
}

// smsArgs is the same message.
type smsArgs struct {
	To   string `json:"to"`
	Body string `json:"body"`
}

// Kind names the job.
func (smsArgs) Kind() string { return "sms" }

type smsWorker struct {
	river.WorkerDefaults[smsArgs]
	do func(ctx context.Context, key, text string) error
}

// Work does what it is told.
func (w *smsWorker) Work(ctx context.Context, job *river.Job[smsArgs]) error {
	return w.do(ctx, strconv.FormatInt(job.ID, 10), job.Args.Body)
}

func newRiver(ctx context.Context, url string) (*riverPeer, error) {
	pool, err := connect(ctx, url, workerConns)
	if err != nil {
		return nil, err
	}
	r := &riverPeer{db: pool}
	if err := r.setUp(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("river: %w", err)
	}
	return r, nil
}

func (r *riverPeer) setUp(ctx context.Context) error {
	driver := riverpgxv5.New(r.db)
	m, err := rivermigrate.New(driver, nil)
	if err != nil {
		return err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	if r.insert, err = river.NewClient(driver, &river.Config{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return err
	}
	return makeBusiness(ctx, r.db)
}

func (r *riverPeer) name() string        { return "river" }
func (r *riverPeer) pool() *pgxpool.Pool { return r.db }

func (r *riverPeer) close() error {
	r.db.Close()
	return nil
}

func (r *riverPeer) clear(ctx context.Context) error {
	return clear(ctx, r.db, "river_job", business)
}

func args(n int) smsArgs { return smsArgs{To: recipient, Body: text(n)} }

func (r *riverPeer) fill(ctx context.Context, from, to int) error {
	const batch = 10_000
	for ; from < to; from += batch {
		if err := r.bulk(ctx, from, min(to, from+batch)); err != nil {
			return err
		}
	}
	return settle(ctx, r.db, "river_job")
}

func (r *riverPeer) bulk(ctx context.Context, from, to int) error {
	params := make([]river.InsertManyParams, 0, to-from)
	for n := from; n < to; n++ {
		params = append(params, river.InsertManyParams{Args: args(n)})
	}
	n, err := r.insert.InsertManyFast(ctx, params)
	if err == nil && n != to-from {
		err = fmt.Errorf("river inserted %d jobs, want %d", n, to-from)
	}
	return err
}

func (r *riverPeer) transact(ctx context.Context, pool *pgxpool.Pool, n int) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := order(ctx, tx, strconv.Itoa(n)); err != nil {
			return err
		}
		_, err := r.insert.InsertTx(ctx, tx, args(n), nil)
		return err
	})
}

func (r *riverPeer) commit(ctx context.Context, n int) (time.Time, error) {
	err := pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
		_, err := r.insert.InsertTx(ctx, tx, args(n), nil)
		return err
	})
	return time.Now(), err
}

func (r *riverPeer) work(ctx context.Context, slots int, do func(ctx context.Context, key, text string) error) (func() error, error) {
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &smsWorker{do: do}); err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(r.db), &river.Config{
		FetchCooldown:          time.Millisecond,
		FetchPollInterval:      10 * time.Millisecond,
		LeaderElectionDisabled: true,
		Logger:                 slog.New(slog.DiscardHandler),
		Queues:                 map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}},
		Workers:                workers,
	})
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	return func() error { return client.Stop(ctx) }, nil
}

func (r *riverPeer) waiting(ctx context.Context, n int) error {
	return expect(ctx, r.db, "river_job available", n, "select count(*) from river_job where state = 'available'")
}

func (r *riverPeer) finished(ctx context.Context, n int) error {
	if err := expect(ctx, r.db, "river_job", n, "select count(*) from river_job"); err != nil {
		return err
	}
	return expect(ctx, r.db, "river_job completed", n, "select count(*) from river_job where state = 'completed' and attempt = 1")
}
