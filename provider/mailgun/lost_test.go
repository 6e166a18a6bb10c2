package mailgun_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/internal/e2e"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Answers lost on 30 % of the calls, a part of them before the mail was taken:
// the events have what is there, what isn't is sent again, and each mail is
// delivered once.
func TestLostAnswersDeliverOnce(t *testing.T) {
	f := newFake(t)
	f.Lag = 100 * time.Millisecond
	cfg := config(f.URL)
	cfg.Lag, cfg.WebhookKey = 300*time.Millisecond, ""
	p := open(t, cfg)
	w := e2e.NewMail(t, "mailgun")
	f.Lose, f.Drop = mailtest.Losing(1, 22), mailtest.Losing(2, 8)
	w.Begin(t, p, e2e.Mails(e2e.Sends))
	w.Settled(t)
	require.Greater(t, f.Calls(), e2e.Sends, "some were not taken, and sent again")
	w.Once(t, f.IDs)
}

// Events: before the answer (B147), twice and out of order (B145, B150). They
// settle lost answers; a bounce sends nothing again (B161).
func TestEventsSettle(t *testing.T) {
	f := newFake(t)
	cfg := config(f.URL)
	cfg.SendingKey = true // no look-up
	p := open(t, cfg)
	w := e2e.NewMail(t, "mailgun")
	w.Serve(t, p.Webhook(w.Box))
	f.Lose = mailtest.Losing(3, 30)
	f.Early = func(m mailtest.Taken) {
		if m.Key[len(m.Key)-1]%2 == 0 {
			w.Post(t, call(event(m, "accepted", "")))
		}
	}
	w.Begin(t, p, e2e.Mails(e2e.Sends))
	require.Eventually(t, func() bool { return f.Calls() == e2e.Sends }, 60*time.Second, 20*time.Millisecond)
	for _, m := range f.All() {
		for _, kind := range []string{"failed", "accepted", "failed"} {
			w.Post(t, call(event(m, kind, "permanent")))
		}
	}
	w.Settled(t)
	sends, _ := w.Once(t, f.IDs)
	require.Equal(t, e2e.Sends, sends)
	require.Equal(t, e2e.Sends, f.Calls())
}

func TestUpgradedEncoder(t *testing.T) {
	f := newFake(t)
	e2e.Upgraded(t, open(t, config(f.URL)), f.IDs)
}
