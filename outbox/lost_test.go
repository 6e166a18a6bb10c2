package outbox_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// waitFor waits for a channel, but not for ever.
func waitFor(t *testing.T, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(30 * time.Second):
		require.FailNow(t, "it did not happen")
	}
}

func routes() []dispatch.Route { return []dispatch.Route{route()} }

// B110, for the enqueue: the commit is done, its answer is lost, the caller
// repeats the transaction with the same key.
func TestEnqueueCommitAnswerLost(t *testing.T) {
	box, pool, schema := newBox(t)
	cut, _, p := behindProxy(t, pool, schema)
	i := sms("hello")
	do := func() error {
		return cut.InTx(t.Context(), func(tx pgx.Tx) error {
			_, err := cut.Enqueue(t.Context(), tx, i)
			return err
		})
	}
	happened, _ := p.arm("commit\x00", false)
	require.Error(t, do())
	waitFor(t, happened)
	require.Equal(t, 1, count(t, pool, schema, "queue"), "the commit was done")
	require.NoError(t, do())
	require.Equal(t, 1, count(t, pool, schema, "queue"))
	require.Equal(t, 1, count(t, pool, schema, "message"))
	h, err := box.History(t.Context(), i.Key)
	require.NoError(t, err)
	require.Equal(t, dispatch.Pending, h.State)
}

// B110, for the settle: its row is gone, its evidence is there, and the repeat
// knows its own commit.
func TestSettleAnswerLost(t *testing.T) {
	box, pool, schema := newBox(t)
	cut, _, p := behindProxy(t, pool, schema)
	vendor := &outboxtest.Provider{Promise: deduping(time.Second)}
	happened, _ := p.arm(".history (id, fence, kind, move, state, outcome, scope, stage, provider", false)
	start(t, cut, outbox.WorkerConfig{Providers: []dispatch.Provider{vendor}})
	i := sms("hello")
	enqueue(t, box, i)
	waitFor(t, happened)
	reaches(t, box, i.Key, dispatch.Sent)
	second := sms("the settler goes on")
	enqueue(t, box, second)
	reaches(t, box, second.Key, dispatch.Sent)
	h, err := box.History(t.Context(), i.Key)
	require.NoError(t, err)
	require.Len(t, h.Events, 1, "%s", h)
	require.Equal(t, 1, vendor.Deliveries(i.Key))
}

// The claim's commit is done and its answer is lost: the audit hands the rows
// back at once, uncounted, without an attempt.
func TestClaimAnswerLost(t *testing.T) {
	for name, late := range map[string]bool{"committed": false, "commits late": true} {
		t.Run(name, func(t *testing.T) {
			box, pool, schema := newBox(t)
			cut, _, p := behindProxy(t, pool, schema)
			vendor := &outboxtest.Provider{Promise: deduping(20 * time.Second)} // a lease of 40 s
			happened, release := p.arm("for update skip locked", late)
			intents := many(64, nil)
			enqueueMany(t, box, intents)
			start(t, cut, outbox.WorkerConfig{Providers: []dispatch.Provider{vendor}, Slots: 64})
			waitFor(t, happened)
			release()
			require.Eventually(t, func() bool { return count(t, pool, schema, "queue") == 0 }, 15*time.Second, 10*time.Millisecond)
			for _, i := range intents {
				h, err := box.History(t.Context(), i.Key)
				require.NoError(t, err)
				require.Equal(t, 1, h.Attempts, "%s", h)
				require.Len(t, h.Events, 1, "%s", h)
				require.Equal(t, 1, vendor.Deliveries(i.Key))
			}
		})
	}
}

// B124: the database goes away between the provider's answer and the settle.
// The outcome is written when it is back; there is no second call.
func TestConnectionsKilledBeforeTheSettle(t *testing.T) {
	_, pool, schema := newBox(t)
	mine, through, _ := behindProxy(t, pool, schema)
	cfg := pool.Config() // of all but the worker: a pooler may give anybody a connection that is being killed
	pgtest.Direct(t, cfg.ConnConfig)
	direct, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(direct.Close)
	box := boxOn(t, direct, schema)
	vendor := &outboxtest.Provider{Promise: deduping(20 * time.Second)}
	vendor.Respond = func(ctx context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		a := accept()
		if e.Attempt == 1 {
			_, err := direct.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'behind-proxy'`)
			if err != nil {
				return dispatch.Accepted{}, err
			}
		}
		return a, nil
	}
	_, err = through.Exec(t.Context(), "select 1")
	require.NoError(t, err)
	start(t, mine, outbox.WorkerConfig{Providers: []dispatch.Provider{vendor}})
	intents := many(20, nil)
	enqueueMany(t, box, intents)
	require.Eventually(t, func() bool { return count(t, direct, schema, "queue") == 0 }, 60*time.Second, 10*time.Millisecond)
	for _, i := range intents {
		require.Len(t, vendor.SendsOf(i.Key), 1)
	}
}

// Rule 38: a worker that was frozen past its lease brings the acceptance of a
// message that was parked meanwhile.
func TestLateTruthSettlesFromHeld(t *testing.T) {
	t.Parallel()
	box, _, _ := newBox(t)
	frozen := make(chan struct{})
	vendor := &outboxtest.Provider{Promise: dispatch.Contract{Timeout: 400 * time.Millisecond}}
	vendor.Respond = func(_ context.Context, _ dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		a := accept()
		<-frozen // an adapter that doesn't heed its context
		return a, nil
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{vendor}})
	i := sms("hello")
	enqueue(t, box, i)
	h := reaches(t, box, i.Key, dispatch.Held)
	require.Equal(t, "swept", h.Events[0].Kind)
	close(frozen)
	h = reaches(t, box, i.Key, dispatch.Sent)
	require.Equal(t, 1, h.Attempts, "%s", h)
	last := h.Events[len(h.Events)-1]
	require.Equal(t, "late", last.Kind)
	require.Equal(t, 38, last.Rule)
	require.Equal(t, 1, vendor.Deliveries(i.Key))
}

// Rule 40: a stale worker's failure changes nothing.
func TestStaleFailureChangesNothing(t *testing.T) {
	t.Parallel()
	box, _, _ := newBox(t)
	frozen := make(chan struct{})
	vendor := &outboxtest.Provider{Promise: deduping(400 * time.Millisecond)}
	vendor.Respond = func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		if e.Attempt == 1 {
			accept()
			<-frozen
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.Answered, Status: 400})
		}
		return accept(), nil
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{vendor}})
	i := sms("hello")
	enqueue(t, box, i)
	reaches(t, box, i.Key, dispatch.Sent)
	close(frozen)
	require.Eventually(t, func() bool {
		h, err := box.History(t.Context(), i.Key)
		require.NoError(t, err)
		require.Equal(t, dispatch.Sent, h.State)
		return h.Events[len(h.Events)-1].Kind == "late"
	}, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, 1, vendor.Deliveries(i.Key))
}
