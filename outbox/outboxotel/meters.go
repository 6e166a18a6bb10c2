package outboxotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// seconds are the bounds of the histograms: an attempt takes milliseconds to
// half a minute.
var seconds = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// meters are the instruments that a worker's observations feed.
type meters struct {
	call       metric.Float64Histogram
	lag        metric.Float64Histogram
	settled    metric.Int64Counter
	swept      metric.Int64Counter
	duplicates metric.Int64Counter
	errors     metric.Int64Counter
}

func (m *meters) make(meter metric.Meter) (err error) {
	number := func(name, unit, text string) metric.Int64Counter {
		c, failed := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		err = errors.Join(err, failed)
		return c
	}
	span := func(name, text string) metric.Float64Histogram {
		h, failed := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text), metric.WithExplicitBucketBoundaries(seconds...))
		err = errors.Join(err, failed)
		return h
	}
	m.call = span("dispatch.call.duration", "How long calls of a provider took.")
	m.lag = span("dispatch.send.lag", "How long after it was due a send began.")
	m.settled = number("dispatch.messages.settled", "{message}", "Messages that were sent, held, dead or cancelled.")
	m.swept = number("dispatch.sends.swept", "{send}", "Sends whose worker was not heard of again.")
	m.duplicates = number("dispatch.messages.duplicated", "{message}", "Messages that were accepted twice.")
	m.errors = number("dispatch.worker.errors", "{error}", "What the worker could not do.")
	return err
}

func (m *meters) count(ctx context.Context, e outbox.Observation) {
	route, provider := attribute.String("dispatch.route", e.Route), attribute.String("dispatch.provider", e.Provider)
	switch e.Kind {
	case "error":
		m.errors.Add(ctx, 1, metric.WithAttributes(attribute.String("dispatch.operation", e.Detail)))
		return
	case "attempt", "look-up":
		m.call.Record(ctx, e.Took.Seconds(), metric.WithAttributes(
			attribute.String("dispatch.kind", e.Kind), route, provider, attribute.String("dispatch.outcome", e.Outcome.String())))
		if e.Kind == "attempt" {
			m.lag.Record(ctx, e.Lag.Seconds(), metric.WithAttributes(route))
		}
	case "swept":
		m.swept.Add(ctx, 1, metric.WithAttributes(route, provider))
	}
	if e.Double {
		m.duplicates.Add(ctx, 1, metric.WithAttributes(route, provider))
	}
	switch e.State {
	case dispatch.Sent, dispatch.Held, dispatch.Dead, dispatch.Cancelled:
		m.settled.Add(ctx, 1, metric.WithAttributes(route, attribute.String("dispatch.state", e.State.String()),
			attribute.String("dispatch.reason", e.Reason.String())))
	case dispatch.Pending, dispatch.Sending, dispatch.InDoubt:
	}
}

// statsTimeout bounds a reading of the box's Stats.
const statsTimeout = 5 * time.Second

// observeStats makes the gauges that show what the box holds.
func observeStats(meter metric.Meter, box *outbox.Box) (metric.Registration, error) {
	var err error
	var all []metric.Observable
	number := func(name, unit, text string) metric.Int64ObservableGauge {
		g, failed := meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text))
		err, all = errors.Join(err, failed), append(all, g)
		return g
	}
	span := func(name, text string) metric.Float64ObservableGauge {
		g, failed := meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(text))
		err, all = errors.Join(err, failed), append(all, g)
		return g
	}
	messages := number("dispatch.messages", "{message}", "Messages in motion and parked.")
	due := number("dispatch.messages.due", "{message}", "Messages that a worker may claim now.")
	overdue := number("dispatch.messages.overdue", "{message}", "Messages that are due since more than a minute.")
	recent := number("dispatch.messages.parked_last_hour", "{message}", "Messages that were held or died in the last hour.")
	oldest := span("dispatch.message.age", "How long the oldest message of a state has waited.")
	gates := number("dispatch.gates.closed", "{gate}", "Closed gates.")
	waiting := number("dispatch.receipts.waiting", "{receipt}", "Receipts that are yet to be applied.")
	unmatched := number("dispatch.receipts.unmatched", "{receipt}", "Receipts that no message was found for.")
	notices := number("dispatch.notices.waiting", "{notice}", "Notices that the application has yet to take.")
	holdback := span("dispatch.vacuum.holdback", "How long the oldest transaction keeps vacuum from its work.")
	if err != nil {
		return nil, err
	}
	return meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, done := context.WithTimeout(ctx, statsTimeout)
		defer done()
		s, err := box.Stats(ctx)
		if err != nil {
			return err
		}
		for _, d := range s.Depths {
			route := attribute.String("dispatch.route", d.Route)
			kind := metric.WithAttributes(route, attribute.String("dispatch.state", d.State.String()), attribute.String("dispatch.reason", d.Reason.String()))
			o.ObserveInt64(messages, d.Count, kind)
			o.ObserveFloat64(oldest, d.Oldest.Seconds(), kind)
			switch d.State {
			case dispatch.Pending:
				o.ObserveInt64(due, d.Due, metric.WithAttributes(route))
				o.ObserveInt64(overdue, d.Overdue, metric.WithAttributes(route))
			case dispatch.Held, dispatch.Dead:
				o.ObserveInt64(recent, d.LastHour, kind)
			case dispatch.Sending, dispatch.InDoubt, dispatch.Sent, dispatch.Cancelled:
			}
		}
		closed := map[attribute.Set]int64{} // one of a provider, or of a country of it
		for _, g := range s.Gates {
			if g.Closed {
				closed[attribute.NewSet(attribute.String("dispatch.provider", g.Provider), attribute.String("dispatch.route", g.Route),
					attribute.String("dispatch.reason", g.Reason))]++
			}
		}
		for set, n := range closed {
			o.ObserveInt64(gates, n, metric.WithAttributeSet(set))
		}
		o.ObserveInt64(waiting, s.ReceiptsWaiting)
		o.ObserveInt64(unmatched, s.ReceiptsUnmatched)
		o.ObserveInt64(notices, s.NoticesWaiting)
		if s.Holdback != nil {
			o.ObserveFloat64(holdback, max(0, s.Holdback.For.Seconds()))
		}
		return nil
	}, all...)
}
