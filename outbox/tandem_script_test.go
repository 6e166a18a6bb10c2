package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
	"github.com/seed-8098fbb7/dispatch/internal/form"
	"github.com/seed-8098fbb7/dispatch/internal/sim"
)

// step is one call of the Store, or of what else changes rows, on both sides.
func (tm *tandem) step() {
	type act struct {
		weight int
		do     func()
	}
	acts := []act{
		{3, tm.enqueue},
		{40, tm.claim},
		{26, tm.finish},
		{7, tm.handBack},
		{18, tm.sweep},
		{7, tm.hurry},
		{14, tm.answer},
		{7, tm.unclaim},
		{13, tm.byHand},
		{9, tm.learn},
		{3, tm.look},
		{2, tm.load},
		{8, tm.gate},
		{9, tm.forget},
		{18, tm.put},
	}
	switch tm.seed % 4 { // some scripts dwell on a part
	case 1:
		acts = append(acts, act{150, tm.put}, act{30, tm.handBack}, act{20, tm.finish})
	case 3:
		acts = append(acts, act{60, tm.gate}, act{40, tm.byHand}, act{20, tm.unclaim})
	}
	_, moving := tm.row()
	switch {
	case len(tm.messages) < sim.TandemSlots && tm.chance(60):
		tm.enqueue()
		return
	case !moving && tm.chance(60):
		oneOf(tm, tm.forget, tm.put)()
		return
	}
	all := 0
	for _, a := range acts {
		all += a.weight
	}
	x := tm.rnd.IntN(all)
	for _, a := range acts {
		if x -= a.weight; x < 0 {
			a.do()
			return
		}
	}
}

func (tm *tandem) chance(percent int) bool { return tm.rnd.IntN(100) < percent }

func oneOf[T any](tm *tandem, of ...T) T { return of[tm.rnd.IntN(len(of))] }

// pass lets time pass: a little, a lot, or to a moment at which something
// changes, a microsecond before it, or a microsecond after.
func (tm *tandem) pass() {
	switch tm.rnd.IntN(24) {
	default:
		tm.now = tm.now.Add(time.Duration(tm.rnd.Int64N(2e6)) * time.Microsecond)
	case 0, 1:
		return
	case 2, 3, 4:
		tm.now = tm.now.Add(time.Duration(tm.rnd.Int64N(60e6)) * time.Microsecond)
	case 5:
		tm.now = tm.now.Add(time.Duration(tm.rnd.Int64N(30*60e6)) * time.Microsecond)
	case 6, 7, 8, 9, 10, 11, 12, 13:
		var moments []time.Time
		for _, r := range tm.model.Rows() {
			moments = append(moments, r.Due, r.Due, r.Due, r.Lease, r.Lease, r.Deadline, r.ResolveUntil)
			for _, window := range windows {
				moments = append(moments, r.First.Add(window))
			}
		}
		for _, g := range tm.model.GateRows() {
			moments = append(moments, g.Until, g.Probe)
		}
		moments = slices.DeleteFunc(moments, func(m time.Time) bool { return !m.After(tm.now) || m.Sub(tm.now) > 6*time.Hour })
		slices.SortFunc(moments, time.Time.Compare)
		if tm.chance(60) { // what comes next
			moments = moments[:min(1, len(moments))]
		}
		if len(moments) > 0 {
			tm.now = oneOf(tm, moments...).Add(tm.blink())
		}
	}
	tm.model.Set(tm.now)
}

// blink is what decides at a boundary.
func (tm *tandem) blink() time.Duration { return oneOf(tm, -time.Microsecond, 0, 0, time.Microsecond) }

var windows = []time.Duration{0, 90 * time.Second, 10 * time.Minute, 24 * time.Hour}

