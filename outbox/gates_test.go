package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

// empty waits until nothing is in motion.
func empty(t *testing.T, box *outbox.Box, within time.Duration, left func() int) {
	t.Helper()
	require.Eventually(t, func() bool { return left() == 0 }, within, 20*time.Millisecond, "left %d, gates %+v", left(), gatesOf(t, box))
}

func gatesOf(t *testing.T, box *outbox.Box) []outbox.Gate {
	t.Helper()
	g, err := box.Gates(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	return g
}

// Three processes, one provider, a 429 in one of them (B055): read from the
// provider's own log, no call begins later than a claim interval after the
// gate's commit until the wait is over, and the fleet comes back step by step.
func TestRetryAfterHoldsTheProviderForAllProcesses(t *testing.T) {
	const wait = 3 * time.Second
	box, pool, schema := newBox(t)
	var refused atomic.Pointer[time.Time]
	v := vendor(t, providertest.Options{Dedupe: time.Hour, Fault: func(c providertest.Call) providertest.Fault {
		if c.Total == 40 {
			now := time.Now()
			refused.Store(&now)
			return providertest.TooMany("3")
		}
		return providertest.Fault{Delay: 20 * time.Millisecond}
	}})
	for range 3 {
		spawn(t, schema, v.URL)
	}
	// Messages come in for four seconds, so that every process has work.
	intents := many(1200, func(n int, i *dispatch.Intent) { i.NotBefore = time.Now().Add(time.Duration(n) * 4 * time.Millisecond) })
	enqueueMany(t, box, intents)
	empty(t, box, 60*time.Second, func() int { return count(t, pool, schema, "queue") })
	at := *refused.Load()
	// What had begun, and was claimed, before the gate's commit was known
	// everywhere may still call: one interval, and a margin for this machine.
	const interval = 500 * time.Millisecond
	var inside, early, after int
	for _, c := range v.AllCalls() {
		switch since := c.Time.Sub(at); {
		case since > interval && since < wait:
			inside++
		case since >= wait && since < wait+300*time.Millisecond:
			early++
		case since >= wait:
			after++
		}
	}
	require.Zero(t, inside, "calls while the provider was held")
	require.Positive(t, after)
	require.Less(t, early, after/4, "it comes back step by step")
	require.Zero(t, count(t, pool, schema, "parked"))
	for _, i := range intents {
		h := stateOf(t, box, i.Key)
		require.Equal(t, dispatch.Sent, h.State, "%s", h)
	}
}

// 401 with 10,000 waiting: none dead, a handful of calls, and all are sent when
// the key is mended and the gate opened.
func TestAccountRefusedSparesEveryRow(t *testing.T) {
	box, pool, schema := newBox(t)
	var mended atomic.Bool
	p := &outboxtest.Provider{Promise: deduping(5 * time.Second)}
	p.Respond = func(_ context.Context, _ dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		if mended.Load() {
			return accept(), nil
		}
		return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.Answered, Status: 401})
	}
	const n = 10_000
	enqueueMany(t, box, many(n, nil))
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Slots: 20, Logger: discard})
	require.Eventually(t, func() bool {
		g := gatesOf(t, box)
		return len(g) == 1 && g[0].Closed && g[0].Reason == "account"
	}, 10*time.Second, 5*time.Millisecond)
	calls := len(p.Sends())
	require.Less(t, calls, 100, "a handful of calls")
	require.Zero(t, count(t, pool, schema, "parked"))
	mended.Store(true)
	require.NoError(t, box.Resume(t.Context(), "test", ada))
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Slots: 300, Logger: discard})
	empty(t, box, 60*time.Second, func() int { return count(t, pool, schema, "queue") })
	require.Zero(t, count(t, pool, schema, "parked"))
	require.Len(t, p.Accepted(), n)
}

