package main

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

// clock goes on by a minute each time it is read, so that progress is shown at
// once.
func clock() func() time.Time {
	var mu sync.Mutex
	now := time.Now()
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Minute)
		return now
	}
}

// watcher calls what it is told to after a few writes.
type watcher struct {
	bytes.Buffer
	left int
	then func()
}

func (w *watcher) Write(b []byte) (int, error) {
	if w.left--; w.left == 0 {
		w.then()
	}
	return w.Buffer.Write(b)
}

// Ctrl-C ends a long call between two messages; what was done stands, is told,
// and the same call goes on from there.
func TestInterrupted(t *testing.T) {
	texts := make([]string, 60)
	for i := range texts {
		texts[i] = fmt.Sprint("refused ", i)
	}
	w := newWorld(t, texts...)
	args := []string{"requeue", "--schema", w.schema, "--state", "dead", by, why, "--json"}
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	errs := &watcher{left: 3, then: cancel}
	p := program{out: &out, err: errs, now: clock(), getenv: func(string) string { return w.dsn }}
	require.Equal(t, exitInterrupted, p.run(ctx, args))
	assert.Contains(t, errs.String(), "requeue: 4 of 60\n")
	assert.Contains(t, errs.String(), "dispatchctl: interrupted\n")
	assert.Contains(t, out.String(), `"interrupted": true`)
	s, err := w.box.Stats(t.Context())
	require.NoError(t, err)
	done := s.Total(dispatch.Pending).Count
	require.Positive(t, done)
	require.Less(t, done, int64(60))
	assert.Contains(t, out.String(), fmt.Sprintf(`"matched": %d`, done))

	code, text, _ := w.call(t.Context(), args...)
	require.Equal(t, exitDone, code)
	assert.Contains(t, text, fmt.Sprintf(`"pending": %d`, 60-done))
}

// On a terminal there is one line that changes, and none is left of it.
func TestBarOnATerminal(t *testing.T) {
	var to bytes.Buffer
	p := program{err: &to, terminal: true, now: clock()}
	b := p.bar("requeue", 60)
	b.at(20)
	b.at(80) // more than was thought
	b.end()
	assert.Equal(t, "\r\x1b[Krequeue [##########....................] 20 of 60"+
		"\r\x1b[Krequeue [##############################] 80 of 80\r\x1b[K", to.String())
	to.Reset()
	b = p.bar("cancel", 0)
	b.at(20)
	assert.Equal(t, "\r\x1b[Kcancel 20", to.String())
	assert.NotContains(t, to.String(), "\n")
}
