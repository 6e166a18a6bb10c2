package smtp_test

import (
	"context"
	"fmt"
	"net/mail"
	"strings"
	"sync"
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

// world is an outbox on a real Postgres and a worker that sends its mails.
type world struct {
	box    *outbox.Box
	pool   *pgxpool.Pool
	schema string
	keys   []dispatch.Key
}

// begin enqueues n mails of two senders and starts a worker.
func begin(t *testing.T, p dispatch.Provider, n int) *world {
	t.Helper()
	w := &world{}
	w.pool, w.schema = pgtest.Pool(t)
	policy := dispatch.EmailPolicy()
	policy.Backoff, policy.Attempts = dispatch.Backoff{Base: 5 * time.Millisecond, Cap: 50 * time.Millisecond}, 20
	name := p.Contract().Name
	var err error
	w.box, err = outbox.New(w.pool, outbox.Config{Schema: w.schema, Routes: []dispatch.Route{{
		Name: "mail", Providers: []string{name}, Policy: policy,
		Senders: dispatch.Senders{"shop": {name: "Shop <no-reply@shop.example>"}, "news": {name: "news@shop.example"}},
	}}})
	require.NoError(t, err)
	require.NoError(t, w.box.Migrate(t.Context()))
	intents := make([]dispatch.Intent, n)
	for i := range intents {
		m := mailtest.Mail()
		m.Sender, m.Text = []string{"shop", "news"}[i%2], fmt.Sprintf("mail %d", i)
		intents[i] = dispatch.Intent{Key: dispatch.NewKey(), Content: m}
		w.keys = append(w.keys, intents[i].Key)
	}
	require.NoError(t, w.box.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := w.box.EnqueueMany(t.Context(), tx, intents)
		return err
	}))
	worker, err := outbox.NewWorker(w.box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{p}, PollInterval: 20 * time.Millisecond, SweepInterval: 20 * time.Millisecond, Slots: 32,
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

func (w *world) settled(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		n := 0
		require.NoError(t, w.pool.QueryRow(context.WithoutCancel(t.Context()), `select count(*) from "`+w.schema+`".queue`).Scan(&n))
		return n == 0
	}, 90*time.Second, 50*time.Millisecond)
}

func (w *world) history(t *testing.T, key dispatch.Key) *outbox.History {
	t.Helper()
	h, err := w.box.History(context.WithoutCancel(t.Context()), key)
	require.NoError(t, err)
	return &h
}

// deliveries counts a server's mails by key.
func deliveries(t *testing.T, s *script) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, data := range s.all() {
		m, err := mail.ReadMessage(strings.NewReader(string(data)))
		require.NoError(t, err)
		key, _, _ := strings.Cut(strings.Trim(m.Header.Get("Message-Id"), "<>"), "@")
		out[key]++
	}
	return out
}

// Answers to the dot are lost on a third of the mails, connections break
// before it, and the server puts off: each mail is delivered at most once,
// what is uncertain is held as unknown, and everything else is sent once.
func TestLostAnswersAreHeld(t *testing.T) {
	var mu sync.Mutex
	calls := map[string]int{}
	s := newScript(t, func(line string) string {
		verb, _, _ := strings.Cut(line, " ")
		mu.Lock()
		defer mu.Unlock()
		calls[verb]++
		switch n := calls[verb]; {
		case verb == "." && n%3 == 0:
			return []string{"!", "25!", "<html>\r\n"}[n%9/3] // taken, and nobody hears it
		case verb == "body" && n%7 == 0:
			return "!"
		case verb == "RCPT" && n%11 == 0:
			return "451 4.7.1 greylisted\r\n"
		}
		return ""
	})
	w := begin(t, open(t, plain(s.Addr)), 150)
	w.settled(t)
	held, sent, lost := 0, 0, 0
	taken := deliveries(t, s)
	for _, key := range w.keys {
		h := w.history(t, key)
		switch h.State { //nolint:exhaustive // the others fail
		case dispatch.Held: // a connection may break when the dot is on its way already
			require.Equal(t, dispatch.ReasonUnresolved, h.Reason, "%s", h)
			require.LessOrEqual(t, taken[key.String()], 1, "%s", h)
			held++
			lost += taken[key.String()]
		case dispatch.Sent:
			require.Equal(t, 1, taken[key.String()], "%s", h)
			require.Equal(t, key.String()+"@shop.example", h.Reference)
			sent++
		default:
			t.Fatalf("%s", h)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, calls["."]/3, lost, "each lost answer is one that is held")
	require.Equal(t, len(w.keys), held+sent)
	require.GreaterOrEqual(t, calls["RCPT"], len(w.keys)+10, "what was refused for now was sent again")
}

// A password that is refused holds the provider, not the mails: few calls,
// nothing dead, and everything goes out once it is mended.
func TestRefusedLoginHoldsTheProvider(t *testing.T) {
	var mu sync.Mutex
	mended, logins := false, 0
	s := newScript(t, func(line string) string {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasPrefix(line, "AUTH") {
			if logins++; !mended {
				return "535 5.7.8 bad credentials\r\n"
			}
		}
		return ""
	})
	cfg := plain(s.Addr)
	cfg.Username, cfg.Password, cfg.MaxConns = "ada", mailtest.Secret, 2
	w := begin(t, open(t, cfg), 300)
	require.Eventually(t, func() bool {
		gates, err := w.box.Gates(t.Context())
		return err == nil && len(gates) == 1 && gates[0].Closed && gates[0].Reason == "account"
	}, 30*time.Second, 20*time.Millisecond)
	mu.Lock()
	require.Less(t, logins, 300, "some that were under way, and then none")
	mended = true
	mu.Unlock()
	require.NoError(t, w.box.Resume(t.Context(), "smtp", outbox.Audit{By: "ada", Why: "password mended"}))
	w.settled(t)
	for _, key := range w.keys {
		require.Equal(t, dispatch.Sent, w.history(t, key).State)
	}
	require.Equal(t, 300, s.taken())
}
