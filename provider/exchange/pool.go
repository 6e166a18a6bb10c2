package exchange

import (
	"slices"
	"sync"
	"time"
)

// pool keeps idle connections, the latest used last.
type pool struct {
	limit int

	mu     sync.Mutex
	idle   []*conn
	closed bool
}

// take returns the latest used connection to target that is still good.
func (p *pool) take(target string) *conn {
	for {
		cn := p.pop(target)
		if cn == nil || cn.quiet() {
			return cn
		}
		cn.abort()
	}
}

func (p *pool) pop(target string) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.idle) - 1; i >= 0; i-- {
		if cn := p.idle[i]; cn.target == target {
			p.idle = slices.Delete(p.idle, i, i+1)
			cn.timer.Stop()
			return cn
		}
	}
	return nil
}

func (p *pool) put(cn *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		cn.abort()
		return
	}
	if len(p.idle) >= p.limit {
		p.idle[0].timer.Stop()
		p.idle[0].abort()
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.idle = append(p.idle, cn)
	// Whoever finds cn in the list owns it: the timer or pop, never both.
	cn.timer = time.AfterFunc(cn.keep, func() { p.drop(cn) })
}

func (p *pool) drop(cn *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.idle, cn); i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
		cn.abort()
	}
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, cn := range p.idle {
		cn.timer.Stop()
		cn.abort()
	}
	p.idle = nil
}
