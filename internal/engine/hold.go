package engine

import (
	"context"
	"slices"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// settleGates carries out what a batch of changes says about providers, before
// the changes themselves: no send begins later than one claim interval after
// it.
func (e *Engine) settleGates(ctx context.Context, changes []Change) error {
	if e.cfg.Gates == nil {
		return nil
	}
	done := map[Hold]bool{}
	for _, c := range changes {
		if c.Hold != nil {
			c.Hold.Sticky = c.Hold.Reason != GateFloor && e.hasOpenSibling(c.Hold.Provider)
		}
		if c.Pass {
			need, next := 1, circuitProbe
			if e.gates.reason(c.Record.Provider, 0) == GateHealth {
				need, next = healthPasses, healthProbe
			}
			if err := e.cfg.Gates.PassGate(ctx, c.Record.Provider, 0, need, next); err != nil {
				return err
			}
		}
		if c.Hold == nil || done[*c.Hold] {
			continue
		}
		done[*c.Hold] = true
		if err := e.cfg.Gates.CloseGate(ctx, *c.Hold); err != nil {
			return err
		}
		e.gates.mu.Lock()
		if e.gates.known == nil {
			e.gates.known = map[gateKey]Gate{}
		}
		key := gateKey{c.Hold.Provider, c.Hold.Country}
		gate := e.gates.known[key]
		gate.Closed, gate.Reason, gate.Probe = true, max(gate.Reason, c.Hold.Reason), false
		e.gates.known[key] = gate
		e.gates.some.Store(true)
		e.gates.mu.Unlock()
	}
	return nil
}

// hasSibling reports whether a route has the provider and another one.
func (e *Engine) hasSibling(provider string) bool {
	return e.sibling(provider, func(string) bool { return true })
}

// hasOpenSibling reports whether a route has the provider and another one that
// isn't held: where all are, whichever is back first is to be found out soon.
func (e *Engine) hasOpenSibling(provider string) bool {
	return e.sibling(provider, func(p string) bool { return !e.gates.closed(p, 0) })
}

func (e *Engine) sibling(provider string, usable func(p string) bool) bool {
	for _, r := range e.routes {
		if slices.Contains(r.Providers, provider) && slices.ContainsFunc(r.Providers, func(p string) bool {
			_, bound := e.providers[p]
			return bound && p != provider && usable(p)
		}) {
			return true
		}
	}
	return false
}

// target is the provider that a lane's next claim is for. A lane goes to its
// own provider, and that of any to the route's first. One that is held is
// passed over for the route's next that isn't: what is pending may go to any of
// them, and what is open is left alone by the claim's own guard. A held one
// whose probe is due gets one row.
func (e *Engine) target(l *lane) (b bound, probe, ok bool) {
	if e.cfg.Gates == nil {
		return l.provider, false, true
	}
	if e.gates.closed(RouteGate(l.id.Route), 0) {
		return bound{}, false, false
	}
	own := l.provider.contract.Name
	if !e.gates.closed(own, 0) {
		return l.provider, false, true
	}
	if e.gates.probe(own) {
		return l.provider, true, true
	}
	for _, p := range e.routes[l.id.Route].Providers {
		if b, bound := e.providers[p]; bound && p != own && !e.gates.closed(p, 0) {
			return b, false, true
		}
	}
	b, ok = e.lastResort(l)
	return b, false, ok
}

// probing wins or loses the probe of a provider that is held.
func (e *Engine) probing(ctx context.Context, provider string) (bool, error) {
	every, most := circuitProbe, circuitProbeMost
	e.gates.mu.Lock()
	switch e.gates.known[gateKey{provider, 0}].Reason {
	case GateAccount:
		every, most = accountProbe, accountProbeMost
	case GateHealth:
		every = healthProbe
	case GateFloor, GateCircuit, GatePaused:
	}
	e.gates.mu.Unlock()
	e.gates.asked(provider)
	return e.cfg.Gates.ProbeGate(ctx, provider, 0, every, most)
}

// held hands a claimed row back whose route or provider is held. Where all of
// it is, the row stays due and the gate keeps it; where its country is, it goes
// to a provider that isn't, or waits a moment. A probe stops at its route's
// gate too.
func (e *Engine) held(t *Task, s decide.Setup, now time.Time) (m decide.Move, held bool) {
	switch {
	case e.gates.closed(RouteGate(t.Lane.Route), 0):
		return s.Unstarted(t.Row, now, 0), true
	case t.Probe, t.Forced:
		return m, false
	case e.gates.closed(t.Provider, 0):
		return s.Unstarted(t.Row, now, 0), true
	case t.Country == 0 || !e.gates.closed(t.Provider, t.Country):
		return m, false
	}
	s.Candidates = slices.DeleteFunc(slices.Clone(s.Candidates), func(p string) bool { return e.gates.closed(p, t.Country) })
	if t.Ledger.Count(decide.Open) > 0 || len(s.Candidates) == 0 {
		return s.Unstarted(t.Row, now, heldAgain), true
	}
	return s.Unusable(t.Row, now), true
}

// elsewhere hands a claimed row back whose provider can't take it: to one that
// can and isn't held, or it waits for its own.
func (e *Engine) elsewhere(t *Task, s decide.Setup, now time.Time) decide.Move {
	free := s
	free.Candidates = slices.DeleteFunc(s.Free(t.Row), func(p string) bool { return e.gates.closed(p, 0) })
	if len(free.Candidates) > 0 {
		return free.Unusable(t.Row, now)
	}
	m := s.Unusable(t.Row, now)
	to := m.Lane.Provider
	if to == "" {
		to = s.Any
	}
	if m.To == dispatch.Pending && e.gates.closed(to, 0) {
		m.Wait = max(m.Wait, e.gates.wait(to, now))
	}
	return m
}

// wait is how long a row waits whose own provider is held and that can't go to
// the one that it was claimed for. Each such claim is a write for nothing.
func (g *gates) wait(provider string, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	gate := g.known[gateKey{provider, 0}]
	if gate.Closed && gate.Until.IsZero() {
		return 30 * time.Second
	}
	return min(max(heldAgain, gate.Until.Sub(now)), 5*time.Minute)
}

// heldAgain is how long a row waits whose country is held at its only provider.
const heldAgain = 5 * time.Second

// spare leaves the budget of a probe alone that was proven unsent: the gate
// was closed, and the row only asked whether it still is.
func spare(t *Task, v dispatch.Verdict, m decide.Move) decide.Move {
	if t.Probe && v.Outcome == dispatch.Rejected && v.Scope == dispatch.Moment && m.Spent == t.Spent && m.To != dispatch.Dead {
		m.Spent--
	}
	return m
}
