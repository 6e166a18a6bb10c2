package sendgrid_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

// Answers lost on 30 % of the sends: nothing is sent again, and events settle
// all of them. Some come before the answer (B147), all come twice, under other
// ids and out of order (B145, B150), and a bounce sends nothing again (B161).
func TestEventsSettleLostAnswers(t *testing.T) {
	f := newFake(t)
	p := open(t, config(f.URL))
	w := newWorld(t, p)
	w.webhook = p.Webhook(w.box)
	f.Lose = mailtest.Losing(1, 30)
	f.Early = func(m mailtest.Taken) {
		if m.ID[len(m.ID)-1]%3 == 0 {
			w.post(t, call(time.Now(), "["+event(m, "processed")+"]"))
		}
	}
	w.begin(t, p)
	require.Eventually(t, func() bool { return f.Calls() == sends }, 60*time.Second, 20*time.Millisecond)
	require.Eventually(t, func() bool { return w.moving(t, "state <> 3") == 0 }, 20*time.Second, 20*time.Millisecond)
	require.Positive(t, w.moving(t, "true"), "unknown until an event tells")
	var batch []string
	for _, m := range f.All() {
		batch = append(batch, event(m, "bounce"), event(m, "processed"), event(m, "bounce"), "null")
	}
	w.post(t, call(time.Now(), "["+strings.Join(batch, ",")+"]"))
	w.settled(t)
	require.Equal(t, sends, w.once(t, &f.Ledger))
	require.Equal(t, sends, f.Calls())
	require.Eventually(t, func() bool { return w.events(t, w.keys[0]) == 2 }, 20*time.Second, 20*time.Millisecond)
}

// With the paid activity, a look-up settles them too, and what was not taken
// is sent again.
func TestActivitySettlesLostAnswers(t *testing.T) {
	f := newFake(t)
	f.Lag = 100 * time.Millisecond
	cfg := config(f.URL)
	cfg.ActivityLag, cfg.WebhookKey = 300*time.Millisecond, ""
	p := open(t, cfg)
	w := newWorld(t, p)
	f.Lose, f.Drop = mailtest.Losing(2, 20), mailtest.Losing(3, 5)
	w.begin(t, p)
	w.settled(t)
	w.once(t, &f.Ledger)
}
