package outbox_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/leaks"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

type mark struct{}

// recorder is an observer that keeps what it is told.
type recorder struct {
	mu    sync.Mutex
	begun []outbox.Observation
	seen  []outbox.Observation
	marks []any
	with  func(ctx context.Context) context.Context
}

func (r *recorder) Begin(ctx context.Context, o outbox.Observation) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = append(r.begun, o)
	if r.with != nil {
		return r.with(ctx)
	}
	return context.WithValue(ctx, mark{}, o.Key)
}

func (r *recorder) Observe(ctx context.Context, o outbox.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen, r.marks = append(r.seen, o), append(r.marks, ctx.Value(mark{}))
}

// of are the observations of a message so far.
func (r *recorder) of(key dispatch.Key) (list []outbox.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.seen {
		if o.Key == key {
			list = append(list, o)
		}
	}
	return list
}

// told waits until the observer was told so many things of a message: it is
// told after they are written.
func (r *recorder) told(t *testing.T, key dispatch.Key, n int) []outbox.Observation {
	t.Helper()
	require.Eventually(t, func() bool { return len(r.of(key)) >= n }, 20*time.Second, 5*time.Millisecond)
	return r.of(key)
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestObserverIsToldOfEachAttemptAndItsOutcome(t *testing.T) {
	box, _, _ := newBox(t)
	rec := &recorder{}
	var got sync.Map // attempt → the value that Begin gave
	p := &outboxtest.Provider{Promise: dispatch.Contract{Search: dispatch.Search{Available: true}}}
	p.Respond = func(ctx context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		got.Store(e.Attempt, ctx.Value(mark{}))
		switch _, bounded := ctx.Deadline(); {
		case !bounded:
			return dispatch.Accepted{}, &dispatch.Fault{Verdict: dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Message}}
		case e.Attempt == 1:
			return dispatch.Accepted{}, &dispatch.Fault{
				Evidence: dispatch.Evidence{Stage: dispatch.Answered, Status: 429, Code: "slow_down"},
				Verdict:  dispatch.Verdict{Outcome: dispatch.Rejected, Reason: "rate limited"},
			}
		}
		accept()
		return dispatch.Accepted{}, context.DeadlineExceeded
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Observer: rec})
	i := sms("hello")
	i.TraceParent = parent
	before := time.Now()
	enqueue(t, box, i)
	reaches(t, box, i.Key, dispatch.Sent)
	seen := rec.told(t, i.Key, 3)
	require.Len(t, seen, 3, "%v", seen)
	for n, o := range seen {
		assert.Equal(t, "sms", o.Route)
		assert.Equal(t, "test", o.Provider)
		assert.EqualValues(t, n+1, o.Attempt)
		assert.Equal(t, parent, o.TraceParent)
		assert.False(t, o.Began.Before(before))
		assert.Positive(t, o.Took)
		assert.Equal(t, i.Key, rec.marks[n], "what Begin made comes back")
	}
	refused, lost, found := seen[0], seen[1], seen[2]
	assert.Equal(t, [...]any{"attempt", dispatch.Rejected, dispatch.Pending, 429, "slow_down", "rate limited"},
		[...]any{refused.Kind, refused.Outcome, refused.State, refused.Status, refused.Code, refused.Detail})
	assert.GreaterOrEqual(t, refused.Wait, time.Duration(0))
	assert.Equal(t, [...]any{"attempt", dispatch.Unknown, dispatch.InDoubt}, [...]any{lost.Kind, lost.Outcome, lost.State})
	assert.Equal(t, [...]any{"look-up", dispatch.OK, dispatch.Sent, time.Duration(-1)}, [...]any{found.Kind, found.Outcome, found.State, found.Wait})
	require.Len(t, rec.begun, 3)
	for attempt := 1; attempt <= 2; attempt++ {
		v, _ := got.Load(attempt)
		assert.Equal(t, i.Key, v, "the provider gets Begin's values")
	}
}

// A send belongs to its worker: whatever context an observer makes up, the send
// is neither cut off nor freed from its time-out.
func TestObserverCanNotTouchASend(t *testing.T) {
	ended, end := context.WithCancel(context.WithValue(context.Background(), mark{}, "mine"))
	end()
	for name, with := range map[string]func(context.Context) context.Context{
		"ended":    func(context.Context) context.Context { return ended },
		"nil":      func(context.Context) context.Context { return nil },
		"endless":  func(context.Context) context.Context { return context.Background() },
		"panicked": func(context.Context) context.Context { panic("mine") },
	} {
		t.Run(name, func(t *testing.T) {
			box, _, _ := newBox(t)
			p := &outboxtest.Provider{}
			p.Respond = func(ctx context.Context, _ dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
				_, bounded := ctx.Deadline()
				assert.True(t, bounded)
				require.NoError(t, ctx.Err())
				if name == "ended" {
					assert.Equal(t, "mine", ctx.Value(mark{}))
				}
				return accept(), nil
			}
			rec := &recorder{with: with}
			start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Observer: rec})
			i := sms("hello")
			enqueue(t, box, i)
			reaches(t, box, i.Key, dispatch.Sent)
			rec.told(t, i.Key, 1)
		})
	}
}

