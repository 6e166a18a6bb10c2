package outbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
	"github.com/seed-8098fbb7/dispatch/internal/form"
)

// shelf is a store with some rows to claim once. What the worker's goroutines
// do with time is what is tested here; the real store has its own tests.
type shelf struct {
	mu      sync.Mutex
	rows    int
	claim   func() // runs in each claim
	refuse  error  // of each claim
	fail    int    // how many Apply fail
	applied []engine.Change
	at      []time.Time // of every Apply
}

func (s *shelf) Lanes(context.Context) ([]string, error) { return nil, nil }

func (s *shelf) Peek(_ context.Context, probes []engine.Probe) (engine.Sight, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sight := engine.Sight{First: make([]engine.Cursor, len(probes)), Next: -1, Now: time.Now()}
	if s.rows > 0 {
		sight.First[0].Due = sight.Now
	}
	return sight, nil
}

func (s *shelf) Claim(_ context.Context, c engine.Claim) ([]engine.Task, error) {
	if s.refuse != nil {
		return nil, s.refuse
	}
	s.mu.Lock()
	n := min(s.rows, c.Limit)
	s.rows -= n
	s.mu.Unlock()
	if n > 0 && s.claim != nil {
		s.claim()
	}
	tasks := make([]engine.Task, n)
	for i := range tasks {
		tasks[i] = engine.Task{
			Row: decide.Row{
				Key: dispatch.NewKey(), Lane: c.Lane, State: dispatch.Sending, Fence: 1, Spent: 1, Budget: 8, Now: time.Now(), Claimed: time.Now(),
				Lease: time.Now().Add(c.Lease), Provider: c.Provider, Account: c.Account,
			},
			Form: form.Encode(dispatch.SMS{To: "+15555550123", Body: "hello"}),
		}
	}
	return tasks, nil
}

func (s *shelf) Unclaim(context.Context, [16]byte) (int, error) { return 0, nil }

func (s *shelf) Apply(_ context.Context, changes []engine.Change) ([]engine.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Now())
	if s.fail > 0 {
		s.fail--
		return nil, errors.New("connection is gone")
	}
	s.applied = append(s.applied, slices.Clone(changes)...)
	return slices.Repeat([]engine.Result{{Status: engine.Applied}}, len(changes)), nil
}

func (s *shelf) Edit(context.Context, dispatch.Key, int64, func(engine.View) (engine.Edit, error)) error {
	return nil
}

func (s *shelf) Page(context.Context, string, engine.Cursor, int) ([]engine.Task, engine.Cursor, bool, error) {
	return nil, engine.Cursor{}, false, nil
}

func (s *shelf) Load(_ context.Context, t engine.Task) (engine.Task, error) { return t, nil }

// vendor accepts what respond returns nil for.
type vendor struct {
	dispatch.NoLookup

	timeout time.Duration
	respond func(ctx context.Context) error
	sends   atomic.Int64
}

func (v *vendor) Contract() dispatch.Contract {
	return dispatch.Contract{Name: "test", Account: "account", Timeout: v.timeout}
}

func (v *vendor) Send(ctx context.Context, _ dispatch.Envelope) (dispatch.Accepted, error) {
	v.sends.Add(1)
	if v.respond == nil {
		return dispatch.Accepted{ID: "1"}, nil
	}
	return dispatch.Accepted{ID: "1"}, v.respond(ctx)
}

// drain runs a worker on the shelf, ends its context after a while, and
// returns how long Run took in all.
func drain(t *testing.T, s *shelf, p dispatch.Provider, limit, after time.Duration, ctx context.Context, stop func()) time.Duration { //nolint:revive // the test's context comes with what ends it
	t.Helper()
	w := newDrained(t, s, p, limit)
	began := time.Now()
	time.AfterFunc(after, stop)
	r := run{Worker: w}
	require.NoError(t, r.run(ctx))
	return time.Since(began)
}

// newDrained is a worker on any store.
func newDrained(t *testing.T, s engine.Store, p dispatch.Provider, limit time.Duration) *Worker {
	t.Helper()
	box, err := New(nil, Config{Routes: []dispatch.Route{{Name: "sms", Providers: []string{"test"}}}})
	require.NoError(t, err)
	e, err := engine.New(s, engine.Config{
		Routes: box.list, Providers: []dispatch.Provider{p}, Random: func(int64) int64 { return 0 }, Slots: 9,
	})
	require.NoError(t, err)
	return &Worker{
		box: box, engine: e, log: slog.Default(), slots: make(chan struct{}, 9), settles: make(chan engine.Change, 9),
		cfg: WorkerConfig{Slots: 9, PollInterval: time.Second, SweepInterval: time.Hour, DrainTimeout: limit},
	}
}

// Sends that are under way finish: Run returns in the tick in which the last
// of them does, and every outcome is written.
func TestDrainWaitsForSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{rows: 3}
		p := &vendor{respond: func(context.Context) error {
			<-time.After(3 * time.Second)
			return nil
		}}
		ctx, stop := context.WithCancel(t.Context())
		require.Equal(t, 3*time.Second, drain(t, s, p, time.Minute, time.Second, ctx, stop))
		require.Len(t, s.applied, 3)
		for _, c := range s.applied {
			require.Equal(t, dispatch.Sent, c.Move.To)
		}
	})
}

