package vonage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/e2e"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/provider/vonage"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// world is an application that sends through Vonage.
type world struct {
	*e2e.World

	fake *fake
	api  vonage.API
}

// begin sends the messages. setUp changes provider and vendor first.
func begin(t *testing.T, setUp func(*vonage.Config, *world)) *world {
	t.Helper()
	w := &world{World: e2e.New(t, "vonage", "", dispatch.SMSPolicy()), fake: newFake(t)}
	cfg := config()
	cfg.BaseURL, cfg.ReportsURL = w.fake.URL, w.fake.URL
	setUp(&cfg, w)
	w.api = cfg.API
	p := open(t, cfg)
	w.Serve(t, p.Webhook(w.Box))
	w.Begin(t, p, e2e.Texts(e2e.Sends))
	return w
}

// receipt lets the vendor tell what became of a message. It may be called on
// any goroutine.
func (w *world) receipt(t *testing.T, m sent, status string) {
	t.Helper()
	if w.api != vonage.SMS {
		w.Post(t, statusCall(t, "/", statusBody(m, status, ""), nil))
		return
	}
	for part := range m.IDs {
		word := map[string]string{"submitted": "accepted", "delivered": "delivered"}[status]
		w.Post(t, receiptCall("/", receiptForm(m, part, word, "0", nil)))
	}
}

// taken are the ids of what was taken under a key. The SMS API has one for each
// part, and its receipts are of a part.
func (w *world) taken(key string) (ids []string) {
	for _, m := range w.fake.messagesTaken() {
		switch {
		case m.Ref == key && w.api == vonage.SMS:
			ids = append(ids, "")
		case m.Ref == key:
			ids = append(ids, m.IDs[0])
		}
	}
	return ids
}

func apis() map[string]vonage.API {
	return map[string]vonage.API{"messages": vonage.Messages, "SMS": vonage.SMS}
}

// Answers lost on 30 % of 500 sends, receipts arrive: some before the answer
// (B147), all of them twice and out of order (B145, B150). Each message is
// sent once, delivered once, and known to be.
func TestReceiptsSettleLostAnswers(t *testing.T) {
	for name, api := range apis() {
		t.Run(name, func(t *testing.T) {
			w := begin(t, func(c *vonage.Config, w *world) {
				c.API = api
				w.fake.Lose = e2e.Thirty
				w.fake.Early = func(m sent) {
					if m.IDs[0][13]%3 == 0 {
						w.receipt(t, m, "submitted")
					}
				}
			})
			told := 0
			require.Eventually(t, func() bool {
				taken := w.fake.messagesTaken()
				for ; told < len(taken); told++ {
					for _, status := range []string{"delivered", "submitted", "delivered"} {
						w.receipt(t, taken[told], status)
					}
				}
				return told >= e2e.Sends && w.Moving(t) == 0
			}, time.Minute, 20*time.Millisecond)
			sends, _ := w.Once(t, w.taken)
			require.Equal(t, e2e.Sends, sends)
			w.ToldTwice(t, "delivered", "passed")
			require.Greater(t, w.Lost(t), 50)
		})
	}
}

// The same without receipts: what is uncertain is held, nothing is sent twice,
// and receipts that come much later settle it.
func TestWithoutReceiptsHeld(t *testing.T) {
	for name, api := range apis() {
		t.Run(name, func(t *testing.T) {
			w := begin(t, func(c *vonage.Config, w *world) {
				c.API, c.Grace = api, time.Millisecond
				w.fake.Lose = e2e.Thirty
			})
			require.Eventually(t, func() bool { return w.Moving(t) == 0 }, time.Minute, 20*time.Millisecond)
			deliveries := w.fake.deliveries()
			var held []dispatch.Key
			for _, key := range w.Keys {
				require.Equal(t, 1, deliveries[key.String()])
				if h := w.History(t, key); h.State == dispatch.Held {
					require.Equal(t, dispatch.ReasonUnresolved, h.Reason)
					held = append(held, key)
				} else {
					require.Equal(t, dispatch.Sent, h.State, "%s", h)
				}
			}
			require.Greater(t, len(held), 100)
			for _, m := range w.fake.messagesTaken() {
				w.receipt(t, m, "delivered")
			}
			for _, key := range held {
				w.Becomes(t, key, dispatch.Sent)
			}
			require.Equal(t, deliveries, w.fake.deliveries())
		})
	}
}

// With the Reports API: 30 % of the answers are lost, 5 % of the calls never
// arrive. What is found is sent, what is absent behind the lag goes out again:
// each message is delivered once.
func TestReportsSettleLostAnswers(t *testing.T) {
	w := begin(t, func(c *vonage.Config, w *world) {
		c.ReportLag, c.SignatureSecret = time.Second, ""
		w.fake.Lag = 500 * time.Millisecond
		w.fake.Lose = e2e.Thirty
		w.fake.Drop = func(n int) bool { return n%20 == 0 }
	})
	w.Settled(t)
	_, again := w.Once(t, w.taken)
	require.Greater(t, again, 10)
}
