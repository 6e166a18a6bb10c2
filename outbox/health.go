package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// Thresholds say when a provider is unhealthy and new messages go to the
// route's next one, until a trickle of probes has passed. A zero field is its
// default. Where a route has no other provider, or all are unhealthy, health
// holds nobody.
type Thresholds struct {
	// Window is the time that is looked at; 5 min.
	Window time.Duration
	// FailedShare is the share of calls that may fail in it; 0.05. An unknown
	// counts as failed; a message or a sender that was refused doesn't count.
	FailedShare float64
	// MinCalls is the least number of calls that says anything; 20.
	MinCalls int
	// Delivery is the median time from send to delivered; 60 s. It is judged
	// for providers whose receipts come in.
	Delivery time.Duration
}

func (t Thresholds) engine() (engine.Thresholds, error) {
	if t.Window < 0 || t.Window > 24*time.Hour || t.Delivery < 0 || t.Delivery > 24*time.Hour || t.MinCalls < 0 ||
		math.IsNaN(t.FailedShare) || t.FailedShare < 0 || t.FailedShare > 1 {
		return engine.Thresholds{}, errors.New("a health threshold is negative or too large")
	}
	return engine.Thresholds{
		Window: or(t.Window, 5*time.Minute), Share: or(t.FailedShare, 0.05), MinCalls: or(t.MinCalls, 20),
		Delivery: or(t.Delivery, time.Minute),
	}, nil
}

// deliveryLimit is what counts as delivered in time when a receipt comes in;
// it is written down then, so that a changed threshold counts from then on.
const deliveryLimit = time.Minute

func (s *store) AddHealth(ctx context.Context, tallies []engine.Tally) error {
	return s.addHealth(ctx, tallies, make([]time.Duration, len(tallies)))
}

// addHealth adds tallies for slots that lie so long ago.
func (s *store) addHealth(ctx context.Context, tallies []engine.Tally, ago []time.Duration) error {
	var provider, took []string
	var n [7][]int64
	for i, t := range tallies {
		provider = append(provider, t.Provider)
		took = append(took, "{"+strings.Trim(strings.ReplaceAll(fmt.Sprint(t.Took), " ", ","), "[]")+"}")
		for k, v := range [...]int64{
			int64(t.Country), ago[i].Microseconds(), int64(t.Calls), int64(t.Failed), int64(t.Accepted), int64(t.Fast), int64(t.Slow),
		} {
			n[k] = append(n[k], v)
		}
	}
	_, err := s.pool.Exec(ctx, s.sql.addHealth, provider, n[0], n[1], n[2], n[3], n[4], n[5], n[6], took)
	return err
}

func (s *store) Health(ctx context.Context, t engine.Thresholds) ([]engine.Tally, error) {
	rows, err := s.pool.Query(ctx, s.sql.health, t.Window.Microseconds(), t.Delivery.Microseconds())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanTally)
}

func scanTally(row pgx.CollectableRow) (h engine.Tally, err error) {
	var took string
	if err := row.Scan(&h.Provider, &h.Country, &h.Calls, &h.Failed, &h.Accepted, &h.Ripe, &h.RipeFast, &h.Fast, &h.Slow, &took); err != nil {
		return h, err
	}
	var list []*int
	err = json.Unmarshal([]byte("["+strings.ReplaceAll(strings.Trim(took, "{}"), "NULL", "null")+"]"), &list)
	for i, n := range list {
		if n != nil && i < engine.Buckets {
			h.Took[i] = *n
		}
	}
	return h, err
}

// delivered counts a first confirmation of delivery for the slot in which its
// message was accepted.
func (s *store) delivered(ctx context.Context, key dispatch.Key, provider string) error {
	var micro int64
	var country int
	err := s.pool.QueryRow(ctx, s.sql.delivered, key.String(), provider).Scan(&micro, &country)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	t := engine.Tally{Provider: provider, Country: country}
	if micros(micro) <= deliveryLimit {
		t.Fast = 1
	} else {
		t.Slow = 1
	}
	return s.addHealth(ctx, []engine.Tally{t}, []time.Duration{micros(micro)})
}

// ProviderHealth is what a provider did in the last five minutes, as all
// processes together saw it. Acceptance and delivery are different facts.
type ProviderHealth struct {
	Provider string
	Country  int // ITU calling code, 0 where there is none
	Calls    int // that say something about the provider
	Failed   int
	Accepted int
	// DeliveredFast and DeliveredSlow count the accepted messages whose
	// delivery was confirmed, within a minute and later.
	DeliveredFast, DeliveredSlow int
	// P50, P95 and P99 bound the time that the answers took; each is the end of
	// a class that is twice as wide as the one before. 51.2 s stands for all
	// above 25.6 s, and 0 for none.
	P50, P95, P99 time.Duration
}

// Health returns what the providers did in the last five minutes, by provider
// and country.
func (b *Box) Health(ctx context.Context) ([]ProviderHealth, error) {
	if b.pool == nil {
		return nil, ErrNoPool
	}
	limits, err := Thresholds{}.engine()
	if err != nil {
		return nil, err
	}
	list, err := b.store.Health(ctx, limits)
	if err != nil {
		return nil, missing(err)
	}
	return publicHealth(list), nil
}

func publicHealth(list []engine.Tally) []ProviderHealth {
	out := make([]ProviderHealth, len(list))
	for i, t := range list {
		out[i] = ProviderHealth{
			Provider: t.Provider, Country: t.Country, Calls: t.Calls, Failed: t.Failed, Accepted: t.Accepted,
			DeliveredFast: t.Fast, DeliveredSlow: t.Slow, P50: t.Quantile(0.5), P95: t.Quantile(0.95), P99: t.Quantile(0.99),
		}
	}
	slices.SortFunc(out, func(x, y ProviderHealth) int {
		if c := strings.Compare(x.Provider, y.Provider); c != 0 {
			return c
		}
		return x.Country - y.Country
	})
	return out
}
