package twilio_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/provider/twilio"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// stack is an application with an outbox, a worker and a webhook, and Twilio.
type stack struct {
	fake *fakeTwilio
	box  *outbox.Box
	p    *twilio.Provider
	hook *httptest.Server
}

type stackOptions struct {
	fake     fakeOptions
	receipts bool          // a StatusCallback is configured
	distinct bool          // Config.DistinctTexts
	giveUp   time.Duration // OnUnknown.After, 0 for the contract's own time
}

func newStack(t *testing.T, o stackOptions) *stack {
	t.Helper()
	pool, schema := pgtest.Pool(t)
	policy := dispatch.SMSPolicy()
	policy.Backoff = dispatch.Backoff{Base: 5 * time.Millisecond, Cap: 50 * time.Millisecond}
	policy.OnUnknown = dispatch.OnUnknown{After: o.giveUp}
	box, err := outbox.New(pool, outbox.Config{
		Schema: schema, Routes: []dispatch.Route{{Name: "sms", Providers: []string{"twilio"}, Policy: policy}},
	})
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))

	s := &stack{fake: newFake(t, o.fake), box: box}
	s.hook = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.p.Webhook(box).ServeHTTP(w, r) }))
	t.Cleanup(s.hook.Close)
	s.p = s.fake.provider(t, func(c *twilio.Config) {
		c.DistinctTexts, c.Lag = o.distinct, time.Second
		if o.receipts {
			c.StatusCallback = s.hook.URL + "/hooks/twilio"
		}
	})
	w, err := outbox.NewWorker(box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{s.p}, PollInterval: 20 * time.Millisecond, SweepInterval: 20 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	return s
}

func (s *stack) enqueue(t *testing.T, intents ...dispatch.Intent) {
	t.Helper()
	require.NoError(t, s.box.InTx(t.Context(), func(tx pgx.Tx) error {
		for _, i := range intents {
			if _, err := s.box.Enqueue(t.Context(), tx, i); err != nil {
				return err
			}
		}
		return nil
	}))
}

func (s *stack) history(t *testing.T, key dispatch.Key) outbox.History {
	t.Helper()
	h, err := s.box.History(context.WithoutCancel(t.Context()), key)
	require.NoError(t, err)
	return h
}

// settles waits until each message is in one of the states.
func (s *stack) settles(t *testing.T, intents []dispatch.Intent, states ...dispatch.State) map[dispatch.Key]outbox.History {
	t.Helper()
	all := map[dispatch.Key]outbox.History{}
	defer func() {
		for _, i := range intents {
			if _, ok := all[i.Key]; !ok && t.Failed() {
				t.Log(s.history(t, i.Key), len(all))
				return
			}
		}
	}()
	require.Eventually(t, func() bool {
		for _, i := range intents {
			h, ok := all[i.Key]
			if !ok {
				h = s.history(t, i.Key)
			}
			found := false
			for _, state := range states {
				found = found || h.State == state
			}
			if !found {
				return false
			}
			all[i.Key] = h
		}
		return true
	}, 2*time.Minute, 50*time.Millisecond)
	return all
}

// texts are n messages to n numbers.
func texts(n int) []dispatch.Intent {
	list := make([]dispatch.Intent, n)
	for i := range list {
		list[i] = dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.SMS{
			To: fmt.Sprintf("+1555%07d", i), Body: fmt.Sprintf("It’s code %06d", i),
		}}
	}
	return list
}

func bodyOf(i dispatch.Intent) string { return i.Content.(dispatch.SMS).Body }

// losing loses three answers of ten, two of them after the message was taken
// and one before: spread out, so that the outbox doesn't hold the provider.
func losing(n int, _ url.Values) fault {
	switch n % 10 {
	case 2, 5:
		return lostAnswer
	case 8:
		return lostRequest
	}
	return none
}

// once checks that no message was taken twice by Twilio, and each at least min
// times.
func once(t *testing.T, s *stack, intents []dispatch.Intent, least int) {
	t.Helper()
	n := s.fake.deliveries()
	for _, i := range intents {
		require.LessOrEqual(t, n[bodyOf(i)], 1, "%s", s.history(t, i.Key))
		require.GreaterOrEqual(t, n[bodyOf(i)], least, "%s", s.history(t, i.Key))
	}
}

