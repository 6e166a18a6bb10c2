package outboxprom_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxprom"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

func newBox(t *testing.T) (*outbox.Box, *pgxpool.Pool, string) {
	t.Helper()
	pool, schema := pgtest.Pool(t)
	box, err := outbox.New(pool, outbox.Config{Schema: schema, Routes: []dispatch.Route{{Name: "sms", Providers: []string{"test"}}}})
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	return box, pool, schema
}

// scrape reads what a Prometheus would.
func scrape(t *testing.T, c *outboxprom.Collector) map[string]*dto.MetricFamily {
	t.Helper()
	server := httptest.NewServer(c.Handler())
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	require.NoError(t, err)
	resp, err := server.Client().Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(resp.Body)
	require.NoError(t, err)
	return all
}

// value is that of the one series whose labels hold all of these pairs.
func value(t *testing.T, all map[string]*dto.MetricFamily, name string, pairs ...string) float64 {
	t.Helper()
	require.Contains(t, all, name)
	var found []*dto.Metric
	for _, m := range all[name].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		fits := true
		for i := 0; i < len(pairs); i += 2 {
			fits = fits && labels[pairs[i]] == pairs[i+1]
		}
		if fits {
			found = append(found, m)
		}
	}
	require.Len(t, found, 1, "%s %v: %v", name, pairs, all[name])
	switch m := found[0]; {
	case m.GetHistogram() != nil:
		return float64(m.GetHistogram().GetSampleCount())
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	default:
		return found[0].GetGauge().GetValue()
	}
}

func TestScrape(t *testing.T) {
	box, pool, schema := newBox(t)
	metrics := outboxprom.New(outboxprom.Config{Box: box})
	p := &outboxtest.Provider{Respond: func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		switch e.Content.(dispatch.SMS).Body {
		case "refused":
			return dispatch.Accepted{}, &dispatch.Fault{
				Evidence: dispatch.Evidence{Reason: "no such number +15555550123"},
				Verdict:  dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Message, Reason: "refused"},
			}
		case "lost":
			return dispatch.Accepted{}, context.DeadlineExceeded
		}
		return accept(), nil
	}}
	worker, err := outbox.NewWorker(box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{p}, Observer: metrics,
		PollInterval: 20 * time.Millisecond, SweepInterval: 20 * time.Millisecond,
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()

	var keys []dispatch.Key
	for _, body := range []string{"hello", "hello", "refused", "lost"} {
		keys = append(keys, dispatch.NewKey())
		require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
			_, err := box.Enqueue(t.Context(), tx, dispatch.Intent{
				Key: keys[len(keys)-1], Content: dispatch.SMS{To: "+15555550123", Body: body},
			})
			return err
		}))
	}
	require.Eventually(t, func() bool {
		var left int
		require.NoError(t, pool.QueryRow(context.WithoutCancel(t.Context()), `select count(*) from "`+schema+`".queue`).Scan(&left))
		return left == 0
	}, 20*time.Second, 10*time.Millisecond)
	stop()
	require.NoError(t, <-done)
	_, err = box.Cancel(t.Context(), keys[3], outbox.Audit{By: "ada", Why: "test"})
	require.NoError(t, err)
	require.NoError(t, box.PauseRoute(t.Context(), "sms", outbox.Audit{By: "ada", Why: "test"}))

	all := scrape(t, metrics)
	call := []string{"kind", "attempt", "route", "sms", "provider", "test", "outcome"}
	assert.InEpsilon(t, 2.0, value(t, all, "dispatch_call_duration_seconds", append(call, "ok")...), 0)
	assert.InEpsilon(t, 1.0, value(t, all, "dispatch_call_duration_seconds", append(call, "rejected")...), 0)
	assert.InEpsilon(t, 1.0, value(t, all, "dispatch_call_duration_seconds", append(call, "unknown")...), 0)
	assert.InEpsilon(t, 4.0, value(t, all, "dispatch_send_lag_seconds", "route", "sms"), 0)
	assert.InEpsilon(t, 2.0, value(t, all, "dispatch_messages_settled_total", "state", "sent"), 0)
	assert.InEpsilon(t, 1.0, value(t, all, "dispatch_messages_settled_total", "state", "dead", "reason", "rejected"), 0)
	assert.InEpsilon(t, 1.0, value(t, all, "dispatch_messages_settled_total", "state", "held"), 0)
	assert.InEpsilon(t, 1.0, value(t, all, "dispatch_messages", "state", "dead", "reason", "rejected", "route", "sms"), 0)
	assert.InEpsilon(t, 1.0, value(t, all, "dispatch_messages_parked_last_hour", "state", "dead", "reason", "rejected"), 0)
	assert.InEpsilon(t, 1.0, value(t, all, "dispatch_gates_closed", "route", "sms", "reason", "paused"), 0)
	assert.InEpsilon(t, 1.0, value(t, all, "dispatch_stats_up"), 0)
	assert.Zero(t, value(t, all, "dispatch_receipts_waiting"))
	bounded(t, all)

	problems, err := testutil.CollectAndLint(metrics)
	require.NoError(t, err)
	assert.Empty(t, problems, "the names follow Prometheus' conventions")
}

// bounded checks that nothing but the few labels is there, and no key,
// recipient or text in their values.
func bounded(t *testing.T, all map[string]*dto.MetricFamily) {
	t.Helper()
	for name, f := range all {
		assert.True(t, strings.HasPrefix(name, "dispatch_"), name)
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				assert.Contains(t, []string{"kind", "route", "provider", "state", "outcome", "reason", "operation"}, l.GetName(), name)
				assert.Contains(t, []string{
					"", "sms", "test", "attempt", "look-up", "ok", "unknown", "rejected", "answered", "failed", "paused",
					"sent", "held", "dead", "cancelled", "pending", "sending", "budget", "deadline", "unresolved", "superseded",
				}, l.GetValue(), "%s of %s", l.GetName(), name)
			}
		}
	}
}

// A database that is away takes nothing of the scrape but itself.
func TestScrapeWithoutADatabase(t *testing.T) {
	box, pool, _ := newBox(t)
	metrics := outboxprom.New(outboxprom.Config{Box: box, Timeout: time.Second})
	metrics.Observe(t.Context(), outbox.Observation{Kind: "error", Detail: "claim"})
	pool.Close()
	all := scrape(t, metrics)
	assert.Zero(t, value(t, all, "dispatch_stats_up"))
	assert.InEpsilon(t, 1.0, value(t, all, "dispatch_worker_errors_total", "operation", "claim"), 0)
	assert.NotContains(t, all, "dispatch_messages")
}

func TestCollectorWithoutABox(t *testing.T) {
	metrics := outboxprom.New(outboxprom.Config{})
	metrics.Observe(t.Context(), outbox.Observation{Kind: "swept", Route: "sms", Provider: "test", State: dispatch.InDoubt})
	metrics.Observe(t.Context(), outbox.Observation{Kind: "attempt", Route: "sms", Provider: "test", Outcome: dispatch.OK, State: dispatch.Sent, Double: true})
	all := scrape(t, metrics)
	assert.InEpsilon(t, 1.0, value(t, all, "dispatch_sends_swept_total", "route", "sms"), 0)
	assert.InEpsilon(t, 1.0, value(t, all, "dispatch_messages_duplicated_total", "provider", "test"), 0)
	assert.NotContains(t, all, "dispatch_stats_up")
}
