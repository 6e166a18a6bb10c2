package sim

import (
	"fmt"
	"io"
	"strings"
)

// crashPoint is a place at which a process may die.
type crashPoint int

// The places around a send and a look-up. Before them in number are those
// before and after each call of the database.
const (
	pointBegin   = crashPoint(2*len(callNames)) + iota // a task was claimed
	pointSend                                          // its last check is passed
	pointWritten                                       // the request has left
	pointSent                                          // the answer is there
	pointFinish                                        // the outcome isn't written yet
	pointAsk                                           // a look-up was claimed
	pointAsked                                         // its answer is there
	points
)

var pointNames = [...]string{
	"between claim and begin", "between begin and write", "while the request is under way", "after the answer", "before the outcome is queued",
	"before the look-up is asked", "after the look-up's answer",
}

func crashBefore(c call) crashPoint { return crashPoint(2 * c) }
func crashAfter(c call) crashPoint  { return crashPoint(2*c + 1) }

func (p crashPoint) String() string {
	switch {
	case p >= pointBegin:
		return pointNames[p-pointBegin]
	case p%2 == 0:
		return "before " + callNames[p/2]
	}
	return "after " + callNames[p/2]
}

// Coverage counts how often each row of the transition table was taken, and
// how often a process died at each point.
type Coverage struct {
	Rules  [41]int
	Points [points]int
}

func (c *Coverage) add(o *Coverage) {
	for i, n := range o.Rules {
		c.Rules[i] += n
	}
	for i, n := range o.Points {
		c.Points[i] += n
	}
}

// Missing names what was never reached.
func (c *Coverage) Missing() (names []string) {
	for i := 1; i < len(c.Rules); i++ {
		if c.Rules[i] == 0 {
			names = append(names, fmt.Sprintf("row %d", i))
		}
	}
	for i, n := range c.Points {
		if n == 0 {
			names = append(names, "crash "+crashPoint(i).String())
		}
	}
	return names
}

// Write prints the table.
func (c *Coverage) Write(w io.Writer) error {
	var b strings.Builder
	b.WriteString("rows of the transition table:\n")
	for i := 1; i < len(c.Rules); i++ {
		fmt.Fprintf(&b, "  %2d %10d", i, c.Rules[i])
		if i%5 == 0 {
			b.WriteByte('\n')
		}
	}
	b.WriteString("crashes:\n")
	for i, n := range c.Points {
		fmt.Fprintf(&b, "  %-32s %8d\n", crashPoint(i), n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
