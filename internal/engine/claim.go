package engine

import (
	"context"
	"math"
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
	claimed  int // the engine's count of claims when it was last taken from
	mark     mark
	to       string // the provider that it was claimed for last
}

// mark is a lane's low watermark: it keeps claims from reading again and again
// what was claimed already. While an old snapshot is held, index entries of rows
// that are gone stay, a million a minute where the worker is fast. But a
// transaction that began early commits rows below it. A claim therefore begins a
// hundred rows or two before it, a look now and then a second or at the lane's
// begin. Looks lower it to what they see.
type mark struct {
	from, next Cursor // where claims begin, and will begin
	claimed    int    // rows since next was set
}

// trail is how many rows a claim begins before the watermark, at least.
const trail = 128

// claimedTo tells of a claim of so many rows, and its last.
func (m *mark) claimedTo(last Cursor, rows int) {
	if m.claimed += rows; m.claimed >= trail && m.next.Before(last) {
		*m = mark{from: m.next, next: last}
	}
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
	l := &lane{id: id, name: id.String(), provider: b, to: b.contract.Name}
	e.lanes = append(e.lanes, l)
	e.byName[l.name] = l
}

// Hint says that a lane may have a row that is due.
func (e *Engine) Hint(name string) {
	if l := e.byName[name]; l != nil {
		l.ready = true
	}
}

// Near and Far are how much before their lanes' watermarks looks begin.
const (
	Near = time.Second
	Far  = time.Duration(math.MaxInt64) // at the lanes' begin
)

// Look asks which lanes have rows that are due, and returns the time until the
// next one, negative for none in sight. What it costs grows with the rows behind
// the watermark that are gone and can't be vacuumed yet. Only a look from Far sees
// every row that is late; a look from 0 sees what any claim would.
func (e *Engine) Look(ctx context.Context, before time.Duration) (next time.Duration, err error) {
	probes := make([]Probe, len(e.lanes))
	for i, l := range e.lanes {
		probes[i].Lane = l.name
		switch from := l.mark.from; {
		case before == Far || from == (Cursor{}):
		case before == 0:
			probes[i].From = from
		default:
			probes[i].From.Due = from.Due.Add(-before)
		}
	}
	sight, err := e.store.Peek(ctx, probes)
	if err != nil {
		return -1, err
	}
	for i, l := range e.lanes {
		l.sighted(sight.First[i], sight.Now)
	}
	return sight.Next, nil
}

// sighted lowers the lane's mark to the first row that is there. It raises it, as
// where other processes claim, to a second before that, or before now where there
// is none: whose transaction is about to commit is not to be hidden by a look.
func (l *lane) sighted(first Cursor, now time.Time) {
	until := now
	if first != (Cursor{}) {
		l.ready, until = true, first.Due
		if first.Before(l.mark.from) {
			l.mark = mark{from: first, next: first}
		}
	}
	if c := (Cursor{Due: until.Add(-Near)}); l.mark.from.Before(c) {
		l.mark = mark{from: c, next: c}
	}
}

// mostClaimed is how many rows a claim takes at most.
const mostClaimed = 512

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
	pick.limit = have
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
	if !pick.probe && !forced {
		var last Cursor
		for i := range tasks {
			if c := (Cursor{Due: tasks[i].Due, Key: tasks[i].Key}); last.Before(c) {
				last = c
			}
		}
		l.mark.claimedTo(last, len(tasks))
	}
	// A lane that gave less than it was asked for is not ready any more, whatever
	// it was claimed for: else the claimer would ask again at once, for ever, and
	// no other lane would be looked at. What the watermark hid is a look's to find.
	l.ready = len(tasks) == pick.limit
	_, more = e.pick(free)
	return tasks, more, nil
}

func (e *Engine) request(p pick, id [16]byte) Claim {
	l, c := p.lane, p.to.contract
	if p.probe || c.Name != l.to {
		l.mark, l.to = mark{}, c.Name // not the same rows are its own
	}
	req := Claim{
		ID: id, Lane: l.id, Provider: c.Name, Account: c.Account, Encoding: c.Encoding,
		Lease: e.lease(c), Limit: p.limit, Probe: p.probe || p.forced(e), From: l.mark.from,
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
			limit = e.gates.ramp(to.contract.Name, min(limit, mostClaimed))
		}
		if limit > 0 {
			best = pick{lane: l, to: to, probe: probe, limit: limit}
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
