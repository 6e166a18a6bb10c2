package twilio

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

const (
	// pageSize is how many messages one page lists: with 1,600 characters each,
	// escaped, they stay below the default MaxBody.
	pageSize = "50"
	// maxPages bounds a look-up: what lies behind 2,000 messages to one number
	// is not looked at, and nothing is proven then.
	maxPages = 40
	// skew is how far Twilio's clock and the database's may differ: 5 min, far
	// more than they do, since a message that is taken for another's goes out
	// twice.
	skew = 5 * time.Minute
)

// Lookup reads the list of messages to the recipient and looks for those that
// could be ours: created by the API within the time in question, with our text
// as Twilio may have rewritten it.
//
// Absent says that there is none, which is proof once the contract's lag has
// passed. Present needs Config.DistinctTexts, and exactly one. Two that fit, or
// one whose text is redacted or odd, are Unclear.
//
// It asks by To alone. DateSent would hide what is still queued, whose date is
// null, and knows whole days only; no order of the list is documented, so all
// of its pages are read. The error is a *dispatch.Fault.
func (p *Provider) Lookup(ctx context.Context, q dispatch.Query) (dispatch.Found, error) {
	w := wanted{from: p.from(q.From), since: q.Since, until: q.Until}
	var ok bool
	if w.sms, ok = q.Content.(dispatch.SMS); !ok {
		return dispatch.Found{}, nil
	}
	var found search
	next := p.messages + "?" + url.Values{"To": {w.sms.To}, "PageSize": {pageSize}}.Encode()
	for range maxPages {
		a, err := p.client.Do(ctx, exchange.Request{
			Method: http.MethodGet, URL: next, Header: http.Header{"Accept": {"application/json"}}, Auth: p.auth,
		})
		if err != nil {
			return dispatch.Found{}, err
		}
		if a.Status != http.StatusOK {
			var doc map[string]any
			if a.Whole() {
				doc = decode(a.Body)
			}
			return dispatch.Found{}, refused(a.Evidence, doc)
		}
		list, more, ok := page(a)
		if !ok {
			return dispatch.Found{}, nil
		}
		for _, m := range list {
			found.add(m, w.fit(m))
		}
		if more == "" {
			return found.verdict(p.cfg.DistinctTexts), nil
		}
		if next, ok = p.follow(more); !ok {
			return dispatch.Found{}, nil
		}
	}
	return dispatch.Found{}, nil
}

// follow is the URL of a further page: of the same list and no other, since the
// request carries our credentials.
func (p *Provider) follow(uri string) (string, bool) {
	query, ok := strings.CutPrefix(uri, p.path+"?")
	return p.messages + "?" + query, ok && !strings.ContainsAny(query, " #")
}

// listed is what a page says of one message.
type listed struct {
	sid, to, from, service, body, direction, status string
	created                                         time.Time // zero where it can't be read
	text                                            bool      // body is there
}

// page reads one page, and the URI of the next, "" behind the last. A page that
// doesn't say whether there is another proves nothing.
func page(a exchange.Answer) (list []listed, next string, ok bool) {
	if !a.Whole() {
		return nil, "", false
	}
	doc := decode(a.Body)
	entries, ok := doc["messages"].([]any)
	if !ok {
		return nil, "", false
	}
	switch uri := doc["next_page_uri"].(type) {
	case string:
		next = uri
	case nil:
		if _, ok := doc["next_page_uri"]; !ok {
			return nil, "", false
		}
	default:
		return nil, "", false
	}
	for _, e := range entries {
		m, ok := e.(map[string]any)
		if !ok {
			return nil, "", false
		}
		l := listed{
			sid: sid(m["sid"]), to: text(m["to"], maxWord), from: text(m["from"], maxWord), service: text(m["messaging_service_sid"], maxWord),
			direction: text(m["direction"], maxWord), status: strings.ToLower(text(m["status"], maxWord)),
		}
		l.body, l.text = m["body"].(string)
		l.created, _ = time.Parse(time.RFC1123Z, text(m["date_created"], maxWord)) // zero then
		list = append(list, l)
	}
	return list, next, true
}

// fit is how well a listed message fits for ours.
type fit int8

const (
	differs fit = iota // it is certainly another
	maybe              // it can't be told
	fits
)

// wanted is what a look-up looks for.
type wanted struct {
	sms          dispatch.SMS
	from         string
	since, until time.Time
}

// fit says that a message differs only where that is certain: a message that is
// wrongly taken for another's would be sent again.
func (w wanted) fit(m listed) fit {
	switch m.direction { // documented words; ours is outbound-api
	case "inbound", "outbound-call", "outbound-reply":
		return differs
	}
	if strings.HasPrefix(m.to, "+") && m.to != w.sms.To {
		return differs
	}
	if !m.created.IsZero() {
		early := !w.since.IsZero() && m.created.Before(w.since.Add(-skew))
		late := !w.until.IsZero() && m.created.After(w.until.Add(skew))
		if early || late {
			return differs
		}
	}
	if !m.text || m.body == "" { // redacted
		return maybe
	}
	f := compare(w.sms.Body, m.body)
	sender := m.from
	if serviceSID.MatchString(w.from) {
		sender = m.service
	}
	if f == fits && (m.sid == "" || m.created.IsZero() || m.direction != "outbound-api" || m.to != w.sms.To || sender != w.from) {
		return maybe
	}
	return f
}

// search counts what was found. A message may be listed on two pages: the list
// moves while it is read.
type search struct {
	one    listed
	fit    map[string]bool
	unsure bool
}

func (s *search) add(m listed, f fit) {
	switch f {
	case differs:
	case maybe:
		s.unsure = true
	case fits:
		if s.fit == nil {
			s.fit = map[string]bool{}
		}
		s.fit[m.sid], s.one = true, m
	}
}

func (s *search) verdict(distinct bool) dispatch.Found {
	switch {
	case s.unsure, len(s.fit) > 1:
		return dispatch.Found{}
	case len(s.fit) == 0:
		return dispatch.Found{Presence: dispatch.Absent}
	case distinct:
		return dispatch.Found{Presence: dispatch.Present, ID: s.one.sid, Status: s.one.status}
	}
	return dispatch.Found{} // it may be another key's
}
