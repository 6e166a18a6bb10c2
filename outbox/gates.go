package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// hysteresis is how long a gate stays closed at least where its route has
// another provider: one that flaps causes one switch in that time. Without
// another there is nothing to switch to, and it is probed at once.
const hysteresis = time.Minute

func (s *store) Gates(ctx context.Context) ([]engine.Gate, error) {
	rows, err := s.pool.Query(ctx, s.sql.gates)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanGate)
}

func scanGate(row pgx.CollectableRow) (g engine.Gate, err error) {
	var open, held int64
	var until *time.Time
	err = row.Scan(&g.Provider, &g.Country, &g.Reason, &g.Closed, &g.Probe, &until, &g.Since, &open, &held, &g.By, &g.Why)
	g.Until, g.Open, g.Held = timeOf(until), micros(open), micros(held)
	return g, err
}

func (s *store) CloseGate(ctx context.Context, h engine.Hold) error {
	duration := int64(-1)
	if h.For >= 0 {
		duration = h.For.Microseconds()
	}
	wait := int64(0)
	if h.Sticky {
		wait = hysteresis.Microseconds()
	}
	_, err := s.pool.Exec(ctx, s.sql.closeGate, h.Provider, int64(h.Country), int64(h.Reason), duration, h.Probe.Microseconds(), wait,
		label(h.By, 200), label(h.Why, 1000))
	return err
}

func (s *store) ProbeGate(ctx context.Context, provider string, country int, every, most time.Duration) (bool, error) {
	tag, err := s.pool.Exec(ctx, s.sql.probeGate, provider, int64(country), every.Microseconds(), most.Microseconds())
	return tag.RowsAffected() == 1, err
}

func (s *store) PassGate(ctx context.Context, provider string, country, need int, next time.Duration) error {
	_, err := s.pool.Exec(ctx, s.sql.passGate, provider, int64(country), int64(need), next.Microseconds())
	return err
}

// TakeTokens takes tokens of a provider's shared rate.
func (s *store) TakeTokens(ctx context.Context, provider string, l engine.Limit, want int) (granted int, next time.Duration, err error) {
	for range 2 {
		var nanos int64
		err = s.pool.QueryRow(ctx, s.sql.takeTokens, provider, l.PerThousand, int64(l.Burst), int64(want)).Scan(&granted, &nanos)
		if !errors.Is(err, pgx.ErrNoRows) {
			return granted, time.Duration(nanos), err
		}
		if _, err = s.pool.Exec(ctx, s.sql.seedRate, provider, int64(l.Burst)); err != nil {
			return 0, 0, err
		}
	}
	return 0, 0, err
}

// Gate is the shared hold on a provider, or on a route, as Box.Gates shows it.
type Gate struct {
	Provider string // empty where it holds a route
	Route    string // empty where it holds a provider
	Country  int    // ITU calling code; 0 is all
	Reason   string // "floor", "health", "circuit", "account", "paused"
	Closed   bool
	Since    time.Time // when it closed the last time
	Until    time.Time // when it opens, or opened, by itself; zero: until a probe passes or Resume
	By, Why  string
}

// Gates returns every gate that was ever closed, for a person to see.
func (b *Box) Gates(ctx context.Context) ([]Gate, error) {
	if b.pool == nil {
		return nil, ErrNoPool
	}
	list, err := b.store.Gates(ctx)
	if err != nil {
		return nil, missing(err)
	}
	return publicGates(list), nil
}

func publicGates(list []engine.Gate) []Gate {
	out := make([]Gate, len(list))
	for i, g := range list {
		out[i] = Gate{
			Provider: g.Provider, Country: g.Country, Reason: g.Reason.String(), Closed: g.Closed,
			Since: g.Since, Until: g.Until, By: g.By, Why: g.Why,
		}
		if route, ok := engine.HeldRoute(g.Provider); ok {
			out[i].Provider, out[i].Route = "", route
		}
	}
	return out
}

// Pause holds a provider until Resume: no send to it begins later than one
// claim interval (200 ms) after the pause is committed. Its messages go to the
// route's next provider, or wait; their deadlines still count.
func (b *Box) Pause(ctx context.Context, provider string, a Audit) error {
	if err := b.checkName("provider", provider, a); err != nil {
		return err
	}
	return missing(b.store.CloseGate(ctx, engine.Hold{Provider: provider, Reason: engine.GatePaused, For: -1, By: a.By, Why: a.Why}))
}

// Resume opens what holds a provider, whatever closed it, for all countries and
// for single ones. Its messages come back step by step. It returns ErrNotHeld
// where nothing held it.
func (b *Box) Resume(ctx context.Context, provider string, a Audit) error {
	if err := b.checkName("provider", provider, a); err != nil {
		return err
	}
	return b.open(ctx, "provider", provider, provider, a)
}

// PauseRoute holds a route until ResumeRoute, whatever its providers do: no send
// of its messages begins later than one claim interval (200 ms) after the pause
// is committed. They wait untouched; their deadlines still count, and what is
// unknown is still looked up.
func (b *Box) PauseRoute(ctx context.Context, route string, a Audit) error {
	if err := b.checkName("route", route, a); err != nil {
		return err
	}
	if _, ok := b.routes[route]; !ok {
		return fmt.Errorf("outbox: %q is not a route of this box", route)
	}
	return missing(b.store.CloseGate(ctx, engine.Hold{
		Provider: engine.RouteGate(route), Reason: engine.GatePaused, For: -1, By: a.By, Why: a.Why,
	}))
}

// ResumeRoute ends the pause of a route. Its messages are claimed at once, as
// the gates and rates of its providers let them. It takes any name, since a
// route may have left the configuration while it was paused, and returns
// ErrNotHeld where nothing held it.
func (b *Box) ResumeRoute(ctx context.Context, route string, a Audit) error {
	if err := b.checkName("route", route, a); err != nil {
		return err
	}
	return b.open(ctx, "route", route, engine.RouteGate(route), a)
}

func (b *Box) open(ctx context.Context, kind, name, gate string, a Audit) error {
	tag, err := b.pool.Exec(ctx, b.sql.openGate, gate, label(a.By, 200), label(a.Why, 1000))
	switch {
	case err != nil:
		return missing(err)
	case tag.RowsAffected() == 0:
		return fmt.Errorf("%w %s %q", ErrNotHeld, kind, name)
	}
	b.Wake()
	return nil
}

func (b *Box) checkName(what, name string, a Audit) error {
	if b.pool == nil {
		return ErrNoPool
	}
	if err := dispatch.ValidName(name); err != nil {
		return fmt.Errorf("outbox: %s name %w", what, err)
	}
	return a.check()
}
