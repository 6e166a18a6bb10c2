package infrai

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

const (
	// maxPages is how many pages of events one poll reads, where Infrai names
	// a next one.
	maxPages = 20
	// maxSeen is how many events are remembered as stored.
	maxSeen = 20_000
)

// Poll asks for events, at once and then every Config.Every, and gives them to
// sink until ctx ends; then it returns nil. It runs on the caller's goroutine
// and starts none. An event comes up to that pause later than Infrai has it,
// so the pause is a part of each delivery time that is measured. A poll that
// fails, also where sink does, is logged and made again after the pause, or
// after what Infrai's Retry-After asks for. A second Poll at the same time is
// an error; several processes may poll, since a stored event changes nothing.
func (p *Provider) Poll(ctx context.Context, sink dispatch.ReceiptSink) error {
	if sink == nil {
		return errors.New("infrai: sink is nil")
	}
	if !p.polling.CompareAndSwap(false, true) {
		return errors.New("infrai: events are polled already")
	}
	defer p.polling.Store(false)
	p.seen = seen{} // this sink may be another
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
		wait := p.cfg.Every
		if err := p.pollOnce(ctx, sink); err != nil && ctx.Err() == nil {
			var f *dispatch.Fault
			if errors.As(err, &f) {
				wait = max(wait, f.Verdict.Floor)
			}
			if p.cfg.Logger != nil {
				p.cfg.Logger.WarnContext(ctx, "event poll failed", slog.String("provider", p.cfg.Name), slog.Any("error", err))
			}
		}
		pause.Reset(wait)
	}
}

// Unread is how many events could not be read since New. An event that stays
// in Infrai's list counts again in each poll.
func (p *Provider) Unread() int64 { return p.unread.Load() }

// pollOnce reads the pages until one has nothing new.
func (p *Provider) pollOnce(ctx context.Context, sink dispatch.ReceiptSink) error {
	cursor := ""
	for range maxPages {
		receipts, next, err := p.page(ctx, cursor)
		if err != nil {
			return err
		}
		fresh := p.seen.without(receipts)
		if len(fresh) > 0 {
			if err := mailapi.Split(sink).Receive(ctx, fresh); err != nil {
				return errors.New("events could not be stored")
			}
			p.seen.add(fresh)
		}
		if next == "" || next == cursor || len(fresh) == 0 {
			return nil
		}
		cursor = next
	}
	return nil
}

func (p *Provider) page(ctx context.Context, cursor string) ([]dispatch.Receipt, string, error) {
	path := "/v1/email/event/list"
	if cursor != "" {
		path += "?" + url.Values{"cursor": {cursor}}.Encode()
	}
	a, err := p.client.Do(ctx, exchange.Request{
		Method: http.MethodGet, URL: p.cfg.BaseURL + path, Header: http.Header{"Accept": {"application/json"}}, Auth: p.auth(),
	})
	if err != nil {
		return nil, "", err
	}
	return p.read(a)
}

// read reads a list of events: data is one, or has one under items or events.
// Each event is read by itself (B154).
func (p *Provider) read(a exchange.Answer) ([]dispatch.Receipt, string, error) {
	var doc envelope[json.RawMessage]
	e := a.Evidence
	if read := mailapi.Read(a, &doc); a.Status != http.StatusOK || !read || doc.OK == nil || !*doc.OK {
		e.Code = strings.ToUpper(doc.Error.Code.Word(mailapi.MaxCode))
		v := verdict(e)
		if v.Outcome == dispatch.OK {
			v = mailapi.Unknown("no list of events in the answer")
		}
		return nil, "", mailapi.Fault(e, v)
	}
	var list struct {
		Items  []json.RawMessage `json:"items"`
		Events []json.RawMessage `json:"events"`
		Next   loosejson.Text    `json:"next_cursor"`
	}
	if json.Unmarshal(doc.Data, &list.Items) != nil {
		if json.Unmarshal(doc.Data, &list) != nil {
			return nil, "", mailapi.Fault(e, mailapi.Unknown("no list of events in the answer"))
		}
		list.Items = append(list.Items, list.Events...)
	}
	var receipts []dispatch.Receipt
	for _, raw := range list.Items {
		if r, ok := p.receipt(raw); ok {
			receipts = append(receipts, r)
		} else {
			p.unread.Add(1)
		}
	}
	return receipts, list.Next.Word(mailapi.MaxID), nil
}

