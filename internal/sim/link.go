package sim

import (
	"context"
	"errors"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// What a call of the database comes to besides its answer.
var (
	errLost = errors.New("the answer was lost") // it can't be known whether it took effect
	errDead = errors.New("the process is dead")
)

// call is a kind of call of the database, for faults, crash points and the
// story.
type call int

const (
	callLanes call = iota
	callPeek
	callClaim
	callUnclaim
	callApplySent
	callApplyRest
	callEdit
	callPage
	callLoad
	callGates
)

var callNames = [...]string{"lanes", "peek", "claim", "unclaim", "apply sent", "apply", "edit", "page", "load", "gates"}

// fate is what becomes of one call.
type fate int8

const (
	fine   fate = iota
	failed      // it did not happen, and the caller sees an error
	lost        // it happened, and the caller sees an error
	late        // it will happen, and the caller sees an error now
)

// link is the database as one worker sees it: a Store whose calls take time,
// fail, lose their answers, land late, and die with their process. Between the
// statements of one step of the engine, every other proc may run.
type link struct{ k *worker }

var _ engine.Store = (*link)(nil)

// begin waits for the request to arrive and draws its fate. It returns errDead
// where the process died.
func (l *link) begin(c call) (fate, error) {
	w := l.k.w
	if !l.k.point(crashBefore(c)) {
		return failed, errDead
	}
	p := w.running
	if d := w.latency(); d > 0 && !p.sleep(d) {
		return failed, errDead
	}
	switch {
	case w.chance(w.plan.fail):
		return failed, errLost
	case w.chance(w.plan.lose):
		return lost, nil
	case w.chance(w.plan.late) && (c == callClaim || c == callApplyRest || c == callApplySent || c == callUnclaim):
		return late, errLost
	}
	return fine, nil
}

// end waits for the answer.
func (l *link) end(c call, f fate) error {
	w := l.k.w
	if w.running.killed {
		return errDead
	}
	if d := w.latency(); d > 0 && !w.running.sleep(d) {
		return errDead
	}
	if !l.k.point(crashAfter(c)) {
		return errDead
	}
	if f == lost {
		return errLost
	}
	return nil
}

// latency is one way to the database: mostly nothing worth a switch.
func (w *world) latency() time.Duration {
	switch x := w.n(16); {
	case x < 10:
		return 0
	case x < 15 || w.calm:
		return time.Duration(x-8) * time.Millisecond
	}
	return pick(w, 50*time.Millisecond, time.Second, 5*time.Second)
}

// lateness is how long a statement takes to land whose caller has gone on.
func (w *world) lateness() time.Duration {
	return pick(w, time.Millisecond, 100*time.Millisecond, 2*time.Second, 15*time.Second, 40*time.Second)
}

func (l *link) Lanes(context.Context) ([]string, error) {
	f, err := l.begin(callLanes)
	if err != nil {
		return nil, err
	}
	names := l.k.w.db.lanes()
	return names, l.end(callLanes, f)
}

func (l *link) Peek(_ context.Context, probes []engine.Probe) (engine.Sight, error) {
	f, err := l.begin(callPeek)
	if err != nil {
		return engine.Sight{}, err
	}
	sight := l.k.w.db.peek(probes)
	return sight, l.end(callPeek, f)
}

func (l *link) Claim(_ context.Context, c engine.Claim) ([]engine.Task, error) {
	w := l.k.w
	w.mutant.claim(&c)
	f, err := l.begin(callClaim)
	if f == late {
		w.tellf(l.k, "claim is on its way, and its answer is given up")
		w.after(w.lateness(), func() { w.db.take(c) })
	}
	if err != nil {
		return nil, err
	}
	tasks := w.db.take(c)
	w.tellClaim(l.k, tasks, f)
	w.mutant.tasks(tasks)
	if err := l.end(callClaim, f); err != nil {
		return nil, err
	}
	return tasks, nil
}

func (l *link) Unclaim(_ context.Context, id [16]byte) (int, error) {
	w := l.k.w
	f, err := l.begin(callUnclaim)
	if f == late {
		w.after(w.lateness(), func() { w.db.unclaim(id) })
	}
	if err != nil {
		return 0, err
	}
	n := 0
	if w.mutant.is(auditsAll) {
		for i := range w.db.rows {
			n += w.db.unclaim(w.db.rows[i].claim)
		}
	} else {
		n = w.db.unclaim(id)
	}
	return n, l.end(callUnclaim, f)
}

// Apply is two statements, as the outbox's is.
func (l *link) Apply(_ context.Context, changes []engine.Change) ([]engine.Result, error) {
	results := make([]engine.Result, len(changes))
	for _, c := range [...]call{callApplySent, callApplyRest} {
		n := 0
		for i := range changes {
			if settles(&changes[i]) == (c == callApplySent) {
				n++
			}
		}
		if n == 0 {
			continue
		}
		if err := l.apply(c, changes, results); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (l *link) apply(c call, changes []engine.Change, results []engine.Result) error {
	w := l.k.w
	f, err := l.begin(c)
	if f == late {
		mine := append([]engine.Change(nil), changes...)
		w.after(w.lateness(), func() { l.carryOut(c, mine, make([]engine.Result, len(mine)), fine) })
	}
	if err != nil {
		return err
	}
	l.carryOut(c, changes, results, f)
	return l.end(c, f)
}

func (l *link) carryOut(c call, changes []engine.Change, results []engine.Result, f fate) {
	w := l.k.w
	for i := range changes {
		change := changes[i]
		if settles(&change) != (c == callApplySent) {
			continue
		}
		if f == fine && w.chance(5) { // another statement had the row: settle again
			if w.db.match(&change) != nil {
				results[i] = engine.Result{Status: engine.Again, Now: w.clock()}
				continue
			}
		}
		w.mutant.change(w, &change)
		kept := len(w.db.history)
		if settles(&change) {
			results[i] = w.db.applySent(&change)
		} else {
			results[i] = w.db.applyRest(&change)
		}
		if f == lost && w.mutant.is(losesEvidence) {
			w.db.history = w.db.history[:kept]
		}
		w.mutant.result(w, &change, &results[i])
	}
}

func (l *link) Edit(_ context.Context, key dispatch.Key, fence int64, change func(engine.View) (engine.Edit, error)) error {
	f, err := l.begin(callEdit)
	if err != nil {
		return err
	}
	if err := l.k.w.db.edit(key, fence, l.k.w.mutant.edit(change)); err != nil {
		return err
	}
	return l.end(callEdit, f)
}

func (l *link) Page(_ context.Context, lane string, after engine.Cursor, limit int) ([]engine.Task, engine.Cursor, bool, error) {
	w := l.k.w
	f, err := l.begin(callPage)
	if err != nil {
		return nil, after, false, err
	}
	tasks, next, ok := w.db.page(lane, after, limit)
	w.mutant.page(l.k, tasks)
	return tasks, next, ok, l.end(callPage, f)
}

func (l *link) Load(_ context.Context, t engine.Task) (engine.Task, error) {
	f, err := l.begin(callLoad)
	if err != nil {
		return t, err
	}
	if r := l.k.w.db.find(t.Key); r != nil {
		t.Form, t.From = r.m.form, from(r.m, t.Provider)
	}
	return t, l.end(callLoad, f)
}

// person is the database as people and webhooks see it.
func (w *world) edit(key dispatch.Key, change func(engine.View) (engine.Edit, error)) error {
	if w.chance(w.plan.fail) {
		return errLost
	}
	err := w.db.edit(key, 0, w.mutant.edit(change))
	if err == nil && w.chance(w.plan.lose) {
		err = errLost
	}
	return err
}
