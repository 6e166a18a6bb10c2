package outbox

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// A busy worker lingers for more free slots before it claims for a few: a claim
// costs the same for one row and for fifty, and whatever is urgent waits until
// it is back. Beside what a send takes a small part of it is nothing.
const (
	lingerLeast = 500 * time.Microsecond
	lingerMost  = 5 * time.Millisecond
	lingerPart  = 25
)

// claimInterval is how old the worker's knowledge may be of the gates, and of
// what other processes have enqueued while it is busy.
const claimInterval = 200 * time.Millisecond

// claim is the claimer: it claims for free slots only, looks around when
// nothing is left to claim, and rests when there is nothing to see.
func (r *run) claim(ctx context.Context, bell <-chan struct{}) {
	defer close(r.tasks)
	pause := pacer{most: r.cfg.PollInterval}
	looked, busy, next := false, false, time.Duration(-1)
	var fresh watch
	var sight looks
	began := stopwatch()
	for r.waitSlot(ctx, bell) {
		r.engine.Tick(began.elapsed())
		if fresh.elapsed() >= claimInterval {
			r.refresh(ctx, busy, &sight)
			fresh = stopwatch()
		}
		select {
		case <-bell:
			r.hear()
		default:
		}
		n, more, err := r.claimOnce(ctx)
		busy = err == nil && n > 0
		if busy {
			looked = false
			pause.reset()
		}
		if err == nil && (n > 0 || more) {
			continue
		}
		if err == nil && !looked {
			looked = true
			if next, err = r.look(ctx, &sight); err == nil {
				continue
			}
		}
		looked = false
		wait := pause.idle()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.failed(ctx, "claim", "claim failed", err)
			wait = pause.fail()
		case next >= 0 && next < wait:
			wait = next
		}
		if tokens := r.engine.Pause(); tokens >= 0 {
			wait = min(wait, max(tokens, time.Millisecond))
		}
		r.idle(ctx, bell, wait)
	}
}

// refresh reads the gates, and where the worker is busy with some lanes, what
// other processes have put into the rest.
func (r *run) refresh(ctx context.Context, busy bool, l *looks) {
	if err := r.engine.Refresh(ctx); err != nil && ctx.Err() == nil {
		r.failed(ctx, "gates", "reading gates failed", err)
	}
	if !busy {
		return
	}
	if _, err := r.look(ctx, l); err != nil && ctx.Err() == nil {
		r.failed(ctx, "claim", "looking for work failed", err)
	}
}

// looks spaces the looks that go back, by what they cost.
type looks struct{ near, far rare }

// look looks as far back as is not too dear.
func (r *run) look(ctx context.Context, l *looks) (next time.Duration, err error) {
	began := stopwatch()
	switch {
	case l.far.due():
		if next, err = r.engine.Look(ctx, engine.Far); err == nil {
			l.far.done(began)
		}
	case l.near.due():
		if next, err = r.engine.Look(ctx, engine.Near); err == nil {
			l.near.done(began)
		}
	default:
		next, err = r.engine.Look(ctx, 0)
	}
	return next, err
}

// idle rests until something is enqueued, or a slot is free where one was
// missing: a token that was left there before costs one look in vain.
func (r *run) idle(ctx context.Context, bell <-chan struct{}, d time.Duration) {
	var freed <-chan struct{}
	if r.engine.Short() {
		freed = r.freed
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-bell:
		r.hear()
	case <-freed:
	case <-t.C:
	case <-ctx.Done():
	}
}

// hear learns which lanes were enqueued to.
func (r *run) hear() {
	for _, lane := range r.box.wake.lanes() {
		r.engine.Hint(lane)
	}
}

// waitSlot waits until a slot is free, and a moment longer when few are beside
// the tenth that is kept for High, unless something is enqueued.
func (r *run) waitSlot(ctx context.Context, bell <-chan struct{}) bool {
	select {
	case r.slots <- struct{}{}:
		<-r.slots
	case <-ctx.Done():
		return false
	}
	if free := cap(r.slots) - len(r.slots); free < cap(r.slots)/10+cap(r.slots)/8 {
		if r.rest(ctx, bell, min(max(time.Duration(r.took.Load())/lingerPart, lingerLeast), lingerMost)) {
			r.hear()
		}
	}
	return ctx.Err() == nil
}

