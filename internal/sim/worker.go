package sim

import (
	"context"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// worker is one process: it drives an engine as the outbox's worker does, with
// a claimer, senders, a tender, auditors and a settler. When it crashes,
// everything that it knew is gone.
type worker struct {
	w     *world
	n     int
	link  link
	e     *engine.Engine
	binds []bind
	slots int

	dead     bool
	starting bool
	stopping bool // it drains: nothing new is claimed
	frozen   time.Duration
	rate     int64 // of its clock, in parts per million above the database's
	jumps    []jump

	run      int   // counts its processes
	claimer  *proc // nil while it works
	tender   *proc
	sends    int // senders and look-ups that are under way
	outcomes []engine.Change
	settling bool
	free     int
	fresh    time.Duration // when the gates were read
}

// bind is a provider as this process has it.
type bind struct {
	vendor   *vendor
	account  string
	encoding int16
	salt     byte // other bytes under the same encoding: an adapter's mistake
}

// jump is a step of the process's wall clock, forwards.
type jump struct{ at, by time.Duration }

func newWorker(w *world, n int) *worker {
	k := &worker{w: w, n: n}
	k.link.k = k
	k.boot()
	return k
}

// boot starts the process with a configuration of its own: releases roll, so
// that for a time processes differ in what they have bound.
func (k *worker) boot() {
	w := k.w
	k.dead, k.starting, k.stopping, k.frozen = false, false, false, 0
	k.run++
	k.rate, k.jumps = w.n(401)-200, k.jumps[:0]
	k.outcomes, k.settling, k.sends, k.fresh = nil, false, 0, -claimInterval
	k.slots = 1 + int(w.n(3))
	k.free = k.slots
	k.binds = k.binds[:0]
	for _, v := range w.vendors {
		b := bind{vendor: v, account: v.accounts[0], encoding: 1}
		if w.salted && w.n(2) == 0 {
			b.salt = 1
		}
		if w.chance(w.plan.roll) {
			switch w.n(3) {
			case 0:
				b.account = v.accounts[1]
			case 1:
				b.encoding = 2
			case 2:
				if len(w.vendors) > 1 && len(k.binds) > 0 || v != w.vendors[len(w.vendors)-1] {
					continue
				}
			}
		}
		k.binds = append(k.binds, b)
	}
	providers := make([]dispatch.Provider, len(k.binds))
	for i, b := range k.binds {
		c := b.vendor.contract
		c.Account, c.Encoding = b.account, b.encoding
		w.mutant.contract(&c)
		providers[i] = &adapter{k: k, bind: b, contract: c}
	}
	e, err := engine.New(&k.link, engine.Config{Routes: w.routes(), Providers: providers, Random: w.n, Gates: k.gates()})
	if err != nil {
		w.ref.fail("engine: %v", err)
		return
	}
	k.e = e
	w.tellBoot(k)
	w.spawn(k, time.Duration(w.n(int64(20*time.Millisecond))), k.claim)
	w.spawn(k, time.Duration(w.n(int64(time.Second))), k.tend)
	if w.n(8) == 0 {
		w.spawn(k, pick(w, 20*time.Millisecond, 5*time.Second, time.Minute), k.drain)
	}
}

// drain ends the process in order: nothing new is claimed, what wasn't begun
// goes back, what is under way finishes and is written.
func (k *worker) drain(p *proc) {
	if k.w.calm {
		return
	}
	k.w.tellf(k, "drains")
	k.stopping = true
	k.ring("")
	for k.sends > 0 || k.settling {
		if !p.sleep(100 * time.Millisecond) {
			return
		}
	}
	k.crash("has drained")
}

// gates is nil in a history without gates.
func (k *worker) gates() engine.Gates {
	if !k.w.gates {
		return nil
	}
	return &k.link
}

// refresh reads the gates where what the process knows of them is old.
func (k *worker) refresh() {
	if k.w.gates && k.w.now-k.fresh >= claimInterval {
		k.fresh = k.w.now
		_ = k.e.Refresh(context.Background()) // the claim asks the database anyway
	}
}

const claimInterval = 200 * time.Millisecond

func (k *worker) rolled() bool {
	for _, b := range k.binds {
		if b.account != b.vendor.accounts[0] || b.encoding != 1 {
			return true
		}
	}
	return false
}

// crash ends the process at once. What it had asked for may still happen.
func (k *worker) crash(how string) {
	w := k.w
	if k.dead {
		return
	}
	w.tellf(k, how)
	k.dead, k.starting = true, true
	k.claimer, k.tender = nil, nil
	for _, p := range w.procs {
		if p.owner == k && p.busy {
			p.killed = true
			p.wake = w.now
		}
	}
	w.after(pick(w, time.Millisecond, time.Second, 10*time.Second, time.Minute), k.boot)
}

// point is a place at which the process may crash or stop for a while. It
// returns false where it is dead.
func (k *worker) point(at crashPoint) bool {
	w := k.w
	p := w.running
	if p.killed {
		return false
	}
	if w.chance(w.plan.crash) {
		w.cover.Points[at]++
		k.crash("crash " + at.String())
		return false
	}
	if w.chance(w.plan.freeze) {
		d := pick(w, 10*time.Millisecond, time.Second, 12*time.Second, 30*time.Second, 2*time.Minute, 10*time.Minute)
		k.frozen = max(k.frozen, w.now+d)
		w.tellf(k, "stops for "+d.String()+" "+at.String())
		return p.sleep(0)
	}
	return true
}

// watch is a moment by the process's own clock.
type watch struct{ at time.Duration }

func (k *worker) stopwatch() watch { return watch{at: k.w.now} }

// elapsed is what the process believes to have passed: its clock runs too fast
// or too slow, and the wall clock may have been set forwards.
func (k *worker) elapsed(s watch) time.Duration {
	d := k.w.now - s.at
	d += time.Duration(int64(d) * k.rate / 1_000_000)
	for _, j := range k.jumps {
		if j.at > s.at {
			d += j.by
		}
	}
	return d
}

// ring wakes the claimer, with a hint of the lane.
func (k *worker) ring(lane string) {
	if k.dead || k.e == nil {
		return
	}
	if lane != "" {
		k.e.Hint(lane)
	}
	if k.claimer != nil {
		k.claimer.wake = min(k.claimer.wake, k.w.now)
	}
	if k.tender != nil {
		k.tender.wake = min(k.tender.wake, k.w.now+time.Second)
	}
}

// claim is the claimer.
func (k *worker) claim(p *proc) {
	w := k.w
	looked, idle := false, time.Duration(0)
	for !p.killed && !k.stopping {
		if k.free == 0 {
			if !k.rest(p, &k.claimer, 100*time.Millisecond) {
				return
			}
			continue
		}
		if k.refresh(); p.killed {
			return
		}
		began := k.stopwatch()
		w.claims++
		id := claimID(w.claims)
		tasks, more, err := k.e.Claim(context.Background(), k.free, id)
		if p.killed {
			return
		}
		if err != nil {
			w.spawn(k, 0, func(p *proc) { k.audit(p, id) })
			if !k.rest(p, &k.claimer, k.pause()) {
				return
			}
			continue
		}
		for _, t := range tasks {
			k.free--
			k.sends++
			w.spawn(k, 0, func(p *proc) { k.send(p, &t, began) })
		}
		if w.mutant.is(auditsAnswered) && len(tasks) > 0 {
			w.spawn(k, 0, func(p *proc) { k.audit(p, id) })
		}
		switch {
		case len(tasks) > 0:
			looked, idle = false, 0
			continue
		case more: // without rows, it must not lead to another look
			continue
		case !looked:
			looked = true
			if _, err := k.look(); err == nil {
				continue
			}
		}
		looked = false
		if idle = k.idle(idle); !k.rest(p, &k.claimer, idle) {
			return
		}
	}
}

// look looks near first, now and then: far looks are spaced by what they cost.
func (k *worker) look() (next time.Duration, err error) {
	if k.w.n(4) == 0 {
		if next, err = k.e.Look(context.Background(), pick(k.w, 0, engine.Near)); err != nil {
			return next, err
		}
	}
	return k.e.Look(context.Background(), engine.Far)
}

// pause is the wait after a failure.
func (k *worker) pause() time.Duration {
	return time.Duration(1 + k.w.n(int64(2*time.Second)))
}

// idle is how long there is nothing to do: a poll that would see nothing new
// is left out, which the rows can't tell.
func (k *worker) idle(last time.Duration) time.Duration {
	w := k.w
	next, waiting := w.db.nextChange()
	switch {
	case waiting: // a row is due that this process can't take, or not now
		return min(max(2*last, 200*time.Millisecond), 2*time.Minute)
	case next < 0:
		return 20 * time.Minute
	}
	return next + time.Duration(w.n(3))*time.Millisecond + pick(w, 0, 0, 300*time.Millisecond)
}

// rest waits, so that ring can wake it.
func (k *worker) rest(p *proc, at **proc, d time.Duration) bool {
	*at = p
	ok := p.sleep(d)
	if *at == p {
		*at = nil
	}
	return ok
}

func claimID(n uint64) (id [16]byte) {
	for i := range 8 {
		id[i] = byte(n >> (8 * i)) // #nosec G115 -- one byte of it
	}
	id[6], id[8] = 0x40, 0x80
	id[15] = byte(n>>48) | 1 // #nosec G115 -- never zero
	return id
}

// nextChange is the time until a row changes what can be done with it, and
// whether one is due now; negative for never.
func (d *database) nextChange() (next time.Duration, waiting bool) {
	now := d.w.clock()
	next = -1
	soonest := func(t time.Time) {
		if w := t.Sub(now); !t.IsZero() && w > 0 && (next < 0 || w < next) {
			next = w
		}
	}
	for i := range d.rows {
		r := &d.rows[i]
		if r.in != inQueue {
			continue
		}
		soonest(r.Due)
		soonest(r.Lease)
		if !r.Due.After(now) && r.idle(now) {
			waiting = true
		}
	}
	return next, waiting
}
