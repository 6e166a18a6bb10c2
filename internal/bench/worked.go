package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// worked is one measurement of a worker.
type worked struct {
	rate float64 // messages per second, from the worker's start to its last durable outcome
	cpu  float64 // microseconds per message, client and server
	wal  float64 // bytes per message
}

// workload is what a worker has to do.
type workload struct {
	messages int
	slots    int
	// do is called for each message beside counting it; nil is nothing.
	do func(ctx context.Context, key, text string) error
	// limit is how long it may take.
	limit time.Duration
}

// measureWorked lets the peer work off messages that are all there when it
// starts, and checks that each was worked once and has ended well.
func measureWorked(ctx context.Context, p peer, w workload) (m worked, err error) {
	if err := p.clear(ctx); err != nil {
		return m, err
	}
	if err := p.fill(ctx, 0, w.messages); err != nil {
		return m, err
	}
	m, err = drain(ctx, p, w)
	if err != nil {
		return m, fmt.Errorf("%s: %w", p.name(), err)
	}
	return m, p.finished(ctx, w.messages)
}

// drain is the part of measureWorked that is measured.
func drain(ctx context.Context, p peer, w workload) (m worked, err error) {
	t := newTally(w.messages)
	failed := make(chan error, 1)
	before, err := spent(ctx, p.pool())
	if err != nil {
		return m, err
	}
	began := time.Now()
	stop, err := p.work(ctx, w.slots, func(ctx context.Context, key, text string) error {
		var err error
		if w.do != nil {
			err = w.do(ctx, key, text)
		}
		if err == nil {
			err = t.hit(text)
		}
		if err != nil {
			select {
			case failed <- err:
			default: // one is enough
			}
		}
		return err
	})
	if err != nil {
		return m, err
	}
	limit := time.NewTimer(w.limit)
	defer limit.Stop()
	select {
	case <-t.done:
	case err = <-failed:
	case <-limit.C:
		err = fmt.Errorf("%d of %d messages worked in %v", t.total.Load(), w.messages, w.limit)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err = errors.Join(err, stop()); err != nil {
		return m, err
	}
	took := time.Since(began)
	after, err := spent(ctx, p.pool())
	if err != nil {
		return m, err
	}
	m.rate = float64(w.messages) / took.Seconds()
	m.cpu, m.wal = after.since(before, w.messages)
	return m, t.check()
}

// workedSeries is what the rounds gave for one peer.
type workedSeries struct{ rate, cpu, wal series }

func (s *workedSeries) add(m worked) {
	s.rate, s.cpu, s.wal = append(s.rate, m.rate), append(s.cpu, m.cpu), append(s.wal, m.wal)
}
