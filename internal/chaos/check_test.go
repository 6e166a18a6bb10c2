package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

// world is a run made by hand, in which nothing went wrong.
type world struct {
	tb *testing.T
	l  ledger
	d  dump
	t  time.Time
}

// clean has every message sent at its first attempt.
func clean(t *testing.T) *world {
	t.Helper()
	p, err := newPlan(1, 300)
	require.NoError(t, err)
	w := &world{tb: t, t: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.l.plan = p
	for n := range p.messages {
		m := p.message(n)
		key := m.key.String()
		w.l.enqueued = append(w.l.enqueued, enqueued{N: n, What: tried, At: w.t}, enqueued{N: n, What: confirmed, At: w.t})
		w.d.orders = append(w.d.orders, key)
		r := row{Key: key, Route: m.route, State: "sent", Budget: 60, Notify: int64(m.notify)}
		if m.validFor > 0 {
			deadline := w.t.Add(m.validFor)
			r.Deadline = &deadline
		}
		verdict, outcome, event := delivered, int64(1), dispatch.NotifySent
		if m.unwanted {
			r.State, r.Reason, verdict, outcome, event = "dead", "rejected", refused, 2, dispatch.NotifyDead
		}
		w.d.messages = append(w.d.messages, r)
		if m.notify != 0 {
			w.l.told = append(w.l.told, told{Key: key, Event: int(event)})
		}
		w.send(key, providers(m.route)[0].name, 1, 0, verdict, outcome)
	}
	return w
}

// send adds an attempt from all sides: it begins after so long and takes 30 ms.
func (w *world) send(key, vendor string, n int64, after time.Duration, verdict string, outcome int64) {
	at := func(ms int64) time.Time { return w.t.Add(after + time.Duration(ms)*time.Millisecond) }
	w.l.attempts = append(w.l.attempts,
		attempt{Vendor: vendor, Key: key, Attempt: n, Worker: 1, Begin: at(10)}, attempt{Vendor: vendor, Key: key, Attempt: n, Worker: 1, End: at(30)})
	w.l.calls = append(w.l.calls, call{Vendor: vendor, Key: key, Attempt: n, Begin: at(15), At: at(20), Verdict: verdict})
	w.d.evidence = append(w.d.evidence, evidence{Key: key, Attempt: n, Kind: 1, Outcome: outcome, Status: 202, At: at(40), Provider: vendor})
	w.d.claims = append(w.d.claims, claim{Key: key, Attempt: n, Claimed: at(0), Lease: at(0).Add(leaseTime)})
}

// on is the first message of a route that is an ordinary one.
func (w *world) on(route string) *row {
	w.tb.Helper()
	for i := range w.d.messages {
		r := &w.d.messages[i]
		if r.Route == route && r.State == "sent" && r.Deadline == nil && r.Notify == 0 {
			return r
		}
	}
	require.FailNow(w.tb, "no message on "+route)
	return nil
}

func drop[T any](list []T, which func(T) bool) []T { return slices.DeleteFunc(list, which) }

// find is the first one.
func find[T any](list []T, which func(T) bool) *T {
	i := slices.IndexFunc(list, which)
	return &list[i]
}

func TestCheckerFindsNothingInACleanRun(t *testing.T) {
	w := clean(t)
	r := check(w.l, w.d)
	require.Empty(t, r.violations)
	require.Equal(t, []int{300, 0, 0, 0, 0}, []int{r.messages, r.lost, r.duplicates, r.held, r.residue})
}

// Each case breaks one thing in a clean run; the checker says what, and counts
// it where it is a loss or a duplicate.
func TestCheckerFindsEachViolation(t *testing.T) {
	const second = time.Second
	for _, c := range []struct {
		name             string
		spoil            func(w *world)
		says             string
		lost, duplicates int
	}{
		{"a message that was committed is gone", func(w *world) {
			key := w.on("keyed").Key
			w.d.messages = drop(w.d.messages, func(r row) bool { return r.Key == key })
		}, "is gone", 1, 0},
		{"a message was never confirmed", func(w *world) {
			w.l.enqueued = drop(w.l.enqueued, func(e enqueued) bool { return e.N == 7 && e.What == confirmed })
		}, "never confirmed", 0, 0},
		{"a repeated COMMIT made it anew", func(w *world) {
			w.l.enqueued = append(w.l.enqueued, enqueued{N: 7, What: confirmed, At: w.t})
		}, "was new 2 times", 0, 0},
		{"a row was left in the queue", func(w *world) { w.on("keyed").State = "pending" }, "still in motion", 1, 0},
		{"a row is in no table", func(w *world) { w.on("keyed").State = "" }, "in no state", 1, 0},
		{"sent, and nothing was delivered", func(w *world) {
			key := w.on("keyed").Key
			find(w.l.calls, func(k call) bool { return k.Key == key }).Verdict = replayed
		}, "nothing was delivered", 1, 0},
		{"dead for no reason", func(w *world) {
			r := w.on("keyed")
			r.State, r.Reason = "dead", "budget"
		}, "for no reason", 1, 0},
		{"dead by a deadline that it doesn't have", func(w *world) {
			r := w.on("searched")
			r.State, r.Reason = "dead", "deadline"
		}, "for no reason", 1, 0},
		{"dead, and delivered", func(w *world) {
			i := slices.IndexFunc(w.d.messages, func(r row) bool { return r.Deadline != nil && r.State == "sent" })
			w.d.messages[i].State, w.d.messages[i].Reason, w.d.messages[i].Notify = "dead", "deadline", 0
		}, "and delivered", 1, 0},
		{"held, though its vendor can tell", func(w *world) {
			r := w.on("searched")
			r.State, r.Reason = "held", "unresolved"
		}, "its vendor can tell", 0, 0},
		{"delivered twice by a vendor that dedupes", func(w *world) {
			w.send(w.on("keyed").Key, "keyed", 2, second, delivered, 1)
		}, "delivered 2 times", 0, 1},
		{"delivered twice, asked too early", func(w *world) {
			w.send(w.on("searched").Key, "searched", 2, second, delivered, 1)
		}, "delivered 2 times", 0, 1},
		{"delivered twice by a vendor that can't be asked, though a worker was frozen", func(w *world) {
			key := w.on("mute").Key
			w.send(key, "mute", 2, 9*second, delivered, 1)
			find(w.l.calls, func(k call) bool { return k.Key == key }).At = w.t.Add(8 * second)
		}, "delivered 2 times", 0, 1},
		{"delivered by both vendors of a route", func(w *world) {
			w.send(w.on(pair).Key, "second", 2, second, delivered, 1)
		}, "delivered 2 times", 0, 1},
		{"a rolled back message is there", func(w *world) {
			w.l.enqueued = append(w.l.enqueued, enqueued{N: 3, What: ghost, At: w.t})
			w.d.messages = append(w.d.messages, row{Key: w.l.plan.ghost(3).key.String(), Route: "mute", State: "pending"})
		}, "was rolled back", 1, 0},
		{"a rolled back message was sent", func(w *world) {
			w.l.enqueued = append(w.l.enqueued, enqueued{N: 3, What: ghost, At: w.t})
			w.send(w.l.plan.ghost(3).key.String(), "mute", 1, 0, delivered, 1)
		}, "was rolled back", 0, 0},
		{"an order without its message", func(w *world) {
			w.d.orders = append(w.d.orders, dispatch.NewKey().String())
		}, "an order without its message", 0, 0},
		{"a message without its order", func(w *world) { w.d.orders = w.d.orders[1:] }, "without its order", 0, 0},
		{"a refused message went out", func(w *world) {
			i := slices.IndexFunc(w.d.messages, func(r row) bool { return r.State == "dead" })
			find(w.l.calls, func(k call) bool { return k.Key == w.d.messages[i].Key }).Verdict = delivered
		}, "a refused message was delivered", 1, 0},
		{"a send without evidence", func(w *world) {
			key := w.on("keyed").Key
			w.d.evidence = drop(w.d.evidence, func(e evidence) bool { return e.Key == key })
		}, "left no evidence", 0, 0},
		{"evidence without a send", func(w *world) {
			key := w.on("keyed").Key
			w.d.evidence = append(w.d.evidence, evidence{Key: key, Attempt: 2, Kind: 1, Outcome: 0, At: w.t, Provider: "keyed"})
		}, "never began", 0, 0},
		{"an answer without a call", func(w *world) {
			r := w.on("echoing")
			w.send(r.Key, "echoing", 2, 9*second, replayed, 1)
			w.l.calls = drop(w.l.calls, func(k call) bool { return k.Key == r.Key && k.Attempt == 2 })
		}, "answered 202 by nobody", 0, 0},
		{"evidence that says refused of what was taken", func(w *world) {
			key := w.on("keyed").Key
			find(w.d.evidence, func(e evidence) bool { return e.Key == key }).Outcome = 2
		}, "its evidence says outcome 2", 0, 0},
		{"one attempt, two calls", func(w *world) {
			key := w.on("keyed").Key
			k := *find(w.l.calls, func(k call) bool { return k.Key == key })
			k.Verdict = replayed
			w.l.calls = append(w.l.calls, k)
		}, "more than one call", 0, 0},
		{"a send that was never claimed", func(w *world) {
			key := w.on("keyed").Key
			w.d.claims = drop(w.d.claims, func(k claim) bool { return k.Key == key })
		}, "was never claimed", 0, 0},
		{"a send after its lease", func(w *world) {
			key := w.on("keyed").Key
			find(w.d.claims, func(k claim) bool { return k.Key == key }).Lease = w.t
		}, "began after its lease", 0, 0},
		{"more sends than the budget", func(w *world) {
			r := w.on("keyed")
			r.Budget = 1
			w.send(r.Key, "keyed", 2, second, replayed, 1)
		}, "of a budget of 1", 0, 0},
		{"a send after the deadline", func(w *world) {
			i := slices.IndexFunc(w.d.messages, func(r row) bool { return r.Route == "brief" && r.Deadline != nil })
			w.send(w.d.messages[i].Key, "brief", 2, w.d.messages[i].Deadline.Sub(w.t)+2*second, replayed, 1)
		}, "after the deadline", 0, 0},
		{"a message's own floor", func(w *world) {
			r := w.on("keyed")
			w.floor(r.Key, 5*second)
			w.send(r.Key, "keyed", 2, 500*time.Millisecond, replayed, 1)
		}, "before the end of the wait of attempt 1", 0, 0},
		{"a vendor's floor", func(w *world) {
			r := w.on("keyed")
			w.floor(r.Key, 5*second)
			other := find(w.d.messages, func(o row) bool { return o.Route == "keyed" && o.Key != r.Key && o.State == "sent" })
			w.send(other.Key, "keyed", 2, 3*second, replayed, 1)
		}, "that keyed named for", 0, 0},
		{"nobody was told", func(w *world) { w.l.told = w.l.told[1:] }, "nobody was told", 0, 0},
		{"a notice was left", func(w *world) { w.d.untold = 1 }, "nobody took", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := clean(t)
			c.spoil(w)
			r := check(w.l, w.d)
			require.NotEmpty(t, r.violations)
			require.Contains(t, strings.Join(r.violations, "\n"), c.says)
			require.Equal(t, []int{c.lost, c.duplicates, 0}, []int{r.lost, r.duplicates, r.residue})
		})
	}
}

