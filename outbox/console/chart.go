package console

import (
	"fmt"
	"time"

	"github.com/seed-8098fbb7/dispatch/outbox"
)

// chart is what a provider did over time, as bars: accepted below, failed on
// top. Everything is a number in the picture's own units.
type chart struct {
	Provider string
	Accepted int
	Failed   int
	Most     int // calls of the highest bar
	Label    string
	Bars     []bar
	From, To time.Time
	Rows     []outbox.Trend // the same as a table: what a chart doesn't say to everybody
}

// bar is one step. Y grows downwards.
type bar struct {
	X                    float64
	OKHeight, OKTop      float64
	FailHeight, FailTop  float64
	Title                string
	HasAccepted, HasFail bool
}

// The picture's size: a bar of 8 with a gap of 2 for each minute.
const (
	barStep   = 10.0
	barHeight = 80.0
	// leastBar is the height of the smallest bar, so that one failure among
	// thousands is seen.
	leastBar = 2.0
)

// charts draws the trend up to now, one chart for each provider.
func charts(trend []outbox.Trend, now time.Time) (out []chart) {
	to := now.UTC().Truncate(chartStep).Add(chartStep)
	from := to.Add(-chartTime)
	for _, t := range trend {
		if t.From.Before(from) || !t.From.Before(to) {
			continue
		}
		if n := len(out); n == 0 || out[n-1].Provider != t.Provider {
			out = append(out, chart{Provider: t.Provider, From: from, To: to})
		}
		c := &out[len(out)-1]
		c.Accepted += t.Accepted
		c.Failed += t.Failed
		c.Most = max(c.Most, t.Accepted+t.Failed)
		c.Rows = append(c.Rows, t)
	}
	for i := range out {
		out[i].draw()
	}
	return out
}

func (c *chart) draw() {
	worst := outbox.Trend{}
	for _, t := range c.Rows {
		if t.Failed > worst.Failed {
			worst = t
		}
		b := bar{
			X: float64(t.From.Sub(c.From)/chartStep) * barStep, HasAccepted: t.Accepted > 0, HasFail: t.Failed > 0,
			Title: fmt.Sprintf("%s: %s accepted, %s failed", t.From.UTC().Format("15:04"), number(int64(t.Accepted)), number(int64(t.Failed))),
		}
		b.OKHeight, b.FailHeight = c.height(t.Accepted), c.height(t.Failed)
		b.OKHeight = min(b.OKHeight, barHeight-b.FailHeight)
		b.OKTop = barHeight - b.OKHeight
		b.FailTop = b.OKTop - b.FailHeight
		c.Bars = append(c.Bars, b)
	}
	c.Label = fmt.Sprintf("%s in the last hour: %s accepted, %s failed", c.Provider, number(int64(c.Accepted)), number(int64(c.Failed)))
	if worst.Failed > 0 {
		c.Label += fmt.Sprintf(", most of them (%s) at %s UTC", number(int64(worst.Failed)), worst.From.UTC().Format("15:04"))
	}
}

func (c *chart) height(n int) float64 {
	if n == 0 || c.Most == 0 {
		return 0
	}
	return max(leastBar, float64(n)/float64(c.Most)*barHeight)
}
