package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// WorkerConfig says what a worker does. It is copied by NewWorker.
type WorkerConfig struct {
	// Providers are bound to the names that the box's routes list. At least
	// one; each must be on a route.
	Providers []dispatch.Provider
	// Slots is how many sends may run at once; 100 where zero. A tenth of them
	// is kept for messages of High priority.
	Slots int
	// Limits bound what goes to a provider, by its name.
	Limits map[string]Limit
	// Health says when a provider is unhealthy.
	Health Thresholds
	// Lease is how long a claimed message belongs to this worker; twice the
	// provider's attempt time-out where zero. It must leave room for an
	// attempt and half of its time-out.
	Lease time.Duration
	// PollInterval is the longest pause between two looks at an idle database;
	// 1 s where zero, at least 1 ms. Wake and Listen make it matter little.
	PollInterval time.Duration
	// SweepInterval is the pause between two steps of maintenance: leases that
	// ended, deadlines, doubts; 1 s where zero, at least 1 ms.
	SweepInterval time.Duration
	// DrainTimeout is how long Run waits for sends that are under way when its
	// context ends; the longest attempt time-out where zero. Sends that are
	// cut off then become unknown.
	DrainTimeout time.Duration
	// Listen, where set, is a connection of its own on which the worker listens
	// for the NOTIFY of other processes (Config.Notify). It must be a direct
	// one: PgBouncer in transaction mode doesn't pass notifications.
	Listen *pgx.ConnConfig
	// Notices, where set, is told what became of messages whose Intent.Notify
	// asks for it: to offer another channel, or to raise an alarm. It is told at
	// least once, also after a crash; an error, a panic or 30 s without an answer
	// and it is told again, later each time. It keeps no send waiting.
	Notices func(ctx context.Context, n Notice) error
	// Retention scrubs and deletes what is over, step by step beside the sends;
	// empty keeps everything. Several may be set, for routes of their own: the
	// shortest time that meets a message counts.
	Retention []Retention
	// Logger gets one line for each attempt, with key, attempt, status and delay:
	// at debug where it was accepted, at info where it will be made again, and as
	// a warning where it may have been accepted, or the message is held or dead;
	// slog.Default() where nil. It never gets a recipient, a text or a vendor's
	// words.
	Logger *slog.Logger
	// Observer, where set, is told of each attempt, look-up and move of this
	// worker, for traces and metrics.
	Observer Observer
}

// Limit bounds what goes to a provider. A zero field is no bound.
type Limit struct {
	// PerSecond is how many sends may begin in a second, of all processes
	// together that work on the box; at least 0.001. All of them should say the
	// same.
	PerSecond float64
	// Burst is how many may begin at once; a quarter of a second's where zero,
	// at least 1.
	Burst int
	// Concurrent is how many sends of this process may be under way at once.
	Concurrent int
}

func (l Limit) engine() (engine.Limit, error) {
	if math.IsNaN(l.PerSecond) || l.PerSecond < 0 || l.PerSecond > 1e6 || l.PerSecond > 0 && l.PerSecond < 0.001 {
		return engine.Limit{}, fmt.Errorf("%v sends per second, want 0.001 to 1000000", l.PerSecond)
	}
	if l.Burst < 0 || l.Burst > 1e6 || l.Concurrent < 0 {
		return engine.Limit{}, errors.New("burst or concurrency is negative or too large")
	}
	burst := or(l.Burst, max(1, int(l.PerSecond/4)))
	return engine.Limit{PerThousand: int64(l.PerSecond * 1000), Burst: burst, Concurrent: l.Concurrent}, nil
}

// Worker sends what a box holds. Make it with NewWorker and run it with Run.
type Worker struct {
	box    *Box
	cfg    WorkerConfig
	engine *engine.Engine
	log    *slog.Logger

	slots   chan struct{}
	settles chan engine.Change

	mu      sync.Mutex
	running bool
}

