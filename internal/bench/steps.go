package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// noop: a worker whose sends cost nothing.
func noop(ctx context.Context, b *bench) error {
	const slots = 1000
	var s [2]workedSeries
	var alone series
	err := b.each(ctx, func(ctx context.Context, p peer) error {
		if p == peer(b.ours) {
			rate, err := statementsAlone(ctx, b.ours, b.noop)
			if err != nil {
				return err
			}
			alone = append(alone, rate)
		}
		stop, err := b.startProfile(p)
		if err != nil {
			return err
		}
		m, err := measureWorked(ctx, p, workload{messages: b.noop, slots: slots, limit: patience}, nil)
		stop()
		s[b.index(p)].add(m)
		return err
	})
	if err != nil {
		return fmt.Errorf("worked, no-op: %w", err)
	}
	compare(fmt.Sprintf("worked, no-op, %d slots", slots), "/s", s[0].rate, s[1].rate)
	compare("  CPU per message, client and server", "µs", s[0].cpu, s[1].cpu)
	compare("  log per message", "bytes", s[0].wal, s[1].wal)
	compare("  allocations per message", "", s[0].heap, s[1].heap)
	fmt.Printf("  what it must write at least, without a worker: %s /s\n", alone)
	b.worked = [2]float64{s[0].rate.median(), s[1].rate.median()}
	b.result["worked_noop_ratio"] = ratio(s[0].rate, s[1].rate)
	b.result["cpu_ratio"] = ratio(s[0].cpu, s[1].cpu)
	b.result["wal_ratio"] = ratio(s[0].wal, s[1].wal)
	return nil
}

// httpFast: a vendor that answers at once, on the same processors. They are
// all taken, so it is here that outcomes wait longest.
func httpFast(ctx context.Context, b *bench) error {
	s, err := b.post(ctx, workload{messages: b.http, slots: 100, lags: true, limit: patience}, 0)
	if err != nil {
		return err
	}
	compare("  answer → outcome committed, p99", "ms", s[0].lag, s[1].lag)
	alone, err := postsAlone(ctx, b.rounds, b.http)
	if err != nil {
		return err
	}
	fmt.Printf("  the vendor's answers without a database: %s /s\n", alone)
	b.result["worked_http_ratio"] = ratio(s[0].rate, s[1].rate)
	b.result["settle_lag_p99_ms"] = s[0].lag.median()
	return nil
}

// httpSlow: a vendor that takes its time.
func httpSlow(ctx context.Context, b *bench) error {
	_, err := b.post(ctx, workload{messages: b.slow, slots: 1000, limit: patience}, 50*time.Millisecond)
	return err
}

func (b *bench) post(ctx context.Context, w workload, delay time.Duration) (s [2]workedSeries, err error) {
	name := fmt.Sprintf("worked, HTTP answers after %v, %d slots", delay, w.slots)
	err = b.each(ctx, func(ctx context.Context, p peer) error {
		v, err := newVendor(ctx, delay)
		if err != nil {
			return err
		}
		w.vendor = v
		m, err := measureWorked(ctx, p, w, nil)
		s[b.index(p)].add(m)
		return errors.Join(err, v.close())
	})
	if err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	compare(name, "/s", s[0].rate, s[1].rate)
	compare("  CPU per message, vendor included", "µs", s[0].cpu, s[1].cpu)
	return s, nil
}

// enqueue: a business row and a message in one transaction.
func enqueue(ctx context.Context, b *bench) error {
	for _, g := range b.goroutines {
		if err := b.enqueueWith(ctx, g); err != nil {
			return fmt.Errorf("enqueue, %d goroutines: %w", g, err)
		}
	}
	return nil
}

func (b *bench) enqueueWith(ctx context.Context, goroutines int) error {
	kinds := [...]struct {
		p        peer
		tx       transaction
		messages bool
	}{
		{b.ours, b.ours.transact, true},
		{b.river, b.river.transact, true},
		{b.ours, b.ours.pipeline, true},
		{b.river, b.river.transactSparse, true},
		{b.ours, transactAlone, false},
		{b.ours, transactEmpty, false},
		{b.ours, pipelineAlone, false},
	}
	var s [len(kinds)]enqueuedSeries
	for round := range b.rounds {
		for i := range kinds {
			if round%2 == 1 {
				i = len(kinds) - 1 - i
			}
			k := kinds[i]
			m, err := measureEnqueue(ctx, k.p, b.urls[k.p.name()], goroutines, b.enqueue, k.tx, k.messages)
			if err != nil {
				return err
			}
			s[i].add(m)
		}
	}
	plain, river, piped, sparse, alone, empty, pipedAlone := s[0], s[1], s[2], s[3], s[4], s[5], s[6]
	name := fmt.Sprintf("enqueue, %d goroutines", goroutines)
	compare(name, "/s", plain.rate, river.rate)
	compare(name+", pipelined", "/s", piped.rate, river.rate)
	compare("  p50", "µs", plain.p50, river.p50)
	compare("  p50, pipelined", "µs", piped.p50, river.p50)
	compare("  CPU per commit", "µs", plain.cpu, river.cpu)
	compare("  CPU per commit, pipelined", "µs", piped.cpu, river.cpu)
	compare("  log per commit", "bytes", plain.wal, river.wal)
	compare("  beside River's default fetch cooldown", "/s", plain.rate, sparse.rate)
	fmt.Printf("  the business row alone: %s /s, p50 %s µs, CPU %s µs\n", alone.rate, alone.p50, alone.cpu)
	fmt.Printf("  and a statement that does nothing: %s /s; alone, pipelined: %s /s\n", empty.rate, pipedAlone.rate)
	if goroutines == 8 {
		b.result["enqueue_ratio"] = ratio(plain.rate, river.rate)
		b.result["enqueue_pipelined_ratio"] = ratio(piped.rate, river.rate)
	}
	return nil
}

