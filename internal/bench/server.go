package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
)

// settings are the server's. Whatever commits is on disk; nothing else differs
// from its defaults but the memory, and checkpoints, which would fall on one
// peer or the other by chance. Log files are kept for reuse, as they are on a
// server that has run for a while. Commit times are kept to measure how long after
// an answer its outcome was durable.
var settings = map[string]string{
	"synchronous_commit":     "on",
	"shared_buffers":         "1GB",
	"max_wal_size":           "16GB",
	"min_wal_size":           "2GB",
	"checkpoint_timeout":     "1h",
	"track_commit_timestamp": "on",
}

func startServer(ctx context.Context) (*pgtest.Server, error) {
	return pgtest.Start(ctx, pgtest.Options{Own: true, Fsync: true, Settings: settings})
}

// warm writes as much log as is kept for reuse: a new file costs twice.
func warm(ctx context.Context, pool *pgxpool.Pool) error {
	for range 2 {
		_, err := pool.Exec(ctx, "select pg_logical_emit_message(false, 'warm', repeat('x', 1000000)) from generate_series(1, 700)")
		if err != nil {
			return err
		}
		if _, err := pool.Exec(ctx, "checkpoint"); err != nil {
			return err
		}
	}
	return nil
}

// connect makes a pool whose connections are all there from the beginning.
func connect(ctx context.Context, url string, conns int, tracer pgx.QueryTracer) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.Tracer = tracer
	cfg.MaxConns, cfg.MinConns = int32(conns), int32(conns) // #nosec G115 -- a small number of our own
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	held := make([]*pgxpool.Conn, 0, conns)
	for range conns {
		c, e := pool.Acquire(ctx)
		if e != nil {
			err = e
			break
		}
		held = append(held, c)
	}
	for _, c := range held {
		c.Release()
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// clear empties tables and brings the server to rest: what one measurement
// left to do must not be done in the next.
func clear(ctx context.Context, pool *pgxpool.Pool, tables ...string) error {
	for _, t := range tables {
		if _, err := pool.Exec(ctx, "truncate table "+t); err != nil {
			return err
		}
	}
	_, err := pool.Exec(ctx, "checkpoint")
	return err
}

// settle updates statistics and the visibility map, as autovacuum would sooner
// or later in the middle of a measurement.
func settle(ctx context.Context, pool *pgxpool.Pool, tables ...string) error {
	for _, t := range tables {
		if _, err := pool.Exec(ctx, "vacuum (analyze) "+t); err != nil {
			return err
		}
	}
	return nil
}

// expect compares a count with what it must be.
func expect(ctx context.Context, pool *pgxpool.Pool, what string, want int, query string) error {
	var got int64
	if err := pool.QueryRow(ctx, query).Scan(&got); err != nil {
		return err
	}
	if got != int64(want) {
		return fmt.Errorf("%s: %d rows, want %d", what, got, want)
	}
	return nil
}

// business is the application's own table.
const business = "bench_business"

func makeBusiness(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, "create table "+business+" (id bigint generated always as identity primary key, body text not null)")
	return err
}

const insertBusiness = "insert into " + business + " (body) values ($1)"

func order(ctx context.Context, tx pgx.Tx, body string) error {
	_, err := tx.Exec(ctx, insertBusiness, body)
	return err
}

// commitTimes reads pairs of a key and a time.
func commitTimes(ctx context.Context, pool *pgxpool.Pool, query string) (map[string]time.Time, error) {
	type pair struct {
		Key string
		At  time.Time
	}
	rows, err := pool.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[pair])
	if err != nil {
		return nil, err
	}
	times := make(map[string]time.Time, len(list))
	for _, p := range list {
		times[p.Key] = p.At
	}
	return times, nil
}

// quiet is the logger of both libraries: what fails shows in the counts.
var quiet = slog.New(slog.DiscardHandler)
