package engine

import (
	"context"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// lane is one thing to claim from: one provider, whose account and encoding go
// into the claim.
type lane struct {
	id       decide.Lane
	name     string
	provider bound
	ready    bool
	claimed  int       // the engine's count of claims when it was last taken from
	from     time.Time // no row that was due before it can still be unclaimed
	full     int       // claims since from was last reset
}

func (e *Engine) addLanes(r dispatch.Route, used map[string]bool) {
	first := true
	for _, p := range r.Providers {
		b, ok := e.providers[p]
		if !ok {
			continue
		}
		used[p] = true
		for _, prio := range []dispatch.Priority{dispatch.High, dispatch.Normal, dispatch.Low} {
			if first { // the lane of any goes to the first provider that is bound
				e.addLane(decide.Lane{Route: r.Name, Priority: prio}, b)
				e.addLane(decide.Lane{Route: r.Name, Priority: prio, Retry: true}, b)
			}
			e.addLane(decide.Lane{Route: r.Name, Priority: prio, Provider: p}, b)
			e.addLane(decide.Lane{Route: r.Name, Priority: prio, Provider: p, Retry: true}, b)
		}
		first = false
	}
}

func (e *Engine) addLane(id decide.Lane, b bound) {
	l := &lane{id: id, name: id.String(), provider: b}
	e.lanes = append(e.lanes, l)
	e.byName[l.name] = l
}

// Hint says that a lane may have a row that is due.
func (e *Engine) Hint(name string) {
	if l := e.byName[name]; l != nil {
		l.ready = true
	}
}

// Look asks which lanes have rows that are due, and returns the time until the
// next one, negative for none in sight.
func (e *Engine) Look(ctx context.Context) (next time.Duration, err error) {
	names := make([]string, len(e.lanes))
	for i, l := range e.lanes {
		names[i] = l.name
	}
	ready, next, err := e.store.Peek(ctx, names)
	for _, name := range ready {
		e.Hint(name)
	}
	return next, err
}

// ladder holds the sizes of claims, so that each has a plan of its own and
// there are few of them.
var ladder = [...]int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512}

func rung(free int) int {
	n := ladder[0]
	for _, v := range ladder {
		if v <= free {
			n = v
		}
	}
	return n
}

// A transaction that began early may commit rows below a lane's low watermark.
// A claim begins lateCommit before it, as most transactions are shorter, and one
// of resetEvery at the lane's begin.
const (
	lateCommit = 100 * time.Millisecond
	resetEvery = 64
)

// Claim takes up to free rows from the most urgent lane that is ready. id must
// be new for each call: when Claim returns an error, its rows may have been
// taken, and Audit(id) hands them back. more tells that another lane is ready,
// or that this one has more.
func (e *Engine) Claim(ctx context.Context, free int, id [16]byte) (tasks []Task, more bool, err error) {
	pick, ok := e.pick(free)
	if !ok {
		return nil, false, nil
	}
	l := pick.lane
	e.claims++
	l.claimed = e.claims
	name := pick.to.contract.Name
	if pick.probe {
		if won, err := e.probing(ctx, name); err != nil || !won {
			_, more = e.pick(free)
			return nil, more, err
		}
	}
	have, err := e.tokens(ctx, name, pick.limit)
	if err != nil || have == 0 {
		_, more = e.pick(free)
		return nil, more, err
	}
	pick.limit = rung(have)
	forced := pick.forced(e)
	tasks, err = e.store.Claim(ctx, e.request(pick, id))
	if err != nil {
		return nil, false, err
	}
	e.gates.taken(name)
	e.claimed(name, len(tasks))
	for i := range tasks {
		tasks[i].Probe, tasks[i].Forced = pick.probe, forced
	}
	// A lane that gave nothing is not ready any more, whatever it was claimed
	// for: else the claimer would ask again at once, for ever, and no other lane
	// would be looked at.
	switch {
	case len(tasks) == pick.limit && (pick.probe || forced):
	case len(tasks) == pick.limit:
		for _, t := range tasks {
			if t.Due.After(l.from) {
				l.from = t.Due
			}
		}
	case !l.from.IsZero(): // the watermark may hide a row: look below it
		l.from, l.full = time.Time{}, 0
	default:
		l.ready = false
	}
	_, more = e.pick(free)
	return tasks, more, nil
}

func (e *Engine) request(p pick, id [16]byte) Claim {
	l, c := p.lane, p.to.contract
	if l.full++; l.full >= resetEvery || p.probe || p.to.contract.Name != l.provider.contract.Name {
		l.from, l.full = time.Time{}, 0
	}
	req := Claim{
		ID: id, Lane: l.id, Provider: c.Name, Account: c.Account, Encoding: c.Encoding,
		Lease: e.lease(c), Limit: p.limit, Probe: p.probe || p.forced(e),
	}
	if !l.from.IsZero() {
		req.From = l.from.Add(-lateCommit)
	}
	if c.Dedupe.Window > 0 {
		req.Window = max(0, c.Dedupe.Window-2*req.Lease)
	}
	return req
}

// pick is what the next claim takes.
type pick struct {
	lane  *lane
	to    bound
	probe bool
	limit int
}

// forced reports whether the provider is called though it is held for its
// health, since every other is too.
func (p pick) forced(e *Engine) bool {
	return !p.probe && e.gates.reason(p.to.contract.Name, 0) == GateHealth
}

// pick returns the lane to claim from: the highest priority that is ready and
// whose provider may be called, the longest untouched first; each fourth claim
// goes to the longest untouched of all, so that nothing starves.
func (e *Engine) pick(free int) (best pick, ok bool) {
	e.short = free < 1
	if e.short {
		return pick{}, false
	}
	for _, l := range e.lanes {
		if !l.ready || best.lane != nil && !e.before(l, best.lane) {
			continue
		}
		to, probe, usable := e.target(l)
		if !usable {
			continue
		}
		limit := min(e.slots(l, free), e.vacant(to.contract.Name))
		if limit < 1 {
			e.short = true
			continue
		}
		if e.dry(to.contract.Name) {
			continue
		}
		switch {
		case probe:
			limit = 1
		default:
			limit = e.gates.ramp(to.contract.Name, rung(limit))
		}
		if limit > 0 {
			best = pick{lane: l, to: to, probe: probe, limit: rung(limit)}
		}
	}
	return best, best.lane != nil
}

// Short reports whether the last claim left a lane alone for want of a slot.
func (e *Engine) Short() bool { return e.short }

func (e *Engine) before(l, best *lane) bool {
	if e.claims%4 == 3 {
		return l.claimed < best.claimed
	}
	return l.id.Priority == best.id.Priority && l.claimed < best.claimed
}

// Audit hands back what the failed claim took. It may have to be asked again
// until the claim's leases have ended: its commit can land late.
func (e *Engine) Audit(ctx context.Context, id [16]byte) (int, error) {
	return e.store.Unclaim(ctx, id)
}
