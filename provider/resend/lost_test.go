package resend_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/internal/e2e"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Answers lost on 30 % of the calls: each mail is delivered once by its key.
// Some events come before the answer (B147), all of them twice and out of
// order (B145, B150), and a bounce sends nothing again (B161).
func TestLostAnswersDeliverOnce(t *testing.T) {
	f := newFake(t)
	p := open(t, config(f.URL))
	w := e2e.NewMail(t, "resend")
	w.Serve(t, p.Webhook(w.Box))
	f.Lose = mailtest.Losing(1, 30)
	f.Early = func(m mailtest.Taken) {
		if m.ID[len(m.ID)-1]%3 == 0 {
			w.Post(t, signed("sent-"+m.ID, time.Now(), event(m, "email.sent")))
		}
	}
	w.Begin(t, p, e2e.Mails(e2e.Sends))
	w.Settled(t)
	w.Once(t, f.IDs)
	require.Greater(t, f.Calls(), e2e.Sends+50, "answers were lost, and mails sent again")
	for _, m := range f.All()[:20] {
		for _, kind := range []string{"email.bounced", "email.sent", "email.delivered", "email.bounced", "email.delivered"} {
			w.Post(t, signed(kind[6:]+"-"+m.ID, time.Now(), event(m, kind)))
		}
	}
	for _, m := range f.All()[:20] {
		for _, key := range w.Keys {
			if key.String() == m.Key {
				require.Eventually(t, func() bool { return len(w.Receipts(t, key)) == 3 }, 20*time.Second, 20*time.Millisecond)
			}
		}
	}
	w.Once(t, f.IDs)
}

func TestUpgradedEncoder(t *testing.T) {
	f := newFake(t)
	e2e.Upgraded(t, open(t, config(f.URL)), f.IDs)
}