// An outage may use up a small budget, each send of it proven not to be taken:
// less of them, or a larger budget, is no reason to be dead.
func TestDeadByItsBudget(t *testing.T) {
	for _, c := range []struct {
		refusals int64
		budget   int64
		lost     int
	}{{briefBudget, briefBudget, 0}, {briefBudget - 1, briefBudget, 1}, {60, 60, 1}} {
		w := clean(t)
		r := w.on("brief")
		r.State, r.Reason, r.Budget = "dead", "budget", c.budget
		find(w.l.calls, func(k call) bool { return k.Key == r.Key }).Verdict = throttled
		e := find(w.d.evidence, func(e evidence) bool { return e.Key == r.Key })
		e.Outcome, e.Status = 2, 429
		for n := int64(2); n <= c.refusals; n++ {
			w.send(r.Key, "brief", n, time.Duration(n)*time.Minute, throttled, 2)
		}
		require.Equal(t, c.lost, check(w.l, w.d).lost, "%+v", c)
	}
}

// floor makes the first answer to a message a 429 that names a wait; it went
// out with a later attempt.
func (w *world) floor(key string, wait time.Duration) {
	e := find(w.d.evidence, func(e evidence) bool { return e.Key == key })
	e.Floor, e.Outcome, e.Status = wait, 2, 429
	find(w.l.calls, func(k call) bool { return k.Key == key }).Verdict = throttled
	w.send(key, "keyed", 9, time.Minute, delivered, 1)
}

