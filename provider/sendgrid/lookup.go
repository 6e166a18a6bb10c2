package sendgrid

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

const (
	// kept is how long the paid history reaches back, less what our clock and
	// SendGrid's may differ by. Source: the add-on's name, "30 days additional
	// email activity history".
	kept = 30*24*time.Hour - 10*time.Minute
	// candidates is how many mails of an answer are looked at in detail.
	candidates = 3
)

// Lookup asks the Email Activity API for mails with our key among their custom
// arguments, and looks at what it names: the list doesn't say whether the
// filter was followed. It makes up to four requests. Without
// Config.ActivityLag it returns dispatch.ErrNoLookup.
func (p *Provider) Lookup(ctx context.Context, q dispatch.Query) (dispatch.Found, error) {
	if p.cfg.ActivityLag == 0 {
		return dispatch.Found{}, dispatch.ErrNoLookup
	}
	query := url.Values{"limit": {"10"}, "query": {"(unique_args['" + mailapi.KeyName + `']="` + q.Key.String() + `")`}}
	a, err := p.get(ctx, "/v3/messages?"+query.Encode())
	if err != nil {
		return dispatch.Found{}, err
	}
	ids, listed := list(a)
	switch {
	case !listed:
		return dispatch.Found{}, nil
	case len(ids) == 0 && time.Since(q.Since) < kept:
		return dispatch.Found{Presence: dispatch.Absent}, nil
	}
	for _, id := range ids[:min(len(ids), candidates)] {
		a, err := p.get(ctx, "/v3/messages/"+url.PathEscape(id))
		if err != nil {
			return dispatch.Found{}, err
		}
		if found := detail(a, q.Key); found.Presence == dispatch.Present {
			return found, nil
		}
	}
	return dispatch.Found{}, nil // others than the one that was asked for: no proof of anything
}

func (p *Provider) get(ctx context.Context, path string) (exchange.Answer, error) {
	a, err := p.client.Do(ctx, exchange.Request{Method: http.MethodGet, URL: p.cfg.BaseURL + path, Header: p.header(), Auth: p.auth()})
	if err != nil {
		return a, err
	}
	if a.Status != http.StatusOK {
		return a, mailapi.Fault(a.Evidence, verdict(a.Evidence))
	}
	return a, nil
}

// list are the ids in a list of mails, ok false where it is none.
func list(a exchange.Answer) (ids []string, ok bool) {
	var doc struct {
		Messages []struct {
			ID loosejson.Text `json:"msg_id"`
		} `json:"messages"`
	}
	if !mailapi.Read(a, &doc) || doc.Messages == nil {
		return nil, false
	}
	for _, m := range doc.Messages {
		id := m.ID.Word(mailapi.MaxID)
		if id == "" {
			return nil, false
		}
		ids = append(ids, id)
	}
	return ids, true
}

// detail reads one mail. Its arguments are an object, or one as text.
func detail(a exchange.Answer, key dispatch.Key) dispatch.Found {
	var doc struct {
		ID     loosejson.Text  `json:"msg_id"`
		Status loosejson.Text  `json:"status"`
		Args   json.RawMessage `json:"unique_args"`
	}
	if !mailapi.Read(a, &doc) {
		return dispatch.Found{}
	}
	var text string
	if json.Unmarshal(doc.Args, &text) == nil {
		doc.Args = []byte(text)
	}
	var args map[string]loosejson.Text
	if json.Unmarshal(doc.Args, &args) != nil || mailapi.Key(args[mailapi.KeyName]) != key {
		return dispatch.Found{}
	}
	id := NormalizeID(doc.ID.Word(mailapi.MaxID))
	if id == "" {
		return dispatch.Found{}
	}
	return dispatch.Found{Presence: dispatch.Present, ID: id, Status: doc.Status.Word(mailapi.MaxCode)}
}
