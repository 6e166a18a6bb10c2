package infrai_test

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

// Answers lost on 30 % of the calls: each mail is delivered once by its key.
// Events are polled: some before the answer (B147), all of them again in each
// list (B145, B150), and a bounce sends nothing again (B161).
func TestLostAnswersDeliverOnce(t *testing.T) {
	f := newFake(t)
	p := open(t, config(f.URL))
	w := e2e.NewMail(t, "infrai")
	f.Lose, f.Drop = mailtest.Losing(1, 25), mailtest.Losing(2, 5)
	f.tell(event("em_000001", "delivered")) // of a mail that isn't sent yet
	poll(t, p, w.Box)
	require.Eventually(t, func() bool { return f.polled() > 0 }, 20*time.Second, 10*time.Millisecond)
	w.Begin(t, p, e2e.Mails(e2e.Sends))
	w.Settled(t)
	w.Once(t, f.IDs)
	require.Greater(t, f.Calls(), e2e.Sends+50)
	first, err := dispatch.ParseKey(f.All()[0].Key)
	require.NoError(t, err)
	f.tell(event("em_000001", "bounce"), event("em_000001", "sent"))
	require.Eventually(t, func() bool { return len(w.Receipts(t, first)) == 3 }, 30*time.Second, 20*time.Millisecond)
	w.Once(t, f.IDs)
}

func TestUpgradedEncoder(t *testing.T) {
	f := newFake(t)
	e2e.Upgraded(t, open(t, config(f.URL)), f.IDs)
}
