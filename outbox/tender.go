package outbox

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// lookupsAtOnce is how many messages one step of maintenance asks providers
// about.
const lookupsAtOnce = 50

// tend is the tender: leases that ended, deadlines, budgets, doubts. Every
// worker tends every lane; there is no leader, and a move that another worker
// made first is fenced out.
func (r *run) tend(ctx context.Context) {
	var examined watch
	var swept rare
	for {
		if r.rest(ctx, nil, max(r.cfg.SweepInterval, swept.pause())); ctx.Err() != nil {
			return
		}
		began := stopwatch()
		query, done := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		asks, moved, err := r.engine.Sweep(query, lookupsAtOnce)
		if err == nil && len(asks)+len(moved) == 0 {
			swept.done(began)
		} else {
			swept = rare{} // there is work, or the database was away: the next step comes soon
		}
		err = errors.Join(err, r.box.store.applyReceipts(query))
		if examined.elapsed() >= examineEvery {
			examined = stopwatch()
			err = errors.Join(err, r.examine(query))
		}
		done()
		for _, c := range moved {
			r.tellSwept(ctx, c)
		}
		if err != nil && ctx.Err() == nil {
			r.failed(ctx, "maintenance", "maintenance failed", err)
		}
		for _, l := range asks {
			r.send.Go(func() { r.ask(l, began) }) //nolint:contextcheck // look-ups end with the cut, not with ctx
		}
		if len(moved) > 0 {
			r.box.wake.ring() // what was swept may be due at once
		}
	}
}

// examineEvery is the pause between two looks at the providers' health.
const examineEvery = 2 * time.Second

// examine shares what this process has counted, and warns of time-outs that
// are too tight for what was measured.
func (r *run) examine(ctx context.Context) error {
	tight, err := r.engine.Examine(ctx)
	for _, t := range tight {
		if r.warned.elapsed() < time.Hour {
			break
		}
		r.warned = stopwatch()
		r.log.WarnContext(ctx, "attempt time-out is tight for the measured answers", slog.String("provider", t.Provider),
			slog.Duration("p95", t.Quantile(0.95)), slog.Duration("p99", t.Quantile(0.99)))
	}
	if err == nil {
		_, err = r.box.store.pool.Exec(ctx, r.box.sql.dropHealth)
	}
	return err
}

func (r *run) ask(l engine.Lookup, began watch) {
	ctx, done := context.WithTimeout(r.cut, r.engine.Timeout(l))
	defer done()
	ctx, w := r.begin(ctx, &l.Task, "look-up", 0)
	found, err := l.Do(ctx)
	c := r.engine.FinishLookup(l, found, err, began.elapsed())
	c.Record.Named = engine.Names(l.Query.Content, c.Record.ProviderID)
	w.end(&c)
	r.settles <- c
}

func (r *run) tellSwept(ctx context.Context, c engine.Change) {
	if c.Record.Kind == engine.KindNone {
		return
	}
	r.observe(ctx, observation(&c, engine.Result{State: c.Move.To, Reason: c.Move.Reason}))
	r.log.WarnContext(ctx, "maintenance moved a message", slog.String("key", c.Key.String()), slog.Int64("attempt", c.Fence),
		slog.String("route", c.Move.Lane.Route), slog.String("provider", c.Record.Provider), slog.Int("rule", int(c.Move.Rule)),
		slog.String("state", c.Move.To.String()), slog.String("why", c.Move.Reason.String()), slog.Duration("delay", c.Move.Wait))
}

// listen rings the bell for each NOTIFY. Its connection may be half open
// without anybody noticing, which costs latency only: polling goes on. It is
// looked at every half minute and made anew when it fails.
func (r *run) listen(ctx context.Context, bell chan<- struct{}) {
	pause := pacer{most: 30 * time.Second}
	for ctx.Err() == nil {
		if err := r.listenOnce(ctx, bell, &pause); err != nil && ctx.Err() == nil {
			r.failed(ctx, "listen", "listen failed", err)
		}
		r.rest(ctx, nil, pause.fail())
	}
}

func (r *run) listenOnce(ctx context.Context, bell chan<- struct{}, pause *pacer) error {
	conn, err := pgx.ConnectConfig(ctx, r.cfg.Listen)
	if err != nil {
		return err
	}
	defer func() {
		closing, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer done()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{r.box.channel()}.Sanitize()); err != nil {
		return err
	}
	pause.reset()
	for {
		wait, done := context.WithTimeout(ctx, 30*time.Second)
		_, err := conn.WaitForNotification(wait)
		idle := wait.Err() != nil && ctx.Err() == nil
		done()
		switch {
		case idle:
			if err := conn.Ping(ctx); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		// Another process enqueued, on any lane.
		for _, route := range r.box.list {
			r.box.wake.hintRoute(route)
		}
		select {
		case bell <- struct{}{}:
		default:
		}
	}
}

// hintRoute remembers the lane that a route's messages are in by default.
func (w *wake) hintRoute(r dispatch.Route) {
	w.hint(defaultLane(r))
}
