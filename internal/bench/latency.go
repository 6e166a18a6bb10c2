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
