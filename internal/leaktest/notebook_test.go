package leaktest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxotel"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxprom"
)

// traces finds what must be nowhere, in whatever spelling. The login code counts
// where it isn't part of a longer number.
var traces = regexp.MustCompile(`8675309|(?i:sentinel)|(?:^|[^0-9a-fA-F.-])` + code + `(?:$|[^0-9a-fA-F.])`)

// notebook is everything that gets out, by where.
type notebook struct {
	mu    sync.Mutex
	lines map[string][]string

	log   *slog.Logger
	spans *tracetest.InMemoryExporter
	read  *metric.ManualReader
	prom  *outboxprom.Collector
	both  both
}

func newNotebook(t *testing.T, box *outbox.Box) *notebook {
	t.Helper()
	n := &notebook{lines: map[string][]string{}, spans: tracetest.NewInMemoryExporter(), read: metric.NewManualReader()}
	// Times are left out: one holds any six digits some day.
	n.log = slog.New(slog.NewJSONHandler(page{n, "log"}, &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == "took" || a.Key == "delay") {
			return slog.Attr{}
		}
		return a
	}}))
	o, err := outboxotel.New(outboxotel.Config{
		TracerProvider: sdk.NewTracerProvider(sdk.WithSyncer(n.spans)), MeterProvider: metric.NewMeterProvider(metric.WithReader(n.read)), Box: box,
	})
	require.NoError(t, err)
	n.prom = outboxprom.New(outboxprom.Config{Box: box})
	n.both = both{o, n.prom}
	return n
}

// page is a writer into a notebook.
type page struct {
	n     *notebook
	where string
}

func (p page) Write(b []byte) (int, error) {
	p.n.write(p.where, string(b))
	return len(b), nil
}

func (n *notebook) write(where, what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines[where] = append(n.lines[where], what)
}

// show writes down a value in each way in which a program may print it.
func (n *notebook) show(where string, v any) {
	for _, verb := range []string{"%v", "%+v", "%s", "%q"} {
		n.write(where, fmt.Sprintf(verb, v))
	}
	n.log.Error("shown", slog.String("where", where), slog.Any("value", v))
}

// fail writes down an error and what it wraps, as Error shows it.
func (n *notebook) fail(where string, err error) {
	if err == nil {
		return
	}
	n.write("error", where+": "+err.Error())
	n.log.Error("failed", slog.String("where", where), slog.Any("error", err))
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		n.write("error", where+": "+inner.Error())
	}
}

// serve writes down what a webhook answers.
func (n *notebook) serve(where string, h http.Handler, r *http.Request) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	n.write("webhook", fmt.Sprint(where, w.Code, w.Header(), w.Body))
}

// close writes down the spans and the metrics.
func (n *notebook) close(t *testing.T) {
	t.Helper()
	for _, s := range n.spans.GetSpans() {
		s.StartTime, s.EndTime = s.StartTime.Truncate(1e9), s.EndTime.Truncate(1e9)
		n.write("span", fmt.Sprintf("%s %v %v %v %v", s.Name, s.Attributes, s.Events, s.Status, s.Links))
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, n.read.Collect(t.Context(), &all))
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			for _, set := range attributes(m.Data) {
				n.write("metric", m.Name+" "+set)
			}
		}
	}
	families, err := testutil.CollectAndFormat(n.prom, expfmt.TypeTextPlain)
	require.NoError(t, err)
	n.write("metric", string(families))
}

func attributes(data metricdata.Aggregation) (list []string) {
	text := func(v any) string {
		b, err := json.Marshal(v)
		return fmt.Sprint(string(b), err)
	}
	switch d := data.(type) {
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			list = append(list, text(p.Attributes.MarshalLog()))
		}
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			list = append(list, text(p.Attributes.MarshalLog()))
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			list = append(list, text(p.Attributes.MarshalLog()))
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			list = append(list, text(p.Attributes.MarshalLog()))
		}
	}
	return list
}

// leaks are the lines in which something stands that must not, by where.
func (n *notebook) leaks() map[string][]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := map[string][]string{}
	for where, lines := range n.lines {
		for _, l := range lines {
			if traces.MatchString(l) {
				found[where] = append(found[where], l)
			}
		}
	}
	return found
}