// DrainTimeout after the context's end what still runs is cut off, and unknown.
func TestDrainCutsOffInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{rows: 2}
		p := &vendor{respond: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		ctx, stop := context.WithCancel(t.Context())
		require.Equal(t, 7*time.Second, drain(t, s, p, 5*time.Second, 2*time.Second, ctx, stop))
		require.Len(t, s.applied, 2)
		for _, c := range s.applied {
			require.Equal(t, dispatch.InDoubt, c.Move.To)
		}
	})
}

// An attempt's own time-out fires to the tick, without any drain.
func TestAttemptTimeoutToTheTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{rows: 1}
		var took time.Duration
		p := &vendor{timeout: 4 * time.Second, respond: func(ctx context.Context) error {
			began := time.Now()
			<-ctx.Done()
			took = time.Since(began)
			return ctx.Err()
		}}
		ctx, stop := context.WithCancel(t.Context())
		drain(t, s, p, time.Minute, 10*time.Second, ctx, stop)
		require.Equal(t, 4*time.Second, took)
		require.Equal(t, 4*time.Second, s.applied[0].Record.Took)
		require.Equal(t, dispatch.Unknown, s.applied[0].Record.Verdict.Outcome)
	})
}

// What was claimed and not begun when the context ends goes back, uncounted.
func TestDrainHandsBackWhatWasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := &shelf{rows: 4, claim: stop} // the context ends while the claim's answer is on its way
		p := &vendor{}
		drain(t, s, p, time.Minute, time.Hour, ctx, stop)
		require.Zero(t, p.sends.Load())
		require.Len(t, s.applied, 4)
		for _, c := range s.applied {
			require.Equal(t, decide.RuleUnstarted, c.Move.Rule)
			require.Equal(t, 0, c.Move.Spent)
			require.Equal(t, engine.KindNone, c.Record.Kind)
		}
	})
}

// A claim whose answer was lost is looked after until DrainTimeout has passed,
// though its lease would be a minute. One that never reached the server, as
// while the database is away, keeps nobody waiting.
func TestDrainOfFailedClaims(t *testing.T) {
	_, away := pgconn.Connect(t.Context(), "host=/nowhere user=nobody database=none")
	require.Error(t, away)
	for name, c := range map[string]struct {
		err  error
		took time.Duration
	}{
		"answer lost": {errors.New("unexpected EOF"), 7 * time.Second},
		"away":        {away, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				require.Equal(t, c.took, drain(t, &shelf{rows: 1, refuse: c.err}, &vendor{}, 5*time.Second, 2*time.Second, ctx, stop))
			})
		})
	}
}

// flood is a lane that never runs dry, at a provider that takes it as fast as
// it comes, and later another one.
type flood struct {
	*shelf

	began  time.Time
	shown  time.Duration // when Peek sees the other one
	seen   time.Duration // when that was claimed from
	urgent decide.Lane
}

func (f *flood) Peek(_ context.Context, probes []engine.Probe) (engine.Sight, error) {
	sight := engine.Sight{First: make([]engine.Cursor, len(probes)), Next: -1, Now: time.Now()}
	for i, p := range probes {
		if p.Lane == "sms/3/" || p.Lane == f.urgent.String() && f.shown > 0 && time.Since(f.began) >= f.shown {
			sight.First[i].Due = sight.Now
		}
	}
	return sight, nil
}

func (f *flood) Claim(ctx context.Context, c engine.Claim) ([]engine.Task, error) {
	<-time.After(2 * time.Millisecond)
	if c.Lane == f.urgent {
		if f.seen == 0 {
			f.seen = time.Since(f.began)
		}
		return nil, nil
	}
	f.rows = c.Limit
	return f.shelf.Claim(ctx, c)
}

// A worker that is busy with a newsletter for as long as it lasts sees a login
// code all the same: by the bell of its own process at its next claim, and what
// another one has enqueued by a look around.
func TestBusyWorkerSeesOtherLanes(t *testing.T) {
	for name, c := range map[string]struct {
		bell bool
		want time.Duration // after a second, at most
	}{"of this process": {true, 4 * time.Millisecond}, "of another process": {false, claimInterval + 6*time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &flood{shelf: &shelf{}, began: time.Now(), urgent: decide.Lane{Route: "sms", Priority: dispatch.High}}
				w := newDrained(t, f, &vendor{}, time.Minute)
				ctx, stop := context.WithCancel(t.Context())
				time.AfterFunc(2*time.Second, stop)
				if c.bell {
					time.AfterFunc(time.Second+time.Millisecond, func() {
						w.box.wake.hint(f.urgent)
						w.box.wake.ring()
					})
				} else {
					f.shown = time.Second
				}
				r := run{Worker: w}
				require.NoError(t, r.run(ctx))
				require.Greater(t, f.seen, time.Second)
				require.LessOrEqual(t, f.seen, time.Second+time.Millisecond+c.want)
			})
		})
	}
}

// A settle that fails is repeated after 50 ms and half as long again each
// time; the send isn't.
func TestSettleBacksOffToTheTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{rows: 1, fail: 4}
		p := &vendor{}
		ctx, stop := context.WithCancel(t.Context())
		drain(t, s, p, time.Minute, 10*time.Second, ctx, stop)
		require.EqualValues(t, 1, p.sends.Load())
		require.Len(t, s.applied, 1)
		var waits []time.Duration
		for i := 1; i < len(s.at); i++ {
			waits = append(waits, s.at[i].Sub(s.at[i-1]))
		}
		require.Equal(t, []time.Duration{50 * time.Millisecond, 75 * time.Millisecond, 112500 * time.Microsecond, 168750 * time.Microsecond}, waits)
	})
}
