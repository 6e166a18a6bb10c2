package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// claimTracer times the claims of a pool: the statements that skip locked rows.
type claimTracer struct {
	mu    sync.Mutex
	times []time.Duration
}

// batch is a pipeline under way, and its key in the context.
type batch struct {
	began time.Time
	full  bool
}

// fullClaim is how many rows a claim must have brought to be counted: a worker
// with 100 slots claims again when a quarter of them is free.
const fullClaim = 16

// TraceQueryStart and TraceQueryEnd are for what isn't in a pipeline: no claim.
func (*claimTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd is above.
func (*claimTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart remembers when a pipeline was sent.
func (*claimTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return context.WithValue(ctx, batch{}, &batch{began: time.Now()})
}

// TraceBatchQuery looks for the claim in it: the statement that skips locked rows.
func (*claimTracer) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	if b, ok := ctx.Value(batch{}).(*batch); ok && strings.Contains(d.SQL, "skip locked") {
		b.full = d.Err == nil && d.CommandTag.RowsAffected() >= fullClaim
	}
}

// TraceBatchEnd is called when its commit was answered.
func (t *claimTracer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchEndData) {
	b, ok := ctx.Value(batch{}).(*batch)
	if !ok || d.Err != nil || !b.full {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.times = append(t.times, time.Since(b.began))
}

func (t *claimTracer) take() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	times := t.times
	t.times = nil
	return times
}

// lake is a database with a backlog.
type lake struct {
	*ours
	tracer   *claimTracer
	enqueued int // messages ever
	worked   int
}

func openLake(ctx context.Context, url string) (*lake, error) {
	l := &lake{tracer: &claimTracer{}}
	var err error
	l.ours, err = newOurs(ctx, url, l.tracer)
	return l, err
}

// deepen adds messages.
func (l *lake) deepen(ctx context.Context, messages int) error {
	if err := fill(ctx, l.ours, l.enqueued, l.enqueued+messages); err != nil {
		return err
	}
	l.enqueued += messages
	return nil
}

// prepare leaves n messages pending and as many finished.
func (l *lake) prepare(ctx context.Context, n int) error {
	if err := l.deepen(ctx, n); err != nil {
		return err
	}
	if err := l.workOff(ctx, n, 1000, 0); err != nil {
		return err
	}
	return l.deepen(ctx, n)
}

// workOff works off so many of the messages that are there, and what was claimed beside them.
func (l *lake) workOff(ctx context.Context, messages, slots int, delay time.Duration) error {
	w := workload{messages: l.enqueued, enough: messages, slots: slots, delay: delay, limit: patience}
	a := newAnswers(w)
	if _, err := drain(ctx, l.ours, w, a); err != nil {
		return err
	}
	l.worked += int(a.tally.total.Load())
	return errors.Join(l.finished(ctx, l.worked), l.left(ctx, l.enqueued-l.worked))
}

// claims is the median time of a claim, in milliseconds.
func (l *lake) claims(ctx context.Context, messages int) (float64, error) {
	l.tracer.take()
	if err := l.workOff(ctx, messages, 100, 5*time.Millisecond); err != nil {
		return 0, err
	}
	times := l.tracer.take()
	if len(times) < 10 {
		return 0, fmt.Errorf("only %d claims of %d rows or more", len(times), fullClaim)
	}
	return millis(percentile(times, 0.5)), nil
}
