package outbox_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

// One call in five fails at the first provider: the next messages go to the
// second, a trickle of probes brings the first back when it is well again, and
// nothing is delivered twice.
func TestUnhealthyProviderIsPassedOver(t *testing.T) {
	box, pool, schema := newBox(t, route("first", "second"))
	var well atomic.Bool
	var n atomic.Int64
	first := &outboxtest.Provider{Promise: dispatch.Contract{Name: "first", Timeout: 2 * time.Second}}
	second := &outboxtest.Provider{Promise: dispatch.Contract{Name: "second", Timeout: 2 * time.Second}}
	first.Respond = func(_ context.Context, _ dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		if !well.Load() && n.Add(1)%5 == 0 {
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseDial})
		}
		return accept(), nil
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{first, second}})
	enqueueMany(t, box, many(100, nil))
	require.Eventually(t, func() bool {
		g := gatesOf(t, box)
		return len(g) == 1 && g[0].Closed && g[0].Reason == "health" && g[0].Why == "too many calls failed"
	}, 20*time.Second, 20*time.Millisecond)
	require.Eventually(t, func() bool { return count(t, pool, schema, "queue") == 0 }, 10*time.Second, 10*time.Millisecond)

	before := len(first.Sends())
	enqueueMany(t, box, many(100, nil))
	require.Eventually(t, func() bool { return count(t, pool, schema, "queue") == 0 }, 10*time.Second, 10*time.Millisecond)
	require.LessOrEqual(t, len(first.Sends())-before, 3, "only probes")
	seen := map[dispatch.Key]int{}
	for _, e := range append(first.Accepted(), second.Accepted()...) {
		seen[e.Key]++
	}
	require.Len(t, seen, 200)
	for _, c := range seen {
		require.Equal(t, 1, c)
	}

	health, err := box.Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, "first", health[0].Provider)
	require.Equal(t, 1, health[0].Country)
	require.Positive(t, health[0].Failed)
	require.Positive(t, health[0].P95)

	well.Store(true)
	_, err = pool.Exec(t.Context(), `update "`+schema+`".gate set probe_at = now()`) // instead of waiting for it
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		enqueueMany(t, box, many(1, nil))
		return !gatesOf(t, box)[0].Closed
	}, 40*time.Second, 200*time.Millisecond)
}

// Accepted and never delivered: a carrier that is dead shows by the receipts
// that don't come.
func TestSlowDeliveryIsUnhealthy(t *testing.T) {
	box, pool, schema := newBox(t, route("first", "second"))
	first := &outboxtest.Provider{Promise: dispatch.Contract{Name: "first", Timeout: 2 * time.Second, Echo: dispatch.Echo{Reference: true, Grace: time.Hour}}}
	second := &outboxtest.Provider{Promise: dispatch.Contract{Name: "second", Timeout: 2 * time.Second}}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{first, second}, Health: outbox.Thresholds{Delivery: time.Second}})
	intents := many(60, nil)
	enqueueMany(t, box, intents)
	require.Eventually(t, func() bool { return count(t, pool, schema, "queue") == 0 }, 10*time.Second, 10*time.Millisecond)
	for _, i := range intents[:20] { // a third arrives
		r := receipt(i.Key, "", dispatch.Delivered)
		r.Provider = "first"
		require.NoError(t, box.Receive(t.Context(), []dispatch.Receipt{r, r}))
	}
	require.Eventually(t, func() bool {
		h, err := box.Health(t.Context())
		require.NoError(t, err)
		return len(h) == 1 && h[0].Accepted == 60 && h[0].DeliveredFast == 20
	}, 20*time.Second, 50*time.Millisecond)
	_, err := pool.Exec(t.Context(), `update "`+schema+`".health set slot = slot - interval '30 s'`) // instead of waiting for it
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		g := gatesOf(t, box)
		return len(g) == 1 && g[0].Reason == "health" && g[0].Why == "delivers too slowly"
	}, 20*time.Second, 50*time.Millisecond)
}

// With no other provider, or with all unhealthy, health holds nobody.
func TestHealthHoldsNobodyWithoutASibling(t *testing.T) {
	box, pool, schema := newBox(t)
	var n atomic.Int64
	p := &outboxtest.Provider{Promise: dispatch.Contract{Timeout: 2 * time.Second}}
	p.Respond = func(_ context.Context, _ dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		if n.Add(1)%4 == 0 {
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseDial})
		}
		return accept(), nil
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	for range 3 {
		enqueueMany(t, box, many(60, nil))
		require.Eventually(t, func() bool { return count(t, pool, schema, "queue") == 0 }, 20*time.Second, 10*time.Millisecond)
	}
	for _, g := range gatesOf(t, box) {
		require.NotEqual(t, "health", g.Reason)
	}
}

// Thresholds that say nothing are refused.
func TestThresholdsAreChecked(t *testing.T) {
	box, _, _ := newBox(t)
	p := &outboxtest.Provider{}
	for _, h := range []outbox.Thresholds{{Window: -1}, {FailedShare: 2}, {MinCalls: -1}, {Delivery: -1}} {
		_, err := outbox.NewWorker(box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Health: h})
		require.ErrorContains(t, err, "threshold")
	}
	for _, l := range []outbox.Limit{{PerSecond: -1}, {PerSecond: 1e-9}, {PerSecond: 1e9}, {Burst: -1}, {Concurrent: -1}} {
		_, err := outbox.NewWorker(box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Limits: map[string]outbox.Limit{"test": l}})
		require.ErrorContains(t, err, "limit of")
	}
	_, err := outbox.NewWorker(box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Limits: map[string]outbox.Limit{"other": {}}})
	require.ErrorContains(t, err, "not bound")
}

// Every provider of a route is held, one of them for its health only, so that
// it is called all the same. Once that route has nothing to send, it must not
// keep the claimer busy: the other routes' messages would never be looked at.
func TestALastResortWithoutWorkStarvesNobody(t *testing.T) {
	box, pool, schema := newBox(t, route("first", "second"), dispatch.Route{Name: "other", Providers: []string{"third"}, Policy: quick()})
	_, err := pool.Exec(t.Context(), `insert into "`+schema+`".gate (provider, reason, probe_at) values
		('first', 2, now() + interval '1 hour'), ('second', 3, now() + interval '1 hour')`)
	require.NoError(t, err)
	var providers []dispatch.Provider
	for _, name := range []string{"first", "second", "third"} {
		providers = append(providers, &outboxtest.Provider{Promise: dispatch.Contract{Name: name, Timeout: 2 * time.Second}})
	}
	start(t, box, outbox.WorkerConfig{Providers: providers})
	forced := sms("by the last resort")
	forced.Route = "sms"
	enqueue(t, box, forced)
	require.Equal(t, "first", reaches(t, box, forced.Key, dispatch.Sent).Events[0].Provider)

	other := sms("by a provider that is well")
	other.Route = "other"
	enqueue(t, box, other)
	reaches(t, box, other.Key, dispatch.Sent)
}
