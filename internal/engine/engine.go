package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// Config is what an engine is made of.
type Config struct {
	Routes    []dispatch.Route
	Providers []dispatch.Provider
	// Lease is the lease of a send; zero is twice the provider's attempt
	// time-out.
	Lease time.Duration
	// Random returns a number in [0, n).
	Random func(n int64) int64
	// Gates shares the holds on providers; nil holds none.
	Gates Gates
	// Rates shares the rates of Limits; nil shares none.
	Rates Rates
	// Limits bound what goes to a provider, by its name.
	Limits map[string]Limit
	// Health shares health; nil judges none. Thresholds say what is unhealthy.
	Health     HealthStore
	Thresholds Thresholds
	// Vault opens what is sealed; needed only where there is such a message.
	Vault Vault
	// Slots is how many sends may run at once. A tenth is kept for High.
	Slots int
}

// Engine decides and asks its Store. Look, Claim, Short and Hint belong to one
// caller; Sweep to one caller; everything else is safe for concurrent use.
type Engine struct {
	store     Store
	cfg       Config
	routes    map[string]dispatch.Route
	setups    map[string]decide.Setup // by route; "" is one of another application
	providers map[string]bound
	lanes     []*lane
	byName    map[string]*lane
	sweep     sweeper
	gates     gates
	rates     rates
	counts    counts
	claims    int
	short     bool // of slots, the last pick
}

type bound struct {
	provider dispatch.Provider
	contract dispatch.Contract
}

// New checks that routes and providers fit together.
func New(store Store, cfg Config) (*Engine, error) {
	e := &Engine{
		store: store, cfg: cfg, routes: map[string]dispatch.Route{}, setups: map[string]decide.Setup{}, providers: map[string]bound{},
		byName: map[string]*lane{}, rates: rates{blocks: map[string]block{}, inflight: map[string]int{}},
	}
	for _, p := range cfg.Providers {
		if p == nil {
			return nil, errors.New("a provider is nil")
		}
		c := p.Contract()
		if err := checkContract(c, cfg.Lease); err != nil {
			return nil, err
		}
		if _, twice := e.providers[c.Name]; twice {
			return nil, fmt.Errorf("provider %q stands twice", c.Name)
		}
		e.providers[c.Name] = bound{provider: p, contract: c}
	}
	for name := range cfg.Limits {
		if _, ok := e.providers[name]; !ok {
			return nil, fmt.Errorf("limit for provider %q, which is not bound", name)
		}
	}
	used := map[string]bool{}
	for _, r := range cfg.Routes {
		if err := r.Validate(); err != nil {
			return nil, err
		}
		r.Policy = r.Policy.WithDefaults()
		e.routes[r.Name] = r
		e.setups[r.Name] = e.setupOf(r)
		e.addLanes(r, used)
	}
	e.setups[""] = e.setupOf(dispatch.Route{Policy: dispatch.SMSPolicy()})
	for name := range e.providers {
		if !used[name] {
			return nil, fmt.Errorf("provider %q is on no route", name)
		}
	}
	if len(e.lanes) == 0 {
		return nil, errors.New("no provider of any route is bound")
	}
	slices.SortStableFunc(e.lanes, func(a, b *lane) int { return int(a.id.Priority) - int(b.id.Priority) })
	return e, nil
}

func checkContract(c dispatch.Contract, lease time.Duration) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if lease != 0 && lease < c.AttemptTimeout()+2*decide.StartMargin(c) {
		return fmt.Errorf("provider %q: lease %v is too short for attempts of %v, want 0 or at least %v",
			c.Name, lease, c.AttemptTimeout(), c.AttemptTimeout()+2*decide.StartMargin(c))
	}
	return nil
}

// Shortest returns the shortest lease of all providers.
func (e *Engine) Shortest() time.Duration {
	shortest := time.Duration(0)
	for _, b := range e.providers {
		if l := e.lease(b.contract); shortest == 0 || l < shortest {
			shortest = l
		}
	}
	return shortest
}

func (e *Engine) lease(c dispatch.Contract) time.Duration {
	if e.cfg.Lease > 0 {
		return e.cfg.Lease
	}
	return 2 * c.AttemptTimeout()
}

func (e *Engine) contract(name string) (dispatch.Contract, bool) {
	b, ok := e.providers[name]
	return b.contract, ok
}

// setupOf is what this worker knows of every message of a route.
func (e *Engine) setupOf(r dispatch.Route) decide.Setup {
	s := decide.Setup{Contract: e.contract, Backoff: r.Policy.Backoff, Lease: e.lease, Random: e.cfg.Random}
	for _, p := range r.Providers {
		if _, ok := e.providers[p]; ok {
			s.Candidates = append(s.Candidates, p)
		}
	}
	if len(s.Candidates) > 0 {
		s.Any = s.Candidates[0]
	}
	return s
}

// setup is what this worker knows of a task: its route, and of that only the
// providers that have a sender in the frozen map.
func (e *Engine) setup(t *Task) decide.Setup {
	s, ok := e.setups[t.Lane.Route]
	if !ok {
		return e.setups[""]
	}
	if t.Senders == nil {
		return s
	}
	all := s.Candidates
	s.Candidates = nil
	var frozen map[string]string
	if json.Unmarshal(t.Senders, &frozen) != nil {
		return s
	}
	for _, p := range all {
		if frozen[p] != "" {
			s.Candidates = append(s.Candidates, p)
		}
	}
	return s
}

// hasSender reports whether the frozen map has a sender at the provider. A map
// that can't be read says nothing.
func hasSender(senders []byte, provider string) bool {
	var frozen map[string]string
	return senders == nil || json.Unmarshal(senders, &frozen) != nil || frozen[provider] != ""
}
