package ses_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/e2e"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Answers lost on 30 % of the sends: nothing is sent again, and events settle
// all of them. Some come before the answer (B147), all come twice and out of
// order (B145, B150), and a bounce sends nothing again (B161).
func TestEventsSettleLostAnswers(t *testing.T) {
	f, s := newFake(t), newSNS(t)
	cfg := config(f.URL)
	cfg.Exchange = s.exchange()
	p := open(t, cfg)
	w := e2e.NewMail(t, "ses")
	w.Serve(t, p.Webhook(w.Box))
	w.Post(t, post(subscription("token")))
	require.Equal(t, []string{"token"}, s.tokens(t))
	f.Lose = mailtest.Losing(1, 30)
	f.Early = func(m mailtest.Taken) {
		if m.Key[len(m.Key)-1]%3 == 0 {
			w.Post(t, call(event(m, "Send")))
		}
	}
	w.Begin(t, p, e2e.Mails(e2e.Sends))
	require.Eventually(t, func() bool { return f.Calls() == e2e.Sends }, time.Minute, 20*time.Millisecond)
	require.Positive(t, w.Unknown(t), "unknown until an event tells")
	for _, m := range f.All() {
		for _, kind := range []string{"Bounce", "Send", "Bounce"} {
			w.Post(t, call(event(m, kind)))
		}
	}
	w.Settled(t)
	sends, _ := w.Once(t, f.IDs)
	require.Equal(t, e2e.Sends, sends)
	require.Equal(t, e2e.Sends, f.Calls())
	require.Greater(t, w.Lost(t), 100)
	require.Eventually(t, func() bool { return len(w.Receipts(t, w.Keys[0])) == 2 }, 20*time.Second, 20*time.Millisecond)
}

// Without events nothing can tell: what may have been taken is held, never
// sent again.
func TestLostAnswersAreHeldWithoutEvents(t *testing.T) {
	f := newFake(t)
	cfg := config(f.URL)
	cfg.Topics, cfg.Grace = nil, time.Millisecond
	p := open(t, cfg)
	w := e2e.NewMail(t, "ses")
	f.Lose = e2e.Thirty
	w.Begin(t, p, e2e.Mails(50))
	w.Settled(t)
	held := 0
	for _, key := range w.Keys {
		require.Len(t, f.Of(key.String()), 1)
		if h := w.History(t, key); h.State == dispatch.Held {
			require.Equal(t, dispatch.ReasonUnresolved, h.Reason)
			held++
		}
	}
	require.Equal(t, 15, held)
}

func TestUpgradedEncoder(t *testing.T) {
	f := newFake(t)
	e2e.Upgraded(t, open(t, config(f.URL)), f.IDs)
}
