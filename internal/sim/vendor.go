package sim

import (
	"strconv"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// vendor is a provider's own side: what it promises, what it remembers, and
// the truth of what it accepted.
type vendor struct {
	w        *world
	n        int
	name     string
	accounts [2]string
	contract dispatch.Contract // its promise
	index    time.Duration     // how long its search really lags
	noID     bool
	keeps    bool // it remembers refusals under their key, too

	keys    []memory
	refuses [maxMessages]time.Duration // from when on it takes a message no more, 0 for never
	barred  [maxMessages]bool          // messages whose sender it doesn't know
	accept  []acceptance
	outage  time.Duration // the account is refused until then
}

// maxMessages is the most messages of one history.
const maxMessages = 3

// memory is what a vendor that dedupes keeps of a key.
type memory struct {
	account string
	n       int
	first   time.Duration // of its use: the window counts from it
	until   time.Duration // the request is being worked on
	digest  []byte
	reply   reply
	kept    bool
}

// acceptance is a line of the ledger outside of the system.
type acceptance struct {
	n       int
	fence   int64
	account string
	at      time.Duration
	id      string
}

// reply is what a vendor answers.
type reply struct {
	status int
	code   string
	own    bool // the body is the vendor's own
	key    dispatch.KeyFault
	floor  time.Duration
	sender bool // the sender is refused
	fresh  bool // the message was accepted now, not before
	id     string
}

// request is one request on its way, and its answer on the way back.
type request struct {
	vendor   *vendor
	account  string
	key      dispatch.Key
	fence    int64
	digest   []byte
	waits    *proc // the sender, until it gives up
	answered bool
	reply    reply
	noID     bool
}

// write puts the request on the wire: from here on, nobody can take it back.
func (w *world) write(q *request) {
	w.ref.written(q)
	d := time.Duration(1+w.n(40)) * time.Millisecond
	switch {
	case w.chance(w.plan.drop):
		w.ref.dropped(q)
		w.tellRequest(q, "request is lost")
		return
	case w.chance(w.plan.stray):
		d = pick(w, time.Minute, 5*time.Minute, time.Hour)
	case w.chance(w.plan.slow):
		d = w.delay(q)
	}
	w.after(d, func() { w.deliver(q) })
}

// delay keeps the bytes as long as the contract allows: for a look-up, its lag
// is shared by the way and the index; else the lease ends it.
func (w *world) delay(q *request) time.Duration {
	longest := 9 * time.Second
	if c := q.vendor.contract; c.Search.Available && c.Dedupe.Window == 0 {
		longest = min(c.Search.Lag-q.vendor.index, 10*time.Second)
	}
	return time.Duration(w.n(int64(longest)))
}

// deliver is the arrival of the request at the vendor.
func (w *world) deliver(q *request) {
	r := q.vendor.serve(q)
	work := time.Duration(w.n(100)) * time.Millisecond
	if w.chance(w.plan.slow) {
		work = pick(w, time.Second, 5*time.Second, 12*time.Second)
	}
	q.vendor.working(q, work)
	w.ref.delivered(q, r)
	w.tellReply(q, r)
	if w.chance(w.plan.mute) {
		w.tellRequest(q, "answer is lost")
		return
	}
	if w.chance(w.plan.shake) { // something in between answers instead
		r = reply{status: pick(w, 408, 500, 502, 503, 504, 200), code: pick(w, "", "odd")}
		switch r.status {
		case 200:
			r.code = "odd"
		case 503:
			r.floor = pick(w, 0, 10*time.Second, time.Minute)
		}
	}
	w.after(work+time.Millisecond, func() {
		q.answered, q.reply, q.noID = true, r, q.vendor.noID
		if p := q.waits; p != nil && !p.killed {
			p.wake = min(p.wake, w.now)
		}
	})
}

// answer is what the adapter makes of the reply.
func (q *request) answer(digest []byte) (dispatch.Accepted, error) {
	r := q.reply
	e := dispatch.Evidence{
		Stage: dispatch.Answered, Status: r.status, Code: r.code, OwnBody: r.own, Key: r.key, RetryAfter: r.floor, Request: digest,
	}
	v := dispatch.Classify(e)
	if r.sender {
		v = dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Sender, Reason: "sender refused"}
	}
	if v.Outcome == dispatch.OK {
		return dispatch.Accepted{ID: r.id, NoID: q.noID || r.id == "", Evidence: e}, nil
	}
	return dispatch.Accepted{}, &dispatch.Fault{Evidence: e, Verdict: v}
}

