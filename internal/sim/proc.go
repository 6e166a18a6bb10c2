package sim

import (
	"iter"
	"time"
)

// proc is one thread of a process: a coroutine that runs until it waits, so
// that the scheduler alone decides what comes next. A proc is used again for
// another job when its job is done.
type proc struct {
	w     *world
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool

	job    func(p *proc)
	owner  *worker // nil for the world outside of workers
	wake   time.Duration
	busy   bool
	killed bool  // its process died: nothing that it does has an effect
	fence  int64 // of the look-up that it makes
}

// pool keeps procs between jobs and histories: a coroutine costs more to make
// than to use.
type pool struct {
	idle []*proc
	all  []*proc
}

func (l *pool) take() *proc {
	if n := len(l.idle); n > 0 {
		p := l.idle[n-1]
		l.idle = l.idle[:n-1]
		return p
	}
	p := &proc{}
	p.next, p.stop = iter.Pull(func(yield func(struct{}) bool) {
		p.yield = yield
		for {
			p.job(p)
			p.busy = false
			if !yield(struct{}{}) {
				return
			}
		}
	})
	l.all = append(l.all, p)
	return p
}

func (l *pool) close() {
	for _, p := range l.all {
		p.stop()
	}
}

// spawn starts a job after d.
func (w *world) spawn(owner *worker, d time.Duration, job func(p *proc)) {
	p := w.pool.take()
	p.w, p.owner, p.job = w, owner, job
	p.wake, p.busy, p.killed, p.fence = w.now+d, true, false, 0
	w.procs = append(w.procs, p)
}

// sleep lets others run for at least d. It returns false when the process
// died meanwhile.
func (p *proc) sleep(d time.Duration) bool { return p.until(p.w.now + d) }

// until is sleep until a moment.
func (p *proc) until(t time.Duration) bool {
	if p.killed {
		return false
	}
	p.wake = t
	if !p.yield(struct{}{}) {
		p.killed = true
	}
	return !p.killed
}

// ready is when the proc can go on: a stopped process does nothing.
func (p *proc) ready() time.Duration {
	if p.owner != nil && !p.killed && p.owner.frozen > p.wake {
		return p.owner.frozen
	}
	return p.wake
}

// event is something that happens by itself at a moment.
type event struct {
	at time.Duration
	do func()
}

func (w *world) after(d time.Duration, do func()) {
	w.events = append(w.events, event{at: w.now + d, do: do})
}

// step runs what comes next: one event, or one proc until it waits again. ok
// is false when nothing is left.
func (w *world) step() (ok bool) {
	best, at, ties := -1, time.Duration(0), int64(0)
	for i, p := range w.procs {
		t := max(p.ready(), w.now)
		switch {
		case best < 0 || t < at:
			best, at, ties = i, t, 1
		case t == at:
			if ties++; w.n(ties) == 0 {
				best = i
			}
		}
	}
	if len(w.events) > 0 {
		first := 0
		for i := range w.events {
			if w.events[i].at < w.events[first].at {
				first = i
			}
		}
		if e := w.events[first]; best < 0 || e.at <= at && (e.at < at || w.n(2) == 0) {
			last := len(w.events) - 1
			w.events[first], w.events[last] = w.events[last], event{}
			w.events = w.events[:last]
			w.now = max(w.now, e.at)
			w.steps++
			e.do()
			return true
		}
	}
	if best < 0 {
		return false
	}
	w.now = at
	w.steps++
	w.resume(best)
	return true
}

func (w *world) resume(i int) {
	p := w.procs[i]
	w.running = p
	p.next()
	w.running = nil
	if !p.busy {
		last := len(w.procs) - 1
		// The job may have spawned others: find p again.
		for j, q := range w.procs {
			if q == p {
				w.procs[j] = w.procs[last]
				w.procs[last] = nil
				w.procs = w.procs[:last]
				break
			}
		}
		w.pool.idle = append(w.pool.idle, p)
	}
}

// clear ends every job that is left.
func (w *world) clear() {
	for len(w.procs) > 0 {
		p := w.procs[len(w.procs)-1]
		p.killed = true
		w.resume(len(w.procs) - 1)
		if p.busy {
			w.ref.fail("a dead process went on")
			return
		}
	}
}
