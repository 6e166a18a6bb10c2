package outboxtest

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch/outbox"
)

// Work runs a worker with this configuration until nothing is left that it
// could do: every message is final or parked, or waits for a time that lies
// ahead (NotBefore, a provider's Retry-After, a paused provider, a look-up's
// lag), and every notice is taken where cfg.Notices is set. Then it drains and
// returns. Intervals and logger are the test's where they are zero.
//
// It fails the test where something is still in motion after half a minute, as
// a message is whose provider isn't bound, and names it.
func (b *Box) Work(cfg outbox.WorkerConfig) {
	b.tb.Helper()
	if cfg.PollInterval == 0 {
		cfg.PollInterval = 5 * time.Millisecond
	}
	if cfg.SweepInterval == 0 {
		cfg.SweepInterval = 5 * time.Millisecond
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(b.tb.Output(), nil))
	}
	w, err := outbox.NewWorker(b.Box, cfg)
	if err != nil {
		b.tb.Fatal(err)
	}
	ctx, stop := context.WithTimeout(b.tb.Context(), b.limit)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	moving, err := b.watch(ctx, cfg)
	stop()
	if run := <-done; err == nil {
		err = run
	}
	if err != nil {
		b.tb.Fatal(err)
	}
	if len(moving) > 0 {
		b.tb.Fatalf("still in motion after %v:\n%s", b.limit, strings.Join(moving, "\n"))
	}
}

// watch looks until nothing moves, and returns what still does at the end.
func (b *Box) watch(ctx context.Context, cfg outbox.WorkerConfig) (moving []string, err error) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if moving, err = b.moving(ctx, cfg); ctx.Err() != nil && err != nil {
			return b.moving(context.WithoutCancel(ctx), cfg)
		}
		if err != nil || len(moving) == 0 {
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return moving, nil
		}
	}
}

// movingSQL has what a worker may still move. Back-offs last a millisecond, so
// that what is due more than a second ahead waits for something else.
const movingSQL = `select s.id || ' on route ' || s.route || ' is ' || s.state || coalesce(': ' || s.last_error, '')
from {schema}.queue q join {schema}.status s on s.id = q.id
where q.state = 2 or (not $1 and q.due < clock_timestamp() + interval '1 second'
    and not (q.state = 1 and q.fence = 0 and q.due > clock_timestamp()))
union all
select 'a notice about ' || n.id || ' was not taken' from {schema}.notice n where $2 and n.due < clock_timestamp() + interval '1 second'
limit 20`

func (b *Box) moving(ctx context.Context, cfg outbox.WorkerConfig) ([]string, error) {
	ctx, done := context.WithTimeout(ctx, 5*time.Second)
	defer done()
	held, err := b.allHeld(ctx, cfg)
	if err != nil {
		return nil, err
	}
	rows, err := b.pool.Query(ctx, strings.ReplaceAll(movingSQL, "{schema}", b.Schema), held, cfg.Notices != nil)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// allHeld reports whether every provider of the worker is held for a time that
// no probe shortens: rows that are due stay due then.
func (b *Box) allHeld(ctx context.Context, cfg outbox.WorkerConfig) (bool, error) {
	gates, err := b.Gates(ctx)
	if err != nil {
		return false, err
	}
	held := map[string]bool{}
	for _, g := range gates {
		held[g.Provider] = held[g.Provider] ||
			g.Closed && g.Country == 0 && (g.Reason == "paused" || g.Reason == "floor" && time.Until(g.Until) > time.Second)
	}
	for _, p := range cfg.Providers {
		if !held[p.Contract().Name] {
			return false, nil
		}
	}
	return true, nil
}