// The residue needs its excuse from the clocks: a call that came after its
// attempt's lease, or after its attempt's end, at a vendor that doesn't dedupe.
func TestResidueNeedsItsExcuse(t *testing.T) {
	const second = time.Second
	twice := func(route string, arrives time.Duration, ended bool) report {
		w := clean(t)
		key := w.on(route).Key
		w.send(key, route, 2, 6*second, delivered, 1)
		k := find(w.l.calls, func(k call) bool { return k.Key == key })
		k.At = w.t.Add(arrives)
		e := find(w.d.evidence, func(e evidence) bool { return e.Key == key })
		e.Kind, e.Outcome, e.Status = 2, 0, 0 // nobody heard of it
		if !ended {
			w.l.attempts = drop(w.l.attempts, func(a attempt) bool { return a.Key == key && a.Attempt == 1 && !a.End.IsZero() })
		}
		return check(w.l, w.d)
	}
	frozen := twice("searched", 7*second, false)
	require.Empty(t, frozen.violations)
	require.Equal(t, 1, frozen.residue)
	require.Contains(t, frozen.residues[0], "attempt 1")

	late := twice("searched", second, true) // its attempt had ended: bytes on the way
	require.Empty(t, late.violations)
	require.Equal(t, 1, late.residue)

	require.Equal(t, 1, twice("searched", second, false).duplicates, "within its lease, whoever died")
	require.Equal(t, 1, twice("keyed", 7*second, false).duplicates, "a vendor that dedupes has no residue")
	require.Equal(t, 1, twice("echoing", 7*second, false).duplicates, "one that is never sent to again has none either")
}

// What a frozen worker, or one that was cut off, could not know is not held
// against it.
func TestCheckerExcusesTheFrozen(t *testing.T) {
	w := clean(t)
	r := w.on("keyed")
	w.floor(r.Key, 5*time.Second)
	other := find(w.d.messages, func(o row) bool { return o.Route == "keyed" && o.Key != r.Key && o.State == "sent" })
	w.send(other.Key, "keyed", 2, 3*time.Second, replayed, 1)
	w.l.faults = []struck{{Fault: freeze, Target: "worker 1", From: w.t, To: w.t.Add(4 * time.Second)}}
	require.Empty(t, check(w.l, w.d).violations)
	w.l.faults[0] = struck{Fault: latency, Target: databasePath("worker 1"), From: w.t, To: w.t.Add(4 * time.Second)}
	require.Empty(t, check(w.l, w.d).violations)
	w.l.faults[0].Target = "keyed"
	require.NotEmpty(t, check(w.l, w.d).violations)
}
