package outboxtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
	"github.com/seed-8098fbb7/dispatch/outbox/seal"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func config() outbox.Config {
	return outbox.Config{Routes: []dispatch.Route{{Name: "sms", Providers: []string{"test"}, Policy: dispatch.SMSPolicy()}}}
}

func text(body string) dispatch.Intent {
	return dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.SMS{To: "+15555550123", Body: body}, ValidFor: time.Minute}
}

func enqueue(t *testing.T, box *outboxtest.Box, intents ...dispatch.Intent) {
	t.Helper()
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := box.EnqueueMany(t.Context(), tx, intents)
		return err
	}))
}

// What a transaction has enqueued is what it shows, and nothing else: not what
// was committed before, nor what another one is about to commit. Savepoints
// count as their transaction does.
func TestEnqueued(t *testing.T) {
	t.Parallel()
	pool, _ := pgtest.Pool(t)
	ring, err := seal.NewKeyring(seal.Key{ID: "k1", Secret: make([]byte, 32)})
	require.NoError(t, err)
	for name, sealer := range map[string]outbox.Sealer{"plain": nil, "sealed": ring} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config()
			cfg.Seal = sealer
			box := outboxtest.New(t, pool, cfg)
			enqueue(t, box, text("committed"))
			other, err := pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = other.Rollback(context.WithoutCancel(t.Context())) }()
			_, err = box.Enqueue(t.Context(), other, text("another transaction's"))
			require.NoError(t, err)

			first, second, undone := text("first"), text("second"), text("undone")
			second.Template = dispatch.Template{Name: "welcome", Revision: "3"}
			second.Metadata = map[string]string{"user": "7"}
			second.Linked, second.NotBefore = first.Key, time.Now().Add(time.Second).Truncate(time.Microsecond)
			require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
				require.Empty(t, box.Enqueued(tx))
				_, err := box.Enqueue(t.Context(), tx, first)
				require.NoError(t, err)
				require.NoError(t, pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error { // a savepoint
					_, err := box.Enqueue(t.Context(), tx, second)
					return err
				}))
				rolledBack := errors.New("undone")
				require.ErrorIs(t, pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
					_, err := box.Enqueue(t.Context(), tx, undone)
					return errors.Join(err, rolledBack)
				}), rolledBack)

				got := box.Enqueued(tx)
				require.Len(t, got, 2)
				assert.Equal(t, first.Key, got[0].Key)
				assert.Equal(t, first.Content, got[0].Content)
				assert.Equal(t, "sms", got[0].Route)
				assert.WithinDuration(t, time.Now().Add(time.Minute), got[0].Deadline, 20*time.Second)
				assert.Equal(t, second.Template, got[1].Template)
				assert.Equal(t, second.Metadata, got[1].Metadata)
				assert.Equal(t, second.Linked, got[1].Linked)
				assert.True(t, second.NotBefore.Equal(got[1].NotBefore))
				return nil
			}))
		})
	}
}

func TestEnqueuedSQL(t *testing.T) {
	t.Parallel()
	pool, _ := pgtest.Pool(t)
	box := outboxtest.New(t, pool, config())
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{})
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	i := text("hello")
	_, err = box.EnqueueSQL(t.Context(), tx, i)
	require.NoError(t, err)
	got := box.EnqueuedSQL(tx)
	require.Len(t, got, 1)
	require.Equal(t, i.Content, got[0].Content)
	require.NoError(t, tx.Rollback())
}

// goroutinesOf counts the goroutines with the label that run the outbox's code.
func goroutinesOf(t *testing.T, label string) (n int) {
	t.Helper()
	var profile strings.Builder
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(stack, label) && strings.Contains(stack, "dispatch/outbox.(*") {
			n++
		}
	}
	return n
}

// Work comes back when all is done that can be: lost answers, refusals and
// retries of a real policy in a moment, what lies ahead untouched.
func TestWork(t *testing.T) {
	t.Parallel()
	pool, _ := pgtest.Pool(t)
	box := outboxtest.New(t, pool, config())
	ok, busy, lost, bad, later := text("ok"), text("busy"), text("lost"), text("bad"), text("later")
	ok.Notify = dispatch.NotifySent
	later.NotBefore = time.Now().Add(40 * time.Second)
	enqueue(t, box, ok, busy, lost, bad, later)
	p := &outboxtest.Provider{Promise: dispatch.Contract{Dedupe: dispatch.Dedupe{Window: time.Hour}}}
	p.Respond = func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		ev := dispatch.Evidence{Stage: dispatch.Answered, Status: 429, OwnBody: true}
		c, _ := e.Content.(dispatch.SMS)
		switch {
		case c.Body == "busy" && e.Attempt <= 5:
			return dispatch.Accepted{}, &dispatch.Fault{Evidence: ev, Verdict: dispatch.Classify(ev)}
		case c.Body == "bad":
			ev.Status = 400
			return dispatch.Accepted{}, &dispatch.Fault{Evidence: ev, Verdict: dispatch.Classify(ev)}
		case c.Body == "lost" && e.Attempt <= 2:
			accept()
			return dispatch.Accepted{}, context.DeadlineExceeded
		}
		return accept(), nil
	}
	var told []outbox.Notice
	// Goroutines inherit the labels of the one that starts them: what the worker
	// started is found among those of the tests that run beside this one.
	pprof.Do(t.Context(), pprof.Labels("worker", box.Schema), func(context.Context) {
		box.Work(outbox.WorkerConfig{
			Providers: []dispatch.Provider{p},
			Notices: func(_ context.Context, n outbox.Notice) error {
				told = append(told, n)
				require.Positive(t, goroutinesOf(t, box.Schema), "the worker runs")
				return nil
			},
		})
	})
	require.Len(t, told, 1)
	require.Zero(t, goroutinesOf(t, box.Schema), "none of the worker's is left")
	for key, want := range map[dispatch.Key]dispatch.State{
		ok.Key: dispatch.Sent, busy.Key: dispatch.Sent, lost.Key: dispatch.Sent, bad.Key: dispatch.Dead, later.Key: dispatch.Pending,
	} {
		h, err := box.History(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, want, h.State, h)
	}
	require.Equal(t, 1, p.Deliveries(lost.Key))
	require.Zero(t, p.Deliveries(later.Key))
	box.Work(outbox.WorkerConfig{Providers: []dispatch.Provider{p}}) // nothing to do
}

