package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// peer is a library under measurement, on a database of its own.
type peer interface {
	name() string
	pool() *pgxpool.Pool
	// clear removes everything.
	clear(ctx context.Context) error
	// fill enqueues messages from up to, committed, in bulk.
	fill(ctx context.Context, from, to int) error
	// work runs a worker with so many slots, which does each message by do,
	// until stop is called; stop returns when every outcome is durable.
	work(ctx context.Context, slots int, do func(ctx context.Context, key, text string) error) (stop func() error, err error)
	// finished returns an error unless exactly n messages have ended well and
	// none is left.
	finished(ctx context.Context, n int) error
	// waiting returns an error unless exactly n messages are enqueued.
	waiting(ctx context.Context, n int) error
	// transact commits a business row together with message n.
	transact(ctx context.Context, pool *pgxpool.Pool, n int) error
	// bulk enqueues a batch in one transaction.
	bulk(ctx context.Context, from, to int) error
	// wakeless commits message n and tells when the commit was done, before
	// the worker of this process is woken.
	commit(ctx context.Context, n int) (time.Time, error)
	close() error
}
