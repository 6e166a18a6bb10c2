package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// bar shows how far long work has got: a bar on a terminal, else a line every
// few seconds, so that a log of it stays short.
type bar struct {
	to       io.Writer
	terminal bool
	what     string
	total    int64 // 0 is unknown
	unit     string
	now      func() time.Time
	last     time.Time
	drawn    bool
}

// How often a bar is drawn, and a line written.
const (
	drawEvery = 100 * time.Millisecond
	lineEvery = 5 * time.Second
)

func (p *program) bar(what string, total int64) *bar {
	return &bar{to: p.err, terminal: p.terminal, what: what, total: total, now: p.now, last: p.now()}
}

// at shows that so many are done.
func (b *bar) at(n int64) {
	every := lineEvery
	if b.terminal {
		every = drawEvery
	}
	now := b.now()
	if now.Sub(b.last) < every {
		return
	}
	b.last = now
	of := b.unit
	if b.total > 0 {
		of = fmt.Sprintf(" of %d", max(b.total, n))
	}
	if !b.terminal {
		say(b.to, "%s: %d%s\n", b.what, n, of)
		return
	}
	const width = 30
	drawing := ""
	if b.total > 0 {
		done := int(width * n / max(b.total, n))
		drawing = " [" + strings.Repeat("#", done) + strings.Repeat(".", width-done) + "]"
	}
	say(b.to, "\r\x1b[K%s%s %d%s", b.what, drawing, n, of)
	b.drawn = true
}

// busy shows for how long work has gone on that can't say how far it has got.
func (p *program) busy(what string) (stop func()) {
	b := p.bar(what, 0)
	b.unit = " s"
	began, done, ended := p.now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(drawEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.at(int64(b.now().Sub(began).Seconds()))
			case <-done:
				b.end()
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// end takes the bar away: what it came to stands elsewhere.
func (b *bar) end() {
	if b.drawn {
		say(b.to, "\r\x1b[K")
	}
}
