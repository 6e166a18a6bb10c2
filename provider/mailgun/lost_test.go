package mailgun_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

// Answers lost on 30 % of the calls, a part of them before the mail was taken:
// the events have what is there, what isn't is sent again, and each mail is
// delivered once.
func TestLostAnswersDeliverOnce(t *testing.T) {
	f := newFake(t)
	f.Lag = 100 * time.Millisecond
	cfg := config(f.URL)
	cfg.Lag, cfg.WebhookKey = 300*time.Millisecond, ""
	p := open(t, cfg)
	w := newWorld(t, p)
	f.Lose, f.Drop = mailtest.Losing(1, 22), mailtest.Losing(2, 8)
	w.begin(t, p)
	w.settled(t)
	require.Greater(t, f.Calls(), sends, "some were not taken, and sent again")
	w.once(t, &f.Ledger)
}

// Events: before the answer (B147), twice and out of order (B145, B150). They
// settle lost answers; a bounce sends nothing again (B161).
func TestEventsSettle(t *testing.T) {
	f := newFake(t)
	cfg := config(f.URL)
	cfg.SendingKey = true // no look-up
	p := open(t, cfg)
	w := newWorld(t, p)
	w.webhook = p.Webhook(w.box)
	f.Lose = mailtest.Losing(3, 30)
	f.Early = func(m mailtest.Taken) {
		if m.Key[len(m.Key)-1]%2 == 0 {
			w.post(t, call(event(m, "accepted", "")))
		}
	}
	w.begin(t, p)
	require.Eventually(t, func() bool { return f.Calls() == sends }, 60*time.Second, 20*time.Millisecond)
	for _, m := range f.All() {
		for _, kind := range []string{"failed", "accepted", "failed"} {
			w.post(t, call(event(m, kind, "permanent")))
		}
	}
	w.settled(t)
	require.Equal(t, sends, w.once(t, &f.Ledger))
	require.Equal(t, sends, f.Calls())
}