// One sender of ten is refused (403): the others' messages go on, and only
// that sender's are parked.
func TestOneSenderRefusedOfTen(t *testing.T) {
	r := route()
	r.Senders = dispatch.Senders{}
	for s := range 10 {
		r.Senders[fmt.Sprint("tenant-", s)] = map[string]string{"test": fmt.Sprint("T", s)}
	}
	box, pool, schema := newBox(t, r)
	p := &outboxtest.Provider{Promise: deduping(5 * time.Second)}
	p.Respond = func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		if e.From == "T3" {
			return dispatch.Accepted{}, &dispatch.Fault{
				Evidence: dispatch.Evidence{Stage: dispatch.Answered, Status: 403, Code: "sender_not_verified", OwnBody: true},
				Verdict:  dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Sender, Reason: "sender not verified"},
			}
		}
		return accept(), nil
	}
	enqueueMany(t, box, many(500, func(n int, i *dispatch.Intent) {
		i.Content = dispatch.SMS{To: "+15555550123", Sender: fmt.Sprint("tenant-", n%10), Body: "hello"}
	}))
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Logger: discard})
	empty(t, box, 20*time.Second, func() int { return count(t, pool, schema, "queue") })
	require.Equal(t, 50, count(t, pool, schema, "parked"))
	require.Len(t, p.Accepted(), 450)
	for _, g := range gatesOf(t, box) {
		require.False(t, g.Closed)
	}
}

// An outage, with one provider: refused connections, and a storm of 503 at one
// that dedupes. Nothing is dead, nothing held, and all is sent after it, each
// once.
func TestOutageLosesNothing(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]dispatch.Evidence{
		"refused connections": {Stage: dispatch.NotSent, Cause: dispatch.CauseDial},
		"503 after accepting": {Stage: dispatch.Answered, Status: 503},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box, pool, schema := newBox(t)
			var down atomic.Bool
			down.Store(true)
			p := &outboxtest.Provider{Promise: deduping(5 * time.Second)}
			p.Respond = func(_ context.Context, _ dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
				if !down.Load() {
					return accept(), nil
				}
				if e.Stage == dispatch.Answered {
					accept()
				}
				return dispatch.Accepted{}, fault(e)
			}
			intents := many(300, nil)
			enqueueMany(t, box, intents)
			for range 2 {
				start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Slots: 20, Logger: discard})
			}
			require.Eventually(t, func() bool {
				g := gatesOf(t, box)
				return len(g) == 1 && g[0].Reason == "circuit"
			}, 10*time.Second, 5*time.Millisecond)
			time.AfterFunc(8*time.Second, func() { down.Store(false) })
			require.Eventually(t, func() bool { return !down.Load() }, 20*time.Second, 50*time.Millisecond)
			calls := len(p.Sends())
			require.Less(t, calls, 300, "the circuit keeps the fleet from calling in vain")
			empty(t, box, 90*time.Second, func() int { return count(t, pool, schema, "queue") })
			require.Zero(t, count(t, pool, schema, "parked"))
			for _, i := range intents {
				require.Equal(t, 1, p.Deliveries(i.Key))
			}
		})
	}
}

// Pause and Resume by hand: with a sibling, messages go there; without one
// they wait, and their deadlines still count.
func TestPauseAndResume(t *testing.T) {
	box, pool, schema := newBox(t, route("first", "second"), dispatch.Route{Name: "alone", Providers: []string{"first"}, Policy: quick()})
	first := &outboxtest.Provider{Promise: dispatch.Contract{Name: "first", Timeout: time.Second}}
	second := &outboxtest.Provider{Promise: dispatch.Contract{Name: "second", Timeout: time.Second}}
	require.ErrorIs(t, box.Pause(t.Context(), "first", outbox.Audit{By: "ada"}), outbox.ErrAudit)
	require.NoError(t, box.Pause(t.Context(), "first", ada))
	g := gatesOf(t, box)[0]
	require.Equal(t, []any{"first", "paused", true, "ada", "asked by support"}, []any{g.Provider, g.Reason, g.Closed, g.By, g.Why})
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{first, second}, Logger: discard})
	failsOver, waits, expires := sms("goes to the second"), sms("waits"), sms("expires")
	failsOver.Route, waits.Route, expires.Route = "sms", "alone", "alone"
	expires.ValidFor = 500 * time.Millisecond
	enqueue(t, box, failsOver, waits, expires)
	reaches(t, box, failsOver.Key, dispatch.Sent)
	require.Equal(t, 1, second.Deliveries(failsOver.Key))
	h := reaches(t, box, expires.Key, dispatch.Dead)
	require.Equal(t, dispatch.ReasonDeadline, h.Reason)
	require.Empty(t, first.Sends())
	require.Equal(t, dispatch.Pending, stateOf(t, box, waits.Key).State)
	require.NoError(t, box.Resume(t.Context(), "first", ada))
	reaches(t, box, waits.Key, dispatch.Sent)
	require.Equal(t, 1, first.Deliveries(waits.Key))
	require.Zero(t, count(t, pool, schema, "queue"))
}

