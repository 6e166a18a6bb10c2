package sinch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/e2e"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/provider/sinch"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// world is an application that sends through Sinch.
type world struct {
	*e2e.World

	fake *fake
}

// begin sends the messages. setUp changes provider and vendor first.
func begin(t *testing.T, setUp func(*sinch.Config, *world)) *world {
	t.Helper()
	w := &world{e2e.New(t, "sinch", "", dispatch.SMSPolicy()), newFake(t)}
	cfg := config()
	cfg.BaseURL = w.fake.URL
	setUp(&cfg, w)
	p := open(t, cfg)
	w.Serve(t, p.Webhook(w.Box))
	w.Begin(t, p, e2e.Texts(e2e.Sends))
	return w
}

// receipt lets the vendor tell what became of a message. It may be called on
// any goroutine.
func (w *world) receipt(t *testing.T, m sent, status string) {
	t.Helper()
	code := map[string]int{"Dispatched": 401, "Delivered": 0}[status]
	w.Post(t, call("/", report(m, status, code), time.Now()))
}

// taken are the ids of what was taken under a key.
func (w *world) taken(key string) (ids []string) {
	for _, m := range w.fake.messagesTaken() {
		if m.Ref == key {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// Answers lost on 30 % of 500 sends, receipts arrive: some before the answer
// (B147), all of them twice and out of order (B145, B150). Each message is
// sent once, delivered once, and known to be.
func TestReceiptsSettleLostAnswers(t *testing.T) {
	w := begin(t, func(_ *sinch.Config, w *world) {
		w.fake.Lose = e2e.Thirty
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
		return told >= e2e.Sends && w.Moving(t) == 0
	}, time.Minute, 20*time.Millisecond)
	sends, _ := w.Once(t, w.taken)
	require.Equal(t, e2e.Sends, sends)
	w.ToldTwice(t, "delivered", "passed")
	require.Greater(t, w.Lost(t), 50)
}

// Without receipts: 30 % of the answers are lost, 5 % of the calls never
// arrive, the list lags behind. What is found is sent, what is absent behind
// the lag goes out again: each message is delivered once.
func TestLookupSettlesLostAnswers(t *testing.T) {
	w := begin(t, func(c *sinch.Config, w *world) {
		c.Lag, c.WebhookSecret = time.Second, ""
		w.fake.Lag = 500 * time.Millisecond
		w.fake.Lose = e2e.Thirty
		w.fake.Drop = func(n int) bool { return n%20 == 0 }
	})
	w.Settled(t)
	_, again := w.Once(t, w.taken)
	require.Greater(t, again, 10)
}