// bulk: batches of 10,000 in a transaction each.
func bulk(ctx context.Context, b *bench) error {
	var s [2]series
	err := b.each(ctx, func(ctx context.Context, p peer) error {
		if err := p.clear(ctx); err != nil {
			return err
		}
		var took time.Duration
		for from := 0; from < b.bulk; from += fillBatch {
			put := p.batch(from, from+fillBatch)
			began := time.Now()
			if err := put(ctx); err != nil {
				return fmt.Errorf("%s: %w", p.name(), err)
			}
			took += time.Since(began)
		}
		i := b.index(p)
		s[i] = append(s[i], float64(b.bulk)/took.Seconds())
		return p.waiting(ctx, b.bulk)
	})
	if err != nil {
		return fmt.Errorf("bulk enqueue: %w", err)
	}
	compare(fmt.Sprintf("bulk enqueue, batches of %d", fillBatch), "/s", s[0], s[1])
	b.result["bulk_ratio"] = ratio(s[0], s[1])
	return nil
}

// latency: from the commit to the send, on an idle system.
func latency(ctx context.Context, b *bench) error {
	var p50, p99 [2]series
	err := b.each(ctx, func(ctx context.Context, p peer) error {
		times, err := measureLatency(ctx, p, b.latency)
		if err != nil {
			return err
		}
		i := b.index(p)
		p50[i] = append(p50[i], millis(percentile(times, 0.5)))
		p99[i] = append(p99[i], millis(percentile(times, 0.99)))
		return nil
	})
	if err != nil {
		return fmt.Errorf("latency: %w", err)
	}
	compare("commit → send, idle, p50", "ms", p50[0], p50[1])
	compare("commit → send, idle, p99", "ms", p99[0], p99[1])
	b.result["latency_p99_ms"] = p99[0].median()
	return nil
}

// held: a snapshot is open while the worker works, so that no dead row can be
// removed: with each second more of them lie in the way.
func held(ctx context.Context, b *bench) error {
	const slots, most = 100, 40_000 // a second, more than either works
	var s [2]series
	err := b.each(ctx, func(ctx context.Context, p peer) (err error) {
		conn, err := p.pool().Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		var tx pgx.Tx
		m, err := measureWorked(ctx, p, workload{messages: int(b.held.Seconds()) * most, slots: slots, lasts: b.held, limit: patience}, func(ctx context.Context) (err error) {
			if tx, err = conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "select txid_current_snapshot()") // the first statement takes it
			return err
		})
		if err != nil {
			return err
		}
		s[b.index(p)] = append(s[b.index(p)], m.rate)
		return tx.Commit(ctx)
	})
	if err != nil {
		return fmt.Errorf("held snapshot: %w", err)
	}
	compare(fmt.Sprintf("worked, no-op, %d slots, a snapshot held %v", slots, b.held), "/s", s[0], s[1])
	b.result["held_ratio"] = ratio(s[0], s[1])
	return nil
}

// backlog: the time of a claim with much behind it and before it.
func backlog(ctx context.Context, b *bench) error {
	const few, each = 10_000, 4000
	var lakes [2]*lake
	for i, name := range []string{"bench_small", "bench_large"} {
		url, err := makeDatabase(ctx, b.server.URL(), name)
		if err != nil {
			return err
		}
		if lakes[i], err = openLake(ctx, url); err != nil {
			return err
		}
		defer lakes[i].close()
	}
	small, large := lakes[0], lakes[1]
	if err := large.prepare(ctx, b.pending); err != nil {
		return fmt.Errorf("backlog: %w", err)
	}
	var s [2]series
	for range b.rounds {
		if err := small.clear(ctx); err != nil {
			return err
		}
		small.enqueued, small.worked = 0, 0
		if err := small.deepen(ctx, few); err != nil {
			return err
		}
		for i, l := range lakes {
			ms, err := l.claims(ctx, each)
			if err != nil {
				return fmt.Errorf("backlog: %w", err)
			}
			s[i] = append(s[i], ms)
		}
	}
	fmt.Printf("claim of %d rows or more, p50: %s ms with %d pending, %s ms with %d pending and %d finished: %sx\n",
		fullClaim, s[0], few, s[1], b.pending, b.pending, short(ratio(s[1], s[0])))
	b.result["backlog_slowdown"] = ratio(s[1], s[0])
	return nil
}