// A provider that asks for time is waited for by nobody.
func TestWorkLeavesWhatIsHeld(t *testing.T) {
	t.Parallel()
	pool, _ := pgtest.Pool(t)
	box := outboxtest.New(t, pool, config())
	one, two := text("one"), text("two")
	enqueue(t, box, one, two)
	p := &outboxtest.Provider{Respond: func(context.Context, dispatch.Envelope, func() dispatch.Accepted) (dispatch.Accepted, error) {
		ev := dispatch.Evidence{Stage: dispatch.Answered, Status: 429, OwnBody: true, RetryAfter: 30 * time.Second}
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: ev, Verdict: dispatch.Classify(ev)}
	}}
	box.Work(outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	require.NotEmpty(t, p.Sends())
	require.NoError(t, box.Pause(t.Context(), "test", outbox.Audit{By: "ada", Why: "a test"}))
	three := text("three")
	enqueue(t, box, three)
	box.Work(outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	h, err := box.History(t.Context(), three.Key)
	require.NoError(t, err)
	require.Equal(t, dispatch.Pending, h.State)
}

// spy is a testing.TB that remembers how a test was failed.
type spy struct {
	testing.TB

	failed chan string
}

func (s *spy) Helper() {}

func (s *spy) Fatal(args ...any) {
	s.failed <- strings.TrimSpace(fmt.Sprintln(args...))
	runtime.Goexit()
}

func (s *spy) Fatalf(format string, args ...any) {
	s.failed <- fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func failure(t *testing.T, f func(tb testing.TB)) string {
	t.Helper()
	s := &spy{TB: t, failed: make(chan string, 1)}
	go func() {
		defer close(s.failed)
		f(s)
	}()
	return <-s.failed
}

func TestFailsInWords(t *testing.T) {
	t.Parallel()
	pool, _ := pgtest.Pool(t)
	require.Contains(t, failure(t, func(tb testing.TB) {
		tb.Helper()
		outboxtest.New(tb, pool, outbox.Config{})
	}), "no routes")
	require.Contains(t, failure(t, func(tb testing.TB) {
		tb.Helper()
		outboxtest.New(tb, pool, config()).Work(outbox.WorkerConfig{})
	}), "no providers")
	require.Contains(t, failure(t, func(tb testing.TB) {
		tb.Helper()
		tx, err := pool.Begin(t.Context())
		assert.NoError(t, err)
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		box := outboxtest.New(tb, pool, config())
		_, err = tx.Exec(t.Context(), "drop table "+box.Schema+".message cascade")
		assert.NoError(t, err)
		box.Enqueued(tx)
	}), "does not exist")

	// Its only provider isn't bound: the other route's is.
	cfg := config()
	cfg.Routes = append(cfg.Routes, dispatch.Route{Name: "mail", Providers: []string{"mailer"}})
	i := text("stuck")
	i.Route = "mail"
	require.Contains(t, failure(t, func(tb testing.TB) {
		tb.Helper()
		box := outboxtest.New(tb, pool, cfg).Within(time.Second)
		enqueue(t, box, i)
		box.Work(outbox.WorkerConfig{Providers: []dispatch.Provider{&outboxtest.Provider{}}})
	}), "still in motion after 1s:\n"+i.Key.String()+" on route mail is pending")
}

// It takes the machine's own Postgres, and each call is a pool of its own.
func TestPostgres(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://nobody@192.0.2.1:1/none")
	var pool *pgxpool.Pool
	t.Run("one", func(t *testing.T) {
		pool = outboxtest.Postgres(t)
		box := outboxtest.New(t, pool, config())
		i := text("hello")
		enqueue(t, box, i)
		box.Work(outbox.WorkerConfig{Providers: []dispatch.Provider{&outboxtest.Provider{}}})
	})
	require.ErrorContains(t, pool.Ping(t.Context()), "closed")
	require.NoError(t, outboxtest.Postgres(t).Ping(t.Context()))
}
