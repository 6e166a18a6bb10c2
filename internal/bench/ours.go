package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/httpapi"
)

// recipient is a number that is nobody's.
const recipient = "+15555550123"

// ours is this library.
type ours struct {
	db       *pgxpool.Pool
	box      *outbox.Box
	priority dispatch.Priority // of what batch enqueues; the route's where zero
}

// workerConns is what a worker of either library gets: more than it ever uses.
const workerConns = 16

func newOurs(ctx context.Context, url string, tracer pgx.QueryTracer) (*ours, error) {
	pool, err := connect(ctx, url, workerConns, tracer)
	if err != nil {
		return nil, err
	}
	o := &ours{db: pool}
	policy := dispatch.SMSPolicy()
	policy.ValidFor = 24 * time.Hour
	o.box, err = outbox.New(pool, outbox.Config{Routes: []dispatch.Route{{Name: "sms", Providers: []string{"vendor"}, Policy: policy}}})
	if err == nil {
		err = o.box.Migrate(ctx)
	}
	if err == nil {
		err = makeBusiness(ctx, pool)
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("dispatch: %w", err)
	}
	return o, nil
}

func (o *ours) name() string        { return "dispatch" }
func (o *ours) pool() *pgxpool.Pool { return o.db }
func (o *ours) close()              { o.db.Close() }

func (o *ours) clear(ctx context.Context) error {
	return clear(ctx, o.db, "dispatch.message", "dispatch.queue", "dispatch.parked", "dispatch.history", business)
}

func intent(n int) dispatch.Intent {
	return dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.SMS{To: recipient, Body: text(n)}}
}

func (o *ours) intents(from, to int) []dispatch.Intent {
	intents := make([]dispatch.Intent, 0, to-from)
	for n := from; n < to; n++ {
		i := intent(n)
		i.Priority = o.priority
		intents = append(intents, i)
	}
	return intents
}

func (o *ours) batch(from, to int) func(ctx context.Context) error {
	intents := o.intents(from, to)
	return func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) error {
			added, err := o.box.EnqueueMany(ctx, tx, intents)
			if err != nil {
				return err
			}
			for i, isNew := range added {
				if !isNew {
					return fmt.Errorf("message %d was reported as there already", from+i)
				}
			}
			return nil
		})
	}
}

func (o *ours) rest(ctx context.Context) error {
	return settle(ctx, o.db, "dispatch.message", "dispatch.queue", "dispatch.history")
}

func (o *ours) transact(ctx context.Context, pool *pgxpool.Pool, n int) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		i := intent(n)
		if err := order(ctx, tx, i.Key.String()); err != nil {
			return err
		}
		_, err := o.box.Enqueue(ctx, tx, i)
		return err
	})
	o.box.Wake()
	return err
}

// pipeline is transact in one round trip.
func (o *ours) pipeline(ctx context.Context, pool *pgxpool.Pool, n int) error {
	var b pgx.Batch
	i := intent(n)
	b.Queue("begin")
	b.Queue(insertBusiness, i.Key.String())
	if err := o.box.Queue(&b, i); err != nil {
		return err
	}
	b.Queue("commit")
	err := pool.SendBatch(ctx, &b).Close()
	o.box.Wake()
	return err
}

func (o *ours) commit(ctx context.Context, n int) (time.Time, error) {
	return o.put(ctx, intent(n))
}

func (o *ours) put(ctx context.Context, i dispatch.Intent) (time.Time, error) {
	err := pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) error {
		_, err := o.box.Enqueue(ctx, tx, i)
		return err
	})
	at := time.Now()
	o.box.Wake()
	return at, err
}

// watched tells of every send that was accepted.
type watched struct {
	dispatch.Provider
	seen func(ctx context.Context, key, text string) error
}

func (p *watched) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	a, err := p.Provider.Send(ctx, e)
	if err != nil {
		return a, err
	}
	sms, ok := e.Content.(dispatch.SMS)
	if !ok {
		return dispatch.Accepted{}, fmt.Errorf("content is %T", e.Content)
	}
	return a, p.seen(ctx, e.Key.String(), sms.Body)
}

// accepting is a provider without a vendor: it accepts everything at once.
type accepting struct{ dispatch.NoLookup }

func (accepting) Contract() dispatch.Contract {
	return dispatch.Contract{Name: "vendor", Account: "bench"}
}

func (accepting) Send(_ context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	return dispatch.Accepted{ID: e.Key.String()}, nil
}

func (o *ours) work(ctx context.Context, j job) (func() error, error) {
	var p dispatch.Provider = accepting{}
	closing := func() {}
	if j.vendor != nil {
		api, err := j.vendor.provider(j.slots)
		if err != nil {
			return nil, err
		}
		closing = api.Close
		p = api
	}
	w, err := outbox.NewWorker(o.box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{&watched{Provider: p, seen: j.seen}}, Slots: j.slots, Logger: quiet,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() error {
		cancel()
		defer closing()
		return <-done
	}, nil
}

// provider is this library's adapter for the vendor.
func (v *vendor) provider(slots int) (*httpapi.Provider, error) {
	return httpapi.New(httpapi.Config{
		Name: "vendor", BaseURL: v.url, Window: 24 * time.Hour, Exchange: exchange.Config{MaxConns: slots},
	})
}

func (o *ours) waiting(ctx context.Context, n int) error {
	return expect(ctx, o.db, "dispatch queue", n, "select count(*) from dispatch.queue q join dispatch.message m using (id) where q.state = 1")
}

// finished: one evidence row for each, of an acceptance.
func (o *ours) finished(ctx context.Context, n int) error {
	if err := expect(ctx, o.db, "dispatch history", n, "select count(*) from dispatch.history"); err != nil {
		return err
	}
	return expect(ctx, o.db, "dispatch acceptances", n,
		"select count(distinct id) from dispatch.history where state = 6 and outcome = 1 and fence = 1")
}

func (o *ours) left(ctx context.Context, n int) error {
	return expect(ctx, o.db, "dispatch queue and parked", n,
		"select (select count(*) from dispatch.queue) + (select count(*) from dispatch.parked)")
}

func (o *ours) settled(ctx context.Context) (map[string]time.Time, error) {
	return commitTimes(ctx, o.db, "select id::text, pg_xact_commit_timestamp(xmin) from dispatch.history")
}
