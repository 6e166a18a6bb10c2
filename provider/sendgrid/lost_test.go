package sendgrid_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/internal/e2e"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Answers lost on 30 % of the sends: nothing is sent again, and events settle
// all of them. Some come before the answer (B147), all come twice, under other
// ids and out of order (B145, B150), and a bounce sends nothing again (B161).
func TestEventsSettleLostAnswers(t *testing.T) {
	f := newFake(t)
	p := open(t, config(f.URL))
	w := e2e.NewMail(t, "sendgrid")
	w.Serve(t, p.Webhook(w.Box))
	f.Lose = mailtest.Losing(1, 30)
	f.Early = func(m mailtest.Taken) {
		if m.ID[len(m.ID)-1]%3 == 0 {
			w.Post(t, call(time.Now(), "["+event(m, "processed")+"]"))
		}
	}
	w.Begin(t, p, e2e.Mails(e2e.Sends))
	require.Eventually(t, func() bool { return f.Calls() == e2e.Sends }, 60*time.Second, 20*time.Millisecond)
	require.Positive(t, w.Unknown(t), "unknown until an event tells")
	var batch []string
	for _, m := range f.All() {
		batch = append(batch, event(m, "bounce"), event(m, "processed"), event(m, "bounce"), "null")
	}
	w.Post(t, call(time.Now(), "["+strings.Join(batch, ",")+"]"))
	w.Settled(t)
	sends, _ := w.Once(t, f.IDs)
	require.Equal(t, e2e.Sends, sends)
	require.Equal(t, e2e.Sends, f.Calls())
	require.Eventually(t, func() bool { return len(w.Receipts(t, w.Keys[0])) == 2 }, 20*time.Second, 20*time.Millisecond)
}

// With the paid activity, a look-up settles them too, and what was not taken
// is sent again.
func TestActivitySettlesLostAnswers(t *testing.T) {
	f := newFake(t)
	f.Lag = 100 * time.Millisecond
	cfg := config(f.URL)
	cfg.ActivityLag, cfg.WebhookKey = 300*time.Millisecond, ""
	p := open(t, cfg)
	w := e2e.NewMail(t, "sendgrid")
	f.Lose, f.Drop = mailtest.Losing(2, 20), mailtest.Losing(3, 5)
	w.Begin(t, p, e2e.Mails(e2e.Sends))
	w.Settled(t)
	w.Once(t, f.IDs)
}

func TestUpgradedEncoder(t *testing.T) {
	f := newFake(t)
	e2e.Upgraded(t, open(t, config(f.URL)), f.IDs)
}
