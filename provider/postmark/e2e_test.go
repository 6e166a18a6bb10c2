package postmark_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const sends = 300

// world is an outbox on a real Postgres, a worker that sends its mails, and
// the application's webhook.
type world struct {
	box     *outbox.Box
	pool    *pgxpool.Pool
	schema  string
	webhook http.Handler
	keys    []dispatch.Key
}

// newWorld makes the outbox; begin starts it, so that a fake can be given the
// webhook before the first call.
func newWorld(t *testing.T, p dispatch.Provider) *world {
	t.Helper()
	w := &world{}
	w.pool, w.schema = pgtest.Pool(t)
	policy := dispatch.EmailPolicy()
	policy.Backoff, policy.Attempts = dispatch.Backoff{Base: 5 * time.Millisecond, Cap: 50 * time.Millisecond}, 20
	var err error
	w.box, err = outbox.New(w.pool, outbox.Config{Schema: w.schema, Routes: []dispatch.Route{{
		Name: "mail", Providers: []string{p.Contract().Name}, Policy: policy,
		Senders: dispatch.Senders{"shop": {p.Contract().Name: "Shop <no-reply@shop.example>"}},
	}}})
	require.NoError(t, err)
	require.NoError(t, w.box.Migrate(t.Context()))
	return w
}

func (w *world) begin(t *testing.T, p dispatch.Provider) {
	t.Helper()
	intents := make([]dispatch.Intent, sends)
	for n := range intents {
		m := mailtest.Mail()
		m.Sender, m.Text = "shop", fmt.Sprintf("mail %d", n)
		intents[n] = dispatch.Intent{Key: dispatch.NewKey(), Content: m}
		w.keys = append(w.keys, intents[n].Key)
	}
	require.NoError(t, w.box.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := w.box.EnqueueMany(t.Context(), tx, intents)
		return err
	}))
	worker, err := outbox.NewWorker(w.box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{p}, PollInterval: 20 * time.Millisecond, SweepInterval: 20 * time.Millisecond, Slots: 32,
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
}

func (w *world) moving(t *testing.T, where string) (n int) {
	t.Helper()
	require.NoError(t, w.pool.QueryRow(context.WithoutCancel(t.Context()), `select count(*) from "`+w.schema+`".queue where `+where).Scan(&n))
	return n
}

// settled waits until nothing is left to do.
func (w *world) settled(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return w.moving(t, "true") == 0 }, 90*time.Second, 50*time.Millisecond)
}

// once checks that each mail was taken once, is known to be, and under which
// id, and returns how many sends there were.
func (w *world) once(t *testing.T, l *mailtest.Ledger) (attempts int) {
	t.Helper()
	for _, key := range w.keys {
		h, err := w.box.History(context.WithoutCancel(t.Context()), key)
		require.NoError(t, err)
		taken := l.Of(key.String())
		require.Len(t, taken, 1, "%s", h)
		require.Equal(t, dispatch.Sent, h.State, "%s", h)
		require.Equal(t, taken[0].ID, h.Reference, "%s", h)
		attempts += h.Attempts
	}
	return attempts
}

// post hands a call to the webhook, on any goroutine.
func (w *world) post(t *testing.T, r *http.Request) {
	t.Helper()
	if s := mailtest.Status(w.webhook, r); s != http.StatusOK {
		t.Errorf("the webhook answered %d", s)
	}
}

// events counts the receipts in a mail's history.
func (w *world) events(t *testing.T, key dispatch.Key) (n int) {
	t.Helper()
	h, err := w.box.History(context.WithoutCancel(t.Context()), key)
	require.NoError(t, err)
	for _, e := range h.Events {
		if e.Kind == "receipt" {
			n++
		}
	}
	return n
}
