package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
)

// newsletter: login codes beside a newsletter that waits, at a vendor that takes
// 50 ms for each of its messages. The codes' time from commit to send, against
// that on an idle queue of the same worker.
func newsletter(ctx context.Context, b *bench) (err error) {
	url, err := makeDatabase(ctx, b.server.URL(), "bench_newsletter")
	if err != nil {
		return err
	}
	o, err := newOurs(ctx, url, nil)
	if err != nil {
		return err
	}
	defer o.close()
	o.priority = dispatch.Low
	const vendorTime, slots, code = 50 * time.Millisecond, 100, "your code"
	calls := make(chan time.Time, 1)
	var issue atomic.Int64
	stop, err := o.work(ctx, job{slots: slots, seen: func(ctx context.Context, _, text string) error {
		if text == code {
			calls <- time.Now()
			return nil
		}
		issue.Add(1)
		t := time.NewTimer(vendorTime)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		return nil
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	codes := func() ([]time.Duration, error) {
		return commitEach(ctx, b.latency, calls, func(ctx context.Context, _ int) (time.Time, error) {
			i := dispatch.Intent{
				Key: dispatch.NewKey(), Priority: dispatch.High, Content: dispatch.SMS{To: recipient, Body: code},
			}
			return o.put(ctx, i)
		})
	}
	idle, err := codes()
	if err != nil {
		return fmt.Errorf("newsletter: %w", err)
	}
	if err := pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) error {
		for from := 0; from < b.pending; from += fillBatch { // in one commit: nothing of it leaves before all is there
			if _, err := o.box.EnqueueMany(ctx, tx, o.intents(from, from+fillBatch)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("newsletter: %w", err)
	}
	o.box.Wake()
	for issue.Load() < 2*slots { // until it has every slot that it gets
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	began, before := time.Now(), issue.Load()
	busy, err := codes()
	if err != nil {
		return fmt.Errorf("newsletter: %w", err)
	}
	rate := float64(issue.Load()-before) / time.Since(began).Seconds()
	if left := int64(b.pending) - issue.Load(); left < int64(b.pending)/2 {
		return fmt.Errorf("newsletter: %d are left of %d: the codes stood beside too few", left, b.pending)
	}
	p := func(times []time.Duration, at float64) float64 { return millis(percentile(times, at)) }
	fmt.Printf("login code, commit → send, p50: %.2f ms idle, %.2f ms beside %d of a newsletter at %.0f/s: %.2fx (p99 %.2f and %.2f ms)\n",
		p(idle, 0.5), p(busy, 0.5), b.pending, rate, p(busy, 0.5)/p(idle, 0.5), p(idle, 0.99), p(busy, 0.99))
	return nil
}
