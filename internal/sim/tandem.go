package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// Tandem is the simulation's database on its own, to be driven side by side
// with a real one: what the simulation proves, it proves of this model, so the
// model has to do what the statements do. It is a Store and Gates whose clock
// stands still until the caller sets it. It judges nothing: the referee, whom
// its operations tell what they do, is blind here.
type Tandem struct{ w *world }

var (
	_ engine.Store = (*Tandem)(nil)
	_ engine.Gates = (*Tandem)(nil)
)

// TandemSlots is how many messages a Tandem holds at once.
const TandemSlots = maxMessages

// TandemStart is the first moment of a Tandem's clock.
var TandemStart = epoch.Add(24 * time.Hour)

// ErrCheck says that a row would violate a CHECK of the schema; nothing was
// changed.
var ErrCheck = errors.New("violates a check")

// NewTandem returns an empty database.
func NewTandem() *Tandem {
	w := &world{cover: &Coverage{}, calm: true, gates: true}
	w.db.w, w.ref.w, w.ref.blind = w, w, true
	for i, name := range [...]string{"alpha", "beta"} {
		w.vendors = append(w.vendors, &vendor{w: w, n: i, name: name})
	}
	t := &Tandem{w: w}
	t.Set(TandemStart)
	return t
}

// Set sets the clock.
func (t *Tandem) Set(now time.Time) { t.w.now = now.Sub(epoch) }

// Rules are how often each row of the transition table was taken.
func (t *Tandem) Rules() [41]int { return t.w.cover.Rules }

// TandemMessage is what is enqueued, on the route "sms" with normal priority.
type TandemMessage struct {
	Key       dispatch.Key
	Budget    int
	Pinned    string
	OnUnknown dispatch.OnUnknown
	Deadline  time.Time
	Senders   []byte
	Form      []byte
	Later     bool // not before five seconds from now
}

// Enqueue is an enqueue that commits. added is false where the key is there.
func (t *Tandem) Enqueue(m TandemMessage) (added bool) {
	if t.w.db.find(m.Key) != nil {
		return false
	}
	used := [maxMessages]bool{}
	for i := range t.w.db.rows {
		used[t.w.db.rows[i].m.n] = true
	}
	n := max(slices.Index(used[:], false), 0)
	t.w.ref.books[n] = book{}
	t.w.db.insert(&message{
		n: n, key: m.Key, budget: m.Budget, pinned: m.Pinned, unknown: m.OnUnknown, deadline: since(m.Deadline), senders: m.Senders, form: m.Form,
	}, m.Later)
	return true
}

// Forget removes a message and its history, as retention does.
func (t *Tandem) Forget(key dispatch.Key) {
	d := &t.w.db
	r := d.find(key)
	if r == nil {
		return
	}
	n := r.m.n
	d.history = slices.DeleteFunc(d.history, func(e entry) bool { return e.n == n })
	d.rows = slices.DeleteFunc(d.rows, func(r row) bool { return r.Key == key })
}

// Put makes what is queued of a message another row, as if a history that the
// script doesn't play had led there: pending, sending or unknown.
func (t *Tandem) Put(r decide.Row, claim [16]byte, first time.Time) error {
	return t.statement(func() {
		at := t.w.db.find(r.Key)
		at.Row, at.in, at.claim, at.first = r, inQueue, claim, first
		if text := at.checks(); text != "" {
			t.w.ref.fail("a row that is put violates the check %s", text)
		}
	})
}

// Lanes is Store's.
func (t *Tandem) Lanes(context.Context) ([]string, error) { return t.w.db.lanes(), nil }

// Peek is Store's.
func (t *Tandem) Peek(_ context.Context, probes []engine.Probe) (engine.Sight, error) {
	return t.w.db.peek(probes), nil
}

// Claim is Store's.
func (t *Tandem) Claim(_ context.Context, c engine.Claim) (tasks []engine.Task, err error) {
	err = t.statement(func() { tasks = t.w.db.take(c) })
	return tasks, err
}

// Unclaim is Store's.
func (t *Tandem) Unclaim(_ context.Context, id [16]byte) (n int, err error) {
	err = t.statement(func() { n = t.w.db.unclaim(id) })
	return n, err
}

// Apply is Store's: two statements, as the outbox's is.
func (t *Tandem) Apply(_ context.Context, changes []engine.Change) ([]engine.Result, error) {
	results := make([]engine.Result, len(changes))
	for _, narrow := range [...]bool{true, false} {
		err := t.statement(func() {
			for i := range changes {
				c := changes[i]
				switch {
				case settles(&c) != narrow:
				case narrow:
					results[i] = t.w.db.applySent(&c)
				default:
					results[i] = t.w.db.applyRest(&c)
				}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

// Edit is Store's.
func (t *Tandem) Edit(_ context.Context, key dispatch.Key, fence int64, change func(engine.View) (engine.Edit, error)) (err error) {
	broken := t.statement(func() { err = t.w.db.edit(key, fence, change) })
	return errors.Join(err, broken)
}

// Page is Store's.
func (t *Tandem) Page(_ context.Context, lane string, after engine.Cursor, limit int) ([]engine.Task, engine.Cursor, bool, error) {
	tasks, next, ok := t.w.db.page(lane, after, limit)
	if next.Key.IsZero() {
		next = after
	}
	return tasks, next, ok, nil
}

// Load is Store's.
func (t *Tandem) Load(_ context.Context, task engine.Task) (engine.Task, error) {
	r := t.w.db.find(task.Key)
	if r == nil {
		return task, engine.ErrNotFound
	}
	task.Form, task.From = r.m.form, from(r.m, task.Provider)
	return task, nil
}

// statement runs what is atomic: with a violated check, nothing happens.
func (t *Tandem) statement(do func()) error {
	d, f := &t.w.db, &t.w.ref
	rows, history := slices.Clone(d.rows), len(d.history)
	f.violations = nil
	do()
	if !f.broken() {
		return nil
	}
	d.rows, d.history = rows, d.history[:history]
	return fmt.Errorf("%w: %s", ErrCheck, f.violations[0])
}

// Gates is Gates'.
func (t *Tandem) Gates(context.Context) ([]engine.Gate, error) {
	now := t.w.now
	var list []engine.Gate
	for i := range t.w.db.gates {
		g := &t.w.db.gates[i]
		v := engine.Gate{Provider: g.provider, Reason: g.reason, Closed: g.until > now, Probe: g.probe <= now, Since: epoch.Add(g.since), Open: -1}
		if g.until != forever {
			v.Until = epoch.Add(g.until)
			v.Open, v.Held = now-max(g.opened, g.until), max(g.opened, g.until)-g.since
		}
		list = append(list, v)
	}
	return list, nil
}

// CloseGate is Gates'.
func (t *Tandem) CloseGate(_ context.Context, h engine.Hold) error {
	t.w.db.closeGate(h)
	return nil
}

// ProbeGate is Gates'.
func (t *Tandem) ProbeGate(_ context.Context, provider string, _ int, every, most time.Duration) (bool, error) {
	return t.w.db.probeGate(provider, every, most), nil
}

// PassGate is Gates'.
func (t *Tandem) PassGate(_ context.Context, provider string, _, need int, next time.Duration) error {
	t.w.db.passGate(provider, need, next)
	return nil
}

// OpenGate opens a gate by hand.
func (t *Tandem) OpenGate(provider string) { t.w.db.openGate(provider) }
