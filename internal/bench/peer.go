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
	close()
	// clear removes everything.
	clear(ctx context.Context) error
	// batch prepares messages from up to, and returns what enqueues them in
	// one transaction, by the fastest way there is.
	batch(from, to int) (enqueue func(ctx context.Context) error)
	// rest brings statistics and visibility up to date.
	rest(ctx context.Context) error
	// transact commits a business row together with message n.
	transact(ctx context.Context, pool *pgxpool.Pool, n int) error
	// commit commits message n alone and returns when that was done, before
	// the worker of this process hears of it from us.
	commit(ctx context.Context, n int) (time.Time, error)
	// work runs a worker until stop is called; stop returns when every outcome
	// is durable.
	work(ctx context.Context, j job) (stop func() error, err error)
	// waiting returns an error unless exactly n messages are enqueued.
	waiting(ctx context.Context, n int) error
	// finished returns an error unless exactly n messages have ended well, at
	// their first attempt.
	finished(ctx context.Context, n int) error
	// left returns an error unless exactly n messages have not ended.
	left(ctx context.Context, n int) error
	// settled returns when the outcome of each message was committed, by the
	// key that seen was given.
	settled(ctx context.Context) (map[string]time.Time, error)
}

// job is what a worker does with each message.
type job struct {
	slots int
	// vendor is where it is posted to; nil posts nothing.
	vendor *vendor
	// seen is called afterwards. Its error fails the message.
	seen func(ctx context.Context, key, text string) error
}

// fillBatch is how many messages one transaction of fill holds, and of the
// bulk figure.
const fillBatch = 10_000

// fill enqueues messages from up to.
func fill(ctx context.Context, p peer, from, to int) error {
	for ; from < to; from += fillBatch {
		if err := p.batch(from, min(to, from+fillBatch))(ctx); err != nil {
			return err
		}
	}
	return p.rest(ctx)
}
