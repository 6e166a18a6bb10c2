package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// enqueued is one measurement of transactional enqueue.
type enqueued struct {
	rate float64 // commits per second
	p50  float64 // microseconds
	cpu  float64 // microseconds per commit, client and server
	wal  float64 // bytes per commit
}

// transaction commits one business row, and with it message n.
type transaction func(ctx context.Context, pool *pgxpool.Pool, n int) error

// measureEnqueue commits from so many goroutines at once for a while, and
// checks that as many messages and business rows are there.
func measureEnqueue(ctx context.Context, p peer, url string, goroutines int, d time.Duration, tx transaction, messages bool) (m enqueued, err error) {
	if err := p.clear(ctx); err != nil {
		return m, err
	}
	pool, err := connect(ctx, url, goroutines, nil)
	if err != nil {
		return m, err
	}
	defer pool.Close()
	// Statements are prepared on every connection before the clock starts.
	n, _, err := repeat(ctx, pool, goroutines, 0, 20, time.Hour, tx)
	if err != nil {
		return m, fmt.Errorf("%s: %w", p.name(), err)
	}
	before, err := spent(ctx, p.pool())
	if err != nil {
		return m, err
	}
	began := time.Now()
	last, times, err := repeat(ctx, pool, goroutines, n, 0, d, tx)
	took := time.Since(began)
	if err != nil {
		return m, fmt.Errorf("%s: %w", p.name(), err)
	}
	after, err := spent(ctx, p.pool())
	if err != nil {
		return m, err
	}
	m.cpu, m.wal = after.since(before, last-n)
	m.rate = float64(last-n) / took.Seconds()
	m.p50 = float64(percentile(times, 0.5)) / float64(time.Microsecond)
	if err := expect(ctx, p.pool(), business, last, "select count(*) from "+business); err != nil {
		return m, err
	}
	if !messages {
		return m, nil
	}
	return m, p.waiting(ctx, last)
}

// repeat runs tx in each goroutine, each times or, where zero, until d is over.
// It returns the number after the last message's, and how long each took.
func repeat(ctx context.Context, pool *pgxpool.Pool, goroutines, from, each int, d time.Duration, tx transaction) (int, []time.Duration, error) {
	var next atomic.Int64
	next.Store(int64(from))
	var wg sync.WaitGroup
	times := make([][]time.Duration, goroutines)
	errs := make([]error, goroutines)
	end := time.Now().Add(d)
	for g := range goroutines {
		wg.Go(func() {
			for i := 0; each == 0 || i < each; i++ {
				began := time.Now()
				if began.After(end) {
					return
				}
				if errs[g] = tx(ctx, pool, int(next.Add(1)-1)); errs[g] != nil {
					return
				}
				times[g] = append(times[g], time.Since(began))
			}
		})
	}
	wg.Wait()
	var all []time.Duration
	for _, t := range times {
		all = append(all, t...)
	}
	return int(next.Load()), all, errors.Join(errs...)
}

// transactAlone is the same without any message: the limit.
func transactAlone(ctx context.Context, pool *pgxpool.Pool, n int) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return order(ctx, tx, strconv.Itoa(n)) })
}

// transactEmpty adds a statement that does nothing: what one round trip more
// costs.
func transactEmpty(ctx context.Context, pool *pgxpool.Pool, n int) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := order(ctx, tx, strconv.Itoa(n)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "select")
		return err
	})
}

// pipelineAlone is transactAlone in one round trip.
func pipelineAlone(ctx context.Context, pool *pgxpool.Pool, n int) error {
	var b pgx.Batch
	b.Queue("begin")
	b.Queue(insertBusiness, strconv.Itoa(n))
	b.Queue("commit")
	return pool.SendBatch(ctx, &b).Close()
}

// enqueuedSeries is what the rounds gave for one kind of enqueue.
type enqueuedSeries struct{ rate, p50, cpu, wal series }

func (s *enqueuedSeries) add(m enqueued) {
	s.rate, s.p50 = append(s.rate, m.rate), append(s.p50, m.p50)
	s.cpu, s.wal = append(s.cpu, m.cpu), append(s.wal, m.wal)
}
