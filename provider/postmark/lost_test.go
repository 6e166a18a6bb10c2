package postmark_test

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

// Answers lost on 30 % of the calls, a part of them before the mail was taken:
// the search finds what is there, what isn't is sent again, and each mail is
// delivered once.
func TestLostAnswersDeliverOnce(t *testing.T) {
	f := newFake(t)
	f.Lag = 100 * time.Millisecond
	cfg := config(f.URL)
	cfg.Lag, cfg.HookUser, cfg.HookPassword = 300*time.Millisecond, "", ""
	p := open(t, cfg)
	w := e2e.NewMail(t, "postmark")
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
	p := open(t, config(f.URL))
	w := e2e.NewMail(t, "postmark")
	w.Serve(t, p.Webhook(w.Box))
	f.Lose = mailtest.Losing(3, 30)
	f.Early = func(m mailtest.Taken) {
		if m.ID[len(m.ID)-1]%2 == 0 {
			w.Post(t, call(event(m, "Delivery")))
		}
	}
	w.Begin(t, p, e2e.Mails(e2e.Sends))
	require.Eventually(t, func() bool { return f.Calls() == e2e.Sends }, 60*time.Second, 20*time.Millisecond)
	for _, m := range f.All() {
		w.Post(t, call(event(m, "Bounce")))
		w.Post(t, call(event(m, "Delivery")))
		w.Post(t, call(event(m, "Bounce")))
	}
	w.Settled(t)
	w.Once(t, f.IDs)
	require.Equal(t, e2e.Sends, f.Calls())
	require.Eventually(t, func() bool { return len(w.Receipts(t, w.Keys[0])) == 2 }, 20*time.Second, 20*time.Millisecond)
}

// B010: what Postmark skips comes as a receipt beside the acceptance.
func TestSkippedAreTold(t *testing.T) {
	sink := &mailtest.Sink{}
	cfg := config(partial(t))
	cfg.Suppressed = sink
	p := open(t, cfg)
	e := mailtest.Golden()
	a, err := p.Send(t.Context(), e)
	require.NoError(t, err)
	require.Len(t, sink.All(), 2)
	for _, r := range sink.All() {
		require.Equal(t, a.ID, r.ProviderID)
		require.True(t, r.Key.IsZero(), "the key would settle the mail while it is being sent")
		require.Equal(t, dispatch.Bounced, r.Kind)
		require.True(t, r.Permanent)
	}
	mailtest.CheckReceipts(t, sink.All())
	sink.Err = mailtest.ErrDown
	_, err = p.Send(t.Context(), e)
	require.NoError(t, err, "it was accepted all the same")
	require.Equal(t, int64(1), p.Unread())
}

func TestUpgradedEncoder(t *testing.T) {
	f := newFake(t)
	e2e.Upgraded(t, open(t, config(f.URL)), f.IDs)
}
