package outbox_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

// A worker says once what keeps messages from a provider of their route without
// anybody having paused it: that it isn't bound here, or that a sender has no
// entry for it.
func TestWorkerTellsWhatIsNotBound(t *testing.T) {
	t.Parallel()
	r, news := route("acme", "bravo"), route("acme")
	r.Senders = dispatch.Senders{"otp": {"acme": "+15555550100"}, "shop": {"acme": "SHOP", "bravo": "SHOP"}}
	news.Name = "news"
	box, _, _ := newBox(t, r, news)
	var log strings.Builder
	acme := &outboxtest.Provider{Promise: dispatch.Contract{Name: "acme"}}
	stop := start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{acme}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	i := sms("hello")
	i.Route = "sms"
	enqueue(t, box, i)
	reaches(t, box, i.Key, dispatch.Sent)
	require.NoError(t, stop())
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
	require.Contains(t, log.String(), `level=WARN msg="sender is not registered at a provider of its route: its messages never go there" route=sms provider=bravo sender=otp`)
	require.Equal(t, 1, strings.Count(log.String(), "level=INFO"), log.String())
	require.Contains(t, log.String(), `level=INFO msg="provider is not bound: this worker sends nothing to it" route=sms provider=bravo`)
}
