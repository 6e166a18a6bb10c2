package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// worked is one measurement of a worker.
type worked struct {
	rate float64         // messages per second, from the worker's start to its last durable outcome
	cpu  float64         // microseconds per message, client and server
	wal  float64         // bytes per message
	heap float64         // allocations of this process per message
	lags []time.Duration // from each answer to its durable outcome, where asked for
}

// workload is what a worker has to do.
type workload struct {
	messages int
	// enough ends the measurement after so many; zero is all.
	enough int
	// lasts ends it after a time, however many there are; zero is when they are
	// worked.
	lasts  time.Duration
	slots  int
	delay  time.Duration // each message's, without a vendor
	vendor *vendor
	lags   bool
	limit  time.Duration
}

// measureWorked lets the peer work off messages that are all there when it
// starts, and checks that each was worked once and has ended well. Between
// filling and working it calls before.
func measureWorked(ctx context.Context, p peer, w workload, before func(ctx context.Context) error) (m worked, err error) {
	if err := p.clear(ctx); err != nil {
		return m, err
	}
	if err := fill(ctx, p, 0, w.messages); err != nil {
		return m, err
	}
	if before != nil {
		if err := before(ctx); err != nil {
			return m, err
		}
	}
	a := newAnswers(w)
	if m, err = drain(ctx, p, w, a); err != nil {
		return m, fmt.Errorf("%s: %w", p.name(), err)
	}
	n, left := w.messages, 0
	if w.lasts > 0 {
		n = int(a.tally.total.Load())
		left = w.messages - n
	} else {
		err = a.tally.check()
	}
	if err := errors.Join(err, p.finished(ctx, n), p.left(ctx, left)); err != nil {
		return m, fmt.Errorf("%s: %w", p.name(), err)
	}
	if w.vendor != nil {
		if err := w.vendor.check(w.messages); err != nil {
			return m, fmt.Errorf("%s: %w", p.name(), err)
		}
	}
	if w.lags {
		m.lags, err = a.lags(ctx, p)
	}
	return m, err
}

// drain is what is measured: from the start of a worker until it has stopped.
func drain(ctx context.Context, p peer, w workload, a *answers) (m worked, err error) {
	before, err := spent(ctx, p.pool())
	if err != nil {
		return m, err
	}
	var heap [2]runtime.MemStats
	runtime.ReadMemStats(&heap[0])
	began := time.Now()
	stop, err := p.work(ctx, job{slots: w.slots, vendor: w.vendor, seen: a.seen})
	if err != nil {
		return m, err
	}
	limit := time.NewTimer(w.limit)
	defer limit.Stop()
	var over <-chan time.Time
	if w.lasts > 0 {
		t := time.NewTimer(w.lasts)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-a.tally.done:
		if w.lasts > 0 {
			err = fmt.Errorf("%d messages are too few for %v", w.messages, w.lasts)
		}
	case <-over:
	case err = <-a.failed:
	case <-limit.C:
		err = fmt.Errorf("%d of %d messages worked in %v", a.tally.total.Load(), w.messages, w.limit)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err = errors.Join(err, stop()); err != nil {
		return m, err
	}
	took := time.Since(began)
	runtime.ReadMemStats(&heap[1])
	after, err := spent(ctx, p.pool())
	if err != nil {
		return m, err
	}
	n := int(a.tally.total.Load())
	m.rate = float64(n) / took.Seconds()
	m.cpu, m.wal = after.since(before, n)
	m.heap = float64(heap[1].Mallocs-heap[0].Mallocs) / float64(n)
	return m, nil
}

// answers is what the workers tell.
type answers struct {
	tally  *tally
	delay  time.Duration
	failed chan error
	// at and keys are by the message's number; empty where nobody asks.
	at   []time.Time
	keys []string
}

func newAnswers(w workload) *answers {
	a := &answers{tally: newTally(w.messages, w.enough), delay: w.delay, failed: make(chan error, 1)}
	if w.lags {
		a.at, a.keys = make([]time.Time, w.messages), make([]string, w.messages)
	}
	return a
}

func (a *answers) seen(ctx context.Context, key, text string) error {
	at := time.Now()
	if a.delay > 0 {
		t := time.NewTimer(a.delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	n, err := a.tally.hit(text)
	if err != nil {
		select {
		case a.failed <- err:
		default: // one is enough
		}
		return err
	}
	if a.at != nil {
		a.at[n], a.keys[n] = at, key
	}
	return nil
}

// lags compares the answers with the commits of their outcomes. Both are the
// same machine's clock; the server takes its time when it writes the commit's
// record, a flush before it is durable.
func (a *answers) lags(ctx context.Context, p peer) ([]time.Duration, error) {
	times, err := p.settled(ctx)
	if err != nil {
		return nil, err
	}
	lags := make([]time.Duration, 0, len(a.at))
	for n, key := range a.keys {
		at, ok := times[key]
		if !ok {
			return nil, fmt.Errorf("%s: no outcome of message %d", p.name(), n)
		}
		lags = append(lags, at.Sub(a.at[n]))
	}
	return lags, nil
}

// workedSeries is what the rounds gave for one peer; lag is the p99 in
// milliseconds.
type workedSeries struct{ rate, cpu, wal, heap, lag series }

func (s *workedSeries) add(m worked) {
	s.rate, s.cpu, s.wal, s.heap = append(s.rate, m.rate), append(s.cpu, m.cpu), append(s.wal, m.wal), append(s.heap, m.heap)
	if len(m.lags) > 0 {
		s.lag = append(s.lag, millis(percentile(m.lags, 0.99)))
	}
}
