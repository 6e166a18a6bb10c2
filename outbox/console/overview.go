package console

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// overview is how the box stands.
type overview struct {
	Stats   outbox.Stats
	Over    []string // what is over the usual limits
	Routes  []routeDepths
	Tiles   []tile
	Charts  []chart
	Closed  []gateRow
	Latency []outbox.ProviderHealth
}

// tile is a figure on top of the page.
type tile struct {
	Name, Value, Note, Link string
	Alarm                   bool
}

// routeDepths are the states of a route that hold anything.
type routeDepths struct {
	Route  string
	Depths []outbox.Depth
}

// The charts show an hour by the minute.
const (
	chartTime = time.Hour
	chartStep = time.Minute
)

func (c *Console) overview(ctx context.Context, r *request) error {
	stats, err := c.box.Stats(ctx)
	if err != nil {
		return err
	}
	trend, err := c.box.Trend(ctx, chartTime, chartStep)
	if err != nil {
		return err
	}
	o := overview{Stats: stats, Over: stats.Over(outbox.Alarms{}), Charts: charts(trend, stats.At), Closed: c.closed(stats), Latency: stats.Providers}
	for _, d := range stats.Depths {
		if n := len(o.Routes); n == 0 || o.Routes[n-1].Route != d.Route {
			o.Routes = append(o.Routes, routeDepths{Route: d.Route})
		}
		last := &o.Routes[len(o.Routes)-1]
		last.Depths = append(last.Depths, d)
	}
	o.Tiles = tiles(stats)
	c.render(ctx, r, http.StatusOK, "overview", view{Title: "Overview", Nav: "overview", Data: o})
	return nil
}

func tiles(s outbox.Stats) []tile {
	pending, unknown := s.Total(dispatch.Pending), s.Total(dispatch.InDoubt)
	held, dead := s.Total(dispatch.Held), s.Total(dispatch.Dead)
	due := number(pending.Due) + " due"
	if pending.Overdue > 0 {
		due = number(pending.Overdue) + " overdue, the oldest for " + long(pending.Oldest)
	}
	return []tile{
		{Name: "Waiting", Value: count(pending), Note: due, Link: "messages?state=pending", Alarm: pending.Overdue > 0},
		{Name: "Being sent", Value: count(s.Total(dispatch.Sending)), Link: "messages?state=sending"},
		{Name: "Unknown", Value: count(unknown), Note: oldest(unknown), Link: "messages?state=unknown"},
		{Name: "Held", Value: count(held), Note: number(held.LastHour) + " in the last hour", Link: "messages?state=held", Alarm: held.LastHour > 0},
		{Name: "Dead", Value: count(dead), Note: number(dead.LastHour) + " in the last hour", Link: "messages?state=dead", Alarm: dead.LastHour > 0},
	}
}

// count is a depth's count, marked where it rests on an estimate.
func count(d outbox.Depth) string {
	if d.Approximate {
		return "about " + number(d.Count)
	}
	return number(d.Count)
}

func oldest(d outbox.Depth) string {
	if d.Oldest <= 0 {
		return ""
	}
	return "the oldest for " + long(d.Oldest)
}

// gateRow is a gate in words.
type gateRow struct {
	Gate  outbox.Gate
	Name  string // "provider acme", "provider acme, country +46", "route sms"
	Why   string
	Until string
	At    time.Time
}

func (c *Console) closed(s outbox.Stats) (rows []gateRow) {
	for _, g := range s.Gates {
		if g.Closed {
			rows = append(rows, gateWords(g, s.At))
		}
	}
	return rows
}

// gateReasons are the reasons of a gate in words.
var gateReasons = map[string]string{
	"floor":   "the provider asked to wait",
	"health":  "too many calls fail, or deliveries are slow",
	"circuit": "no call was accepted in a while",
	"account": "the provider refuses the account",
	"paused":  "paused by hand",
}

func gateWords(g outbox.Gate, now time.Time) gateRow {
	row := gateRow{Gate: g, Name: "provider " + g.Provider, Why: gateReasons[g.Reason], At: g.Since}
	switch {
	case g.Route != "":
		row.Name = "route " + g.Route
	case g.Country != 0:
		row.Name += ", country +" + number(int64(g.Country))
	}
	if row.Why == "" {
		row.Why = g.Reason
	}
	switch {
	case g.Until.After(now):
		row.Until = "opens in " + long(g.Until.Sub(now))
	case g.Reason == "paused":
		row.Until = "until it is resumed"
	default:
		row.Until = "until a probe passes"
	}
	return row
}

// names are all providers that routes name, that have a gate, or that did
// something lately.
func (c *Console) names(s outbox.Stats) (providers []string) {
	for _, r := range c.box.Routes() {
		providers = append(providers, r.Providers...)
	}
	for _, g := range s.Gates {
		if g.Provider != "" {
			providers = append(providers, g.Provider)
		}
	}
	for _, p := range s.Providers {
		providers = append(providers, p.Provider)
	}
	slices.Sort(providers)
	return slices.Compact(providers)
}
