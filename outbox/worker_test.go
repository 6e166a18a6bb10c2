package outbox_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

func deduping(timeout time.Duration) dispatch.Contract {
	return dispatch.Contract{Timeout: timeout, Dedupe: dispatch.Dedupe{Window: 24 * time.Hour}}
}

func many(n int, change func(n int, i *dispatch.Intent)) []dispatch.Intent {
	out := make([]dispatch.Intent, n)
	for k := range out {
		out[k] = sms(fmt.Sprintf("message %d", k))
		if change != nil {
			change(k, &out[k])
		}
	}
	return out
}

func enqueueMany(t *testing.T, box *outbox.Box, intents []dispatch.Intent) {
	t.Helper()
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := box.EnqueueMany(t.Context(), tx, intents)
		return err
	}))
}

// count returns how many messages are in motion or parked.
func count(t *testing.T, pool *pgxpool.Pool, schema, table string) int {
	t.Helper()
	var n int
	require.NoError(t, pool.QueryRow(context.WithoutCancel(t.Context()), `select count(*) from "`+schema+`".`+table).Scan(&n))
	return n
}

// Two workers, 5,000 messages, a fault on every third call: every message is
// final, delivered once, within its budget, before its deadline, and never
// below the floor that a 429 named.
func TestTwoWorkersFaultsOnEveryThirdCall(t *testing.T) {
	box, pool, schema := newBox(t, func() dispatch.Route {
		r := route()
		r.Policy.Attempts = 20
		return r
	}())
	const n, floor = 5000, 150 * time.Millisecond
	var calls atomic.Int64
	var mu sync.Mutex
	floors := map[dispatch.Key]time.Time{}
	var below, late atomic.Int64
	respond := func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		now := time.Now()
		mu.Lock()
		if now.Before(floors[e.Key]) {
			below.Add(1)
		}
		mu.Unlock()
		// The last check before a send and this line are a moment apart.
		if !e.Deadline.IsZero() && now.After(e.Deadline.Add(100*time.Millisecond)) {
			late.Add(1)
		}
		c := calls.Add(1)
		if c%3 != 0 {
			return accept(), nil
		}
		switch c / 3 % 6 {
		case 0: // the answer is lost
			accept()
			return dispatch.Accepted{}, context.DeadlineExceeded
		case 1: // B104
			accept()
			panic("adapter broke after it had sent to " + e.Content.(dispatch.SMS).To)
		case 2: // taken, and a gateway says 503
			accept()
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.Answered, Status: 503})
		case 3:
			if c%360 != 27 { // each one holds the provider for all
				return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.Answered, Status: 408})
			}
			mu.Lock()
			floors[e.Key] = time.Now().Add(floor)
			mu.Unlock()
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.Answered, Status: 429, RetryAfter: floor})
		case 4:
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseDial})
		default: // nil error, no id
			accept()
			return dispatch.Accepted{}, nil
		}
	}
	p := &outboxtest.Provider{Promise: deduping(5 * time.Second), Respond: respond}
	intents := many(n, func(k int, i *dispatch.Intent) {
		switch k % 50 {
		case 0: // worthless at once
			i.ValidFor = time.Millisecond
		case 1:
			i.NotBefore = time.Now().Add(300 * time.Millisecond)
		}
	})
	enqueueMany(t, box, intents)
	for range 2 {
		start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	}
	require.Eventually(t, func() bool { return count(t, pool, schema, "queue") == 0 }, 90*time.Second, 20*time.Millisecond)

	require.Zero(t, below.Load(), "sends below a floor")
	require.Zero(t, late.Load(), "sends past a deadline")
	taken := map[dispatch.Key]int{}
	for _, e := range p.Accepted() {
		taken[e.Key]++
	}
	sends := map[dispatch.Key]int{}
	for _, e := range p.Sends() {
		sends[e.Key]++
	}
	var expired, sent int
	for k, i := range intents {
		h, err := box.History(t.Context(), i.Key)
		require.NoError(t, err)
		require.LessOrEqual(t, sends[i.Key], 20, "budget")
		require.Equal(t, sends[i.Key], h.Attempts, "one evidence row per send\n%s", h)
		if h.State == dispatch.Dead {
			require.Equal(t, dispatch.ReasonDeadline, h.Reason, h.String())
			require.Zero(t, k%50, "only those that were worthless at once may expire")
			require.Zero(t, taken[i.Key])
			expired++
			continue
		}
		require.Equal(t, dispatch.Sent, h.State, h.String())
		require.Equal(t, 1, taken[i.Key], h.String())
		if k%50 == 1 {
			require.False(t, p.SendsOf(i.Key)[0].Before(i.NotBefore), "sent before NotBefore")
		}
		sent++
	}
	require.Equal(t, n, sent+expired)
	require.Positive(t, expired)
	t.Logf("%d calls, %d sent, %d expired", calls.Load(), sent, expired)
}

