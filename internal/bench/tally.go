package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
)

// payload is the size of a message's text in bytes.
const payload = 200

// width is how many digits a text begins with: the message's number.
const width = 8

// text is the text of message n.
func text(n int) string { return fmt.Sprintf("%0*d", width, n) + filler }

var filler = strings.Repeat(" twenty two characters!", payload)[:payload-width]

// number is the message's number that text put in front.
func number(text string) (int, error) {
	if len(text) != payload {
		return 0, fmt.Errorf("text of %d bytes, want %d", len(text), payload)
	}
	return strconv.Atoi(text[:width])
}

// tally counts how often each message was worked. It is what makes a figure
// true: one that was lost or worked twice fails the run.
type tally struct {
	counts []atomic.Int32
	total  atomic.Int64
	enough int64
	done   chan struct{} // closed when enough are worked
}

// newTally counts n messages; enough of them are all where zero.
func newTally(n, enough int) *tally {
	if enough == 0 {
		enough = n
	}
	return &tally{counts: make([]atomic.Int32, n), enough: int64(enough), done: make(chan struct{})}
}

// hit counts the message with this text and returns its number.
func (t *tally) hit(text string) (int, error) {
	n, err := number(text)
	if err != nil {
		return 0, err
	}
	if n < 0 || n >= len(t.counts) {
		return 0, fmt.Errorf("message %d was never enqueued", n)
	}
	if t.counts[n].Add(1) > 1 {
		return 0, fmt.Errorf("message %d was worked twice", n)
	}
	if t.total.Add(1) == t.enough {
		close(t.done)
	}
	return n, nil
}

// check returns an error unless every message was worked exactly once.
func (t *tally) check() error {
	lost, twice := 0, 0
	for i := range t.counts {
		switch c := t.counts[i].Load(); {
		case c == 0:
			lost++
		case c > 1:
			twice++
		}
	}
	if lost+twice > 0 {
		return fmt.Errorf("of %d messages %d were not worked and %d more than once", len(t.counts), lost, twice)
	}
	return nil
}
