package engine

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// GateReason is why a provider is held. Heavier ones have larger numbers,
// which are stored.
type GateReason int8

// The reasons.
const (
	GateFloor   GateReason = 1 // the provider named a wait; opens by itself
	GateHealth  GateReason = 2 // too many of its calls fail, or it delivers too slowly
	GateCircuit GateReason = 3 // a run of calls without an acceptance
	GateAccount GateReason = 4 // it refuses the account: a person has to mend it
	GatePaused  GateReason = 5 // a person paused it, and a person resumes it
)

func (r GateReason) String() string {
	switch r {
	case GateFloor:
		return "floor"
	case GateHealth:
		return "health"
	case GateCircuit:
		return "circuit"
	case GateAccount:
		return "account"
	case GatePaused:
		return "paused"
	}
	return "unknown reason"
}

// Gate is the shared hold on a provider, or on a route.
type Gate struct {
	Provider string // or RouteGate
	Country  int    // 0 is all
	Reason   GateReason
	Closed   bool
	// Probe tells that a probe is due.
	Probe bool
	// Until is when it opens by itself, zero for never.
	Until time.Time
	Since time.Time
	// Open is for how long it has been open, negative where it never closed, and
	// Held for how long it was closed before.
	Open, Held time.Duration
	By, Why    string
}

// RouteGate is what stands for a route where a gate names its provider. No
// provider's name has a slash.
func RouteGate(route string) string { return "/" + route }

// HeldRoute is the route of such a name.
func HeldRoute(gate string) (route string, ok bool) { return strings.CutPrefix(gate, "/") }

// Hold is what closes a gate.
type Hold struct {
	Provider string
	Country  int
	Reason   GateReason
	// For is how long, negative until a probe passes.
	For time.Duration
	// Probe is the time to the first probe. Sticky keeps the gate closed for
	// a while: there is another provider to go to, and going back and forth
	// would be worse.
	Probe   time.Duration
	Sticky  bool
	By, Why string
}

// Gates is what the engine needs of a database to share its holds.
type Gates interface {
	Gates(ctx context.Context) ([]Gate, error)
	// CloseGate closes a gate or keeps it closed for longer.
	CloseGate(ctx context.Context, h Hold) error
	// ProbeGate takes the next probe of a closed gate; ok is false where
	// another worker has it, or none is due.
	ProbeGate(ctx context.Context, provider string, country int, every, most time.Duration) (ok bool, err error)
	// PassGate counts a probe that passed, and opens the gate after need of
	// them; another probe is due after next.
	PassGate(ctx context.Context, provider string, country, need int, next time.Duration) error
}

// How gates close and open.
const (
	// circuitRun is the run of calls without an acceptance that closes the
	// circuit, and circuitSame the same for calls for one message, shorter than
	// any budget worth having: on a quiet day one message is all there is. A
	// provider that loses three calls in ten makes a run of ten once in 170,000.
	circuitRun, circuitSame = 10, 3
	// accountRun is the run of refused accounts, of as many messages.
	accountRun                     = 3
	circuitProbe, circuitProbeMost = time.Second, 30 * time.Second
	accountProbe, accountProbeMost = 10 * time.Second, 5 * time.Minute

	// rampMost is how long a gate that opened lets only some claims through, as
	// long as it was closed otherwise: one row at first, twice as many in each of
	// rampSteps.
	rampMost, rampSteps = 8 * time.Second, 10
)

// gates is what this process knows of the holds. The database's word stands in
// the claim; this is to not ask in vain, and to count runs.
type gates struct {
	// some tells that known is not empty: every send asks, and nearly always
	// there is none.
	some  atomic.Bool
	mu    sync.Mutex
	known map[gateKey]Gate
	runs  map[string]*streak
	// ramped are the providers that had their claim since the last Refresh,
	// while they open.
	ramped map[string]bool
}

type gateKey struct {
	provider string
	country  int
}

// streak is a run of calls to one provider without an acceptance.
type streak struct {
	fails    int
	began    time.Time // by the database's clock: when the first of them was known
	same     map[dispatch.Key]int
	accounts map[dispatch.Key]bool
	senders  map[string]bool
	passed   bool // something was accepted since the gate last closed
}

