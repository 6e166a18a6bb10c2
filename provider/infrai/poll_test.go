package infrai_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/infrai"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

// poll runs Poll until the test ends.
func poll(t *testing.T, p *infrai.Provider, sink dispatch.ReceiptSink) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Poll(ctx, sink) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done, "it returns nil when its context ends")
	})
}

func TestEvents(t *testing.T) {
	p := open(t, config("https://api.example"))
	receipts, next, err := p.ReadForTest(http.StatusOK, []byte(readFile(t, "events.json")))
	require.NoError(t, err)
	require.Empty(t, next)
	mailtest.CheckReceipts(t, receipts)
	require.Len(t, receipts, 3)
	require.Equal(t, int64(2), p.Unread(), "B154: what can't be read is counted")
	require.NotContains(t, receipts[0].EventKey, "ada@example.com")
	receipts[0].EventKey = ""
	require.Equal(t, dispatch.Receipt{
		Provider: "infrai", Account: "infrai", ProviderID: "em_01HZX", Kind: dispatch.Delivered,
		At: time.Date(2026, 7, 1, 10, 0, 5, 0, time.UTC), Recipient: "ada@example.com",
	}, receipts[0])
	require.Equal(t, dispatch.Bounced, receipts[1].Kind)
	require.True(t, receipts[1].Permanent)
	require.Equal(t, time.Unix(1782900005, 0).UTC(), receipts[1].At)
	require.Equal(t, dispatch.Noted, receipts[2].Kind)

	for body, want := range map[string]int{
		`{"ok":true,"data":[{"email_id":"a","state":"soft_bounce"}]}`:                              1,
		`{"ok":true,"data":{"events":[{"email_id":"a","type":"open"}],"next_cursor":"c"}}`:         1,
		`{"ok":true,"data":{"items":[]}}`:                                                          0,
		`{"ok":true,"data":[{"idempotency_key":"` + mailtest.Key().String() + `","type":"sent"}]}`: 1,
	} {
		receipts, _, err := p.ReadForTest(http.StatusOK, []byte(body))
		require.NoError(t, err)
		require.Len(t, receipts, want, body)
		for _, r := range receipts {
			require.False(t, r.Permanent)
		}
	}
	for _, body := range []string{``, `{}`, `{"ok":true,"data":5}`, `{"ok":false}`, `<html>`} {
		_, _, err := p.ReadForTest(http.StatusOK, []byte(body))
		require.Error(t, err, body)
	}
}

// Pages are followed, a failing sink is asked again at the next poll, and what
// is stored is not stored again.
func TestPoll(t *testing.T) {
	f := newFake(t)
	f.tell(event("a", "delivered"), event("b", "delivered"), event("c", "delivered"), event("d", "bounce"), event("e", "open"))
	sink := &failingOnce{}
	p := open(t, config(f.URL))
	poll(t, p, sink)
	require.Eventually(t, func() bool { return len(sink.All()) == 5 }, 20*time.Second, 10*time.Millisecond)
	f.tell(event("f", "delivered"))
	require.Eventually(t, func() bool { return len(sink.All()) == 6 }, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, 6, sink.Distinct())
	require.ErrorContains(t, p.Poll(t.Context(), sink), "already")
	require.ErrorContains(t, open(t, config(f.URL)).Poll(t.Context(), nil), "sink")
}

type failingOnce struct {
	mailtest.Sink
	once sync.Once
}

func (s *failingOnce) Receive(ctx context.Context, r []dispatch.Receipt) (err error) {
	s.once.Do(func() { err = mailtest.ErrDown })
	if err != nil {
		return err
	}
	return s.Sink.Receive(ctx, r)
}

// A 429 with Retry-After holds the polls, and the log names no recipient.
func TestPollWaits(t *testing.T) {
	f := newFake(t)
	f.busy = true
	var log safeLog
	cfg := config(f.URL)
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	p := open(t, cfg)
	poll(t, p, &mailtest.Sink{})
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "RATE_LIMITED") }, 20*time.Second, 10*time.Millisecond)
	never := time.NewTimer(1500 * time.Millisecond) // longer than Every
	<-never.C
	require.Equal(t, 1, f.polled())
	require.NotContains(t, log.String(), mailtest.Secret)
}

type safeLog struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *safeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
