// Package outboxotel shows what an outbox does to OpenTelemetry: a span for
// each call of a provider, in the trace of the enqueue that it belongs to, and
// metrics.
//
//	observer, err := outboxotel.New(outboxotel.Config{Box: box})
//	worker, err := outbox.NewWorker(box, outbox.WorkerConfig{Observer: observer, ...})
//
// The trace is carried by the message itself: set Intent.TraceParent where it is
// enqueued.
//
//	box.Enqueue(ctx, tx, dispatch.Intent{TraceParent: outboxotel.TraceParent(ctx), ...})
//
// Spans carry the message's key. Metrics carry route, provider, outcome, state
// and reason, which are few, and never a key. Neither holds a recipient, a text
// or a vendor's words.
package outboxotel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// scope is the name of the instrumentation.
const scope = "github.com/seed-8098fbb7/dispatch/outbox/outboxotel"

// Config says where spans and metrics go. The zero value uses the global
// providers and shows what one worker does.
type Config struct {
	// TracerProvider is otel.GetTracerProvider() where nil.
	TracerProvider trace.TracerProvider
	// MeterProvider is otel.GetMeterProvider() where nil.
	MeterProvider metric.MeterProvider
	// Box, where set, is asked for its Stats at each collection: one query of a
	// few milliseconds. One process of several is enough.
	Box *outbox.Box
	// Link begins a trace of its own for each call, with a link to the enqueue's
	// trace, instead of going on with that. It suits messages that wait for
	// hours: a sampler that waits for a trace to end doesn't see them.
	Link bool
}

// Observer is an outbox.Observer. Make it with New; it is safe for concurrent
// use, by several workers too.
type Observer struct {
	tracer  trace.Tracer
	link    bool
	meters  meters
	gauges  metric.Registration // nil without a box
	context propagation.TraceContext
}

// New makes an observer. Its errors are those of the meter provider.
func New(cfg Config) (*Observer, error) {
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	o := &Observer{tracer: cfg.TracerProvider.Tracer(scope), link: cfg.Link}
	meter := cfg.MeterProvider.Meter(scope)
	if err := o.meters.make(meter); err != nil {
		return nil, fmt.Errorf("outboxotel: %w", err)
	}
	if cfg.Box != nil {
		var err error
		if o.gauges, err = observeStats(meter, cfg.Box); err != nil {
			return nil, fmt.Errorf("outboxotel: %w", err)
		}
	}
	return o, nil
}

// Close ends the reading of the box's Stats.
func (o *Observer) Close() error {
	if o.gauges == nil {
		return nil
	}
	return o.gauges.Unregister()
}

// TraceParent is the W3C traceparent of the span in ctx, for Intent.TraceParent;
// empty where there is none. The tracestate isn't carried.
func TraceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

type spanKey struct{}

// Begin starts the span of a call.
func (o *Observer) Begin(ctx context.Context, b outbox.Observation) context.Context {
	name := "send"
	if b.Kind == "look-up" {
		name = "look-up"
	}
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(b.Began), trace.WithAttributes(
			attribute.String("messaging.system", "dispatch"), attribute.String("messaging.operation.name", name),
			attribute.String("messaging.destination.name", b.Route), attribute.String("messaging.message.id", b.Key.String()),
			attribute.String("dispatch.provider", b.Provider), attribute.Int64("dispatch.attempt", b.Attempt),
			attribute.Float64("dispatch.lag", b.Lag.Seconds()),
		),
	}
	// A traceparent that can't be read is no parent: the span begins a trace.
	enqueue := trace.SpanContextFromContext(o.context.Extract(context.WithoutCancel(ctx), propagation.MapCarrier{"traceparent": b.TraceParent}))
	if b.TraceParent == "" || !enqueue.IsRemote() {
		enqueue = trace.SpanContext{}
	}
	switch {
	case o.link && enqueue.IsValid():
		options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: enqueue}))
	case enqueue.IsValid():
		ctx = trace.ContextWithRemoteSpanContext(ctx, enqueue)
	default: // whatever span Run was called in is none of the message's
		options = append(options, trace.WithNewRoot())
	}
	ctx, span := o.tracer.Start(ctx, name+" "+b.Route, options...)
	return context.WithValue(ctx, spanKey{}, span)
}

// Observe ends the span of a call and counts.
func (o *Observer) Observe(ctx context.Context, e outbox.Observation) {
	o.meters.count(ctx, e)
	span, ok := ctx.Value(spanKey{}).(trace.Span)
	if !ok || e.Kind == "error" {
		return
	}
	defer span.End(trace.WithTimestamp(e.Began.Add(e.Took)))
	span.SetAttributes(attribute.String("dispatch.outcome", e.Outcome.String()), attribute.String("dispatch.state", state(e)))
	if e.Reason != dispatch.NoReason {
		span.SetAttributes(attribute.String("dispatch.reason", e.Reason.String()))
	}
	if e.Status != 0 {
		span.SetAttributes(attribute.Int("dispatch.status", e.Status))
	}
	if e.Code != "" {
		span.SetAttributes(attribute.String("dispatch.code", e.Code))
	}
	switch {
	case e.Double:
		span.SetStatus(codes.Error, "accepted twice")
	case e.Kind == "attempt" && e.Outcome != dispatch.OK:
		span.SetAttributes(attribute.String("error.type", e.Outcome.String()+" "+e.Scope.String()))
		span.SetStatus(codes.Error, e.Detail)
	}
}

// state is what a message became, "not written" where that isn't known.
func state(e outbox.Observation) string {
	if e.State == 0 {
		return "not written"
	}
	return e.State.String()
}

var _ outbox.Observer = (*Observer)(nil)