// serve decides on a request and accepts it at most here.
func (v *vendor) serve(q *request) reply {
	w := v.w
	n := int(q.key[15])
	if r, ok := v.door(); ok {
		return r
	}
	if !v.contract.RefusalProves {
		if r, ok := v.validate(n); ok {
			return r
		}
	}
	dedupes := v.contract.Dedupe.Window > 0
	m := v.memory(q.account, n)
	if dedupes && m != nil {
		switch {
		case w.now < m.until:
			return reply{status: 409, own: true, key: dispatch.KeyInFlight}
		case m.kept && v.contract.Dedupe.BindsBody && string(m.digest) != string(q.digest):
			return reply{status: 422, own: true, key: dispatch.KeyReused}
		case m.kept:
			return m.reply
		}
	}
	r, refused := reply{}, false
	if v.contract.RefusalProves {
		r, refused = v.validate(n)
	}
	if !refused {
		v.accept = append(v.accept, acceptance{n: n, fence: q.fence, account: q.account, at: w.now, id: v.name[:1] + strconv.Itoa(len(v.accept)+1)})
		r = reply{status: 202, own: true, id: v.accept[len(v.accept)-1].id}
		if v.noID {
			r.id = ""
		}
		w.receipts(v, v.accept[len(v.accept)-1])
	}
	if dedupes {
		if m == nil {
			v.keys = append(v.keys, memory{account: q.account, n: n, first: w.now})
			m = &v.keys[len(v.keys)-1]
		}
		if !refused || v.keeps {
			m.reply, m.kept, m.digest = r, true, q.digest
		}
	}
	r.fresh = !refused
	return r
}

// door is what stands before the vendor looks at the request: rate limits,
// the account, its own faults. It proves nothing about earlier requests.
func (v *vendor) door() (reply, bool) {
	w := v.w
	if w.now < v.outage {
		return reply{status: 401, own: true}, true
	}
	switch {
	case w.chance(w.plan.limit):
		return reply{status: 429, own: true, floor: pick(w, 0, time.Second, 30*time.Second, 10*time.Minute, 2*time.Hour)}, true
	case w.chance(w.plan.account):
		v.outage = w.now + pick(w, time.Second, 40*time.Second, 10*time.Minute)
		return reply{status: pick(w, 401, 403, 302), own: true}, true
	case w.chance(w.plan.shake):
		return reply{status: pick(w, 500, 503)}, true
	}
	return reply{}, false
}

// validate refuses the message or its sender. Where refusals prove something
// they are lasting; elsewhere they may come at random, also of a message that
// was accepted before.
func (v *vendor) validate(n int) (reply, bool) {
	w := v.w
	switch {
	case v.barred[n]:
		return reply{status: 403, own: true, sender: true}, true
	case v.refuses[n] != 0 && w.now >= v.refuses[n], !v.contract.RefusalProves && w.chance(w.plan.reject):
		return reply{status: pick(w, 400, 404, 422), own: true}, true
	case !v.contract.RefusalProves && w.chance(w.plan.sender):
		return reply{status: 403, own: true, sender: true}, true
	}
	return reply{}, false
}

// memory is what the vendor still knows of the key.
func (v *vendor) memory(account string, n int) *memory {
	for i := range v.keys {
		m := &v.keys[i]
		if m.account != account || m.n != n {
			continue
		}
		if v.w.now >= m.first+v.contract.Dedupe.Window {
			last := len(v.keys) - 1
			v.keys[i] = v.keys[last]
			v.keys = v.keys[:last]
			return nil
		}
		return m
	}
	return nil
}

// working marks the key as in flight until its answer goes out.
func (v *vendor) working(q *request, d time.Duration) {
	if m := v.memory(q.account, int(q.key[15])); m != nil {
		m.until = max(m.until, v.w.now+d)
	}
}

// look answers a look-up: what was accepted and is indexed.
func (v *vendor) look(account string, key dispatch.Key) dispatch.Found {
	n := int(key[15])
	for i := range v.accept {
		if a := &v.accept[i]; a.n == n && a.account == account && v.w.now >= a.at+v.index {
			return dispatch.Found{Presence: dispatch.Present, ID: a.id}
		}
	}
	return dispatch.Found{Presence: dispatch.Absent}
}