// rest waits for d, for the bell where there is one, or for ctx. It reports
// whether the bell rang.
func (r *run) rest(ctx context.Context, bell <-chan struct{}, d time.Duration) (rang bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-bell:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// claimOnce claims for the free slots and hands every task to a sender. A claim
// whose answer is lost may have taken rows: an auditor hands them back, for the
// answer will never be used.
func (r *run) claimOnce(ctx context.Context) (n int, more bool, err error) {
	free := cap(r.slots) - len(r.slots)
	if free == 0 {
		return 0, true, nil
	}
	began := stopwatch()
	id := claimID()
	// A claim that is under way when ctx ends must not be torn off: its rows
	// would wait for their leases.
	query, done := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer done()
	tasks, more, err := r.engine.Claim(query, free, id)
	if err != nil {
		if !unsent(err) {
			r.work.Go(func() { r.audit(id) }) //nolint:contextcheck // it ends with the cut, not with ctx
		}
		return 0, false, err
	}
	for i := range tasks {
		r.slots <- struct{}{} // free: only this goroutine takes slots
		r.hand(ctx, claimed{task: &tasks[i], since: began})
	}
	return len(tasks), more, nil
}

// claimed is a task and the time since before its claim was asked for.
type claimed struct {
	task  *engine.Task
	since watch
}

// hand gives a task to a sender that waits for one, or to a new one while
// there are fewer than slots. Senders stay until the claimer ends: a goroutine
// that is new for each message grows its stack for each.
func (r *run) hand(ctx context.Context, c claimed) {
	select {
	case r.tasks <- c:
		return
	default:
	}
	if r.senders == cap(r.slots) {
		r.tasks <- c // its slot is free, so a sender is about to be
		return
	}
	r.senders++
	r.hire(ctx, c)
}

// hire begins another sender, with its first task.
func (r *run) hire(ctx context.Context, c claimed) {
	r.send.Go(func() {
		r.sendTask(ctx, c.task, c.since)
		for c := range r.tasks {
			r.sendTask(ctx, c.task, c.since)
		}
	})
}

// claimID is new for every claim of every process: 128 random bits with the
// marks of a UUIDv4.
func claimID() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

// unsent reports whether an error proves that the server got nothing: there was
// no connection, or no byte was written to it.
func unsent(err error) bool {
	var none *pgconn.ConnectError
	return errors.As(err, &none) || pgconn.SafeToRetry(err)
}

// audit hands back what a failed claim took, and looks again until the leases
// of such a claim have ended, since its commit may land late, or until the cut.
func (r *run) audit(id [16]byte) {
	ctx, done := context.WithTimeout(r.cut, r.engine.Shortest())
	defer done()
	pause := pacer{most: 5 * time.Second}
	for {
		n, err := r.engine.Audit(ctx, id)
		if n > 0 {
			r.log.WarnContext(ctx, "rows of a lost claim handed back", slog.Int("rows", n))
		}
		if err == nil && n > 0 {
			return // the statement is atomic: that was all of it
		}
		if r.rest(ctx, nil, pause.fail()); ctx.Err() != nil {
			return
		}
	}
}

// sendTask is a sender: one task, one attempt. Its slot is free once its
// outcome is on the way to the settler.
func (r *run) sendTask(ctx context.Context, t *engine.Task, claimed watch) {
	defer r.release(t)
	if ctx.Err() != nil {
		r.settles <- r.engine.Unstarted(t, claimed.elapsed())
		return
	}
	a, back := r.engine.Begin(t, claimed.elapsed())
	if back == nil {
		back = r.engine.Before(r.cut, t, a, claimed.elapsed) //nolint:contextcheck // sends end with the cut, not with ctx
	}
	if back != nil {
		r.settles <- *back
		return
	}
	limit, done := context.WithTimeout(r.cut, a.Timeout)
	defer done()
	limit, w := r.begin(limit, t, "attempt", t.Now.Add(claimed.elapsed()).Sub(t.Due))
	began := time.Now()
	acc, err := a.Send(limit) //nolint:contextcheck // as above
	took := time.Since(began)
	r.took.Add((int64(took) - r.took.Load()) / 16) // an average, to a few sends
	c := r.engine.Finish(t, acc, err, claimed.elapsed(), took)
	c.Record.Named = engine.Names(a.Envelope.Content, c.Record.ProviderID)
	w.end(&c)
	r.settles <- c
}

// release frees a sender's slot.
func (r *run) release(t *engine.Task) {
	r.engine.Done(t)
	<-r.slots
	select {
	case r.freed <- struct{}{}:
	default: // told already
	}
}

// watch measures time that has passed, by the monotonic clock and by the wall
// clock: the first stands still while a machine is suspended, the second can be
// set. The larger one is taken, since too much time passed is always the safe
// answer.
type watch struct{ at, wall time.Time }

func stopwatch() watch {
	now := time.Now()
	return watch{at: now, wall: now.Round(0)}
}

func (w watch) elapsed() time.Duration {
	now := time.Now()
	return max(now.Sub(w.at), now.Round(0).Sub(w.wall))
}

// rare spaces what gets dearer the longer a snapshot is held, so that it takes no
// more than a twentieth of the time. Of the last two times the shorter one counts:
// a database that stood still for a moment doesn't make it dear.
type rare struct {
	at           watch
	took, before time.Duration
}

func (r *rare) due() bool { return r.at.elapsed() >= r.pause() }

func (r *rare) done(began watch) { r.at, r.took, r.before = stopwatch(), began.elapsed(), r.took }

func (r *rare) pause() time.Duration { return min(20*min(r.took, r.before), time.Minute) }

// pacer spaces looks at an idle or failing database: short at first, up to
// most.
type pacer struct {
	most, last time.Duration
}

func (p *pacer) reset() { p.last = 0 }

func (p *pacer) idle() time.Duration { return p.grow(5 * time.Millisecond) }

func (p *pacer) fail() time.Duration { return p.grow(50 * time.Millisecond) }

func (p *pacer) grow(first time.Duration) time.Duration {
	p.last = min(max(first, p.last*3/2), p.most)
	return p.last
}
