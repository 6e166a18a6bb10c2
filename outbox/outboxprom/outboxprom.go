// Package outboxprom shows an outbox to Prometheus: what a worker does, and what
// the box holds.
//
//	metrics := outboxprom.New(outboxprom.Config{Box: box})
//	worker, err := outbox.NewWorker(box, outbox.WorkerConfig{Observer: metrics, ...})
//	mux.Handle("GET /metrics", metrics.Handler())
//
// Labels are route, provider, state, outcome, reason, kind and operation: there
// are few of each, whatever the box holds. No label and no name has a key, a
// recipient, a text or a vendor's words in it. dashboard.json beside this file is
// a dashboard for Grafana that shows them.
package outboxprom

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// Config says what is shown. The zero value shows what one worker does.
type Config struct {
	// Box, where set, is asked for its Stats at each scrape: one query of a few
	// milliseconds. All processes on a box say the same; one that does is enough.
	Box *outbox.Box
	// Timeout bounds that query; 5 s where zero. A scrape whose query fails shows
	// dispatch_stats_up 0, and everything else that it can.
	Timeout time.Duration
}

// Collector is a prometheus.Collector and an outbox.Observer. Make it with New;
// it is safe for concurrent use, by several workers too.
type Collector struct {
	cfg Config

	calls      *prometheus.HistogramVec
	lag        *prometheus.HistogramVec
	settled    *prometheus.CounterVec
	swept      *prometheus.CounterVec
	duplicates *prometheus.CounterVec
	errors     *prometheus.CounterVec
}

// buckets are in seconds: a call takes milliseconds to half a minute.
var buckets = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// New makes a collector. Register it, or serve its Handler.
func New(cfg Config) *Collector {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 5 * time.Second
	}
	number := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	span := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	return &Collector{
		cfg:        cfg,
		calls:      span("dispatch_call_duration_seconds", "How long calls of a provider took.", "kind", "route", "provider", "outcome"),
		lag:        span("dispatch_send_lag_seconds", "How long after it was due a send began.", "route"),
		settled:    number("dispatch_messages_settled_total", "Messages that were sent, held, dead or cancelled.", "route", "state", "reason"),
		swept:      number("dispatch_sends_swept_total", "Sends whose worker was not heard of again.", "route", "provider"),
		duplicates: number("dispatch_messages_duplicated_total", "Messages that were accepted twice.", "route", "provider"),
		errors:     number("dispatch_worker_errors_total", "What the worker could not do.", "operation"),
	}
}

// Handler serves this collector alone.
func (c *Collector) Handler() http.Handler {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c) // nothing else is there to clash with
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// Begin does nothing: what counts is what is written.
func (c *Collector) Begin(ctx context.Context, _ outbox.Observation) context.Context { return ctx }

// Observe counts.
func (c *Collector) Observe(_ context.Context, e outbox.Observation) {
	switch e.Kind {
	case "error":
		c.errors.WithLabelValues(e.Detail).Inc()
		return
	case "attempt", "look-up":
		c.calls.WithLabelValues(e.Kind, e.Route, e.Provider, e.Outcome.String()).Observe(e.Took.Seconds())
		if e.Kind == "attempt" {
			c.lag.WithLabelValues(e.Route).Observe(e.Lag.Seconds())
		}
	case "swept":
		c.swept.WithLabelValues(e.Route, e.Provider).Inc()
	}
	if e.Double {
		c.duplicates.WithLabelValues(e.Route, e.Provider).Inc()
	}
	switch e.State {
	case dispatch.Sent, dispatch.Held, dispatch.Dead, dispatch.Cancelled:
		c.settled.WithLabelValues(e.Route, e.State.String(), e.Reason.String()).Inc()
	case dispatch.Pending, dispatch.Sending, dispatch.InDoubt:
	}
}

var _ outbox.Observer = (*Collector)(nil)