// Refresh reads the gates. The worker calls it each claim interval.
func (e *Engine) Refresh(ctx context.Context) error {
	if e.cfg.Gates == nil {
		return nil
	}
	list, err := e.cfg.Gates.Gates(ctx)
	if err != nil {
		return err
	}
	g := &e.gates
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known = make(map[gateKey]Gate, len(list))
	for _, gate := range list {
		g.known[gateKey{gate.Provider, gate.Country}] = gate
	}
	g.some.Store(len(list) > 0)
	clear(g.ramped)
	return nil
}

// closed reports whether the provider is held, for a country or for all (0).
func (g *gates) closed(provider string, country int) bool {
	if !g.some.Load() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known[gateKey{provider, country}].Closed
}

// probe reports whether a probe of the provider is due.
func (g *gates) probe(provider string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	gate := g.known[gateKey{provider, 0}]
	return gate.Closed && gate.Probe && gate.Until.IsZero() && gate.Reason != GatePaused
}

// asked forgets a probe that this process has asked for.
func (g *gates) asked(provider string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := gateKey{provider, 0}
	gate := g.known[key]
	gate.Probe = false
	g.known[key] = gate
	g.some.Store(true)
}

// ramp bounds a claim of a provider whose gate opened a moment ago: the fleet
// comes back step by step, one claim per process and refresh.
func (g *gates) ramp(provider string, limit int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	gate, ok := g.known[gateKey{provider, 0}]
	span := min(rampMost, gate.Held)
	if !ok || gate.Closed || gate.Open < 0 || gate.Open >= span {
		return limit
	}
	if g.ramped[provider] {
		return 0
	}
	return min(limit, 1<<int(rampSteps*gate.Open/span))
}

func (g *gates) taken(provider string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ramped == nil {
		g.ramped = map[string]bool{}
	}
	g.ramped[provider] = true
}

// observe counts an outcome, and returns the hold that follows from it, if
// any. passing tells that the provider takes other messages.
func (g *gates) observe(t *Task, ev dispatch.Evidence, v dispatch.Verdict, now time.Time) (h *Hold, passing bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runs == nil {
		g.runs = map[string]*streak{}
	}
	run := g.runs[t.Provider]
	if run == nil {
		run = &streak{same: map[dispatch.Key]int{}, accounts: map[dispatch.Key]bool{}, senders: map[string]bool{}}
		g.runs[t.Provider] = run
	}
	if v.Outcome == dispatch.OK ||
		v.Outcome == dispatch.Rejected && (v.Scope == dispatch.Message || v.Scope == dispatch.Sender) {
		run.reset() // it answers; whether it takes the message is another matter
		run.passed = run.passed || v.Outcome == dispatch.OK
		return nil, run.passed
	}
	hold := &Hold{Provider: t.Provider, For: -1, Why: v.Reason}
	switch {
	case v.Outcome == dispatch.Rejected && v.Scope == dispatch.Account:
		run.accounts[t.Key], run.senders[t.From] = true, true
		run.fails++
		// One sender's trouble shows on its messages only; that of the account on
		// those of several, or of the only one there is.
		if len(run.accounts) < accountRun || len(run.senders) < 2 && run.fails < 2*accountRun {
			return nil, run.passed
		}
		hold.Reason, hold.Probe = GateAccount, accountProbe
	case v.Floor > 0 && (v.Outcome == dispatch.Rejected || ev.Status == http.StatusServiceUnavailable):
		// What names a wait speaks for the provider, whatever became of this
		// message; other unknowns with one, as a key in flight, for the message.
		hold.Reason, hold.For = GateFloor, v.Floor
		return hold, run.passed
	default:
		if ev.Cause == dispatch.CauseChanged || ev.Cause == dispatch.CausePool {
			return nil, run.passed // ours, not the provider's
		}
		// Of what was under way together, answers that are lost come back before
		// those that aren't: only what was claimed since the run began goes on
		// with it.
		if run.fails > 0 && t.Claimed.Before(run.began) {
			return nil, run.passed
		}
		if run.fails++; run.fails == 1 {
			run.began = now
		}
		if run.same[t.Key]++; run.fails < circuitRun && run.same[t.Key] < circuitSame {
			return nil, run.passed
		}
		hold.Reason, hold.Probe = GateCircuit, circuitProbe
	}
	run.reset()
	run.passed = false
	return hold, false
}

func (s *streak) reset() {
	if s.fails == 0 {
		return // as nearly always
	}
	s.fails = 0
	clear(s.same)
	clear(s.accounts)
	clear(s.senders)
}