// NewWorker checks that providers, routes and times fit together.
func NewWorker(box *Box, cfg WorkerConfig) (*Worker, error) {
	if box == nil {
		return nil, errors.New("outbox: box is nil")
	}
	if box.pool == nil {
		return nil, fmt.Errorf("outbox: worker: %w", ErrNoPool)
	}
	if len(cfg.Providers) == 0 {
		return nil, errors.New("outbox: worker has no providers")
	}
	if cfg.Slots < 0 || cfg.Slots > 100_000 {
		return nil, fmt.Errorf("outbox: worker: %d slots, want 1 to 100000", cfg.Slots)
	}
	if cfg.Lease < 0 || cfg.DrainTimeout < 0 {
		return nil, errors.New("outbox: worker: a time is negative")
	}
	cfg.Slots = or(cfg.Slots, 100)
	cfg.PollInterval = or(cfg.PollInterval, time.Second)
	cfg.SweepInterval = or(cfg.SweepInterval, time.Second)
	if cfg.PollInterval < time.Millisecond || cfg.SweepInterval < time.Millisecond {
		return nil, errors.New("outbox: worker: an interval is below 1 ms")
	}
	limits := map[string]engine.Limit{}
	for name, l := range cfg.Limits {
		var err error
		if limits[name], err = l.engine(); err != nil {
			return nil, fmt.Errorf("outbox: worker: limit of %q: %w", name, err)
		}
	}
	for _, r := range cfg.Retention {
		if err := r.check(box.routes); err != nil {
			return nil, fmt.Errorf("outbox: worker: %w", err)
		}
	}
	thresholds, err := cfg.Health.engine()
	if err != nil {
		return nil, fmt.Errorf("outbox: worker: %w", err)
	}
	if err := box.checkBinding(cfg.Providers); err != nil {
		return nil, fmt.Errorf("outbox: worker: %w", err)
	}
	e, err := engine.New(box.store, engine.Config{
		Routes: box.list, Providers: cfg.Providers, Lease: cfg.Lease, Random: rand.Int64N, Gates: box.store, Rates: box.store,
		Health: box.store, Thresholds: thresholds, Limits: limits, Slots: cfg.Slots,
		Vault: sealing{box.seal},
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: worker: %w", err)
	}
	if cfg.DrainTimeout == 0 {
		for _, p := range cfg.Providers {
			cfg.DrainTimeout = max(cfg.DrainTimeout, p.Contract().AttemptTimeout())
		}
	}
	w := &Worker{box: box, cfg: cfg, engine: e, log: cfg.Logger}
	if w.log == nil {
		w.log = slog.Default()
	}
	w.slots = make(chan struct{}, cfg.Slots)
	w.settles = make(chan engine.Change, cfg.Slots)
	return w, nil
}

// String shows nothing of the configuration: Listen has a password.
func (w *Worker) String() string { return "worker of outbox " + w.box.name }

func or[T comparable](v, zero T) T {
	var none T
	if v == none {
		return zero
	}
	return v
}

// Run claims, sends and settles until ctx ends, then drains: nothing new is
// claimed, what was claimed and not begun goes back uncounted, sends that are
// under way finish, or are cut off after DrainTimeout and become unknown, and
// every outcome is written. A claim whose answer was lost not long before is
// looked after until then, too. It returns nil then. It returns an error at once
// where the schema can't be used. A database that can't be reached later is
// waited for. All its goroutines have ended when it returns.
func (w *Worker) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.running {
		w.mu.Unlock()
		return errors.New("outbox: worker runs already")
	}
	w.running = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running = false
	}()
	if err := w.box.Validate(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("outbox: worker: %w", err)
	}
	w.tellBinding(ctx)
	r := run{Worker: w}
	return r.run(ctx)
}

// run is one Run. Its goroutines, and what ends each:
//
//	claimer   ctx
//	sender    at most one for each slot; the claimer's end. Sends end with the
//	          attempt's time-out, or with cut, DrainTimeout after ctx
//	tender    ctx; the look-ups that it asks end as sends do
//	listener  ctx
//	herald    ctx
//	pruner    one for each retention; ctx
//	auditor   one for each claim whose answer was lost; its lease, or the cut
//	settler   the end of all of the above
type run struct {
	*Worker
	work sync.WaitGroup  // claimer, tender, listener, herald, pruners, auditors
	send sync.WaitGroup  // senders
	cut  context.Context //nolint:containedctx // it lives as long as the run, and outlives its ctx

	tasks   chan claimed  // from the claimer to the senders
	senders int           // that there are; the claimer's
	freed   chan struct{} // holds a token once a slot became free
	took    atomic.Int64  // what a send takes, of late
	warned  watch         // of the tender
	spoilt  sync.Once     // the observer panicked, and that was said
}

func (r *run) run(ctx context.Context) error {
	cut, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	r.cut, r.tasks, r.freed = cut, make(chan claimed), make(chan struct{}, 1)
	bell, leave := r.box.wake.join()
	defer leave()

	r.work.Go(func() { r.claim(ctx, bell) })
	r.work.Go(func() { r.tend(ctx) })
	if r.cfg.Listen != nil {
		r.work.Go(func() { r.listen(ctx, bell) })
	}
	if r.cfg.Notices != nil {
		r.work.Go(func() { r.tellAll(ctx) })
	}
	for _, keep := range r.cfg.Retention {
		r.work.Go(func() { r.prune(ctx, keep) })
	}
	settled := make(chan struct{})
	go func() { //nolint:contextcheck // outcomes are written whatever became of ctx
		defer close(settled)
		r.settle()
	}()

	<-ctx.Done()
	limit := time.AfterFunc(r.cfg.DrainTimeout, stop)
	r.work.Wait()
	r.send.Wait()
	limit.Stop()
	close(r.settles)
	<-settled
	r.settles = make(chan engine.Change, r.cfg.Slots) // for another Run
	return nil
}
