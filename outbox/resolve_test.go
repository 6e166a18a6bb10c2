package outbox_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

// losing takes every message and loses the answer of 30 % of the calls.
func losing(seed uint64) func(providertest.Call) providertest.Fault {
	random := rand.New(rand.NewPCG(seed, 1))
	return func(providertest.Call) providertest.Fault {
		if random.IntN(100) < 30 {
			return providertest.Fault{Wire: providertest.Drop}
		}
		return providertest.Fault{}
	}
}

// killAtRandom keeps two worker processes running and kills one of them every
// now and then, until done says so.
func killAtRandom(t *testing.T, schema, url, means string, done func() bool) (kills int) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, 7))
	var kill [2]func()
	for n := range kill {
		kill[n], _ = spawn(t, schema, url, envMeans+"="+means)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	next, deadline := time.Now().Add(300*time.Millisecond), time.Now().Add(100*time.Second)
	for !done() {
		require.True(t, time.Now().Before(deadline), "not done in time, after %d kills", kills)
		<-tick.C
		if kills < 8 && time.Now().After(next) {
			n := random.IntN(2)
			kill[n]()
			kill[n], _ = spawn(t, schema, url, envMeans+"="+means)
			kills++
			next = time.Now().Add(time.Duration(200+random.IntN(500)) * time.Millisecond)
		}
	}
	return kills
}

// A provider that can only be looked up: 2,000 messages, answers lost on 30 %
// of the calls, workers killed at random. Each is delivered once and ends as
// sent.
func TestLookupOnlyProviderDeliversOnce(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	v := vendor(t, providertest.Options{Lag: vendorLag, Fault: losing(1)})
	intents := many(2000, nil)
	enqueueMany(t, box, intents)
	kills := killAtRandom(t, schema, v.URL, "look-up", func() bool { return count(t, pool, schema, "queue") == 0 })
	require.Zero(t, count(t, pool, schema, "parked"))
	for _, i := range intents {
		require.Equal(t, 1, v.Deliveries(i.Key.String()), "%s", stateOf(t, box, i.Key))
		require.Equal(t, dispatch.Sent, stateOf(t, box, i.Key).State)
	}
	require.GreaterOrEqual(t, kills, 3)
	t.Logf("%d kills, %d calls", kills, len(v.AllCalls()))
}

// A provider with no means to know: every key is delivered at most once, and
// what is uncertain is held, visible and counted; none is dead.
func TestProviderWithoutMeansIsNeverRepeated(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	v := vendor(t, providertest.Options{Fault: losing(2)})
	intents := many(2000, nil)
	enqueueMany(t, box, intents)
	kills := killAtRandom(t, schema, v.URL, "nothing", func() bool { return count(t, pool, schema, "queue") == 0 })
	states := map[dispatch.State]int{}
	for _, i := range intents {
		h := stateOf(t, box, i.Key)
		states[h.State]++
		require.LessOrEqual(t, v.Deliveries(i.Key.String()), 1, "%s", h)
		if h.State == dispatch.Sent {
			require.Equal(t, 1, v.Deliveries(i.Key.String()))
		} else {
			require.Equal(t, dispatch.Held, h.State, "%s", h)
			require.Equal(t, dispatch.ReasonUnresolved, h.Reason)
		}
	}
	require.Equal(t, 2000, states[dispatch.Sent]+states[dispatch.Held])
	require.Greater(t, states[dispatch.Held], 400)
	require.Equal(t, states[dispatch.Held], count(t, pool, schema, "parked"))
	require.GreaterOrEqual(t, kills, 3)
	t.Logf("%d kills, %d held", kills, states[dispatch.Held])
}

// A look-up that says "absent" before the lag is over leads to no send: the
// provider doesn't show the message yet.
func TestAbsentBeforeTheLagProvesNothing(t *testing.T) {
	t.Parallel()
	const lag = 12 * time.Second // two look-ups fall before it, one behind
	box, _, _ := newBox(t)
	v := vendor(t, providertest.Options{Lag: lag, Fault: providertest.Script(providertest.Fault{Wire: providertest.Drop})})
	p, err := stub("test", v.URL, "look-up")
	require.NoError(t, err)
	t.Cleanup(p.Close)
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{longLag{p, lag}}})
	i := sms("hello")
	enqueue(t, box, i)
	h := reaches(t, box, i.Key, dispatch.Sent)
	require.Equal(t, 1, v.Deliveries(i.Key.String()))
	require.Equal(t, 1, h.Attempts, "%s", h)
	var absent int
	for _, e := range h.Events {
		if e.Kind == "look-up" && e.Detail == "absent" {
			absent++
		}
	}
	require.Positive(t, absent, "it was asked before the lag\n%s", h)
}

type longLag struct {
	dispatch.Provider
	lag time.Duration
}

func (p longLag) Contract() dispatch.Contract {
	c := p.Provider.Contract()
	c.Search.Lag = p.lag
	return c
}

// An unknown that is found 25 h later, at a provider that remembers 24 h, is
// not sent again; nor is one at another account (B144), nor one whose encoding
// changed.
func TestNoResendOutsideTheWindow(t *testing.T) {
	for name, change := range map[string]string{
		"25 h later":       `first_sent = first_sent - interval '25 h', ledger = jsonb_set(ledger, '{0,f}', to_jsonb(first_sent - interval '25 h'))`,
		"another account":  `account = 'old', ledger = jsonb_set(ledger, '{0,a}', '"old"')`,
		"another encoding": `encoding = 9, ledger = jsonb_set(ledger, '{0,e}', '9')`,
	} {
		t.Run(name, func(t *testing.T) {
			box, p, i, pool, schema := inState(t, dispatch.InDoubt)
			_, err := pool.Exec(t.Context(), `update "`+schema+`".queue set due = now(), resolve_until = now() + interval '1 second', `+change, pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
			sends := len(p.Sends())
			start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
			reaches(t, box, i.Key, dispatch.Held)
			require.Len(t, p.Sends(), sends)
		})
	}
}

// The bytes of a re-send differ from the attempt that may have been accepted:
// it is held before a byte leaves (rule 15).
func TestChangedBytesAreHeld(t *testing.T) {
	t.Parallel()
	box, _, _ := newBox(t)
	v := vendor(t, providertest.Options{Dedupe: time.Hour, Fault: providertest.Script(providertest.Fault{Wire: providertest.Drop})})
	p, err := stub("test", v.URL, "")
	require.NoError(t, err)
	t.Cleanup(p.Close)
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{rewording{p}}})
	i := sms("hello")
	enqueue(t, box, i)
	h := reaches(t, box, i.Key, dispatch.Held)
	require.Equal(t, dispatch.ReasonChanged, h.Reason)
	require.Equal(t, 15, h.Events[len(h.Events)-1].Rule, "%s", h)
	require.Equal(t, 1, h.Spent, "what was not sent doesn't count")
	require.Len(t, v.Calls(i.Key.String()), 1)
}

// rewording encodes each attempt in another way, and doesn't say so.
type rewording struct{ dispatch.Provider }

func (r rewording) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	c := e.Content.(dispatch.SMS)
	c.Body += string(rune('0' + e.Attempt))
	e.Content = c
	return r.Provider.Send(ctx, e)
}
