package outbox_test

import (
	"context"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

// The tests of a fleet play what happens to several worker processes and their
// vendors, and read it from the vendors' own logs. By default they are short;
// `make fleet` plays them at full length.
var full = os.Getenv("DISPATCH_FULL") != ""

func span(short, long time.Duration) time.Duration {
	if full {
		return long
	}
	return short
}

// patient keeps a busy machine from looking like a vendor that doesn't answer.
const patient = envWait + "=2s"

// spread makes messages that are due one after another during a time.
func spread(n int, during time.Duration) []dispatch.Intent {
	began := time.Now()
	return many(n, func(n2 int, i *dispatch.Intent) {
		i.NotBefore = began.Add(during * time.Duration(n2) / time.Duration(n))
	})
}

// The first provider refuses every call, in two processes: each code goes out
// through the second, once. It accepts and loses its answer: nothing goes to
// the second.
func TestFleetFailsOverOnProofOnly(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault providertest.Fault
		want  dispatch.State
		at    [2]int // deliveries by the first and by the second
	}{
		"errors":                {providertest.Fault{Refuse: true, Status: 429}, dispatch.Sent, [2]int{0, 1}},
		"time-out after accept": {providertest.Fault{Wire: providertest.Hang}, dispatch.Held, [2]int{1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box, _, schema := newBox(t, route("first", "second"))
			first := vendor(t, providertest.Options{Fault: func(providertest.Call) providertest.Fault { return tt.fault }})
			second := vendor(t, providertest.Options{})
			for range 2 {
				spawn(t, schema, first.URL+","+second.URL, envMeans+"=nothing")
			}
			// Fewer than would close the first's circuit: then codes go straight to
			// the second, which is right, but not what is asked here.
			intents := many(8, nil)
			enqueueMany(t, box, intents)
			for _, i := range intents {
				h := reaches(t, box, i.Key, tt.want)
				require.Equal(t, tt.at, [2]int{first.Deliveries(i.Key.String()), second.Deliveries(i.Key.String())}, "%s", h)
				require.LessOrEqual(t, len(second.Calls(i.Key.String())), 1)
			}
		})
	}
}

// Three processes, one provider, a 429 in one of them (B055), and a third with
// a handful of messages of its own: no call begins later than a claim interval
// after the gate's commit until the wait is over, and the fleet comes back step
// by step.
func TestFleetKeepsRetryAfter(t *testing.T) {
	wait := span(3*time.Second, 30*time.Second)
	header := map[bool]string{false: "3", true: "30"}[full]
	rare := route()
	rare.Name = "rare"
	box, pool, schema := newBox(t, route(), rare)
	var refused atomic.Pointer[time.Time]
	v := vendor(t, providertest.Options{Dedupe: time.Hour, Fault: func(c providertest.Call) providertest.Fault {
		if c.Total == 40 {
			now := time.Now()
			refused.Store(&now)
			return providertest.TooMany(header)
		}
		return providertest.Fault{Delay: 20 * time.Millisecond}
	}})
	spawn(t, schema, v.URL, patient)
	spawn(t, schema, v.URL, patient)
	spawn(t, schema, v.URL, patient, envRoute+"=rare")
	intents := spread(1200, wait+time.Second) // so that every process has work
	for n := range intents {
		intents[n].Route = "sms"
	}
	for _, i := range spread(10, wait+time.Second) {
		i.Route = "rare"
		intents = append(intents, i)
	}
	enqueueMany(t, box, intents)
	var at time.Time // the gate's commit; one machine, one clock
	require.Eventually(t, func() bool {
		g := gatesOf(t, box)
		if len(g) == 1 && g[0].Closed {
			at = g[0].Since
		}
		return !at.IsZero()
	}, 30*time.Second, 5*time.Millisecond)
	t.Logf("held %v after the answer", at.Sub(*refused.Load()))
	empty(t, box, wait+60*time.Second, func() int { return count(t, pool, schema, "queue") })
	// What had begun, and was claimed, before the commit was known everywhere may
	// still call: one interval, and a margin for this machine.
	const interval = time.Second
	var inside, early, after int
	var latest time.Duration
	for _, c := range v.AllCalls() {
		switch since := c.Time.Sub(at); {
		case since <= interval:
			latest = max(latest, since)
		case since < wait:
			inside++
		case since < wait+300*time.Millisecond:
			early++
		default:
			after++
		}
	}
	t.Logf("the last call came %v after the commit", latest)
	require.Zero(t, inside, "calls while the provider was held")
	require.Positive(t, after)
	require.Less(t, early, after/4, "it comes back step by step")
	require.Zero(t, count(t, pool, schema, "parked"))
	for _, i := range intents {
		require.Equal(t, 1, v.Deliveries(i.Key.String()))
	}
}

// 50 a second for three processes: the vendor measures 50 ± 5 %, and never more
// at once than the bucket holds.
func TestFleetSharesARate(t *testing.T) {
	const perSecond, burst = 50, 10
	box, pool, schema := newBox(t)
	v := vendor(t, providertest.Options{Dedupe: time.Hour})
	enqueueMany(t, box, many(burst+perSecond*int(span(10*time.Second, 20*time.Second).Seconds()), nil))
	for range 3 {
		spawn(t, schema, v.URL, patient, envRate+"=50")
	}
	empty(t, box, 90*time.Second, func() int { return count(t, pool, schema, "queue") })
	all := v.AllCalls()
	slices.SortFunc(all, func(a, b providertest.Call) int { return a.Time.Compare(b.Time) })
	rate := float64(len(all)-burst) / all[len(all)-1].Time.Sub(all[0].Time).Seconds()
	t.Logf("%d calls, %.1f a second", len(all), rate)
	require.InDelta(t, perSecond, rate, perSecond*0.05)
	late := 20 // calls that a busy machine has held up, to come at once with those after them
	if full {
		late = 5
	}
	for i := range all { // in any half second no more than the bucket and what flows in
		n := i
		for n < len(all) && all[n].Time.Sub(all[i].Time) < 500*time.Millisecond {
			n++
		}
		require.LessOrEqual(t, n-i, burst+perSecond/2+late)
	}
}

