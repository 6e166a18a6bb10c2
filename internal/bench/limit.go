package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-8098fbb7/dispatch"
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

// postsAlone lets as many goroutines as the worker has slots call the provider,
// and returns how many answers came a second in each round.
func postsAlone(ctx context.Context, rounds, n int) (s series, err error) {
	for range rounds {
		v, err := newVendor(ctx, 0)
		if err != nil {
			return nil, err
		}
		rate, err := postAll(ctx, v, n)
		if err = errors.Join(err, v.check(n), v.close()); err != nil {
			return nil, err
		}
		s = append(s, rate)
	}
	return s, nil
}

func postAll(ctx context.Context, v *vendor, n int) (rate float64, err error) {
	const slots = 100
	api, err := v.provider(slots)
	if err != nil {
		return 0, err
	}
	defer api.Close()
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, slots)
	began := time.Now()
	for g := range errs {
		wg.Go(func() {
			for i := int(next.Add(1)); i <= n && errs[g] == nil; i = int(next.Add(1)) {
				e := dispatch.Envelope{Key: dispatch.NewKey(), Content: dispatch.SMS{To: recipient, Body: text(i)}, Attempt: 1}
				_, errs[g] = api.Send(ctx, e)
			}
		})
	}
	wg.Wait()
	return float64(n) / time.Since(began).Seconds(), errors.Join(errs...)
}

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
