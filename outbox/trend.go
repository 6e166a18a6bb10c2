package outbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
)

// Trend is what a provider did in one step of time, in all countries.
type Trend struct {
	Provider string
	From     time.Time // when the step began, by the database's clock
	Calls    int       // that say something about the provider
	Failed   int       // of them; an unknown counts as failed
	Accepted int
}

// maxTrend is for how long the counts are kept, and healthSlot how fine they
// are.
const (
	maxTrend   = 24 * time.Hour
	healthSlot = 10 * time.Second
)

// Trend returns what the providers did in the time that has just passed, a day
// at most, by provider and in steps of whole tens of seconds: for a chart. Steps
// begin at multiples of their length; those in which a provider did nothing are
// left out. What it reads is kept for a day.
func (b *Box) Trend(ctx context.Context, passed, step time.Duration) ([]Trend, error) {
	if b.pool == nil {
		return nil, ErrNoPool
	}
	if step < healthSlot || step%healthSlot != 0 || passed < step || passed > maxTrend {
		return nil, fmt.Errorf("outbox: trend of %v in steps of %v, want steps of whole 10 s, and at most a day", passed, step)
	}
	rows, err := b.pool.Query(ctx, b.sql.trend, passed.Microseconds(), int64(step/time.Second))
	if err != nil {
		return nil, missing(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Trend, err error) {
		err = row.Scan(&t.Provider, &t.From, &t.Calls, &t.Failed, &t.Accepted)
		t.From = t.From.UTC()
		return t, err
	})
	return list, missing(err)
}

// Routes returns the routes that the box was made with, in their order.
func (b *Box) Routes() []dispatch.Route { return slices.Clone(b.list) }
