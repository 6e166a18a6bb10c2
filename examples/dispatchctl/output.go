package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// refusals are what a verb may say about a message.
var refusals = []error{
	outbox.ErrNotFound, outbox.ErrTooLate, outbox.ErrMayHaveBeenAccepted, outbox.ErrNotParked, outbox.ErrExpired, outbox.ErrEnded,
	outbox.ErrNotHeld,
}

func refusedBy(err error) error {
	for _, r := range refusals {
		if errors.Is(err, r) {
			return r
		}
	}
	return nil
}

// cause is why a connection failed, without where to and as whom.
func cause(err error) string {
	var server *pgconn.PgError
	var number syscall.Errno
	var name *net.DNSError
	switch {
	case errors.As(err, &server):
		return "the server says " + server.Code
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &name):
		return "its name is not known"
	case errors.Is(err, context.DeadlineExceeded):
		return "it did not answer in time"
	}
	return "no connection"
}

// say writes for people. Whoever closed the other end doesn't want to hear.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// write writes v as JSON, or lets text write.
func (p *program) write(v any, text func(w io.Writer)) error {
	if p.json {
		e := json.NewEncoder(p.out)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	w := tabwriter.NewWriter(p.out, 0, 8, 2, ' ', 0)
	text(w)
	return w.Flush()
}

type depth struct {
	Route       string  `json:"route"`
	State       string  `json:"state"`
	Reason      string  `json:"reason,omitempty"`
	Count       int64   `json:"count"`
	Approximate bool    `json:"approximate,omitempty"`
	Oldest      float64 `json:"oldest_seconds"`
	Due         int64   `json:"due,omitempty"`
	Overdue     int64   `json:"overdue,omitempty"`
	LastHour    int64   `json:"last_hour,omitempty"`
}

type provider struct {
	Provider  string  `json:"provider"`
	Country   int     `json:"country,omitempty"`
	Calls     int     `json:"calls"`
	Failed    int     `json:"failed"`
	Accepted  int     `json:"accepted"`
	Delivered int     `json:"delivered"`
	P50       float64 `json:"p50_seconds"`
	P95       float64 `json:"p95_seconds"`
	P99       float64 `json:"p99_seconds"`
}

type gate struct {
	Provider string     `json:"provider,omitempty"`
	Route    string     `json:"route,omitempty"`
	Country  int        `json:"country,omitempty"`
	Reason   string     `json:"reason"`
	Since    time.Time  `json:"since"`
	Until    *time.Time `json:"until,omitempty"`
	By       string     `json:"by,omitempty"`
	Why      string     `json:"why,omitempty"`
}

type holdback struct {
	Kind         string  `json:"kind"`
	Name         string  `json:"name"`
	Transactions int64   `json:"transactions"`
	For          float64 `json:"seconds"`
}

type statsDoc struct {
	At                time.Time  `json:"at"`
	Depths            []depth    `json:"depths"`
	Providers         []provider `json:"providers"`
	Gates             []gate     `json:"closed_gates"`
	ReceiptsWaiting   int64      `json:"receipts_waiting"`
	ReceiptsUnmatched int64      `json:"receipts_unmatched"`
	NoticesWaiting    int64      `json:"notices_waiting"`
	DeadRows          int64      `json:"queue_dead_rows"`
	Holdback          *holdback  `json:"vacuum_holdback,omitempty"`
	Within            bool       `json:"within_limits,omitempty"`
	Over              string     `json:"over,omitempty"`
}

type message struct {
	Key      string     `json:"key"`
	Route    string     `json:"route"`
	Channel  string     `json:"channel"`
	State    string     `json:"state"`
	Reason   string     `json:"reason,omitempty"`
	Provider string     `json:"provider,omitempty"`
	Attempts int        `json:"attempts"`
	Budget   int        `json:"budget"`
	Created  time.Time  `json:"created"`
	Changed  time.Time  `json:"changed"`
	Next     *time.Time `json:"next,omitempty"`
	Deadline *time.Time `json:"deadline,omitempty"`
	Scrubbed bool       `json:"scrubbed,omitempty"`
	Status   int        `json:"status,omitempty"`
	Code     string     `json:"code,omitempty"`
	Detail   string     `json:"detail,omitempty"`
}

type listDoc struct {
	Messages []message `json:"messages"`
	Next     string    `json:"next,omitempty"`
}

// actionDoc is what a verb came to, for one message or for many.
type actionDoc struct {
	Action      string         `json:"action"`
	Matched     int            `json:"matched"`
	Done        map[string]int `json:"done"`
	Refused     map[string]int `json:"refused"`
	Interrupted bool           `json:"interrupted,omitempty"`
	Error       string         `json:"error,omitempty"`
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func messageOf(m outbox.Message) message {
	return message{
		Key: m.Key.String(), Route: m.Route, Channel: m.Channel.String(), State: m.State.String(), Reason: m.Reason.String(),
		Provider: m.Provider, Attempts: m.Attempts, Budget: m.Budget, Created: m.Created, Changed: m.Changed, Next: timeOrNil(m.Next),
		Deadline: timeOrNil(m.Deadline), Scrubbed: m.Scrubbed, Status: m.Status, Code: m.Code, Detail: m.Detail,
	}
}

func gateOf(g outbox.Gate) gate {
	return gate{
		Provider: g.Provider, Route: g.Route, Country: g.Country, Reason: g.Reason, Since: g.Since, Until: timeOrNil(g.Until), By: g.By, Why: g.Why,
	}
}

func statsOf(s outbox.Stats) statsDoc {
	d := statsDoc{
		At: s.At, Depths: []depth{}, Providers: []provider{}, Gates: []gate{}, ReceiptsWaiting: s.ReceiptsWaiting,
		ReceiptsUnmatched: s.ReceiptsUnmatched, NoticesWaiting: s.NoticesWaiting, DeadRows: s.DeadRows,
	}
	for _, v := range s.Depths {
		d.Depths = append(d.Depths, depth{
			Route: v.Route, State: v.State.String(), Reason: v.Reason.String(), Count: v.Count, Approximate: v.Approximate,
			Oldest: v.Oldest.Seconds(), Due: v.Due, Overdue: v.Overdue, LastHour: v.LastHour,
		})
	}
	for _, h := range s.Providers {
		d.Providers = append(d.Providers, provider{
			Provider: h.Provider, Country: h.Country, Calls: h.Calls, Failed: h.Failed, Accepted: h.Accepted,
			Delivered: h.DeliveredFast + h.DeliveredSlow, P50: h.P50.Seconds(), P95: h.P95.Seconds(), P99: h.P99.Seconds(),
		})
	}
	for _, g := range s.Gates {
		if g.Closed {
			d.Gates = append(d.Gates, gateOf(g))
		}
	}
	if h := s.Holdback; h != nil {
		d.Holdback = &holdback{Kind: h.Kind, Name: h.Name, Transactions: h.Transactions, For: max(0, h.For.Seconds())}
	}
	return d
}

func (d statsDoc) text(w io.Writer) {
	say(w, "ROUTE\tSTATE\tREASON\tCOUNT\tOLDEST\tDUE\tOVERDUE\tLAST HOUR\n")
	for _, v := range d.Depths {
		about := ""
		if v.Approximate {
			about = "~"
		}
		say(w, "%s\t%s\t%s\t%s%d\t%s\t%d\t%d\t%d\n", v.Route, v.State, v.Reason, about, v.Count, seconds(v.Oldest), v.Due, v.Overdue, v.LastHour)
	}
	if len(d.Providers) > 0 {
		say(w, "\nPROVIDER\tCOUNTRY\tCALLS\tFAILED\tACCEPTED\tDELIVERED\tP50\tP95\tP99\n")
	}
	for _, h := range d.Providers {
		country := "all"
		if h.Country != 0 {
			country = fmt.Sprintf("+%d", h.Country)
		}
		say(w, "%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", h.Provider, country, h.Calls, h.Failed, h.Accepted, h.Delivered,
			bound(h.P50), bound(h.P95), bound(h.P99))
	}
	for _, g := range d.Gates {
		say(w, "\n%s%s is held (%s) since %s", g.Provider, g.Route, g.Reason, g.Since.UTC().Format(time.RFC3339))
		if g.By != "" {
			say(w, " by %s: %s", g.By, g.Why)
		}
	}
	say(w, "\nreceipts waiting %d, without a message %d; notices waiting %d; dead rows %d\n", d.ReceiptsWaiting, d.ReceiptsUnmatched,
		d.NoticesWaiting, d.DeadRows)
	switch {
	case d.Over != "":
		say(w, "%s\n", d.Over)
	case d.Within:
		say(w, "the outbox is within its limits\n")
	}
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}

// bound tells a quantile, which is the end of a class of durations; the last
// class has none.
func bound(s float64) string {
	switch {
	case s == 0:
		return "-"
	case s > 30:
		return ">25.6s"
	}
	return "≤" + seconds(s)
}

func (d actionDoc) text(w io.Writer) {
	var parts []string
	for _, s := range []dispatch.State{
		dispatch.Pending, dispatch.Sending, dispatch.InDoubt, dispatch.Held, dispatch.Dead, dispatch.Sent, dispatch.Cancelled,
	} {
		if n := d.Done[s.String()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	for _, r := range refusals {
		if n := d.Refused[r.Error()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d refused: %s", n, r))
		}
	}
	if len(parts) == 0 {
		parts = []string{"nothing to do"}
	}
	say(w, "%s: %s\n", d.Action, strings.Join(parts, ", "))
	if d.Interrupted {
		say(w, "interrupted after %d messages; the same call goes on\n", d.Matched)
	}
}