// 500 sends, 30 % of the answers lost. Receipts come before the answer, twice,
// and in any order: they settle what was taken. What never arrived is proven
// absent by the list, and sent again.
func TestReceiptsSettleLostAnswers(t *testing.T) {
	t.Parallel()
	ctx := context.WithoutCancel(t.Context())
	var later sync.Mutex
	var taken []stored
	var refused atomic.Int64
	deliver := func(m stored, status string) {
		if code, err := call(ctx, m, status, ""); err != nil || code != http.StatusNoContent {
			refused.Add(1)
		}
	}
	o := stackOptions{receipts: true, fake: fakeOptions{lag: 500 * time.Millisecond, smart: true, fault: losing}}
	o.fake.taken = func(m stored) {
		if m.sid[len(m.sid)-1]%3 == 0 { // B147: before the answer
			deliver(m, "delivered")
			return
		}
		later.Lock()
		defer later.Unlock()
		taken = append(taken, m)
	}
	s := newStack(t, o)
	intents := texts(500)
	s.enqueue(t, intents...)
	s.box.Wake()

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // Twilio's callbacks: out of order, twice
		defer close(stopped)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			later.Lock()
			batch := taken
			taken = nil
			later.Unlock()
			rand.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
			for _, m := range batch {
				for _, status := range []string{"delivered", "sent", "queued", "delivered"} {
					deliver(m, status)
				}
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	all := s.settles(t, intents, dispatch.Sent)
	close(stop)
	<-stopped
	require.Zero(t, refused.Load(), "callbacks that were not taken")
	once(t, s, intents, 1)
	bySID := map[string]string{}
	for _, m := range s.fake.messages() {
		bySID[m.sid] = m.form.Get("Body")
	}
	again := 0
	for _, i := range intents {
		h := all[i.Key]
		require.Equal(t, bodyOf(i), bySID[h.Reference], "the id is its own")
		if h.Attempts > 1 {
			again++
		}
	}
	require.Greater(t, again, 20, "requests that were lost were sent again")
}

// The same without receipts, where texts are distinct: the list finds them.
func TestLookupSettlesLostAnswers(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{distinct: true, fake: fakeOptions{lag: 500 * time.Millisecond, smart: true, limit: 3, fault: losing}})
	intents := texts(500)
	s.enqueue(t, intents...)
	s.box.Wake()
	all := s.settles(t, intents, dispatch.Sent)
	once(t, s, intents, 1)
	kinds := map[string]int{}
	for _, h := range all {
		for _, e := range h.Events {
			kinds[e.Kind+" "+e.Detail]++
		}
	}
	require.Greater(t, kinds["look-up present"], 60, "%v", kinds)
	require.Greater(t, kinds["look-up absent"], 20, "%v", kinds)
}

// The same with neither: what may have been taken is held, the rest is sent.
func TestLostAnswersAreHeldWithoutMeans(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{giveUp: 12 * time.Second, fake: fakeOptions{lag: 500 * time.Millisecond, fault: losing}})
	intents := texts(500)
	s.enqueue(t, intents...)
	s.box.Wake()
	all := s.settles(t, intents, dispatch.Sent, dispatch.Held)
	once(t, s, intents, 0)
	held, again, taken := 0, 0, s.fake.deliveries()
	for _, i := range intents {
		h := all[i.Key]
		switch {
		case h.State == dispatch.Held:
			held++
			require.Equal(t, dispatch.ReasonUnresolved, h.Reason)
		case h.Attempts > 1:
			again++
			fallthrough
		default:
			require.Equal(t, 1, taken[bodyOf(i)], "%s", h)
		}
	}
	require.GreaterOrEqual(t, held, 100, "two of ten were taken, and nothing can tell")
	require.Greater(t, again, 20, "what was never taken is sent again")
}

// B145, B161: failed deliveries, each three times and in every order with what
// came before, are kept once, and send nothing.
func TestReceiptsNeverResend(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{receipts: true})
	intents := texts(6)
	s.enqueue(t, intents...)
	s.box.Wake()
	s.settles(t, intents, dispatch.Sent)
	codes := []string{"30003", "30005", "30007", "30008", "30001", "21610"}
	orders := [][]string{
		{"queued", "sent", "undelivered"},
		{"queued", "undelivered", "sent"},
		{"sent", "queued", "undelivered"},
		{"sent", "undelivered", "queued"},
		{"undelivered", "queued", "sent"},
		{"undelivered", "sent", "queued"},
	}
	var group sync.WaitGroup
	for n, m := range s.fake.messages() {
		group.Go(func() {
			for range 3 {
				for _, status := range orders[n] {
					code := ""
					if status == "undelivered" {
						code = codes[n]
					}
					answer, err := call(t.Context(), m, status, code)
					assert.NoError(t, err)
					assert.Equal(t, http.StatusNoContent, answer)
				}
			}
		})
	}
	group.Wait()
	require.Eventually(t, func() bool {
		for _, i := range intents {
			if len(s.history(t, i.Key).Events) < 4 {
				return false
			}
		}
		return true
	}, 20*time.Second, 20*time.Millisecond)
	for _, i := range intents {
		h := s.history(t, i.Key)
		require.Equal(t, dispatch.Sent, h.State)
		require.Len(t, h.Events, 4, "%s", h)
		require.Equal(t, 1, h.Attempts)
	}
	once(t, s, intents, 1)
}
