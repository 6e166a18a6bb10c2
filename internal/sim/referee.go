package sim

import (
	"fmt"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// referee knows the truth and keeps books of its own: what each send could
// still do, what was proven of it, and by whom. It never reads what the
// decisions decided in order to judge them.
type referee struct {
	w          *world
	books      [maxMessages]book
	violations []string
	residue    []string
	looks      []look
	// blind judges only what the world sees: what vendors got, what is lost,
	// what the rows say in the end.
	blind bool
}

func (f *referee) fail(format string, args ...any) {
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	f.w.tell("VIOLATION " + text)
	if len(f.violations) < 10 {
		f.violations = append(f.violations, text)
	}
}

// fault is fail for a wrong move, which may or may not have an effect.
func (f *referee) fault(format string, args ...any) {
	if !f.blind {
		f.fail(format, args...)
	}
}

func (f *referee) broken() bool { return len(f.violations) > 0 }

func (f *referee) enqueued(m *message) { f.books[m.n].m = m }

// claimed opens a line for a send, and checks what a claim must keep.
func (f *referee) claimed(r *row) {
	b := &f.books[r.m.n]
	v := f.w.vendor(r.Provider)
	if b.send(r.Fence) != nil {
		f.fault("%s: fence %d was used before", nameOf(r.Key), r.Fence)
		return
	}
	now := f.w.now
	f.mayFollow(b, r.Key, v, r.Account, since(r.Lease))
	b.sends = append(b.sends, send{
		fence: r.Fence, vendor: v, account: r.Account, epoch: b.epoch, claimed: now, lease: since(r.Lease), reach: since(r.Lease),
	})
	if now < b.floor[v.n] && !f.w.gates { // a lane that is passed over holds rows that Begin hands back
		f.fault("%s: claimed for %s %v before its floor", nameOf(r.Key), v.name, b.floor[v.n]-now)
	}
}

// mayFollow checks that a send to a vendor may follow what was sent before:
// everything is proven unaccepted or waived, or the vendor dedupes and still
// knows the key when the send ends at the latest.
func (f *referee) mayFollow(b *book, key dispatch.Key, v *vendor, account string, end time.Duration) {
	first := time.Duration(-1)
	for i := range b.sends {
		s := &b.sends[i]
		if s.vendor == v && s.account == account && s.written && (first < 0 || s.writtenAt < first) {
			first = s.writtenAt
		}
	}
	for i := range b.sends {
		s := &b.sends[i]
		switch {
		case !s.open():
		case s.vendor != v || s.account != account:
			f.fault("%s: goes to %s/%s while attempt %d at %s/%s may have been accepted", nameOf(key), v.name, account, s.fence, s.vendor.name, s.account)
		case v.contract.Dedupe.Window == 0:
			f.fault("%s: is repeated at %s, which doesn't dedupe, while attempt %d may have been accepted", nameOf(key), v.name, s.fence)
		case first >= 0 && end > first+v.contract.Dedupe.Window:
			f.fault("%s: is repeated at %s when its window is over by %v", nameOf(key), v.name, end-first-v.contract.Dedupe.Window)
		}
	}
}

// handedBack closes the line of a send that was never begun.
func (f *referee) handedBack(n int, fence int64) {
	s := f.books[n].send(fence)
	switch {
	case s == nil:
		f.fault("m%d: attempt %d is handed back and was never claimed", n+1, fence)
	case s.begun:
		f.fault("m%d: attempt %d is handed back and has begun", n+1, fence)
	default:
		s.back = true
	}
}

// begun checks what must hold when a send's last check is passed.
func (f *referee) begun(t engine.Task) {
	b := &f.books[t.Key[15]]
	s := b.send(t.Fence)
	now := f.w.now
	switch {
	case s == nil:
		f.fault("%s: attempt %d begins and was never claimed", nameOf(t.Key), t.Fence)
		return
	case s.back:
		f.fault("%s: attempt %d begins and was handed back", nameOf(t.Key), t.Fence)
	case s.begun:
		f.fault("%s: attempt %d begins twice", nameOf(t.Key), t.Fence)
	}
	s.begun = true
	if b.m.pinned != "" && s.vendor.name != b.m.pinned {
		f.fail("%s: attempt %d of a drill for %s begins at %s", nameOf(t.Key), t.Fence, b.m.pinned, s.vendor.name)
	}
	for i := range b.sends {
		if o := &b.sends[i]; o.vendor == s.vendor && o.waived && o.left && !o.proven && !o.back {
			f.fail("%s: attempt %d fails over to %s, where it may have been accepted", nameOf(t.Key), t.Fence, s.vendor.name)
		}
	}
	slack := drift(now - s.claimed)
	if b.m.deadline != 0 && now > b.m.deadline+slack {
		f.fail("%s: attempt %d begins %v after the deadline", nameOf(t.Key), t.Fence, now-b.m.deadline)
	}
	if end := now + s.vendor.contract.AttemptTimeout(); end > s.lease+slack {
		f.fault("%s: attempt %d begins when its lease has too little time left", nameOf(t.Key), t.Fence)
	}
	if now+slack < b.floor[s.vendor.n] {
		f.fail("%s: attempt %d begins before the floor of %s", nameOf(t.Key), t.Fence, s.vendor.name)
	}
	s.proven = true // for mayFollow: its own line is not in its way
	f.mayFollow(b, t.Key, s.vendor, s.account, now+s.vendor.contract.AttemptTimeout()-slack)
	s.proven = false
}

// written checks the bytes: a repeat of what may have been accepted is the
// same request.
func (f *referee) written(q *request) {
	b := &f.books[q.key[15]]
	s := b.send(q.fence)
	if s == nil || s.written {
		f.fail("%s: attempt %d writes a second request, or has no claim", nameOf(q.key), q.fence)
		return
	}
	s.written, s.writtenAt, s.digest = true, f.w.now, string(q.digest)
	for i := range b.sends {
		o := &b.sends[i]
		if o != s && o.epoch == s.epoch && o.written && (o.recorded && o.fence < s.fence || !f.w.salted) && o.open() && s.open() && o.vendor == s.vendor && o.account == s.account && o.digest != s.digest {
			f.fail("%s: attempts %d and %d are different requests under one key", nameOf(q.key), o.fence, s.fence)
		}
	}
}

// delivered keeps what was accepted.
func (f *referee) delivered(q *request, r reply) {
	s := f.books[q.key[15]].send(q.fence)
	if s == nil {
		return
	}
	s.arrived = true
	if r.fresh {
		s.accepted, s.acceptedAt = true, f.w.now
	}
}

// dropped keeps that a request will never arrive.
func (f *referee) dropped(q *request) {
	if s := f.books[q.key[15]].send(q.fence); s != nil {
		s.arrived = true
	}
}

// ended keeps when a worker saw the end of its attempt.
func (f *referee) ended(key dispatch.Key, fence int64) {
	if s := f.books[key[15]].send(fence); s != nil {
		s.ended = f.w.now
	}
}

func (f *referee) asked(key dispatch.Key, fence int64, v *vendor, account string) {
	f.looks = append(f.looks, look{n: int(key[15]), fence: fence, vendor: v, account: account, at: f.w.now})
}

// mayArrive tells that a request of the message may still reach its vendor.
func (f *referee) mayArrive(n int) bool {
	for i := range f.books[n].sends {
		s := &f.books[n].sends[i]
		if s.begun && !s.arrived && (s.written || s.ended == 0) {
			return true
		}
	}
	return false
}

// wrote checks that a settle which was confirmed is written down.
func (f *referee) wrote(batch, again []engine.Change) {
	for i := range batch {
		c := &batch[i]
		skip := false
		for j := range again {
			skip = skip || again[j].Key == c.Key && again[j].Fence == c.Fence
		}
		if skip {
			continue
		}
		if c.Record.Verdict.Outcome == dispatch.OK && c.Record.Kind != engine.KindNone {
			f.learnt(c.Key)
		}
		if c.Record.Kind == engine.KindAttempt && f.w.db.evidence(int(c.Key[15]), c.Fence) == nil {
			f.fail("%s: attempt %d was settled and has no evidence", nameOf(c.Key), c.Fence)
		}
	}
}

// learnt checks that what is known to be accepted is sent.
func (f *referee) learnt(key dispatch.Key) {
	if r := f.w.db.find(key); r != nil && r.State != dispatch.Sent {
		f.fail("%s: an acceptance was written down and the message is %s", nameOf(key), r.State)
	}
}

// stuck tells of what didn't come to an end. A row whose provider nobody has
// any more with its account and encoding waits for its resolve_until, which is
// an end, but may be a day away.
func (f *referee) stuck() {
	waits := false
	for i := range f.w.db.rows {
		r := &f.w.db.rows[i]
		switch {
		case r.in != inQueue:
		case r.State == dispatch.InDoubt && since(r.ResolveUntil) > f.w.now && !f.w.bound(r):
			waits = true
		default:
			f.fail("%s: is stuck as %s, due %v, now %v", nameOf(r.Key), r.State, since(r.Due), f.w.now)
			return
		}
	}
	if !waits {
		f.fail("the history doesn't end")
		return
	}
	f.final()
}

// bound tells whether a worker has the row's provider with its account and
// encoding.
func (w *world) bound(r *row) bool {
	for _, k := range w.workers {
		for _, b := range k.binds {
			if b.vendor.name == r.Provider && b.account == r.Account && b.encoding == r.Encoding {
				return true
			}
		}
	}
	return false
}

func (w *world) vendor(name string) *vendor {
	for _, v := range w.vendors {
		if v.name == name {
			return v
		}
	}
	return w.vendors[0]
}

// ledger compares the row's own ledger with the books: what may have been
// accepted must stand there.
func (f *referee) ledger(r *row) {
	b := &f.books[r.m.n]
	for i := range b.sends {
		s := &b.sends[i]
		if s.proven || s.back || r.State == dispatch.Sending && s.fence == r.Fence {
			continue
		}
		leg, _ := r.Ledger.Leg(s.vendor.name, s.account)
		if leg.Mark == decide.Open || leg.Mark == decide.Waived && s.waived {
			continue
		}
		f.fault("%s: is %s, and has forgotten that attempt %d may have been accepted", nameOf(r.Key), r.State, s.fence)
	}
}
