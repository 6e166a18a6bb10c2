package infobip_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/e2e"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/provider/infobip"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// world is an application that sends through Infobip.
type world struct {
	*e2e.World

	fake *fake
}

// begin sends the messages. setUp changes provider and vendor first.
func begin(t *testing.T, setUp func(*infobip.Config, *world)) *world {
	t.Helper()
	w := &world{e2e.New(t, "infobip", "", dispatch.SMSPolicy()), newFake(t)}
	cfg := config()
	cfg.BaseURL = w.fake.URL
	setUp(&cfg, w)
	p := open(t, cfg)
	w.Serve(t, p.Webhook(w.Box))
	w.Begin(t, p, e2e.Texts(e2e.Sends))
	return w
}

// receipts lets the vendor tell what became of messages, in one call. It may be
// called on any goroutine.
func (w *world) receipts(t *testing.T, group, id int, messages ...sent) {
	t.Helper()
	var results []any
	for _, m := range messages {
		results = append(results, report(m, group, id))
	}
	w.Post(t, call("/", results...))
}

// taken are the ids of what was taken under a key, which is the id.
func (w *world) taken(key string) (ids []string) {
	for _, m := range w.fake.messagesTaken() {
		if m.ID == key {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// Answers lost on 30 % of 500 sends, receipts arrive: some before the answer
// (B147), all of them twice and out of order (B145, B150), many in a call.
// Each message is sent once, delivered once, and known to be.
func TestReceiptsSettleLostAnswers(t *testing.T) {
	w := begin(t, func(_ *infobip.Config, w *world) {
		w.fake.Lose = e2e.Thirty
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
		return told >= e2e.Sends && w.Moving(t) == 0
	}, time.Minute, 20*time.Millisecond)
	_, again := w.Once(t, w.taken)
	require.Zero(t, again)
	w.ToldTwice(t, "delivered", "passed")
	require.Greater(t, w.Lost(t), 50)
}

// Without receipts: 30 % of the answers are lost, 5 % of the calls never
// arrive, the logs lag behind. What is found is sent, what is absent behind
// the lag goes out again: each message is delivered once.
func TestLookupSettlesLostAnswers(t *testing.T) {
	w := begin(t, func(c *infobip.Config, w *world) {
		c.Lag, c.WebhookSecret = time.Second, ""
		w.fake.Lag = 500 * time.Millisecond
		w.fake.Lose = e2e.Thirty
		w.fake.Drop = func(n int) bool { return n%20 == 0 }
	})
	w.Settled(t)
	_, again := w.Once(t, w.taken)
	require.Greater(t, again, 10)
}

// With idempotency: unknown messages go out again under their ids at once,
// Infobip keeps one of each, and the receipts that reject the repeats change
// nothing.
func TestResendSettlesLostAnswers(t *testing.T) {
	w := begin(t, func(c *infobip.Config, w *world) {
		c.Idempotency, c.Lag = time.Hour, time.Hour
		w.fake.Dedupe, w.fake.Lag = true, time.Hour
		w.fake.Lose = e2e.Thirty
	})
	w.Settled(t)
	_, again := w.Once(t, w.taken)
	require.Greater(t, again, 100)
	repeats := w.fake.repeats()
	require.Greater(t, len(repeats), 100)
	w.receipts(t, 5, 23, repeats...)
	w.receipts(t, 3, 5, repeats...)
	w.Once(t, w.taken)
}

// A message that Infobip refused at once is not made an accepted one by the
// receipt that says so.
func TestRejectionIsNoAcceptance(t *testing.T) {
	w := begin(t, func(*infobip.Config, *world) {})
	w.Enqueue(t, dispatch.SMS{To: "+9995550123", Body: "x"})
	key := w.Keys[e2e.Sends]
	w.Becomes(t, key, dispatch.Dead)
	w.receipts(t, 5, 52, sent{ID: key.String(), At: time.Now()})
	require.Eventually(t, func() bool { return w.Moving(t) == 0 }, time.Minute, 20*time.Millisecond)
	require.Equal(t, dispatch.Dead, w.History(t, key).State)
}
