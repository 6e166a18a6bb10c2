package engine

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// Limit bounds what goes to a provider.
type Limit struct {
	// PerThousand is how many sends a thousand seconds may begin, of all
	// processes together; 0 is no bound.
	PerThousand int64
	// Burst is how many may begin at once.
	Burst int
	// Concurrent is how many of this process may be under way; 0 is no bound.
	Concurrent int
}

// Rates is what the engine needs of a database to share rates.
type Rates interface {
	// TakeTokens takes up to want tokens of a provider, and returns how many it
	// got and the time until there is another.
	TakeTokens(ctx context.Context, provider string, l Limit, want int) (granted int, next time.Duration, err error)
}

// rates is what this process holds of the shared tokens, and has under way.
type rates struct {
	mu       sync.Mutex
	now      time.Duration // as the last Tick said
	blocks   map[string]block
	inflight map[string]int
}

// block is tokens that were taken and not used yet.
type block struct {
	tokens int
	taken  time.Duration
	rest   time.Duration // until when there are none
}

// blockLife is how long tokens keep that were taken and not used: a process
// that stands still must not come back with a burst.
const blockLife = time.Second

// Tick tells the engine how much time has passed, by any clock that doesn't
// go back. Tokens expire by it.
func (e *Engine) Tick(now time.Duration) {
	e.rates.mu.Lock()
	defer e.rates.mu.Unlock()
	e.rates.now = now
}

// Pause is the time until a provider that ran out of tokens has one, negative
// where none did.
func (e *Engine) Pause() time.Duration {
	e.rates.mu.Lock()
	defer e.rates.mu.Unlock()
	pause := time.Duration(-1)
	for _, b := range e.rates.blocks {
		if d := b.rest - e.rates.now; b.tokens == 0 && d > 0 && (pause < 0 || d < pause) {
			pause = d
		}
	}
	return pause
}

// Done says that a claimed task is no longer under way.
func (e *Engine) Done(t *Task) {
	e.rates.mu.Lock()
	defer e.rates.mu.Unlock()
	e.rates.inflight[t.Provider]--
}

// vacant is how many more sends of this process a provider takes at once.
func (e *Engine) vacant(provider string) int {
	l := e.cfg.Limits[provider]
	if l.Concurrent <= 0 {
		return math.MaxInt
	}
	r := &e.rates
	r.mu.Lock()
	defer r.mu.Unlock()
	return l.Concurrent - r.inflight[provider]
}

// dry reports whether the provider's tokens are known to be out.
func (e *Engine) dry(provider string) bool {
	if e.cfg.Limits[provider].PerThousand <= 0 {
		return false
	}
	r := &e.rates
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.blocks[provider]
	return b.tokens == 0 && b.rest > r.now
}

// tokens gets tokens for up to limit rows, before they are claimed.
func (e *Engine) tokens(ctx context.Context, provider string, limit int) (int, error) {
	l := e.cfg.Limits[provider]
	if l.PerThousand <= 0 || e.cfg.Rates == nil {
		return limit, nil
	}
	r := &e.rates
	r.mu.Lock()
	b := r.blocks[provider]
	now := r.now
	r.mu.Unlock()
	if b.tokens > 0 && now-b.taken > blockLife {
		b.tokens = 0
	}
	if b.tokens == 0 {
		granted, next, err := e.cfg.Rates.TakeTokens(ctx, provider, l, min(limit, l.Burst))
		if err != nil {
			return 0, err
		}
		b = block{tokens: granted, taken: now, rest: now + next}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blocks[provider] = b
	return min(limit, b.tokens), nil
}

// claimed counts what a claim took.
func (e *Engine) claimed(provider string, n int) {
	r := &e.rates
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inflight[provider] += n
	if b, ok := r.blocks[provider]; ok {
		b.tokens = max(0, b.tokens-n)
		r.blocks[provider] = b
	}
}

// slots is how many of the free slots a lane may have: a tenth of all is kept
// for High, so that a login code never waits for a newsletter's sends, and a
// tenth for first attempts, so that it doesn't wait for retries either that
// each sit out a time-out.
func (e *Engine) slots(l *lane, free int) int {
	if l.id.Priority != dispatch.High {
		free -= e.cfg.Slots / 10
	}
	if l.id.Retry {
		free -= e.cfg.Slots / 10
	}
	return free
}