// fault is one of a vendor that quotes what it was sent.
func fault(e dispatch.Evidence) error {
	e.Reason += " +15555550123: hello"
	return &dispatch.Fault{Evidence: e, Verdict: dispatch.Classify(e)}
}

// Shutdown in the middle of sends: what is under way finishes and is written,
// what was not begun goes back uncounted, and no goroutine is left.
func TestShutdownInTheMiddleOfSends(t *testing.T) {
	box, pool, schema := newBox(t)
	before := runtime.NumGoroutine()
	entered := make(chan struct{}, 1000)
	release := make(chan struct{})
	p := &outboxtest.Provider{Promise: deduping(10 * time.Second)}
	p.Respond = func(_ context.Context, _ dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		entered <- struct{}{}
		<-release
		return accept(), nil
	}
	intents := many(200, nil)
	enqueueMany(t, box, intents)
	stop := start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Slots: 50})
	for range 45 { // a tenth of the slots is kept for High
		waitFor(t, entered)
	}
	time.AfterFunc(100*time.Millisecond, func() { close(release) })
	require.NoError(t, stop())

	taken := len(p.Accepted())
	require.GreaterOrEqual(t, taken, 45)
	require.Equal(t, 200-taken, count(t, pool, schema, "queue"), "every outcome is written")
	var touched int
	require.NoError(t, pool.QueryRow(t.Context(), `select count(*) from "`+schema+`".queue where spent > 0 or state <> 1 or lease is not null`).Scan(&touched))
	require.Zero(t, touched, "what was not begun went back uncounted")
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 5*time.Second, 10*time.Millisecond,
		"goroutines: %d before, %d after", before, runtime.NumGoroutine())

	// The rest goes out once, by another worker.
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	require.Eventually(t, func() bool { return count(t, pool, schema, "queue") == 0 }, 20*time.Second, 10*time.Millisecond)
	for _, i := range intents {
		require.Equal(t, 1, p.Deliveries(i.Key))
	}
}

// A send that outlasts DrainTimeout is cut off and becomes unknown; nothing is
// taken for a failure.
func TestDrainTimeoutMakesUnknown(t *testing.T) {
	box, _, _ := newBox(t)
	entered := make(chan struct{}, 10)
	p := &outboxtest.Provider{Promise: deduping(time.Minute)}
	p.Respond = func(ctx context.Context, _ dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		accept()
		entered <- struct{}{}
		<-ctx.Done()
		return dispatch.Accepted{}, ctx.Err()
	}
	i := sms("hello")
	enqueue(t, box, i)
	stop := start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, DrainTimeout: 50 * time.Millisecond})
	waitFor(t, entered)
	require.NoError(t, stop())
	h, err := box.History(t.Context(), i.Key)
	require.NoError(t, err)
	require.Equal(t, dispatch.InDoubt, h.State)
	require.Equal(t, 1, h.Attempts)
}

// B105, peers#6: rows that can't be decoded, and rows that always fail, keep
// nobody waiting.
func TestBadRowsDontBlockTheRest(t *testing.T) {
	box, pool, schema := newBox(t)
	bad := many(20, nil)
	enqueueMany(t, box, bad)
	_, err := pool.Exec(t.Context(), `alter table "`+schema+`".message disable trigger message_frozen;
		update "`+schema+`".message set content = '\x6302ff';
		alter table "`+schema+`".message enable trigger message_frozen`, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	p := &outboxtest.Provider{Promise: deduping(time.Second)}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Slots: 5})
	good := many(50, nil)
	enqueueMany(t, box, good)
	require.Eventually(t, func() bool { return len(p.Accepted()) == 50 }, 20*time.Second, 10*time.Millisecond)
	h, err := box.History(t.Context(), bad[0].Key)
	require.NoError(t, err)
	require.Equal(t, dispatch.Pending, h.State, "left alone for a release that can read it")
	require.Zero(t, h.Spent)
}