// event is an event under the names that samples use for its fields.
type event struct {
	record
	Type  loosejson.Text  `json:"type"`
	Event loosejson.Text  `json:"event"`
	Key   loosejson.Text  `json:"idempotency_key"`
	To    json.RawMessage `json:"to"`
	Email loosejson.Text  `json:"email"`
	At    loosejson.Text  `json:"created_at"`
	Time  loosejson.Text  `json:"timestamp"`
}

func (p *Provider) receipt(raw json.RawMessage) (dispatch.Receipt, bool) {
	var ev event
	if json.Unmarshal(raw, &ev) != nil {
		return dispatch.Receipt{}, false
	}
	kind := strings.TrimPrefix(strings.ToLower(first(ev.Type, ev.Event, ev.State)), "email.")
	at := first(ev.At, ev.Time)
	r := dispatch.Receipt{
		Provider: p.cfg.Name, Account: p.cfg.Account, Key: mailapi.Key(ev.Key), ProviderID: ev.id(), Kind: kinds[kind],
		At: mailapi.Sane(time.Parse(time.RFC3339Nano, at)), Recipient: mailapi.Address(ev.Email),
	}
	if to := mailapi.List(ev.To); r.Recipient == "" && len(to) == 1 {
		r.Recipient = mailapi.Address(to[0])
	}
	if r.At.IsZero() {
		r.At = mailapi.Unix(loosejson.Text(at))
	}
	r.Code, r.Permanent = kind, kind == "hard_bounce" || r.Kind == dispatch.Complained
	if r.Kind != dispatch.Bounced && r.Kind != dispatch.Failed {
		r.Code = ""
	}
	r.EventKey = mailapi.EventKey(r.ProviderID+"/"+r.Key.String(), kind, at, r.Recipient)
	return r, kind != "" && mailapi.Stored(r)
}

func first(texts ...loosejson.Text) string {
	for _, t := range texts {
		if w := t.Word(mailapi.MaxCode); w != "" {
			return w
		}
	}
	return ""
}

// kinds are the words of events, as samples have them. None is documented;
// others are Noted. Only a bounce that is called hard stays.
var kinds = map[string]dispatch.ReceiptKind{
	"queued": dispatch.Queued, "accepted": dispatch.Queued,
	"sent":     dispatch.Passed,
	"deferred": dispatch.Deferred, "delayed": dispatch.Deferred,
	"delivered": dispatch.Delivered, "delivery": dispatch.Delivered,
	"bounce": dispatch.Bounced, "bounced": dispatch.Bounced, "hard_bounce": dispatch.Bounced, "soft_bounce": dispatch.Bounced,
	"failed": dispatch.Failed, "rejected": dispatch.Failed, "dropped": dispatch.Failed,
	"complaint": dispatch.Complained, "complained": dispatch.Complained, "spam": dispatch.Complained,
	"unsubscribe": dispatch.Unsubscribed, "unsubscribed": dispatch.Unsubscribed,
	"open": dispatch.Opened, "opened": dispatch.Opened, "click": dispatch.Clicked, "clicked": dispatch.Clicked,
}

// seen remembers which events were stored, so that a list that stays the same
// isn't stored each minute. Only the one Poll uses it.
type seen struct {
	keys  map[string]bool
	queue []string
}

func (s *seen) without(receipts []dispatch.Receipt) (fresh []dispatch.Receipt) {
	for _, r := range receipts {
		if !s.keys[r.EventKey] {
			fresh = append(fresh, r)
		}
	}
	return fresh
}

func (s *seen) add(receipts []dispatch.Receipt) {
	if s.keys == nil {
		s.keys = map[string]bool{}
	}
	for _, r := range receipts {
		if s.keys[r.EventKey] {
			continue
		}
		for len(s.queue) >= maxSeen {
			delete(s.keys, s.queue[0])
			s.queue = s.queue[1:]
		}
		s.keys[r.EventKey] = true
		s.queue = append(s.queue, r.EventKey)
	}
}
