package infobip_test

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
	"github.com/seed-8098fbb7/dispatch/provider/infobip"
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
func begin(t *testing.T, setUp func(*infobip.Config, *world)) *world {
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
	w.box, err = outbox.New(w.pool, outbox.Config{Schema: w.schema, Routes: []dispatch.Route{{Name: "sms", Providers: []string{"infobip"}, Policy: policy}}})
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

// receipts lets the vendor tell what became of messages, in one call. It may be
// called on any goroutine.
func (w *world) receipts(t *testing.T, group, id int, messages ...sent) {
	t.Helper()
	var results []any
	for _, m := range messages {
		results = append(results, report(m, group, id))
	}
	resp, err := http.DefaultTransport.RoundTrip(call(w.hook, results...))
	if err != nil {
		t.Error(err)
		return
	}
	if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
}

// settled checks that each message was sent once, delivered once, and is known
// to be, and returns how many took more than one attempt.
func (w *world) settled(t *testing.T) (again int) {
	t.Helper()
	deliveries := w.fake.deliveries()
	for _, key := range w.keys {
		h := w.history(t, key)
		require.Equal(t, dispatch.Sent, h.State, "%s", h)
		require.Equal(t, key.String(), h.Reference)
		require.Equal(t, 1, deliveries[key.String()], "%s", h)
		if h.Attempts > 1 {
			again++
		}
		for _, e := range h.Events {
			require.NotEqual(t, 39, e.Rule, "no second message\n%s", h)
		}
	}
	return again
}

// Answers lost on 30 % of 500 sends, receipts arrive: some before the answer
// (B147), all of them twice and out of order (B145, B150), many in a call.
// Each message is sent once, delivered once, and known to be.
func TestReceiptsSettleLostAnswers(t *testing.T) {
	w := begin(t, func(_ *infobip.Config, w *world) {
		w.fake.Lose = thirty
		w.fake.Lag = time.Hour // the logs are no help
		w.fake.Early = func(m sent) {
			if m.ID[len(m.ID)-1]%3 == 0 {
				w.receipts(t, 1, 7, m)
			}
		}
	})
	told := 0
	require.Eventually(t, func() bool {
		if taken := w.fake.messagesTaken(); told < len(taken) {
			w.receipts(t, 3, 5, taken[told:]...)
			w.receipts(t, 1, 7, taken[told:]...)
			w.receipts(t, 3, 5, taken[told:]...)
			told = len(taken)
		}
		return told >= sends && w.moving(t) == 0
	}, time.Minute, 20*time.Millisecond)
	require.Zero(t, w.settled(t))
	lost := 0
	for _, key := range w.keys {
		h := w.history(t, key)
		receipts := map[string]int{}
		for _, e := range h.Events {
			if e.Kind == "receipt" {
				receipts[e.Detail]++
			}
			if e.Kind == "attempt" && e.Outcome == dispatch.Unknown {
				lost++
			}
		}
		require.Equal(t, map[string]int{"delivered": 1, "passed": 1}, receipts, "%s", h)
	}
	require.Greater(t, lost, 50)
}

// Without receipts: 30 % of the answers are lost, 5 % of the calls never
// arrive, the logs lag behind. What is found is sent, what is absent behind
// the lag goes out again: each message is delivered once.
func TestLookupSettlesLostAnswers(t *testing.T) {
	w := begin(t, func(c *infobip.Config, w *world) {
		c.Lag, c.WebhookSecret = time.Second, ""
		w.fake.Lag = 500 * time.Millisecond
		w.fake.Lose = thirty
		w.fake.Drop = func(n int) bool { return n%20 == 0 }
	})
	require.Eventually(t, func() bool { return w.moving(t) == 0 }, 90*time.Second, 50*time.Millisecond)
	require.Greater(t, w.settled(t), 10)
}

// With idempotency: unknown messages go out again under their ids at once,
// Infobip keeps one of each, and the receipts that reject the repeats change
// nothing.
func TestResendSettlesLostAnswers(t *testing.T) {
	w := begin(t, func(c *infobip.Config, w *world) {
		c.Idempotency, c.Lag = time.Hour, time.Hour
		w.fake.Dedupe, w.fake.Lag = true, time.Hour
		w.fake.Lose = thirty
	})
	require.Eventually(t, func() bool { return w.moving(t) == 0 }, 90*time.Second, 50*time.Millisecond)
	require.Greater(t, w.settled(t), 100)
	repeats := w.fake.repeats()
	require.Greater(t, len(repeats), 100)
	w.receipts(t, 5, 23, repeats...)
	w.receipts(t, 3, 5, repeats...)
	w.settled(t)
}

// A message that Infobip refused at once is not made an accepted one by the
// receipt that says so.
func TestRejectionIsNoAcceptance(t *testing.T) {
	w := begin(t, func(*infobip.Config, *world) {})
	key := dispatch.NewKey()
	require.NoError(t, w.box.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := w.box.Enqueue(t.Context(), tx, dispatch.Intent{Key: key, Content: dispatch.SMS{To: "+9995550123", Body: "x"}})
		return err
	}))
	require.Eventually(t, func() bool { return w.history(t, key).State == dispatch.Dead }, 20*time.Second, 10*time.Millisecond)
	w.receipts(t, 5, 52, sent{ID: key.String(), At: time.Now()})
	require.Eventually(t, func() bool { return w.moving(t) == 0 }, time.Minute, 20*time.Millisecond)
	require.Equal(t, dispatch.Dead, w.history(t, key).State)
}
