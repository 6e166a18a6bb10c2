package outboxotel_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxotel"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

// world is an application with a worker, and what it exports.
type world struct {
	box   *outbox.Box
	pool  *pgxpool.Pool
	spans *tracetest.InMemoryExporter
	read  *metric.ManualReader
	trace *sdk.TracerProvider
}

func newWorld(t *testing.T, p *outboxtest.Provider, link bool) *world {
	t.Helper()
	pool, schema := pgtest.Pool(t)
	policy := dispatch.SMSPolicy()
	policy.Backoff = dispatch.Backoff{Base: 5 * time.Millisecond, Cap: 50 * time.Millisecond}
	box, err := outbox.New(pool, outbox.Config{Schema: schema, Routes: []dispatch.Route{{Name: "sms", Providers: []string{"test"}, Policy: policy}}})
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	w := &world{box: box, pool: pool, spans: tracetest.NewInMemoryExporter(), read: metric.NewManualReader()}
	w.trace = sdk.NewTracerProvider(sdk.WithSyncer(w.spans))
	meter := metric.NewMeterProvider(metric.WithReader(w.read))
	o, err := outboxotel.New(outboxotel.Config{TracerProvider: w.trace, MeterProvider: meter, Box: box, Link: link})
	require.NoError(t, err)
	worker, err := outbox.NewWorker(box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{p}, Observer: o,
		PollInterval: 20 * time.Millisecond, SweepInterval: 20 * time.Millisecond,
	})
	require.NoError(t, err)
	// Run is called in a span of the application's, as in a traced main: it is
	// no message's.
	ctx, running := w.trace.Tracer("app").Start(context.WithoutCancel(t.Context()), "main")
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
		require.True(t, running.IsRecording(), "nobody else ended it")
		require.NoError(t, o.Close())
	})
	return w
}

func (w *world) enqueue(ctx context.Context, t *testing.T, i dispatch.Intent) {
	t.Helper()
	require.NoError(t, w.box.InTx(ctx, func(tx pgx.Tx) error {
		_, err := w.box.Enqueue(ctx, tx, i)
		return err
	}))
}

// calls waits for so many spans of the message.
func (w *world) calls(t *testing.T, key dispatch.Key, n int) (list tracetest.SpanStubs) {
	t.Helper()
	require.Eventually(t, func() bool {
		list = nil
		for _, s := range w.spans.GetSpans() {
			for _, a := range s.Attributes {
				if a.Key == "messaging.message.id" && a.Value.AsString() == key.String() {
					list = append(list, s)
				}
			}
		}
		return len(list) >= n
	}, 20*time.Second, 5*time.Millisecond)
	require.Len(t, list, n)
	return list
}

func sms() dispatch.Intent {
	return dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.SMS{To: "+15555550123", Body: "hello"}}
}

func lossy() *outboxtest.Provider {
	return &outboxtest.Provider{
		Promise: dispatch.Contract{Search: dispatch.Search{Available: true}},
		Respond: func(ctx context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
			if !trace.SpanFromContext(ctx).IsRecording() {
				return dispatch.Accepted{}, &dispatch.Fault{Verdict: dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Message, Reason: "no span"}}
			}
			if e.Attempt == 1 {
				return dispatch.Accepted{}, &dispatch.Fault{
					Evidence: dispatch.Evidence{Stage: dispatch.Answered, Status: 429, Code: "slow_down", Reason: "+15555550123 is busy"},
					Verdict:  dispatch.Verdict{Outcome: dispatch.Rejected, Reason: "rate limited"},
				}
			}
			accept()
			return dispatch.Accepted{}, context.DeadlineExceeded
		},
	}
}

func text(list []attribute.KeyValue) string {
	var b strings.Builder
	for _, a := range list {
		fmt.Fprintf(&b, "%s=%s ", a.Key, a.Value.String())
	}
	return b.String()
}

