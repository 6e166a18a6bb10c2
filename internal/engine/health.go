package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// Tally is what happened at a provider for one country, counted by one process
// or summed over all.
type Tally struct {
	Provider string
	Country  int
	Calls    int // that say something about the provider
	Failed   int
	Accepted int
	Ripe     int // accepted long enough ago to have been delivered in time
	RipeFast int // of those, delivered in time
	Fast     int
	Slow     int
	Took     [Buckets]int
}

// Buckets is how many classes of duration a tally has: up to 25 ms, and twice
// as much in each, the last without an end.
const Buckets = 12

// Bucket returns the class of a duration, and Bound the end of a class.
func Bucket(d time.Duration) int {
	n := 0
	for limit := 25 * time.Millisecond; d > limit && n < Buckets-1; limit *= 2 {
		n++
	}
	return n
}

// Bound returns the end of a class of duration.
func Bound(n int) time.Duration { return 25 * time.Millisecond << n }

// Quantile returns the end of the class in which the share p of the calls had
// an answer; 0 where there were none.
func (t Tally) Quantile(p float64) time.Duration {
	total := 0
	for _, n := range t.Took {
		total += n
	}
	if total == 0 {
		return 0
	}
	sum := 0
	for i, n := range t.Took {
		if sum += n; float64(sum) >= p*float64(total) {
			return Bound(i)
		}
	}
	return Bound(Buckets - 1)
}

// Thresholds say when a provider is unhealthy.
type Thresholds struct {
	Window   time.Duration
	Share    float64
	MinCalls int
	Delivery time.Duration
}

// HealthStore is what the engine needs of a database to share health.
type HealthStore interface {
	AddHealth(ctx context.Context, tallies []Tally) error
	Health(ctx context.Context, t Thresholds) ([]Tally, error)
}

// counts is what this process has counted since its last flush.
type counts struct {
	mu sync.Mutex
	by map[gateKey]*Tally
}

// count counts an attempt. Faults of the message or of its sender say nothing
// about the provider; an unknown counts as failed.
func (c *counts) count(t *Task, ev dispatch.Evidence, v dispatch.Verdict, took time.Duration) {
	if v.Outcome == dispatch.Rejected && (v.Scope == dispatch.Message || v.Scope == dispatch.Sender) ||
		ev.Cause == dispatch.CauseChanged || ev.Cause == dispatch.CausePool {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[gateKey]*Tally{}
	}
	key := gateKey{t.Provider, t.Country}
	n := c.by[key]
	if n == nil {
		n = &Tally{Provider: t.Provider, Country: t.Country}
		c.by[key] = n
	}
	n.Calls++
	n.Took[Bucket(took)]++
	if v.Outcome == dispatch.OK {
		n.Accepted++
	} else {
		n.Failed++
	}
}

func (c *counts) take() []Tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Tally, 0, len(c.by))
	for _, n := range c.by {
		out = append(out, *n)
	}
	clear(c.by)
	return out
}

// healthProbe is the pause between probes of a provider that is held for its
// health, healthPasses how many must pass, and healthCountry how long a country
// is held.
const (
	healthProbe   = 5 * time.Second
	healthPasses  = 3
	healthCountry = time.Minute
)

// Examine adds what this process has counted, and holds the providers that all
// processes together find unhealthy. tight are those whose attempt time-out is
// below what their answers take: twice their 95th percentile.
func (e *Engine) Examine(ctx context.Context) (tight []Tally, err error) {
	if e.cfg.Health == nil {
		return nil, nil
	}
	if list := e.counts.take(); len(list) > 0 {
		if err := e.cfg.Health.AddHealth(ctx, list); err != nil {
			return nil, err // lost: it is a sample
		}
	}
	list, err := e.cfg.Health.Health(ctx, e.cfg.Thresholds)
	if err != nil {
		return nil, err
	}
	whole := map[string]*Tally{}
	for _, t := range list {
		w := whole[t.Provider]
		if w == nil {
			w = &Tally{Provider: t.Provider}
			whole[t.Provider] = w
		}
		w.add(t)
	}
	for name, w := range whole {
		b, ok := e.providers[name]
		if !ok {
			continue
		}
		if w.Calls >= e.cfg.Thresholds.MinCalls && 2*w.Quantile(0.95) > b.contract.AttemptTimeout() {
			tight = append(tight, *w)
		}
		if err := e.judge(ctx, *w, b.contract, list); err != nil {
			return tight, err
		}
	}
	return tight, nil
}

func (t *Tally) add(o Tally) {
	t.Calls += o.Calls
	t.Failed += o.Failed
	t.Accepted += o.Accepted
	t.Ripe += o.Ripe
	t.RipeFast += o.RipeFast
	t.Fast += o.Fast
	t.Slow += o.Slow
	for i, n := range o.Took {
		t.Took[i] += n
	}
}

// judge holds a provider, or it for single countries.
func (e *Engine) judge(ctx context.Context, whole Tally, c dispatch.Contract, list []Tally) error {
	if !e.hasSibling(whole.Provider) || e.gates.closed(whole.Provider, 0) {
		return nil // nowhere to go, or held already
	}
	if why := e.unhealthy(whole, c); why != "" {
		return e.cfg.Gates.CloseGate(ctx, Hold{
			Provider: whole.Provider, Reason: GateHealth, For: -1, Probe: healthProbe, Sticky: true, Why: why,
		})
	}
	for _, t := range list {
		if t.Provider != whole.Provider || t.Country == 0 || e.gates.closed(t.Provider, t.Country) {
			continue
		}
		if why := e.unhealthy(t, c); why != "" {
			hold := Hold{Provider: t.Provider, Country: t.Country, Reason: GateHealth, For: healthCountry, Why: why}
			if err := e.cfg.Gates.CloseGate(ctx, hold); err != nil {
				return err
			}
		}
	}
	return nil
}

// unhealthy says why a provider is. Half of the messages delivered in time is
// a median below the limit; those that were never delivered count as slow, so
// that a dead carrier isn't hidden by the receipts that it doesn't send.
func (e *Engine) unhealthy(t Tally, c dispatch.Contract) string {
	limit := e.cfg.Thresholds
	switch {
	case t.Calls >= limit.MinCalls && float64(t.Failed) >= limit.Share*float64(t.Calls):
		return "too many calls failed"
	case t.Ripe >= limit.MinCalls && 2*t.RipeFast < t.Ripe && (c.Echo.Reference || t.Fast+t.Slow > 0):
		return "delivers too slowly"
	}
	return ""
}

// lastResort is a provider that is held for its health only, where all of the
// route are: holding all of them would help nobody.
func (e *Engine) lastResort(l *lane) (bound, bool) {
	order := append([]string{l.provider.contract.Name}, e.routes[l.id.Route].Providers...)
	i := slices.IndexFunc(order, func(p string) bool {
		_, ok := e.providers[p]
		return ok && e.gates.reason(p, 0) == GateHealth
	})
	if i < 0 {
		return bound{}, false
	}
	return e.providers[order[i]], true
}

// reason is why a provider is held, 0 where it isn't.
func (g *gates) reason(provider string, country int) GateReason {
	g.mu.Lock()
	defer g.mu.Unlock()
	if gate := g.known[gateKey{provider, country}]; gate.Closed {
		return gate.Reason
	}
	return 0
}