// 50 a second with three workers: measured 50 ± 5 %, never more at once than
// the bucket holds, and no more under way than allowed.
func TestRateIsSharedByAllWorkers(t *testing.T) {
	box, pool, schema := newBox(t)
	const perSecond, burst = 50, 10
	var running, most atomic.Int64
	p := &outboxtest.Provider{Promise: deduping(5 * time.Second)}
	p.Respond = func(ctx context.Context, _ dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer running.Add(-1)
		return accept(), nil
	}
	enqueueMany(t, box, many(perSecond*12, nil))
	for range 3 {
		start(t, box, outbox.WorkerConfig{
			Providers: []dispatch.Provider{p}, Logger: discard,
			Limits: map[string]outbox.Limit{"test": {PerSecond: perSecond, Burst: burst, Concurrent: 4}},
		})
	}
	empty(t, box, 60*time.Second, func() int { return count(t, pool, schema, "queue") })
	require.LessOrEqual(t, most.Load(), int64(12))
	var all []time.Time
	for _, e := range p.Sends() {
		all = append(all, p.SendsOf(e.Key)...)
	}
	slices.SortFunc(all, time.Time.Compare)
	rate := float64(len(all)-burst) / all[len(all)-1].Sub(all[0]).Seconds()
	require.InDelta(t, perSecond, rate, perSecond*0.05)
	for i := range all { // in any tenth of a second no more than the bucket and what flows in
		n := 0
		for n = i; n < len(all) && all[n].Sub(all[i]) < 100*time.Millisecond; n++ {
		}
		require.LessOrEqual(t, n-i, burst+perSecond/10+3)
	}
}

// A newsletter that takes every slot of a slow provider doesn't keep a login
// code waiting.
func TestLoginCodeDoesNotWaitForANewsletter(t *testing.T) {
	box, _, _ := newBox(t)
	release := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(release) }))
	p := &outboxtest.Provider{Promise: deduping(20 * time.Second)}
	var busy atomic.Int64
	p.Respond = func(ctx context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		if e.Content.(dispatch.SMS).Body != "your code" {
			busy.Add(1)
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return accept(), nil
	}
	enqueueMany(t, box, many(500, func(_ int, i *dispatch.Intent) { i.Priority = dispatch.Low }))
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Slots: 20, DrainTimeout: time.Millisecond, Logger: discard})
	require.Eventually(t, func() bool { return busy.Load() == 18 }, 10*time.Second, 5*time.Millisecond)
	code := sms("your code")
	code.Priority = dispatch.High
	enqueue(t, box, code)
	reaches(t, box, code.Key, dispatch.Sent)
}

// A provider that flaps, with a healthy sibling: one switch, and no going back
// and forth within the hysteresis.
func TestFlappingProviderCausesOneSwitch(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t, route("first", "second"))
	first := &outboxtest.Provider{Promise: dispatch.Contract{Name: "first", Timeout: time.Second}}
	second := &outboxtest.Provider{Promise: dispatch.Contract{Name: "second", Timeout: time.Second}}
	began := time.Now()
	first.Respond = func(_ context.Context, _ dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		if time.Since(began)/(500*time.Millisecond)%2 == 1 {
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseDial})
		}
		return accept(), nil
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{first, second}, Logger: discard})
	enqueueMany(t, box, many(1500, func(n int, i *dispatch.Intent) { i.NotBefore = began.Add(time.Duration(n) * 4 * time.Millisecond) }))
	var closings []time.Time
	require.Eventually(t, func() bool {
		for _, g := range gatesOf(t, box) {
			if g.Closed && !slices.Contains(closings, g.Since) {
				closings = append(closings, g.Since)
			}
		}
		return count(t, pool, schema, "queue") == 0
	}, 40*time.Second, 20*time.Millisecond)
	require.Len(t, closings, 1, "in six seconds of flapping")
	require.Equal(t, 1500, len(first.Accepted())+len(second.Accepted()))
	require.Zero(t, count(t, pool, schema, "parked"))
}