// The trace goes from the enqueue through the row to each call.
func TestSpansGoOnWithTheTraceOfTheEnqueue(t *testing.T) {
	w := newWorld(t, lossy(), false)
	i := sms()
	ctx, request := w.trace.Tracer("app").Start(t.Context(), "POST /login")
	i.TraceParent = outboxotel.TraceParent(ctx)
	require.NotEmpty(t, i.TraceParent)
	w.enqueue(ctx, t, i)
	request.End()
	spans := w.calls(t, i.Key, 3)
	for n, s := range spans {
		assert.Equal(t, request.SpanContext().TraceID(), s.SpanContext.TraceID())
		assert.Equal(t, request.SpanContext().SpanID(), s.Parent.SpanID(), "a child of the request")
		assert.True(t, s.Parent.IsRemote())
		assert.Equal(t, trace.SpanKindClient, s.SpanKind)
		assert.Positive(t, s.EndTime.Sub(s.StartTime))
		assert.Contains(t, text(s.Attributes), fmt.Sprintf("dispatch.attempt=%d ", n+1))
		assert.NotContains(t, text(s.Attributes)+s.Name+s.Status.Description, "5555550123")
	}
	assert.Equal(t, "send sms", spans[0].Name)
	assert.Contains(t, text(spans[0].Attributes), "dispatch.outcome=rejected dispatch.state=pending dispatch.status=429 dispatch.code=slow_down error.type=rejected moment")
	assert.Equal(t, sdk.Status{Code: codes.Error, Description: "rate limited"}, spans[0].Status)
	assert.Contains(t, text(spans[1].Attributes), "dispatch.outcome=unknown dispatch.state=unknown")
	assert.Equal(t, codes.Error, spans[1].Status.Code)
	assert.Equal(t, "look-up sms", spans[2].Name)
	assert.Contains(t, text(spans[2].Attributes), "dispatch.outcome=ok dispatch.state=sent")
	assert.Equal(t, codes.Unset, spans[2].Status.Code)
}

func TestLinkedSpansBeginTracesOfTheirOwn(t *testing.T) {
	w := newWorld(t, lossy(), true)
	i := sms()
	ctx, request := w.trace.Tracer("app").Start(t.Context(), "POST /login")
	i.TraceParent = outboxotel.TraceParent(ctx)
	w.enqueue(ctx, t, i)
	seen := map[trace.TraceID]bool{request.SpanContext().TraceID(): true}
	for _, s := range w.calls(t, i.Key, 3) {
		assert.False(t, seen[s.SpanContext.TraceID()])
		seen[s.SpanContext.TraceID()] = true
		assert.False(t, s.Parent.IsValid())
		require.Len(t, s.Links, 1)
		assert.Equal(t, request.SpanContext().SpanID(), s.Links[0].SpanContext.SpanID())
	}
}

// What can't be read is no parent, and neither is the span in which Run was
// called.
func TestSpansWithoutAParent(t *testing.T) {
	w := newWorld(t, &outboxtest.Provider{}, false)
	for _, parent := range []string{"", "nonsense", "00-00000000000000000000000000000000-0000000000000000-01", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"} {
		i := sms()
		i.TraceParent = parent
		w.enqueue(t.Context(), t, i)
		s := w.calls(t, i.Key, 1)[0]
		assert.False(t, s.Parent.IsValid(), parent)
		assert.Empty(t, s.Links, parent)
	}
	assert.Empty(t, outboxotel.TraceParent(t.Context()))
}

func TestMetrics(t *testing.T) {
	w := newWorld(t, lossy(), false)
	i := sms()
	w.enqueue(t.Context(), t, i)
	w.calls(t, i.Key, 3)
	later := sms()
	later.NotBefore = time.Now().Add(time.Hour)
	w.enqueue(t.Context(), t, later)
	require.NoError(t, w.box.Pause(t.Context(), "test", outbox.Audit{By: "ada", Why: "test"}))

	var all metricdata.ResourceMetrics
	require.NoError(t, w.read.Collect(t.Context(), &all))
	got := map[string]string{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			var b strings.Builder
			switch d := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					fmt.Fprintf(&b, "%s%d;", text(p.Attributes.ToSlice()), p.Count)
				}
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					fmt.Fprintf(&b, "%s%d;", text(p.Attributes.ToSlice()), p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					fmt.Fprintf(&b, "%s%d;", text(p.Attributes.ToSlice()), p.Value)
				}
			case metricdata.Gauge[float64]:
				b.WriteString("seconds")
			default:
				t.Errorf("%s is %T", m.Name, d)
			}
			got[m.Name] = b.String()
		}
	}
	const call = "dispatch.outcome=%s dispatch.provider=test dispatch.route=sms 1;"
	for _, part := range []string{
		"dispatch.kind=attempt " + fmt.Sprintf(call, "rejected"), "dispatch.kind=attempt " + fmt.Sprintf(call, "unknown"),
		"dispatch.kind=look-up " + fmt.Sprintf(call, "ok"),
	} {
		assert.Contains(t, got["dispatch.call.duration"], part)
	}
	assert.Equal(t, "dispatch.route=sms 2;", got["dispatch.send.lag"])
	assert.Equal(t, "dispatch.reason= dispatch.route=sms dispatch.state=sent 1;", got["dispatch.messages.settled"])
	assert.Equal(t, "dispatch.reason= dispatch.route=sms dispatch.state=pending 1;", got["dispatch.messages"])
	assert.Equal(t, "dispatch.route=sms 0;", got["dispatch.messages.due"])
	assert.Equal(t, "dispatch.provider=test dispatch.reason=paused dispatch.route= 1;", got["dispatch.gates.closed"])
	assert.Equal(t, "0;", got["dispatch.receipts.unmatched"])
	assert.Equal(t, "seconds", got["dispatch.message.age"])
}
