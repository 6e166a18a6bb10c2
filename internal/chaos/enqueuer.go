package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// tryTime bounds one transaction of an enqueuer: an answer that hasn't come by
// then is lost, and the same keys are enqueued again.
const tryTime = 3 * time.Second

// enqueuer is an application: it writes an order and its message in one
// transaction, and repeats what it has no answer to. The first one uses pgx,
// the second database/sql.
type enqueuer struct {
	role role
	plan plan
	pool *pgxpool.Pool
	db   *sql.DB
	box  *outbox.Box
	log  *journal
	done map[int]bool // by an earlier process of this name
}

func enqueuerJournal(dir string, n int) string {
	return filepath.Join(dir, fmt.Sprintf("enqueued-%d.jsonl", n))
}

func enqueueAll(ctx context.Context, r role) (err error) {
	e := &enqueuer{role: r, done: map[int]bool{}}
	if e.plan, err = newPlan(r.Seed, r.Messages); err != nil {
		return err
	}
	path := enqueuerJournal(r.Dir, r.Enqueuer)
	before, err := readJournal[enqueued](path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, line := range before {
		if line.What == confirmed || line.What == there {
			e.done[line.N] = true
		}
	}
	if e.log, err = openJournal(path); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.log.close()) }()
	if e.pool, e.box, err = openBox(ctx, r.DSN, 8); err != nil {
		return err
	}
	defer e.pool.Close()
	if r.Enqueuer == 2 {
		e.db = stdlib.OpenDB(*e.pool.Config().ConnConfig)
		e.db.SetMaxOpenConns(8)
		defer func() { err = errors.Join(err, e.db.Close()) }()
	}
	return e.run(ctx)
}

// What an enqueuer notes.
const (
	tried     = "tried"
	confirmed = "confirmed" // its COMMIT was answered
	there     = "there"     // the same, and an earlier try had done it
	ghost     = "ghost"     // enqueued and rolled back
)

// run hands the messages out at their times, spread evenly over the run.
func (e *enqueuer) run(ctx context.Context) error {
	todo := make(chan []int)
	var hands sync.WaitGroup
	for range 4 {
		hands.Go(func() {
			for batch := range todo {
				e.enqueue(ctx, batch)
			}
		})
	}
	defer hands.Wait()
	defer close(todo)
	r := rand.New(rand.NewPCG(e.role.Seed, uint64(e.role.Enqueuer))) // #nosec G115 -- 1 or 2
	for n := e.role.Enqueuer - 1; n < e.role.Messages; {
		due := e.role.Start.Add(e.role.Spread * time.Duration(n) / time.Duration(e.role.Messages))
		if wait := time.Until(due); wait > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(wait):
			}
		}
		// Mostly one message a transaction; sometimes many.
		size := 1
		if r.IntN(8) == 0 {
			size = 2 + r.IntN(12)
		}
		var batch []int
		for ; len(batch) < size && n < e.role.Messages; n += enqueuers {
			if !e.done[n] {
				batch = append(batch, n)
			}
		}
		if len(batch) == 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case todo <- batch:
		}
	}
	return nil
}

// enqueue repeats a batch until its COMMIT is answered.
func (e *enqueuer) enqueue(ctx context.Context, batch []int) {
	for _, n := range batch {
		if n%ghosts < enqueuers {
			e.haunt(ctx, n)
		}
		e.log.note(enqueued{N: n, What: tried, At: time.Now()})
	}
	for ctx.Err() == nil {
		added, err := e.try(ctx, batch, e.plan.message, true)
		if err == nil {
			e.box.Wake()
			for i, n := range batch {
				what := confirmed
				if !added[i] {
					what = there
				}
				e.log.note(enqueued{N: n, What: what, At: time.Now()})
			}
			return
		}
		slog.WarnContext(ctx, "enqueue", slog.Int("first", batch[0]), slog.Any("error", err))
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// errRollback ends a ghost's transaction.
var errRollback = errors.New("rolled back on purpose")

// haunt enqueues a message and rolls it back (B121).
func (e *enqueuer) haunt(ctx context.Context, n int) {
	if _, err := e.try(ctx, []int{n}, e.plan.ghost, false); errors.Is(err, errRollback) {
		e.log.note(enqueued{N: n, What: ghost, At: time.Now()})
	}
}

// try makes one transaction: the orders and their messages.
func (e *enqueuer) try(ctx context.Context, batch []int, message func(int) planned, commit bool) (added []bool, err error) {
	ctx, done := context.WithTimeout(ctx, tryTime)
	defer done()
	intents := make([]dispatch.Intent, len(batch))
	for i, n := range batch {
		intents[i] = message(n).intent()
	}
	if e.db != nil {
		return e.trySQL(ctx, intents, commit)
	}
	err = pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
		for _, i := range intents {
			if _, err := tx.Exec(ctx, insertOrder, i.Key.String()); err != nil {
				return err
			}
		}
		if len(intents) > 1 {
			if added, err = e.box.EnqueueMany(ctx, tx, intents); err != nil {
				return err
			}
		} else {
			one, err := e.box.Enqueue(ctx, tx, intents[0])
			if err != nil {
				return err
			}
			added = []bool{one}
		}
		if !commit {
			return errRollback
		}
		return nil
	})
	return added, err
}

func (e *enqueuer) trySQL(ctx context.Context, intents []dispatch.Intent, commit bool) (added []bool, err error) {
	tx, err := e.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	for _, i := range intents {
		if _, err := tx.ExecContext(ctx, insertOrder, i.Key.String()); err != nil {
			return nil, err
		}
		one, err := e.box.EnqueueSQL(ctx, tx, i)
		if err != nil {
			return nil, err
		}
		added = append(added, one)
	}
	if !commit {
		return added, errRollback
	}
	return added, tx.Commit()
}

// insertOrder is the application's own change. A repeat changes nothing.
const insertOrder = "insert into shop.orders (key) values ($1::text::uuid) on conflict do nothing"
