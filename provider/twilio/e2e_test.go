package twilio_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/e2e"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/provider/twilio"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// stack is an application that sends through Twilio.
type stack struct {
	*e2e.World

	fake *fakeTwilio
	p    *twilio.Provider
}

type stackOptions struct {
	fake     fakeOptions
	receipts bool          // a StatusCallback is configured
	distinct bool          // Config.DistinctTexts
	giveUp   time.Duration // OnUnknown.After, 0 for the contract's own time
}

// newStack starts the application and sends the messages.
func newStack(t *testing.T, o stackOptions, messages ...dispatch.Content) *stack {
	t.Helper()
	policy := dispatch.SMSPolicy()
	policy.OnUnknown = dispatch.OnUnknown{After: o.giveUp}
	s := &stack{World: e2e.New(t, "twilio", "", policy), fake: newFake(t, o.fake)}
	hook := s.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.p.Webhook(s.Box).ServeHTTP(w, r) }))
	s.p = s.fake.provider(t, func(c *twilio.Config) {
		c.DistinctTexts, c.Lag = o.distinct, time.Second
		if o.receipts {
			c.StatusCallback = hook + "/hooks/twilio"
		}
	})
	s.Begin(t, s.p, messages)
	return s
}

func bodyOf(c dispatch.Content) string { return c.(dispatch.SMS).Body }

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
func once(t *testing.T, s *stack, texts []dispatch.Content, least int) {
	t.Helper()
	n := s.fake.deliveries()
	for i, c := range texts {
		require.LessOrEqual(t, n[bodyOf(c)], 1, "%s", s.History(t, s.Keys[i]))
		require.GreaterOrEqual(t, n[bodyOf(c)], least, "%s", s.History(t, s.Keys[i]))
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
	texts := e2e.Texts(e2e.Sends)
	s := newStack(t, o, texts...)

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
	s.Settled(t)
	close(stop)
	<-stopped
	require.Zero(t, refused.Load(), "callbacks that were not taken")
	once(t, s, texts, 1)
	bySID := map[string]string{}
	for _, m := range s.fake.messages() {
		bySID[m.sid] = m.form.Get("Body")
	}
	again := 0
	for i, c := range texts {
		h := s.History(t, s.Keys[i])
		require.Equal(t, dispatch.Sent, h.State, "%s", h)
		require.Equal(t, bodyOf(c), bySID[h.Reference], "the id is its own")
		if h.Attempts > 1 {
			again++
		}
	}
	require.Greater(t, again, 20, "requests that were lost were sent again")
}

// The same without receipts, where texts are distinct: the list finds them.
func TestLookupSettlesLostAnswers(t *testing.T) {
	t.Parallel()
	texts := e2e.Texts(e2e.Sends)
	s := newStack(t, stackOptions{distinct: true, fake: fakeOptions{lag: 500 * time.Millisecond, smart: true, limit: 3, fault: losing}}, texts...)
	s.Settled(t)
	once(t, s, texts, 1)
	kinds := map[string]int{}
	for _, key := range s.Keys {
		h := s.History(t, key)
		require.Equal(t, dispatch.Sent, h.State, "%s", h)
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
	texts := e2e.Texts(e2e.Sends)
	s := newStack(t, stackOptions{giveUp: 12 * time.Second, fake: fakeOptions{lag: 500 * time.Millisecond, fault: losing}}, texts...)
	s.Settled(t)
	once(t, s, texts, 0)
	held, again, taken := 0, 0, s.fake.deliveries()
	for i, c := range texts {
		h := s.History(t, s.Keys[i])
		require.Contains(t, []dispatch.State{dispatch.Sent, dispatch.Held}, h.State, "%s", h)
		switch {
		case h.State == dispatch.Held:
			held++
			require.Equal(t, dispatch.ReasonUnresolved, h.Reason)
		case h.Attempts > 1:
			again++
			fallthrough
		default:
			require.Equal(t, 1, taken[bodyOf(c)], "%s", h)
		}
	}
	require.GreaterOrEqual(t, held, 100, "two of ten were taken, and nothing can tell")
	require.Greater(t, again, 20, "what was never taken is sent again")
}

// B145, B161: failed deliveries, each three times and in every order with what
// came before, are kept once, and send nothing.
func TestReceiptsNeverResend(t *testing.T) {
	t.Parallel()
	texts := e2e.Texts(6)
	s := newStack(t, stackOptions{receipts: true}, texts...)
	s.Settled(t)
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
		for _, key := range s.Keys {
			if len(s.History(t, key).Events) < 4 {
				return false
			}
		}
		return true
	}, 20*time.Second, 20*time.Millisecond)
	for _, key := range s.Keys {
		h := s.History(t, key)
		require.Equal(t, dispatch.Sent, h.State)
		require.Len(t, h.Events, 4, "%s", h)
		require.Equal(t, 1, h.Attempts)
	}
	once(t, s, texts, 1)
}
