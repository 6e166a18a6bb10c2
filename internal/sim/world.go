package sim

import (
	"math/rand/v2"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// epoch is when a history begins. Moments inside the simulation are durations
// since it; the database and the engine see times.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// world is one history: a database, vendors, worker processes, people.
type world struct {
	pcg     *rand.PCG
	pool    *pool
	plan    plan
	mutant  *Mutant
	now     time.Duration
	calm    bool // no further faults
	steps   int
	procs   []*proc
	events  []event
	running *proc

	db       database
	vendors  []*vendor
	workers  []*worker
	messages []*message
	gates    bool
	salted   bool
	planned  int // messages that are still to be enqueued
	claims   uint64
	ref      referee
	story    *story
	cover    *Coverage
}

// message is what was enqueued: frozen.
type message struct {
	n        int
	key      dispatch.Key
	budget   int
	pinned   string
	unknown  dispatch.OnUnknown
	deadline time.Duration // 0 is never
	senders  []byte
	form     []byte
}

// plan is what a history draws once: how much goes wrong in it, in thousandths
// for each chance.
type plan struct {
	crash, freeze, fail, lose, late int // of processes and statements
	refuse, drop, mute, slow, shake int // of requests: not sent, lost, answer lost, slow, answers that prove nothing
	limit, account, sender, reject  int // refusals: 429, account, sender, message
	blind                           int // look-ups that fail
	people                          int // moves of people, in all
	hook                            int // the application's hook holds a send back
	roll                            int // a restart with another set of providers, account or encoding
	stray                           int // requests that are delayed beyond every promise
}

// n draws a number in [0, k).
func (w *world) n(k int64) int64 {
	if k <= 1 {
		return 0
	}
	return int64(w.pcg.Uint64() % uint64(k)) // #nosec G115 -- the result is below k
}

// chance is true in p of a thousand cases, never in calm times.
func (w *world) chance(p int) bool { return p > 0 && !w.calm && w.n(1000) < int64(p) }

// pick draws one of a few.
func pick[T any](w *world, of ...T) T { return of[w.n(int64(len(of)))] }

func (w *world) clock() time.Time { return epoch.Add(w.now) }

func since(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return t.Sub(epoch)
}

// The phases of a history: faults until about chaosSteps, then calm, in which
// everything has to come to an end within calmSteps.
const (
	chaosSteps = 400
	calmSteps  = 40_000 // a row that nobody can resolve is looked at each minute for a day
)

// run plays the history until all is quiet.
func (w *world) run() {
	for w.steps < chaosSteps && !w.ref.broken() {
		if w.planned == 0 && w.quiet() || !w.step() {
			break
		}
	}
	if w.ref.broken() {
		return
	}
	w.soothe()
	for limit := w.steps + calmSteps; !w.quiet(); {
		if w.ref.broken() {
			return
		}
		if w.steps >= limit || !w.step() {
			w.ref.stuck()
			return
		}
	}
	w.ref.final()
}

// soothe ends the faults: stopped processes go on, dead ones start again with
// everything bound.
func (w *world) soothe() {
	w.tell("-- calm: no further faults")
	w.calm = true
	for _, k := range w.workers {
		k.frozen = 0
		if k.dead && !k.starting {
			k.starting = true
			w.after(time.Second, k.boot)
		}
	}
	w.after(2*time.Minute, func() { // one worker at least knows every provider as it was
		k := w.workers[0]
		if len(k.binds) < len(w.vendors) || k.rolled() {
			k.crash("restart")
		}
	})
}

// quiet tells that nothing is in motion.
func (w *world) quiet() bool {
	if w.planned > 0 || len(w.events) > 0 {
		return false
	}
	for i := range w.db.rows {
		if w.db.rows[i].in == inQueue {
			return false
		}
	}
	for _, p := range w.procs {
		if p.owner != nil && p.owner.sends > 0 {
			return false
		}
	}
	return true
}

// draw makes a history from the seed.
func (w *world) draw(seed uint64) {
	level := pick(w, 0, 1, 1, 2, 2, 3)
	some := func(most int) int { return int(w.n(int64(most*level/2 + 1))) }
	w.plan = plan{
		crash: some(14), freeze: some(20), fail: some(30), lose: some(40), late: some(25),
		refuse: some(80), drop: some(120), mute: some(200), slow: some(120), shake: some(100),
		limit: some(120), account: some(60), sender: some(60), reject: some(80),
		blind: some(200), roll: some(500), people: int(w.n(4)) * int(w.n(3)),
	}
	if w.n(40) == 0 {
		w.plan.stray = 100
	}
	if w.n(4) == 0 {
		w.plan.hook = 200
	}
	w.gates, w.salted = w.n(3) == 0, w.n(20) == 0
	w.drawVendors()
	w.planned = 1 + int(w.n(maxMessages))
	for i := range w.planned {
		w.enqueueLater(i)
	}
	w.tellPlan(seed)
	for i := range 2 + int(w.n(2)) {
		w.workers = append(w.workers, newWorker(w, i))
	}
	for range w.plan.people {
		w.after(time.Duration(w.n(int64(pick(w, 5*time.Second, time.Minute, 10*time.Minute, time.Hour)))), w.person)
	}
	if w.n(8) == 0 {
		w.after(time.Duration(w.n(int64(time.Minute))), w.pause)
	}
}

func (w *world) enqueueLater(i int) {
	m := &message{
		n: i, key: keyOf(i), budget: pick(w, 1, 2, 3, 5, 8), form: forms[i],
		deadline: pick(w, 0, 20*time.Second, 3*time.Minute, 30*time.Minute, 4*time.Hour),
		unknown: dispatch.OnUnknown{
			Action: pick(w, dispatch.UnknownHold, dispatch.UnknownHold, dispatch.UnknownResend, dispatch.UnknownFailover, dispatch.UnknownDead),
			After:  pick(w, 0, 0, 0, 5*time.Second, time.Minute, 20*time.Minute),
		},
	}
	if w.n(12) == 0 {
		m.pinned = pick(w, w.vendors...).name
	}
	if w.n(10) == 0 {
		m.senders = pick(w, []byte(`{"alpha":"A"}`), []byte(`{"beta":"B"}`), []byte(`{"alpha":"A","beta":"B"}`))
		if m.pinned != "" || len(w.vendors) == 1 {
			m.senders = []byte(`{"alpha":"A","beta":"B"}`)
		}
	}
	w.messages = append(w.messages, m)
	w.after(time.Duration(w.n(int64(pick(w, time.Millisecond, 10*time.Second)))), func() {
		w.planned--
		if m.deadline != 0 {
			m.deadline += w.now
		}
		w.db.insert(m, w.n(8) == 0)
		if w.n(4) > 0 {
			for _, k := range w.workers {
				k.ring(decide.Lane{Route: routeName, Priority: dispatch.Normal, Provider: m.pinned}.String())
			}
		}
	})
}

const routeName = "sms"

func keyOf(i int) (k dispatch.Key) {
	k[0], k[6], k[8], k[15] = 1, 0x40, 0x80, byte(i) // #nosec G115 -- below ten
	return k
}

func nameOf(k dispatch.Key) string { return "m" + string(rune('1'+k[15])) }