type bomb struct{}

func (bomb) Begin(context.Context, outbox.Observation) context.Context { panic("+15555550123") }
func (bomb) Observe(context.Context, outbox.Observation)               { panic("+15555550123") }

func TestObserverThatPanicsHarmsNothingAndIsSaidOnce(t *testing.T) {
	box, _, _ := newBox(t)
	var mu sync.Mutex
	var text bytes.Buffer
	stop := start(t, box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{&outboxtest.Provider{}}, Observer: bomb{}, Logger: leaks.Suite.Logger(slog.NewTextHandler(&locked{mu: &mu, to: &text}, nil)),
	})
	for range 3 {
		i := sms("hello")
		enqueue(t, box, i)
		h := reaches(t, box, i.Key, dispatch.Sent)
		require.Equal(t, 1, h.Attempts)
	}
	require.NoError(t, stop())
	assert.Equal(t, 1, bytes.Count(text.Bytes(), []byte("observer panicked")), text.String())
	assert.NotContains(t, text.String(), "5555550123")
}

func TestObserverHearsThatTheDatabaseIsAway(t *testing.T) {
	box, pool, schema := newBox(t)
	rec := &recorder{}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{&outboxtest.Provider{}}, Observer: rec})
	_, err := pool.Exec(t.Context(), `alter table "`+schema+`".queue rename to hidden`)
	require.NoError(t, err)
	for _, what := range []string{"claim", "maintenance"} {
		require.Eventually(t, func() bool {
			for _, o := range rec.of(dispatch.Key{}) {
				if o.Kind == "error" && o.Detail == what {
					return true
				}
			}
			return false
		}, 20*time.Second, 5*time.Millisecond, what)
	}
	_, err = pool.Exec(t.Context(), `alter table "`+schema+`".hidden rename to queue`)
	require.NoError(t, err)
}

// Each attempt is a line, as loud as what it means for a person.
func TestLogLevels(t *testing.T) {
	box, _, _ := newBox(t)
	var mu sync.Mutex
	var text bytes.Buffer
	p := &outboxtest.Provider{Respond: func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		body := e.Content.(dispatch.SMS).Body
		switch {
		case body == "refused":
			return dispatch.Accepted{}, &dispatch.Fault{
				Evidence: dispatch.Evidence{Stage: dispatch.Answered, Status: 400, Code: "15555550123", Reason: "no such number 15555550123"},
				Verdict:  dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Message, Reason: "refused"},
			}
		case body == "code 4829":
			return dispatch.Accepted{}, &dispatch.Fault{
				Evidence: dispatch.Evidence{Stage: dispatch.Answered, Status: 400, Code: "4829"},
				Verdict:  dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Message, Reason: "refused"},
			}
		case body == "lost":
			return dispatch.Accepted{}, context.DeadlineExceeded
		case e.Attempt == 1:
			return dispatch.Accepted{}, &dispatch.Fault{Verdict: dispatch.Verdict{Outcome: dispatch.Rejected, Reason: "not now"}}
		}
		return accept(), nil
	}}
	log := leaks.Suite.Logger(slog.NewTextHandler(&locked{mu: &mu, to: &text}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	stop := start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Logger: log})
	again, refused, lost, quoted := sms("once more"), sms("refused"), sms("lost"), sms("code 4829")
	enqueue(t, box, again, refused, lost, quoted)
	require.Empty(t, reaches(t, box, quoted.Key, dispatch.Dead).Events[0].Code, "it is the text's, not the vendor's")
	reaches(t, box, again.Key, dispatch.Sent)
	reaches(t, box, refused.Key, dispatch.Dead)
	reaches(t, box, lost.Key, dispatch.Held)
	require.NoError(t, stop())
	for _, want := range []string{
		`level=INFO msg="attempt not accepted" key=` + again.Key.String() + ` attempt=1 route=sms provider=test outcome=rejected scope=moment reason="not now" status=0 code="" state=pending`,
		`level=DEBUG msg="message accepted" key=` + again.Key.String() + ` attempt=2 route=sms provider=test outcome=ok`,
		`level=WARN msg="message parked" key=` + refused.Key.String() + ` attempt=1 route=sms provider=test outcome=rejected scope=message reason=refused status=400 code="" state=dead why=rejected`,
		`level=WARN msg="attempt may have been accepted" key=` + lost.Key.String() + ` attempt=1 route=sms provider=test outcome=unknown`,
	} {
		assert.Contains(t, text.String(), want)
	}
	assert.NotContains(t, text.String(), "5555550123")
}

// locked is a writer for several goroutines.
type locked struct {
	mu *sync.Mutex
	to *bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}