// B120: no transaction and no connection is held during a call.
func TestPoolOfTwoServesManySlots(t *testing.T) {
	box, pool, schema := newBox(t)
	cfg := pool.Config()
	cfg.MaxConns = 2
	small, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(small.Close)
	tight, err := outbox.New(small, outbox.Config{Schema: schema, Routes: []dispatch.Route{route()}})
	require.NoError(t, err)
	p := &outboxtest.Provider{Promise: deduping(5 * time.Second)}
	p.Respond = func(ctx context.Context, _ dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		var open int
		if err := small.QueryRow(ctx, `select count(*) from pg_stat_activity where state like 'idle in transaction%' and application_name = 'dispatch-tight'`).Scan(&open); err != nil {
			return dispatch.Accepted{}, err
		}
		if open > 0 {
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.Answered, Status: 400})
		}
		return accept(), nil
	}
	enqueueMany(t, box, many(100, nil))
	start(t, tight, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Slots: 40})
	require.Eventually(t, func() bool { return count(t, pool, schema, "queue") == 0 }, 30*time.Second, 10*time.Millisecond)
	require.Len(t, p.Accepted(), 100)
	require.Zero(t, count(t, pool, schema, "parked"))
}

func TestWorkerRefusesWhatCannotWork(t *testing.T) {
	box, _, _ := newBox(t)
	good := &outboxtest.Provider{Promise: deduping(time.Second)}
	for name, cfg := range map[string]outbox.WorkerConfig{
		"has no providers":                   {},
		`"other" is on no route (sms: test)`: {Providers: []dispatch.Provider{&outboxtest.Provider{Promise: dispatch.Contract{Name: "other"}}}},
		"stands twice":                       {Providers: []dispatch.Provider{good, good}},
		"too short":                          {Providers: []dispatch.Provider{good}, Lease: time.Second}, // B036
		"a provider is nil":                  {Providers: []dispatch.Provider{nil}},
		"slots":                              {Providers: []dispatch.Provider{good}, Slots: -1},
		"below 1 ms":                         {Providers: []dispatch.Provider{good}, PollInterval: 1},
		"negative":                           {Providers: []dispatch.Provider{good}, Lease: -1},
		"want 0 to 1h":                       {Providers: []dispatch.Provider{&outboxtest.Provider{Promise: dispatch.Contract{Timeout: 2 * time.Hour}}}},
	} {
		_, err := outbox.NewWorker(box, cfg)
		require.ErrorContains(t, err, name, name)
	}
	w, err := outbox.NewWorker(box, outbox.WorkerConfig{Providers: []dispatch.Provider{good}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, w.Run(ctx), "a worker whose context has ended drains at once")
}

// Failover: the next provider only after proof, and never on an unknown.
func TestFailoverOnlyAfterProof(t *testing.T) {
	r := route("first", "second")
	box, _, _ := newBox(t, r)
	first := &outboxtest.Provider{Promise: dispatch.Contract{Name: "first", Timeout: time.Second}}
	second := &outboxtest.Provider{Promise: dispatch.Contract{Name: "second", Timeout: time.Second}}
	first.Respond = func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		switch e.Content.(dispatch.SMS).Body {
		case "refused":
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.Answered, Status: 429, RetryAfter: time.Hour})
		case "account":
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.Answered, Status: 401})
		case "bad":
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.Answered, Status: 400})
		}
		accept()
		return dispatch.Accepted{}, context.DeadlineExceeded
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{first, second}})
	refused, lost, bad := sms("refused"), sms("lost"), sms("bad")
	enqueue(t, box, refused, lost, bad)
	require.Equal(t, 2, reaches(t, box, refused.Key, dispatch.Sent).Attempts)
	require.Equal(t, 1, second.Deliveries(refused.Key))
	reaches(t, box, lost.Key, dispatch.Held)
	require.Zero(t, second.Deliveries(lost.Key), "a time-out is no reason to send elsewhere")
	reaches(t, box, bad.Key, dispatch.Dead) // B140
	require.Zero(t, second.Deliveries(bad.Key))
}
