package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/seed-8098fbb7/dispatch/outbox/console"
)

// overviews is how often the console's first page is drawn.
const overviews = 50

// overview: the console's first page over a deep queue, and beside it dead
// letters, and an hour of what three providers did in twenty countries.
func overview(ctx context.Context, b *bench) (err error) {
	url, err := makeDatabase(ctx, b.server.URL(), "bench_console")
	if err != nil {
		return err
	}
	o, err := newOurs(ctx, url, nil)
	if err != nil {
		return err
	}
	defer o.close()
	if err := fill(ctx, o, 0, b.pending); err != nil {
		return fmt.Errorf("console: %w", err)
	}
	for _, sql := range []string{deadSQL, hourSQL, "vacuum (analyze) dispatch.queue", "vacuum (analyze) dispatch.parked", "vacuum (analyze) dispatch.health"} {
		if _, err := o.db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("console: %w", err)
		}
	}
	c, err := console.New(o.box, console.Config{Authorize: func(*http.Request) console.Actor { return console.Actor{Name: "bench", Act: true} }})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var times []time.Duration
	for range overviews {
		w, began := httptest.NewRecorder(), time.Now()
		c.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		times = append(times, time.Since(began))
		if w.Code != http.StatusOK {
			return fmt.Errorf("console: status %d", w.Code)
		}
	}
	p50, p95 := millis(percentile(times, 0.5)), millis(percentile(times, 0.95))
	fmt.Printf("console, overview over %s messages: p50 %s ms, p95 %s ms\n", short(float64(b.pending)), short(p50), short(p95))
	b.result["console_p95_ms"] = p95
	return nil
}

// deadSQL makes one message in ten a dead letter.
const deadSQL = `with q as (
    delete from dispatch.queue q where q.ctid = any(array(select w.ctid from dispatch.queue w order by w.id limit (select count(*) / 10 from dispatch.queue)))
    returning q.*
)
insert into dispatch.parked (id, lane, state, reason, fence, spent, budget, open, waived, ended, deadline)
select q.id, q.lane, 5, 1, 1, 1, q.budget, 0, 0, 0, q.deadline from q`

// hourSQL is an hour of health by the slot.
const hourSQL = `insert into dispatch.health (provider, country, slot, calls, failed, accepted, took)
select p, c, to_timestamp(floor(extract(epoch from now()) / 10) * 10) - s * interval '10 seconds', 100, 2, 98, array[10, 20, 40, 20, 10]
from unnest(array['vendor', 'second', 'third']) p, generate_series(1, 20) c, generate_series(0, 359) s
on conflict do nothing`
