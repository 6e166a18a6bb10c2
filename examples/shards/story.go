package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

// play is a story under way.
type play struct {
	story
	server *pgx.Conn
	vendor *providertest.Vendor
	fleet  fleet
}

func (p *play) run(ctx context.Context) error {
	keys, err := dispatch.NewNamespace("shards-example")
	if err != nil {
		return err
	}
	texts := map[*shard][]dispatch.Intent{}
	for n := range 48 {
		i := dispatch.Intent{Key: keys.Key(fmt.Sprintf("order/%d/paid", n)), Content: dispatch.SMS{To: "+15555550123", Body: "Your order is paid"}}
		texts[p.fleet.of(i.Key)] = append(texts[p.fleet.of(i.Key)], i)
	}
	one, two := p.fleet[0], p.fleet[1]
	half := func(s *shard) ([]dispatch.Intent, []dispatch.Intent) {
		return texts[s][:len(texts[s])/2], texts[s][len(texts[s])/2:]
	}
	firstOfOne, restOfOne := half(one)
	firstOfTwo, restOfTwo := half(two)
	if err := errors.Join(p.enqueue(ctx, firstOfOne), p.enqueue(ctx, firstOfTwo), p.away(ctx, two)); err != nil {
		return err
	}

	running, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- p.fleet.run(running) }()
	if err := p.delivered(ctx, firstOfOne); err != nil {
		return err
	}
	p.first, p.took, p.early = len(firstOfOne), time.Since(began), p.count(firstOfTwo)
	if err := errors.Join(p.back(ctx, two), p.delivered(ctx, firstOfTwo)); err != nil {
		return err
	}

	if err := errors.Join(p.away(ctx, two), p.enqueue(ctx, restOfOne), p.delivered(ctx, restOfOne)); err != nil {
		return err
	}
	p.second = len(restOfOne)
	p.refused = p.fleet.enqueue(ctx, restOfTwo[0])
	if err := p.back(ctx, two); err != nil {
		return err
	}
	// The same again, with the same keys, until the database takes it.
	err = await(ctx, func() bool { return p.enqueue(ctx, restOfTwo) == nil })
	if err := errors.Join(err, p.delivered(ctx, restOfTwo)); err != nil {
		return err
	}
	stop()
	if err := <-done; err != nil {
		return err
	}
	return p.look(ctx, texts)
}

func (p *play) enqueue(ctx context.Context, list []dispatch.Intent) error {
	for _, i := range list {
		if err := p.fleet.enqueue(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// away ends all sessions of a database and lets nobody in.
func (p *play) away(ctx context.Context, s *shard) error {
	if _, err := p.server.Exec(ctx, "alter database "+s.name+" allow_connections false"); err != nil {
		return err
	}
	return await(ctx, func() bool {
		var left int
		err := p.server.QueryRow(ctx, "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = $1", s.name).Scan(&left)
		return err == nil && left == 0
	})
}

func (p *play) back(ctx context.Context, s *shard) error {
	_, err := p.server.Exec(ctx, "alter database "+s.name+" allow_connections true")
	return err
}

// delivered waits until the vendor has all of them.
func (p *play) delivered(ctx context.Context, list []dispatch.Intent) error {
	return await(ctx, func() bool { return p.count(list) >= len(list) })
}

func (p *play) count(list []dispatch.Intent) (n int) {
	for _, i := range list {
		n += p.vendor.Deliveries(i.Key.String())
	}
	return n
}

// look asks vendor and databases about each message.
func (p *play) look(ctx context.Context, texts map[*shard][]dispatch.Intent) error {
	p.deliveries, p.places = map[dispatch.Key]int{}, map[dispatch.Key][]string{}
	for _, list := range texts {
		for _, i := range list {
			p.deliveries[i.Key] = p.vendor.Deliveries(i.Key.String())
			for _, s := range p.fleet {
				var h outbox.History
				var err error
				ended := await(ctx, func() bool { // the pool may have connections that were ended
					h, err = s.box.History(ctx, i.Key)
					return err == nil || errors.Is(err, outbox.ErrNotFound)
				})
				if ended != nil {
					return errors.Join(ended, err)
				}
				if h.State == dispatch.Sent {
					p.places[i.Key] = append(p.places[i.Key], s.name)
				}
			}
		}
	}
	return nil
}

// await looks until it is so, for a minute.
func await(ctx context.Context, so func() bool) error {
	ctx, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
