package outbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// Observer is told what a worker does, for traces and metrics; outboxotel and
// outboxprom are two. It is called on the worker's own goroutines, by several
// at once: it must not block. It sees neither recipient nor text. Where it
// panics the worker goes on, and says so once.
type Observer interface {
	// Begin is called right before a provider is called: for a send, or for a
	// look-up. The provider gets the values of the context that it returns, such
	// as a span; time-outs and cancellation stay the worker's. Nil stands for ctx.
	Begin(ctx context.Context, o Observation) context.Context
	// Observe is called once what happened is written. ctx has the values of
	// Begin's where there was a Begin; it never ends.
	Observe(ctx context.Context, o Observation)
}

// Observation is what an Observer is told. Everything in it is fit for logs;
// Key, Detail, Code and TraceParent are not fit for labels of a metric: there
// are too many of them.
type Observation struct {
	// Kind is what happened: "attempt" (a send), "look-up", "swept" (a send
	// whose worker was not heard of again), "moved" (without a call), or "error":
	// the worker could not do its own work.
	Kind     string
	Key      dispatch.Key
	Route    string
	Provider string
	// Attempt is the claim that it belongs to: it grows with each send, and with
	// each look-up.
	Attempt int64
	// TraceParent is the W3C trace context of the enqueue, of attempts and
	// look-ups.
	TraceParent string
	// Lag is how long after it was due the send began, Began when that was by
	// this process's clock, and Took how long the call ran.
	Lag   time.Duration
	Began time.Time
	Took  time.Duration
	// Outcome, Scope, Status and Code are the provider's answer; the outcome of
	// a look-up is OK where the provider has the message.
	Outcome dispatch.Outcome
	Scope   dispatch.Scope
	Status  int
	Code    string
	// Detail is in this library's words: why, and for errors one of "gates",
	// "claim", "settle", "lost", "maintenance", "notices", "retention", "listen".
	// "lost" is an outcome that couldn't be written; the sweeper finds its row.
	Detail string
	// State and Reason are what the message became, zero where that isn't
	// written. Wait is how long its next step is off, negative for none.
	State  dispatch.State
	Reason dispatch.Reason
	Wait   time.Duration
	// Double tells that the message was accepted twice.
	Double bool
}

// watched is what is kept of a call between Begin and Observe.
type watched struct {
	ctx   context.Context //nolint:containedctx // its values go with the outcome to the settler
	trace string
	lag   time.Duration
	began time.Time
	took  time.Duration
}

// lent lets a call have another context's values and nothing else of it: an
// observer can neither cut a send off nor keep it running.
type lent struct {
	context.Context //nolint:containedctx // it is one
	values          context.Context
}

func (l lent) Value(key any) any { return l.values.Value(key) }

// begin tells the observer of a call, and returns what is kept of it and the
// context for the call. Without an observer it costs nothing.
func (r *run) begin(ctx context.Context, t *engine.Task, kind string, lag time.Duration) (out context.Context, w *watched) {
	if r.cfg.Observer == nil {
		return ctx, nil
	}
	out, w = ctx, &watched{ctx: ctx, trace: t.Trace, lag: max(0, lag), began: time.Now()}
	defer func() {
		if p := recover(); p != nil {
			out = ctx
			r.complain(ctx)
		}
	}()
	o := Observation{
		Kind: kind, Key: t.Key, Route: t.Lane.Route, Provider: t.Provider, Attempt: t.Fence, TraceParent: w.trace,
		Lag: w.lag, Began: w.began, Wait: -1,
	}
	if with := r.cfg.Observer.Begin(ctx, o); with != nil && with != ctx {
		w.ctx = with
		return lent{Context: ctx, values: with}, w
	}
	return ctx, w
}

// end notes how long a call took; Change.Watch is nil without an observer.
func (w *watched) end(c *engine.Change) {
	if w != nil {
		w.took = time.Since(w.began)
		c.Watch = w
	}
}

// observe tells the observer of what was written.
func (r *run) observe(ctx context.Context, o Observation) {
	if r.cfg.Observer == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			r.complain(ctx)
		}
	}()
	r.cfg.Observer.Observe(ctx, o)
}

func (r *run) complain(ctx context.Context) {
	r.spoilt.Do(func() {
		r.log.ErrorContext(context.WithoutCancel(ctx), "observer panicked")
	})
}

// observation is a change that was written, and what became of it. The zero
// result is one that could not be written.
func observation(c *engine.Change, res engine.Result) Observation {
	rec := c.Record
	o := Observation{
		Kind: kindName(rec.Kind), Key: c.Key, Route: c.Move.Lane.Route, Provider: rec.Provider, Attempt: c.Fence,
		Outcome: rec.Verdict.Outcome, Scope: rec.Verdict.Scope, Status: rec.Evidence.Status, Code: rec.Evidence.Code,
		Detail: rec.Verdict.Reason, State: res.State, Reason: res.Reason, Double: res.Double, Took: rec.Took, Wait: -1,
	}
	if res.State == dispatch.Pending || res.State == dispatch.InDoubt {
		o.Wait = c.Move.Wait
	}
	if w, ok := c.Watch.(*watched); ok {
		o.TraceParent, o.Lag, o.Began, o.Took = w.trace, w.lag, w.began, w.took
	}
	return o
}

// context is what belongs to a change's log line and observation.
func (r *run) context(c *engine.Change) context.Context {
	if w, ok := c.Watch.(*watched); ok {
		return context.WithoutCancel(w.ctx)
	}
	return context.WithoutCancel(r.cut)
}

// failed logs what the worker could not do, and tells the observer.
func (r *run) failed(ctx context.Context, what, text string, err error, attrs ...slog.Attr) {
	r.log.LogAttrs(ctx, slog.LevelWarn, text, append(attrs, slog.Any("error", err))...) //nolint:sloglint // one of a few fixed texts
	r.observe(ctx, Observation{Kind: "error", Detail: what, Wait: -1})
}
