package smtp

import (
	"slices"
	"sync"
	"time"
)

// A connection is given up at this age, or after this many mails: servers end
// those that never do, and those behind a name are chosen anew.
const (
	maxAge   = 5 * time.Minute
	maxMails = 100
)

// pool keeps idle connections, the latest used last.
type pool struct {
	limit int
	stay  time.Duration

	mu     sync.Mutex
	idle   []*conn
	closed bool
}

// take returns the latest used connection that is still good.
func (p *pool) take() *conn {
	for {
		c := p.pop()
		if c == nil || c.quiet() {
			return c
		}
		c.abort()
	}
}

func (p *pool) pop() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	c := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	c.timer.Stop()
	return c
}

func (p *pool) put(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := maxAge - time.Since(c.born)
	if p.closed || c.mails >= maxMails || left <= 0 || len(p.idle) >= p.limit {
		go c.quit() // ends within a second
		return
	}
	p.idle = append(p.idle, c)
	// Whoever finds c in the list owns it: the timer or pop, never both.
	c.timer = time.AfterFunc(min(p.stay, left), func() { p.drop(c) })
}

func (p *pool) drop(c *conn) {
	p.mu.Lock()
	i := slices.Index(p.idle, c)
	if i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
	}
	p.mu.Unlock()
	if i >= 0 {
		c.quit()
	}
}

func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, c := range idle {
		c.timer.Stop()
		c.quit()
	}
}
