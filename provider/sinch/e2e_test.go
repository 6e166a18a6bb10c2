package sinch_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/provider/sinch"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const sends = 500

// world is an outbox on a real Postgres, a worker, a provider, the vendor, and
// the application's webhook.
type world struct {
	box    *outbox.Box
	pool   *pgxpool.Pool
	schema string
	fake   *fake
	hook   string
	keys   []dispatch.Key
}

// begin enqueues the messages and starts the worker. setUp changes provider
// and vendor first.
func begin(t *testing.T, setUp func(*sinch.Config, *world)) *world {
	t.Helper()
	w := &world{fake: newFake(t)}
	w.pool, w.schema = pgtest.Pool(t)
	cfg := config()
	cfg.BaseURL = w.fake.URL
	setUp(&cfg, w)
	p := open(t, cfg)
	policy := dispatch.SMSPolicy()
	policy.Backoff = dispatch.Backoff{Base: 5 * time.Millisecond, Cap: 50 * time.Millisecond}
	var err error
	w.box, err = outbox.New(w.pool, outbox.Config{Schema: w.schema, Routes: []dispatch.Route{{Name: "sms", Providers: []string{"sinch"}, Policy: policy}}})
	require.NoError(t, err)
	require.NoError(t, w.box.Migrate(t.Context()))
	server := httptest.NewServer(p.Webhook(w.box))
	t.Cleanup(server.Close)
	w.hook = server.URL

	intents := make([]dispatch.Intent, sends)
	for n := range intents {
		intents[n] = dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.SMS{To: "+15555550123", Body: fmt.Sprintf("message %d", n)}}
		w.keys = append(w.keys, intents[n].Key)
	}
	require.NoError(t, w.box.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := w.box.EnqueueMany(t.Context(), tx, intents)
		return err
	}))
	worker, err := outbox.NewWorker(w.box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{p}, PollInterval: 20 * time.Millisecond, SweepInterval: 20 * time.Millisecond, Slots: 8,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return w
}

// thirty loses 30 % of the calls, spread so that no run of them looks like a
// vendor that is down.
func thirty(n int) bool { return n%10 == 2 || n%10 == 5 || n%10 == 8 }

func (w *world) moving(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, w.pool.QueryRow(context.WithoutCancel(t.Context()), `select count(*) from "`+w.schema+`".queue`).Scan(&n))
	return n
}

func (w *world) history(t *testing.T, key dispatch.Key) outbox.History {
	t.Helper()
	h, err := w.box.History(context.WithoutCancel(t.Context()), key)
	require.NoError(t, err)
	return h
}

// receipt lets the vendor tell what became of a message. It may be called on
// any goroutine.
func (w *world) receipt(t *testing.T, m sent, status string) {
	t.Helper()
	code := map[string]int{"Dispatched": 401, "Delivered": 0}[status]
	resp, err := http.DefaultTransport.RoundTrip(call(w.hook, report(m, status, code), time.Now()))
	if err != nil {
		t.Error(err)
		return
	}
	if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
}

// Answers lost on 30 % of 500 sends, receipts arrive: some before the answer
// (B147), all of them twice and out of order (B145, B150). Each message is
// sent once, delivered once, and known to be.
func TestReceiptsSettleLostAnswers(t *testing.T) {
	w := begin(t, func(_ *sinch.Config, w *world) {
		w.fake.Lose = thirty
		w.fake.Lag = time.Hour // the list is no help
		w.fake.Early = func(m sent) {
			if m.ID[len(m.ID)-1]%3 == 0 {
				w.receipt(t, m, "Dispatched")
			}
		}
	})
	told := 0
	require.Eventually(t, func() bool {
		taken := w.fake.messagesTaken()
		for ; told < len(taken); told++ {
			for _, status := range []string{"Delivered", "Dispatched", "Delivered"} {
				w.receipt(t, taken[told], status)
			}
		}
		return told >= sends && w.moving(t) == 0
	}, time.Minute, 20*time.Millisecond)
	deliveries, lost := w.fake.deliveries(), 0
	for _, key := range w.keys {
		h := w.history(t, key)
		require.Equal(t, dispatch.Sent, h.State, "%s", h)
		require.Equal(t, 1, deliveries[key.String()])
		require.Equal(t, 1, h.Attempts, "%s", h)
		receipts := map[string]int{}
		for _, e := range h.Events {
			if e.Kind == "receipt" {
				receipts[e.Detail]++
			}
			if e.Kind == "attempt" && e.Outcome == dispatch.Unknown {
				lost++
			}
			require.NotEqual(t, 39, e.Rule, "no second message\n%s", h)
		}
		require.Equal(t, map[string]int{"delivered": 1, "passed": 1}, receipts, "%s", h)
	}
	require.Greater(t, lost, 50)
}

// Without receipts: 30 % of the answers are lost, 5 % of the calls never
// arrive, the list lags behind. What is found is sent, what is absent behind
// the lag goes out again: each message is delivered once.
func TestLookupSettlesLostAnswers(t *testing.T) {
	w := begin(t, func(c *sinch.Config, w *world) {
		c.Lag, c.WebhookSecret = time.Second, ""
		w.fake.Lag = 500 * time.Millisecond
		w.fake.Lose = thirty
		w.fake.Drop = func(n int) bool { return n%20 == 0 }
	})
	require.Eventually(t, func() bool { return w.moving(t) == 0 }, 90*time.Second, 50*time.Millisecond)
	deliveries, again := w.fake.deliveries(), 0
	for _, key := range w.keys {
		h := w.history(t, key)
		require.Equal(t, dispatch.Sent, h.State, "%s", h)
		require.Equal(t, 1, deliveries[key.String()], "%s", h)
		if h.Attempts > 1 {
			again++
		}
	}
	require.Greater(t, again, 10)
}
