package outboxprom

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// What the box holds, as Box.Stats tells it.
var (
	up        = gauge("dispatch_stats_up", "1 where the database answered.")
	messages  = gauge("dispatch_messages", "Messages in motion and parked.", "route", "state", "reason")
	due       = gauge("dispatch_messages_due", "Messages that a worker may claim now.", "route")
	overdue   = gauge("dispatch_messages_overdue", "Messages that are due since more than a minute.", "route")
	recent    = gauge("dispatch_messages_parked_last_hour", "Messages that were held or died in the last hour.", "route", "state", "reason")
	oldest    = gauge("dispatch_oldest_message_age_seconds", "How long the oldest message has waited.", "route", "state", "reason")
	gates     = gauge("dispatch_gates_closed", "Closed gates of a provider, its countries among them, or of a route.", "route", "provider", "reason")
	calls     = gauge("dispatch_provider_recent_calls", "Calls of the last five minutes, of all processes.", "provider", "outcome")
	delivered = gauge("dispatch_provider_recent_deliveries", "Accepted messages of the last five minutes that were delivered.", "provider")
	waiting   = gauge("dispatch_receipts_waiting", "Receipts that are yet to be applied, counted to 10,000.")
	unmatched = gauge("dispatch_receipts_unmatched", "Receipts that no message was found for, counted to 10,000.")
	notices   = gauge("dispatch_notices_waiting", "Notices that the application has yet to take, counted to 10,000.")
	deadRows  = gauge("dispatch_queue_dead_rows", "Row versions that vacuum has yet to remove from the queue.")
	holdback  = gauge("dispatch_vacuum_holdback_seconds", "How long the oldest transaction keeps vacuum from its work, 0 for nothing.")
)

var descriptions = []*prometheus.Desc{
	up, messages, due, overdue, recent, oldest, gates, calls, delivered, waiting, unmatched, notices, deadRows, holdback,
}

// Describe tells every metric that Collect may send.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, v := range c.vectors() {
		v.Describe(to)
	}
	if c.cfg.Box == nil {
		return
	}
	for _, d := range descriptions {
		to <- d
	}
}

// Collect sends what was counted, and what the box holds now.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, v := range c.vectors() {
		v.Collect(to)
	}
	if c.cfg.Box == nil {
		return
	}
	send := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	ctx, done := context.WithTimeout(context.Background(), c.cfg.Timeout)
	defer done()
	s, err := c.cfg.Box.Stats(ctx)
	if err != nil { // an error in the answer would spoil the whole scrape
		send(up, 0)
		return
	}
	send(up, 1)
	depths(s, send)
	providers(s, send)
	send(waiting, float64(s.ReceiptsWaiting))
	send(unmatched, float64(s.ReceiptsUnmatched))
	send(notices, float64(s.NoticesWaiting))
	send(deadRows, float64(s.DeadRows))
	held := 0.0
	if s.Holdback != nil {
		held = max(0, s.Holdback.For.Seconds())
	}
	send(holdback, held)
}

func (c *Collector) vectors() []prometheus.Collector {
	return []prometheus.Collector{c.calls, c.lag, c.settled, c.swept, c.duplicates, c.errors}
}

func depths(s outbox.Stats, send func(d *prometheus.Desc, v float64, labels ...string)) {
	for _, d := range s.Depths {
		state, reason := d.State.String(), d.Reason.String()
		send(messages, float64(d.Count), d.Route, state, reason)
		send(oldest, d.Oldest.Seconds(), d.Route, state, reason)
		switch d.State {
		case dispatch.Pending:
			send(due, float64(d.Due), d.Route)
			send(overdue, float64(d.Overdue), d.Route)
		case dispatch.Held, dispatch.Dead:
			send(recent, float64(d.LastHour), d.Route, state, reason)
		case dispatch.Sending, dispatch.InDoubt, dispatch.Sent, dispatch.Cancelled:
		}
	}
}

// providers sums over countries: there are too many of them for labels.
func providers(s outbox.Stats, send func(d *prometheus.Desc, v float64, labels ...string)) {
	closed := map[[3]string]int{}
	for _, g := range s.Gates {
		if g.Closed {
			closed[[3]string{g.Route, g.Provider, g.Reason}]++
		}
	}
	for l, n := range closed {
		send(gates, float64(n), l[:]...)
	}
	sums := map[string]outbox.ProviderHealth{}
	for _, h := range s.Providers {
		sum := sums[h.Provider]
		sum.Calls += h.Calls
		sum.Failed += h.Failed
		sum.DeliveredFast += h.DeliveredFast
		sum.DeliveredSlow += h.DeliveredSlow
		sums[h.Provider] = sum
	}
	for name, h := range sums {
		send(calls, float64(h.Calls-h.Failed), name, "answered")
		send(calls, float64(h.Failed), name, "failed")
		send(delivered, float64(h.DeliveredFast+h.DeliveredSlow), name)
	}
}
