package sim

import (
	"context"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// send is a sender: one task, one attempt.
func (k *worker) send(p *proc, t *engine.Task, began watch) {
	defer func() {
		if !p.killed {
			k.e.Done(t)
			k.free++
			k.sends--
		}
	}()
	w := k.w
	if !k.point(pointBegin) {
		return
	}
	if k.stopping {
		k.outcome(k.e.Unstarted(t, k.elapsed(began)))
		return
	}
	a, back := k.e.Begin(t, k.elapsed(began))
	if back != nil {
		w.tellTask(k, *t, "not begun")
		k.outcome(*back)
		return
	}
	if back = k.e.Before(context.Background(), t, a, func() time.Duration { return k.elapsed(began) }); p.killed {
		return
	} else if back != nil {
		w.tellTask(k, *t, "held back by the hook")
		k.outcome(*back)
		return
	}
	w.ref.begun(*t)
	if !k.point(pointSend) {
		return
	}
	started := w.now
	acc, err := a.Send(context.Background())
	if p.killed || !k.point(pointSent) {
		return
	}
	c := k.e.Finish(t, acc, err, k.elapsed(began), w.now-started)
	w.ref.ended(t.Key, t.Fence)
	if !k.point(pointFinish) {
		return
	}
	k.outcome(c)
}

// outcome gives a change to the settler.
func (k *worker) outcome(c engine.Change) {
	k.outcomes = append(k.outcomes, c)
	if !k.settling {
		k.settling = true
		k.w.spawn(k, 0, k.settle)
	}
}

// settle is the settler: it writes what has finished, however often it takes.
func (k *worker) settle(p *proc) {
	w := k.w
	for len(k.outcomes) > 0 {
		batch := append([]engine.Change(nil), k.outcomes...)
		k.outcomes = k.outcomes[:0]
		for len(batch) > 0 {
			_, again, err := k.e.Settle(context.Background(), batch)
			if p.killed {
				return
			}
			if err != nil {
				if !p.sleep(k.pause()) {
					return
				}
				continue
			}
			w.ref.wrote(batch, again)
			batch = again
		}
	}
	k.settling = false
}

// audit is an auditor: it hands back what a failed claim took, until the
// claim's leases have ended.
func (k *worker) audit(p *proc, id [16]byte) {
	began := k.w.now
	for !p.killed {
		n, err := k.e.Audit(context.Background(), id)
		if p.killed || err == nil && n > 0 || k.w.now-began > k.e.Shortest() {
			return
		}
		p.sleep(pick(k.w, 50*time.Millisecond, 300*time.Millisecond, 5*time.Second, 5*time.Second))
	}
}

// tend is the tender: leases that ended, deadlines, doubts.
func (k *worker) tend(p *proc) {
	w := k.w
	idle := time.Duration(0)
	for !p.killed && !k.stopping {
		began := k.stopwatch()
		asks, moved, _ := k.e.Sweep(context.Background(), 2)
		if p.killed {
			return
		}
		for _, l := range asks {
			k.sends++
			w.spawn(k, 0, func(p *proc) { k.ask(p, l, began) })
		}
		if len(moved) > 0 {
			for _, other := range w.workers {
				other.ring("")
			}
		}
		if len(asks)+len(moved) > 0 {
			idle = 0
		}
		idle = max(k.idle(idle), time.Duration(w.n(int64(time.Second))))
		if !k.rest(p, &k.tender, idle) {
			return
		}
	}
}

// ask makes a look-up.
func (k *worker) ask(p *proc, l engine.Lookup, began watch) {
	defer func() {
		if !p.killed {
			k.sends--
		}
	}()
	if !k.point(pointAsk) {
		return
	}
	p.fence = l.Task.Fence
	found, err := l.Do(context.Background())
	if p.killed || !k.point(pointAsked) {
		return
	}
	k.outcome(k.e.FinishLookup(l, found, err, k.elapsed(began)))
}

// adapter is a provider as one process has it: the vendor, behind a network.
type adapter struct {
	k *worker
	bind
	contract dispatch.Contract
}

func (a *adapter) Contract() dispatch.Contract { return a.contract }

// digest stands for the request's bytes: equal envelopes under one encoding
// give equal ones.
func (a *adapter) digest(e *dispatch.Envelope) []byte {
	sender := byte(0)
	if e.From != "" {
		sender = e.From[0]
	}
	return []byte{1, e.Key[15], byte(a.encoding), a.salt, sender, a.vendor.name[0]} // #nosec G115 -- 1 or 2
}

// unsent is a request of which no byte left.
func unsent(cause dispatch.Cause, digest []byte) error {
	e := dispatch.Evidence{Stage: dispatch.NotSent, Cause: cause, Request: digest}
	return &dispatch.Fault{Evidence: e, Verdict: dispatch.Classify(e)}
}

// unanswered is a request that may have been read.
func unanswered(cause dispatch.Cause, digest []byte) error {
	e := dispatch.Evidence{Cause: cause, Request: digest}
	return &dispatch.Fault{Evidence: e, Verdict: dispatch.Classify(e)}
}

// Send is one request. Whatever may stop the process between its last check
// and its first byte stops it here.
func (a *adapter) Send(_ context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	w, p := a.k.w, a.k.w.running
	digest := a.digest(&e)
	if e.Replay != nil && string(e.Replay) != string(digest) && !w.mutant.is(anyBytes) {
		return dispatch.Accepted{}, unsent(dispatch.CauseChanged, digest)
	}
	limit := w.now + a.contract.AttemptTimeout()
	if !p.sleep(time.Duration(w.n(3)) * time.Millisecond) {
		return dispatch.Accepted{}, errDead
	}
	switch {
	case w.chance(w.plan.refuse):
		return dispatch.Accepted{}, unsent(dispatch.CauseDial, digest)
	case w.now >= limit && w.n(2) == 0: // it was stopped, and finds its time over
		return dispatch.Accepted{}, unsent(dispatch.CauseDeadline, digest)
	}
	q := &request{vendor: a.vendor, account: a.account, key: e.Key, fence: int64(e.Attempt), digest: digest, waits: p}
	w.write(q)
	if !a.k.point(pointWritten) || !p.until(max(limit, w.now)) {
		return dispatch.Accepted{}, errDead
	}
	q.waits = nil
	if !q.answered || w.now >= limit && w.n(2) == 0 {
		return dispatch.Accepted{}, unanswered(pick(w, dispatch.CauseDeadline, dispatch.CauseConn), digest)
	}
	return q.answer(digest)
}

// Lookup asks the vendor.
func (a *adapter) Lookup(_ context.Context, q dispatch.Query) (dispatch.Found, error) {
	w, p := a.k.w, a.k.w.running
	if !p.sleep(time.Duration(w.n(20)) * time.Millisecond) {
		return dispatch.Found{}, errDead
	}
	if w.chance(w.plan.blind) {
		if w.n(2) == 0 {
			return dispatch.Found{}, nil
		}
		return dispatch.Found{}, unanswered(dispatch.CauseDeadline, nil)
	}
	w.ref.asked(q.Key, p.fence, a.vendor, a.account)
	f := a.vendor.look(a.account, q.Key)
	d := time.Duration(w.n(20)) * time.Millisecond
	if w.chance(w.plan.slow) {
		d = pick(w, time.Second, 9*time.Second, 25*time.Second)
	}
	if !p.sleep(d) {
		return dispatch.Found{}, errDead
	}
	return f, nil
}
