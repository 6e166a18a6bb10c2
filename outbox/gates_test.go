package outbox_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
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
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Slots: 20})
	require.Eventually(t, func() bool {
		g := gatesOf(t, box)
		return len(g) == 1 && g[0].Closed && g[0].Reason == "account"
	}, 10*time.Second, 5*time.Millisecond)
	calls := len(p.Sends())
	require.Less(t, calls, 100, "a handful of calls")
	require.Zero(t, count(t, pool, schema, "parked"))
	mended.Store(true)
	require.NoError(t, box.Resume(t.Context(), "test", ada))
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Slots: 300})
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
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	empty(t, box, 20*time.Second, func() int { return count(t, pool, schema, "queue") })
	require.Equal(t, 50, count(t, pool, schema, "parked"))
	require.Len(t, p.Accepted(), 450)
	for _, g := range gatesOf(t, box) {
		require.False(t, g.Closed)
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
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{first, second}})
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

// A wait that a 503 names is the provider's, though nobody knows what became of
// the message that it answers: nothing else is tried there until it is over, and
// goes to the sibling meanwhile. One that a key in flight names is the message's.
func TestRetryAfterOfAnUnknownHoldsTheProvider(t *testing.T) {
	for status, key := range map[int]dispatch.KeyFault{503: dispatch.KeyFine, 409: dispatch.KeyInFlight} {
		held := status == 503
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			box, _, _ := newBox(t, route("first", "second"))
			contract := deduping(5 * time.Second)
			contract.Name = "first"
			first, second := &outboxtest.Provider{Promise: contract}, &outboxtest.Provider{Promise: dispatch.Contract{Name: "second"}}
			first.Respond = func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
				if e.Content.(dispatch.SMS).Body == "please wait" {
					return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.Answered, Status: status, Key: key, RetryAfter: time.Hour})
				}
				return accept(), nil
			}
			start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{first, second}})
			waits, next := sms("please wait"), sms("the next one")
			enqueue(t, box, waits)
			reaches(t, box, waits.Key, dispatch.InDoubt)
			enqueue(t, box, next)
			reaches(t, box, next.Key, dispatch.Sent)
			gates := gatesOf(t, box)
			require.Equal(t, held, len(gates) == 1 && gates[0].Closed && gates[0].Reason == "floor", gates)
			if held {
				require.Equal(t, 1, second.Deliveries(next.Key))
			} else {
				require.Equal(t, 1, first.Deliveries(next.Key))
			}
			require.Len(t, first.SendsOf(waits.Key), 1)
			require.Zero(t, second.Deliveries(waits.Key))
		})
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
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Slots: 20, DrainTimeout: time.Millisecond})
	require.Eventually(t, func() bool { return busy.Load() == 18 }, 10*time.Second, 5*time.Millisecond)
	code := sms("your code")
	code.Priority = dispatch.High
	enqueue(t, box, code)
	reaches(t, box, code.Key, dispatch.Sent)
}

// An outage leaves retries that each sit out a time-out. First attempts of the
// same priority don't stand in their line.
func TestFirstAttemptsDoNotWaitForRetries(t *testing.T) {
	box, _, _ := newBox(t)
	release := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(release) }))
	p := &outboxtest.Provider{Promise: deduping(20 * time.Second)}
	var busy atomic.Int64
	p.Respond = func(ctx context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		switch {
		case e.Content.(dispatch.SMS).Body != "once more":
		case e.Attempt == 1:
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseDial})
		default:
			busy.Add(1)
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return accept(), nil
	}
	// Every second one is taken at once, or the circuit would close.
	enqueueMany(t, box, many(60, func(n int, i *dispatch.Intent) {
		if n%2 == 0 {
			i.Content = dispatch.SMS{To: "+15555550123", Body: "once more"}
		}
	}))
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Slots: 20, DrainTimeout: time.Millisecond})
	require.Eventually(t, func() bool { return busy.Load() == 16 }, 10*time.Second, 5*time.Millisecond, "busy %d", busy.Load())
	first := sms("first attempt")
	enqueue(t, box, first)
	reaches(t, box, first.Key, dispatch.Sent)
	require.EqualValues(t, 16, busy.Load())
}
