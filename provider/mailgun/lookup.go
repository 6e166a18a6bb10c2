package mailgun

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// slack is what our clock and Mailgun's may differ by.
const slack = 10 * time.Minute

// Lookup asks for events with the mail's Message-ID, in the time since it may
// have been accepted. Any event of it proves that Mailgun has it; absent is
// said only where Mailgun's list is empty, in the time that it keeps events
// for, and while it has kept all our Message-IDs. With a sending key it
// returns dispatch.ErrNoLookup.
func (p *Provider) Lookup(ctx context.Context, q dispatch.Query) (dispatch.Found, error) {
	if p.cfg.SendingKey {
		return dispatch.Found{}, dispatch.ErrNoLookup
	}
	id := p.messageID(q.Key)
	query := url.Values{
		"message-id": {id}, // without brackets: with them the filter is not followed (mailgun.js issue 296)
		"begin":      {strconv.FormatInt(q.Since.Add(-slack).Unix(), 10)},
		"ascending":  {"yes"},
		"limit":      {"10"},
	}
	a, err := p.client.Do(ctx, exchange.Request{
		Method: http.MethodGet, URL: p.cfg.BaseURL + "/v3/" + p.cfg.Domain + "/events?" + query.Encode(),
		Header: http.Header{"Accept": {"application/json"}}, Auth: p.auth(),
	})
	if err != nil {
		return dispatch.Found{}, err
	}
	sure := time.Since(q.Since) < p.cfg.Retention-slack && !p.renamed.Load()
	return found(a, id, sure)
}

// found reads a list of events. sure tells that a mail that isn't in it was
// not accepted.
func found(a exchange.Answer, id string, sure bool) (dispatch.Found, error) {
	var doc struct {
		Items []struct {
			Event   loosejson.Text `json:"event"`
			Message message        `json:"message"`
		} `json:"items"`
	}
	if a.Status != http.StatusOK {
		return dispatch.Found{}, mailapi.Fault(a.Evidence, verdict(a.Evidence))
	}
	if !mailapi.Read(a, &doc) || doc.Items == nil {
		return dispatch.Found{}, nil
	}
	for _, item := range doc.Items {
		if item.Message.id() == id {
			return dispatch.Found{Presence: dispatch.Present, ID: id, Status: item.Event.Word(mailapi.MaxCode)}, nil
		}
	}
	if len(doc.Items) == 0 && sure {
		return dispatch.Found{Presence: dispatch.Absent}, nil
	}
	return dispatch.Found{}, nil // others than the one that was asked for: no proof of anything
}

// message is what an event says of its mail.
type message struct {
	Headers struct {
		ID loosejson.Text `json:"message-id"`
	} `json:"headers"`
}

func (m message) id() string { return NormalizeID(m.Headers.ID.Word(mailapi.MaxID)) }
