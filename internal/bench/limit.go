package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The least that a claim and a settle must write, in batches of a thousand from
// one connection, with nothing read but keys: what no worker on these tables
// can be faster than by much.
const (
	limitClaim = `with c as (
    update dispatch.queue q set state = 2, fence = q.fence + 1, spent = q.spent + 1, provider = 'vendor', account = 'bench', encoding = 0,
        claim = gen_random_uuid(), claimed = clock_timestamp(), lease = clock_timestamp() + interval '1 minute'
    where q.ctid = any(array(select w.ctid from dispatch.queue w
        where w.lane = $1 and w.due <= (select clock_timestamp()) and w.due >= $2 and w.state = 1
        order by w.due, w.id limit 1000 for update skip locked))
    returning q.id, q.due)
select array_agg(c.id), coalesce(max(c.due), $2) from c`
	limitSettle = `with g as (delete from dispatch.queue q where q.id = any($1) and q.state = 2 returning q.id, q.fence)
insert into dispatch.history (id, fence, kind, move, state, outcome, scope, stage, provider, account, provider_id)
select g.id, g.fence, 1, 6, 6, 1, 0, 2, 'vendor', 'bench', g.id::text from g`
)

// statementsAlone works messages off without a worker, and returns how many a
// second.
func statementsAlone(ctx context.Context, o *ours, messages int) (float64, error) {
	if err := o.clear(ctx); err != nil {
		return 0, err
	}
	if err := fill(ctx, o, 0, messages); err != nil {
		return 0, err
	}
	conn, err := o.db.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	var lane string
	var due time.Time
	if err := conn.QueryRow(ctx, "select lane, due from dispatch.queue order by due limit 1").Scan(&lane, &due); err != nil {
		return 0, err
	}
	began := time.Now()
	for {
		var keys [][16]byte
		if err := conn.QueryRow(ctx, limitClaim, lane, due).Scan(&keys, &due); err != nil {
			return 0, err
		}
		if len(keys) == 0 {
			break
		}
		if _, err := conn.Exec(ctx, limitSettle, keys); err != nil {
			return 0, err
		}
	}
	rate := float64(messages) / time.Since(began).Seconds()
	return rate, errors.Join(o.finished(ctx, messages), o.left(ctx, 0))
}

// half: from the commit to the send, while half of what the worker was measured
// to do comes in besides.
func half(ctx context.Context, b *bench) error {
	var p50, p99, load [2]series
	err := b.each(ctx, func(ctx context.Context, p peer) error {
		i := b.index(p)
		rate := b.worked[i] / 2
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
	compare("commit → send, at half load, p50", "ms", p50[0], p50[1])
	compare("commit → send, at half load, p99", "ms", p99[0], p99[1])
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