func (tm *tandem) enqueue() {
	m := sim.TandemMessage{
		Budget: oneOf(tm, 1, 2, 3, 5, 8, 8), Pinned: oneOf(tm, "", "", "", "", "", "alpha", "beta"),
		OnUnknown: dispatch.OnUnknown{
			Action: oneOf(tm, dispatch.UnknownHold, dispatch.UnknownResend, dispatch.UnknownResend, dispatch.UnknownFailover, dispatch.UnknownFailover, dispatch.UnknownDead),
			After:  oneOf(tm, 0, 0, time.Minute),
		},
		Senders: oneOf(tm, nil, nil, []byte(`{"alpha":"A"}`), []byte(`{"alpha":"A","beta":"B"}`)),
		Form:    form.Encode(dispatch.SMS{To: "+15555550123", Body: fmt.Sprint("hello ", tm.rnd.IntN(1000))}),
		Later:   tm.chance(10),
	}
	for n := range m.Key {
		m.Key[n] = byte(tm.rnd.IntN(256)) // #nosec G115 -- a byte
	}
	m.Key[6], m.Key[8] = m.Key[6]&0x0f|0x40, m.Key[8]&0x3f|0x80
	if after := oneOf(tm, 0, 0, 0, 10*time.Minute, 10*time.Minute, 2*time.Hour); after != 0 {
		m.Deadline = tm.now.Add(after)
	}
	if len(tm.messages) == sim.TandemSlots { // once more: an enqueue whose commit's answer was lost
		m = oneOf(tm, tm.messages...)
	} else {
		tm.messages = append(tm.messages, m)
		tm.later[m.Key] = tm.now.Add(5 * time.Second)
	}
	tm.tell("enqueue", "%s budget %d pinned %q deadline %v", m.Key, m.Budget, m.Pinned, m.Deadline)
	stored := message{
		key: m.Key, lane: decide.Lane{Route: "sms", Priority: dispatch.Normal, Provider: m.Pinned}, form: m.Form, senders: string(m.Senders),
		intent: dispatch.Intent{Content: dispatch.SMS{}, Deadline: m.Deadline},
		policy: dispatch.Policy{Attempts: m.Budget, OnUnknown: m.OnUnknown, ValidFor: dispatch.Never},
	}
	if m.Later {
		stored.intent.NotBefore = tm.later[m.Key]
	}
	added, err := stored.answer(tm.pool.QueryRow(context.WithoutCancel(tm.t.Context()), tm.box.sql.enqueue, stored.args()...))
	tm.same("added", tm.model.Enqueue(m), added, nil, err)
}

// forget removes a message, as retention does: mostly one that is final.
func (tm *tandem) forget() {
	live := map[dispatch.Key]bool{}
	for _, r := range tm.model.Rows() {
		live[r.Key] = r.Table == "queue" || tm.chance(55)
	}
	for n, m := range tm.messages {
		if live[m.Key] && !tm.chance(5) {
			continue
		}
		tm.tell("forget", "%s", m.Key)
		tm.messages = slices.Delete(tm.messages, n, n+1)
		tm.model.Forget(m.Key)
		if tm.chance(80) {
			tm.tasks = slices.DeleteFunc(tm.tasks, func(t engine.Task) bool { return t.Key == m.Key })
			tm.pages = slices.DeleteFunc(tm.pages, func(t engine.Task) bool { return t.Key == m.Key })
			tm.asks = slices.DeleteFunc(tm.asks, func(a asking) bool { return a.Key == m.Key })
		}
		for _, table := range []string{"message", "queue", "parked", "history"} {
			if _, err := tm.pool.Exec(context.WithoutCancel(tm.t.Context()), "delete from "+tm.schema+"."+table+" where id = $1::text::uuid", m.Key.String()); err != nil {
				tm.diff = err.Error()
			}
		}
		return
	}
}

// row picks a row in the queue.
func (tm *tandem) row() (r sim.TandemRow, ok bool) {
	rows := slices.DeleteFunc(tm.model.Rows(), func(r sim.TandemRow) bool { return r.Table != "queue" })
	if len(rows) == 0 {
		return r, false
	}
	return oneOf(tm, rows...), true
}

func (tm *tandem) lane() decide.Lane {
	if r, ok := tm.row(); ok && tm.chance(95) {
		if l, ok := decide.ParseLane(r.Lane); ok {
			return l
		}
	}
	return decide.Lane{Route: "sms", Priority: dispatch.Normal, Provider: oneOf(tm, "", "alpha", "beta", "gamma")}
}

