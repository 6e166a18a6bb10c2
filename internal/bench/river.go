package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverPeer is River at its best settings. Completions go in batches, its
// default.
type riverPeer struct {
	db *pgxpool.Pool
	// insert only enqueues. It is set as the worker's client is, since an
	// application has one client for both: its notifications, which make
	// River's latency what it is, are as dense as the fetches.
	insert *river.Client[pgx.Tx]
	// sparse is the same at the default of 100 ms, at which an insert seldom
	// pays for a notification and a message may wait for 100 ms.
	sparse *river.Client[pgx.Tx]
}

// fast fetches as often as River allows.
var fast = river.Config{FetchCooldown: time.Millisecond, FetchPollInterval: 10 * time.Millisecond, Logger: quiet}

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
	pool, err := connect(ctx, url, workerConns, nil)
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
	insert := fast
	if r.insert, err = river.NewClient(driver, &insert); err != nil {
		return err
	}
	if r.sparse, err = river.NewClient(driver, &river.Config{Logger: quiet}); err != nil {
		return err
	}
	return makeBusiness(ctx, r.db)
}

func (r *riverPeer) name() string        { return "river" }
func (r *riverPeer) pool() *pgxpool.Pool { return r.db }
func (r *riverPeer) close()              { r.db.Close() }

func (r *riverPeer) clear(ctx context.Context) error {
	return clear(ctx, r.db, "river_job", business)
}

func args(n int) smsArgs { return smsArgs{To: recipient, Body: text(n)} }

func (r *riverPeer) batch(from, to int) func(ctx context.Context) error {
	params := make([]river.InsertManyParams, 0, to-from)
	for n := from; n < to; n++ {
		params = append(params, river.InsertManyParams{Args: args(n)})
	}
	return func(ctx context.Context) error {
		n, err := r.insert.InsertManyFast(ctx, params)
		if err == nil && n != to-from {
			err = fmt.Errorf("river inserted %d jobs, want %d", n, to-from)
		}
		return err
	}
}

func (r *riverPeer) rest(ctx context.Context) error { return settle(ctx, r.db, "river_job") }

func (r *riverPeer) transact(ctx context.Context, pool *pgxpool.Pool, n int) error {
	return transactBy(ctx, r.insert, pool, n)
}

// transactSparse is transact at River's default of fetches.
func (r *riverPeer) transactSparse(ctx context.Context, pool *pgxpool.Pool, n int) error {
	return transactBy(ctx, r.sparse, pool, n)
}

func transactBy(ctx context.Context, client *river.Client[pgx.Tx], pool *pgxpool.Pool, n int) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := order(ctx, tx, strconv.Itoa(n)); err != nil {
			return err
		}
		_, err := client.InsertTx(ctx, tx, args(n), nil)
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

func (r *riverPeer) work(ctx context.Context, j job) (func() error, error) {
	do := j.seen
	closing := func() {}
	if j.vendor != nil {
		post, idle := j.vendor.client(j.slots)
		closing = idle
		do = func(ctx context.Context, key, text string) error {
			if err := post(ctx, key, text); err != nil {
				return err
			}
			return j.seen(ctx, key, text)
		}
	}
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &smsWorker{do: do}); err != nil {
		return nil, err
	}
	cfg := fast
	cfg.LeaderElectionDisabled = true // no maintenance
	cfg.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: j.slots}}
	cfg.Workers = workers
	client, err := river.NewClient(riverpgxv5.New(r.db), &cfg)
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	return func() error {
		defer closing()
		return client.Stop(ctx)
	}, nil
}

func (r *riverPeer) waiting(ctx context.Context, n int) error {
	return expect(ctx, r.db, "river_job available", n, "select count(*) from river_job where state = 'available'")
}

func (r *riverPeer) finished(ctx context.Context, n int) error {
	return expect(ctx, r.db, "river_job completed", n, "select count(*) from river_job where state = 'completed' and attempt = 1")
}

func (r *riverPeer) left(ctx context.Context, n int) error {
	return expect(ctx, r.db, "river_job not completed", n, "select count(*) from river_job where state <> 'completed'")
}

func (r *riverPeer) settled(ctx context.Context) (map[string]time.Time, error) {
	return commitTimes(ctx, r.db, "select id::text, pg_xact_commit_timestamp(xmin) from river_job")
}
