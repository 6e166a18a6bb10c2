package outbox_test

import (
	"context"
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

// quick is a policy whose waits don't keep a test waiting.
func quick() dispatch.Policy {
	p := dispatch.SMSPolicy()
	p.Backoff = dispatch.Backoff{Base: 5 * time.Millisecond, Cap: 50 * time.Millisecond}
	return p
}

func route(providers ...string) dispatch.Route {
	if len(providers) == 0 {
		providers = []string{"test"}
	}
	return dispatch.Route{Name: "sms", Providers: providers, Policy: quick()}
}

func newBox(t *testing.T, routes ...dispatch.Route) (*outbox.Box, *pgxpool.Pool, string) {
	t.Helper()
	pool, schema := pgtest.Pool(t)
	if len(routes) == 0 {
		routes = []dispatch.Route{route()}
	}
	box, err := outbox.New(pool, outbox.Config{Schema: schema, Routes: routes})
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	return box, pool, schema
}

func sms(body string) dispatch.Intent {
	return dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.SMS{To: "+15555550123", Body: body}}
}

func enqueue(t *testing.T, box *outbox.Box, intents ...dispatch.Intent) {
	t.Helper()
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		for _, i := range intents {
			added, err := box.Enqueue(t.Context(), tx, i)
			if err != nil {
				return err
			}
			require.True(t, added)
		}
		return nil
	}))
}

// start runs a worker and returns what stops it and gives Run's error.
func start(t *testing.T, box *outbox.Box, cfg outbox.WorkerConfig) (stop func() error) {
	t.Helper()
	if cfg.PollInterval == 0 {
		cfg.PollInterval = 20 * time.Millisecond
	}
	if cfg.SweepInterval == 0 {
		cfg.SweepInterval = 20 * time.Millisecond
	}
	w, err := outbox.NewWorker(box, cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() { require.NoError(t, stop()) })
	return stop
}

// reaches waits until the message is in the state.
func reaches(t *testing.T, box *outbox.Box, key dispatch.Key, state dispatch.State) outbox.History {
	t.Helper()
	var h outbox.History
	require.Eventually(t, func() bool {
		var err error
		h, err = box.History(context.WithoutCancel(t.Context()), key)
		require.NoError(t, err)
		return h.State == state
	}, 20*time.Second, 5*time.Millisecond, "wanted %s", state)
	return h
}

func TestEndToEnd(t *testing.T) {
	box, _, _ := newBox(t)
	p := &outboxtest.Provider{}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	i := sms("hello")
	enqueue(t, box, i)
	h := reaches(t, box, i.Key, dispatch.Sent)
	require.Equal(t, 1, h.Attempts)
	require.Equal(t, "id-1", h.Reference)
	require.Len(t, p.Accepted(), 1)
	require.Equal(t, i.Content, p.Accepted()[0].Content)
	t.Log(h)
}

func TestLostAnswerIsSentAgainUnderItsKeyAndDeliveredOnce(t *testing.T) {
	box, _, _ := newBox(t)
	p := &outboxtest.Provider{Promise: dispatch.Contract{Dedupe: dispatch.Dedupe{Window: 24 * time.Hour}}}
	p.Respond = func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		a := accept()
		if e.Attempt < 3 {
			return dispatch.Accepted{}, context.DeadlineExceeded
		}
		return a, nil
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	i := sms("hello")
	enqueue(t, box, i)
	h := reaches(t, box, i.Key, dispatch.Sent)
	require.Equal(t, 3, h.Attempts)
	require.Equal(t, 1, p.Deliveries(i.Key))
	t.Log(h)
}

func TestLostAnswerWithoutAnyMeansIsHeld(t *testing.T) {
	box, _, _ := newBox(t)
	p := &outboxtest.Provider{}
	p.Respond = func(_ context.Context, _ dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		accept()
		return dispatch.Accepted{}, context.DeadlineExceeded
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	i := sms("hello")
	enqueue(t, box, i)
	h := reaches(t, box, i.Key, dispatch.Held)
	require.Equal(t, 1, h.Attempts)
	require.Equal(t, 1, p.Deliveries(i.Key))
	t.Log(h)
}

func TestLookupSettles(t *testing.T) {
	t.Parallel()
	box, _, _ := newBox(t)
	p := &outboxtest.Provider{Promise: dispatch.Contract{Search: dispatch.Search{Available: true}}}
	p.Respond = func(_ context.Context, _ dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		accept()
		return dispatch.Accepted{}, context.DeadlineExceeded
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	i := sms("hello")
	enqueue(t, box, i)
	h := reaches(t, box, i.Key, dispatch.Sent)
	require.Equal(t, 1, h.Attempts)
	require.Equal(t, 1, p.Deliveries(i.Key))
	t.Log(h)
}