// claim claims, mostly for what is there and ready.
func (tm *tandem) claim() {
	r, ok := tm.row()
	for range 4 {
		if ok && (r.State == int64(dispatch.Sending) || r.Due.After(tm.now)) {
			r, ok = tm.row()
		}
	}
	tm.claimRow(r, ok)
}

// claimRow claims what may be the row: rules 2 and 19.
func (tm *tandem) claimRow(r sim.TandemRow, ok bool) {
	c := engine.Claim{
		Lane: tm.lane(), Provider: oneOf(tm, "alpha", "beta"), Encoding: oneOf(tm, int16(1), 1, 1, 1, 2), Window: oneOf(tm, windows...),
		Lease: oneOf(tm, 20*time.Second, time.Minute, 5*time.Minute), Limit: oneOf(tm, 1, 1, 2, 3, 4), Probe: tm.chance(60),
	}
	if c.Lane.Provider != "" && tm.chance(90) {
		c.Provider = c.Lane.Provider
	}
	c.Account = map[string]string{"alpha": "a1", "beta": "b1"}[c.Provider]
	if tm.chance(8) {
		c.Account = "a2"
	}
	if ok && tm.chance(80) {
		c.Lane, _ = decide.ParseLane(r.Lane)
	}
	if ok && r.State == int64(dispatch.InDoubt) && tm.chance(85) {
		c.Provider, c.Account, c.Encoding = r.Provider, r.Account, int16(r.Encoding) // #nosec G115 -- 1 or 2
		switch tm.rnd.IntN(5) {
		case 0:
			c.Account = "a2"
		case 1:
			c.Encoding = 3 - c.Encoding
		}
	}
	if ok && tm.chance(10) {
		c.From = engine.Cursor{Due: r.Due.Add(tm.blink()), Key: oneOf(tm, dispatch.Key{}, r.Key)}
	}
	for n := range c.ID {
		c.ID[n] = byte(tm.rnd.IntN(256)) // #nosec G115 -- a byte
	}
	tm.tell("claim", "%d of %s for %s/%s/%d window %v from %v probe %v", c.Limit, c.Lane, c.Provider, c.Account, c.Encoding, c.Window, c.From, c.Probe)
	want, wantErr := tm.model.Claim(tm.t.Context(), c)
	got, err := tm.real.Claim(tm.t.Context(), c)
	byKey := func(a, b engine.Task) int { return a.Key.Compare(b.Key) }
	slices.SortFunc(want, byKey)
	slices.SortFunc(got, byKey)
	if tm.same("claimed", plain(want), plain(got), wantErr, err) {
		tm.tasks = keep(tm, append(tm.tasks, want...), 16)
		if len(want) > 0 {
			tm.claims = append(tm.claims, c.ID)
		}
	}
}

// keep forgets some where there are too many.
func keep[T any](tm *tandem, list []T, most int) []T {
	for len(list) > most {
		n := tm.rnd.IntN(len(list))
		list = slices.Delete(list, n, n+1)
	}
	return list
}

// plain makes tasks comparable: times in UTC, JSON without spaces; what the
// model doesn't have is left out.
func plain(tasks []engine.Task) []engine.Task {
	out := append([]engine.Task{}, tasks...)
	for n := range out {
		t := &out[n]
		t.Row, t.Created = plainRow(t.Row), time.Time{}
		var senders map[string]string
		if json.Unmarshal(t.Senders, &senders) == nil {
			t.Senders, _ = json.Marshal(senders)
		}
	}
	return out
}

func plainRow(r decide.Row) decide.Row {
	for _, at := range []*time.Time{&r.Now, &r.Due, &r.Claimed, &r.Lease, &r.Deadline, &r.ResolveUntil} {
		*at = at.UTC()
	}
	if r.Ledger = slices.Clone(r.Ledger); len(r.Ledger) == 0 {
		r.Ledger = nil
	}
	for n := range r.Ledger {
		leg := &r.Ledger[n]
		leg.First, leg.Since, leg.Reach, leg.Until = leg.First.UTC(), leg.Since.UTC(), leg.Reach.UTC(), leg.Until.UTC()
	}
	return r
}
