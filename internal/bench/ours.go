package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// recipient is a number that is nobody's.
const recipient = "+15555550123"

// ours is this library.
type ours struct {
	db     *pgxpool.Pool
	box    *outbox.Box
}

// workerConns is what a worker of either library gets: more than it ever uses.
const workerConns = 16

func newOurs(ctx context.Context, url string) (*ours, error) {
	pool, err := connect(ctx, url, workerConns)
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

func (o *ours) close() error {
	o.db.Close()
	return nil
}

func (o *ours) clear(ctx context.Context) error {
	return clear(ctx, o.db, "dispatch.message", "dispatch.queue", "dispatch.parked", "dispatch.history", business)
}

func intent(n int) dispatch.Intent {
	return dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.SMS{To: recipient, Body: text(n)}}
}

func (o *ours) fill(ctx context.Context, from, to int) error {
	for ; from < to; from += outbox.MaxMany {
		if err := o.bulk(ctx, from, min(to, from+outbox.MaxMany)); err != nil {
			return err
		}
	}
	return settle(ctx, o.db, "dispatch.message", "dispatch.queue", "dispatch.history")
}

func (o *ours) bulk(ctx context.Context, from, to int) error {
	intents := make([]dispatch.Intent, 0, to-from)
	for n := from; n < to; n++ {
		intents = append(intents, intent(n))
	}
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
	err := pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) error {
		_, err := o.box.Enqueue(ctx, tx, intent(n))
		return err
	})
	at := time.Now()
	o.box.Wake()
	return at, err
}

// stubborn is a provider that does what it is told and has no vendor.
type stubborn struct {
	dispatch.NoLookup
	do func(ctx context.Context, key, text string) error
}

func (*stubborn) Contract() dispatch.Contract {
	return dispatch.Contract{Name: "vendor", Account: "bench"}
}

func (p *stubborn) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	key := e.Key.String()
	sms, ok := e.Content.(dispatch.SMS)
	if !ok {
		return dispatch.Accepted{}, fmt.Errorf("content is %T", e.Content)
	}
	if err := p.do(ctx, key, sms.Body); err != nil {
		return dispatch.Accepted{}, err
	}
	return dispatch.Accepted{ID: key}, nil
}

func (o *ours) work(ctx context.Context, slots int, do func(ctx context.Context, key, text string) error) (func() error, error) {
	return o.workWith(ctx, slots, &stubborn{do: do})
}

func (o *ours) workWith(ctx context.Context, slots int, p dispatch.Provider) (func() error, error) {
	w, err := outbox.NewWorker(o.box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{p}, Slots: slots, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}, nil
}

func (o *ours) waiting(ctx context.Context, n int) error {
	return expect(ctx, o.db, "dispatch queue", n, "select count(*) from dispatch.queue q join dispatch.message m using (id) where q.state = 1")
}

// finished: one evidence row per message, of an acceptance, and nothing left.
func (o *ours) finished(ctx context.Context, n int) error {
	for _, c := range []struct {
		what, query string
		want        int
	}{
		{"dispatch queue", "select count(*) from dispatch.queue", 0},
		{"dispatch parked", "select count(*) from dispatch.parked", 0},
		{"dispatch history", "select count(*) from dispatch.history", n},
		{"dispatch acceptances", "select count(distinct id) from dispatch.history where state = 6 and outcome = 1 and fence = 1", n},
	} {
		if err := expect(ctx, o.db, c.what, c.want, c.query); err != nil {
			return err
		}
	}
	return nil
}