// One of three processes is killed at full rate: what the vendor was called
// for falls short of the rate by one block of tokens at most.
func TestFleetLosesOneBlockByACrash(t *testing.T) {
	const perSecond, burst, window = 50, 10, 8 * time.Second
	box, pool, schema := newBox(t)
	v := vendor(t, providertest.Options{Dedupe: time.Hour})
	enqueueMany(t, box, many(perSecond*14, nil))
	kill, _ := spawn(t, schema, v.URL, patient, envRate+"=50")
	spawn(t, schema, v.URL, patient, envRate+"=50")
	spawn(t, schema, v.URL, patient, envRate+"=50")
	require.Eventually(t, func() bool { return len(v.AllCalls()) > 2*perSecond }, 20*time.Second, time.Millisecond)
	kill()
	killed := time.Now()
	empty(t, box, 60*time.Second, func() int { return count(t, pool, schema, "queue") })
	calls := 0
	for _, c := range v.AllCalls() {
		if since := c.Time.Sub(killed); since > 0 && since < window {
			calls++
		}
	}
	t.Logf("%d calls in %v", calls, window)
	require.GreaterOrEqual(t, calls, int(window.Seconds())*perSecond*95/100-burst)
	require.LessOrEqual(t, calls, int(window.Seconds())*perSecond*105/100+burst, "a crash is no reason for a burst")
}

// An outage, with one provider and two processes: refused connections, and a
// storm of 503 at one that dedupes. Nothing is dead, nothing held, all is sent
// after it, each once, and the fleet comes back step by step.
func TestFleetSurvivesAnOutage(t *testing.T) { //nolint:tparallel // its two outages at once, but beside no other test
	for name, storm := range map[string]bool{"refused connections": false, "503 after accepting": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box, pool, schema := newBox(t)
			var over atomic.Bool
			o := providertest.Options{Addr: unused(t), Dedupe: time.Hour, Fault: func(providertest.Call) providertest.Fault {
				if storm && !over.Load() {
					return providertest.Fault{Status: 503} // taken all the same
				}
				return providertest.Fault{}
			}}
			var v *providertest.Vendor
			if storm {
				v = vendor(t, o)
			}
			for range 2 {
				spawn(t, schema, "http://"+o.Addr, patient)
			}
			outage := span(8*time.Second, 120*time.Second)
			intents := spread(600, outage)
			enqueueMany(t, box, intents)
			require.Eventually(t, func() bool {
				g := gatesOf(t, box)
				return len(g) == 1 && g[0].Reason == "circuit"
			}, 20*time.Second, 5*time.Millisecond)
			closed := time.Now()
			end := time.NewTimer(outage)
			defer end.Stop()
			<-end.C
			require.Equal(t, 600, count(t, pool, schema, "queue"), "nothing was sent, nothing parked")
			over.Store(true)
			back := time.Now()
			if !storm {
				v = vendor(t, o)
			}
			calls := 0
			for _, c := range v.AllCalls() { // what was under way as it closed is over by then
				if c.Time.After(closed.Add(2*time.Second)) && c.Time.Before(back) {
					calls++
				}
			}
			require.Less(t, calls, 50, "the circuit keeps the fleet from calling in vain")
			empty(t, box, 120*time.Second, func() int { return count(t, pool, schema, "queue") })
			require.Zero(t, count(t, pool, schema, "parked"))
			var first time.Time
			burst := 0
			for _, c := range v.AllCalls() {
				if c.Time.Before(back) {
					continue
				}
				if first.IsZero() {
					first = c.Time
				}
				if c.Time.Sub(first) < 500*time.Millisecond {
					burst++
				}
			}
			require.Less(t, burst, 100, "no thundering comeback")
			for _, i := range intents {
				require.Equal(t, 1, v.Deliveries(i.Key.String()))
			}
		})
	}
}

// unused is an address that nobody listens at.
func unused(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// A provider that flaps, with a healthy sibling: it is switched away from once,
// and not again within the hysteresis of a minute.
func TestFleetSwitchesOncePerHysteresis(t *testing.T) {
	half, during := span(500*time.Millisecond, 30*time.Second), span(6*time.Second, 4*time.Minute)
	box, pool, schema := newBox(t, route("first", "second"))
	first := &outboxtest.Provider{Promise: dispatch.Contract{Name: "first", Timeout: time.Second}}
	second := &outboxtest.Provider{Promise: dispatch.Contract{Name: "second", Timeout: time.Second}}
	began := time.Now()
	first.Respond = func(_ context.Context, _ dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		if time.Since(began)/half%2 == 1 {
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseDial})
		}
		return accept(), nil
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{first, second}})
	enqueueMany(t, box, spread(1500, during))
	var closings []time.Time
	require.Eventually(t, func() bool {
		for _, g := range gatesOf(t, box) {
			if g.Closed && !slices.Contains(closings, g.Since) {
				closings = append(closings, g.Since)
			}
		}
		return count(t, pool, schema, "queue") == 0
	}, during+40*time.Second, 20*time.Millisecond)
	require.NotEmpty(t, closings)
	for i, c := range closings[1:] {
		require.GreaterOrEqual(t, c.Sub(closings[i]), time.Minute)
	}
	require.Len(t, slices.Concat(first.Accepted(), second.Accepted()), 1500)
	require.Zero(t, count(t, pool, schema, "parked"))
}
