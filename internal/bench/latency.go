package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// measureLatency commits messages one at a time on an idle system with a
// running worker, and returns how long after each commit its send was called.
func measureLatency(ctx context.Context, p peer, n int) (times []time.Duration, err error) {
	if err := p.clear(ctx); err != nil {
		return nil, err
	}
	calls := make(chan time.Time, 1)
	t := newTally(n, 0)
	var mu sync.Mutex
	var failed error
	stop, err := p.work(ctx, job{slots: 100, seen: func(_ context.Context, _, text string) error {
		at := time.Now()
		if _, err := t.hit(text); err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			return err
		}
		calls <- at
		return nil
	}})
	if err != nil {
		return nil, err
	}
	times, err = commitEach(ctx, n, calls, p.commit)
	if err = errors.Join(err, stop(), failed); err != nil {
		return nil, fmt.Errorf("%s: %w", p.name(), err)
	}
	return times, errors.Join(t.check(), p.finished(ctx, n), p.left(ctx, 0))
}

// commitEach leaves a pause of 5 to 30 ms between the messages, of random
// length so that it beats with no poll.
func commitEach(ctx context.Context, n int, calls <-chan time.Time, commit func(ctx context.Context, n int) (time.Time, error)) ([]time.Duration, error) {
	var times []time.Duration
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for i := range n {
		pause := time.NewTimer(5*time.Millisecond + rand.N(25*time.Millisecond))
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		done, err := commit(ctx, i)
		if err != nil {
			return nil, err
		}
		select {
		case at := <-calls:
			times = append(times, at.Sub(done))
		case <-limit.C:
			return nil, fmt.Errorf("message %d was not worked", i)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return times, nil
}

// half: from the commit to the send, while messages come in besides: half of what
// the slower of the two can do while it also takes them in, which is half of what
// it was measured to do without. At more it falls behind for good, some time or
// other, and the figure would be the length of its queue.
func half(ctx context.Context, b *bench) error {
	var p50, p99, load [2]series
	err := b.each(ctx, func(ctx context.Context, p peer) error {
		i := b.index(p)
		rate := min(b.worked[0], b.worked[1]) / 4
		if rate == 0 {
			rate = 1000 // alone, this step knows of no other
		}
		times, got, err := latencyBeside(ctx, p, b.latency, rate)
		if err != nil {
			return err
		}
		p50[i], p99[i] = append(p50[i], millis(percentile(times, 0.5))), append(p99[i], millis(percentile(times, 0.99)))
		load[i] = append(load[i], got)
		return nil
	})
	if err != nil {
		return fmt.Errorf("latency beside a load: %w", err)
	}
	compare("commit → send, under load, p50", "ms", p50[0], p50[1])
	compare("commit → send, under load, p99", "ms", p99[0], p99[1])
	compare("  the load", "/s", load[0], load[1])
	return nil
}

// latencyBeside is commitEach beside messages that come in at a rate, a hundred
// times a second.
func latencyBeside(ctx context.Context, p peer, n int, rate float64) (times []time.Duration, got float64, err error) {
	if err := p.clear(ctx); err != nil {
		return nil, 0, err
	}
	const first, most = 1_000_000, 9_000_000 // numbers of the load, beyond those that are timed
	calls := make(chan time.Time, 1)
	stop, err := p.work(ctx, job{slots: 1000, seen: func(_ context.Context, _, text string) error {
		at := time.Now()
		if k, err := number(text); err != nil || k >= first {
			return err
		}
		calls <- at
		return nil
	}})
	if err != nil {
		return nil, 0, err
	}
	load, end := context.WithCancel(ctx)
	done := make(chan error, 1)
	sent, began := 0, time.Now()
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-load.Done():
				done <- nil
				return
			case <-tick.C:
			}
			due := min(int(rate*time.Since(began).Seconds()), most) - sent
			if due <= 0 {
				continue
			}
			due = min(due, fillBatch)
			if err := p.batch(first+sent, first+sent+due)(ctx); err != nil {
				done <- err
				return
			}
			sent += due
		}
	}()
	times, err = commitEach(ctx, n, calls, p.commit)
	end()
	err = errors.Join(err, <-done)
	got = float64(sent) / time.Since(began).Seconds()
	return times, got, errors.Join(err, stop())
}
