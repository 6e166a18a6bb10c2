package postmark

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// slack is what our clock and Postmark's may differ by.
const slack = 10 * time.Minute

// Lookup searches the stream for the mail with our key in its metadata. It is
// present where one is found that carries the key, and absent only where
// Postmark itself says that none is, in the time that it keeps mails for. The
// search is not limited by time: its dates are days of another zone.
func (p *Provider) Lookup(ctx context.Context, q dispatch.Query) (dispatch.Found, error) {
	query := url.Values{
		"count": {"10"}, "offset": {"0"}, "messagestream": {p.cfg.MessageStream}, "metadata_" + mailapi.KeyName: {q.Key.String()},
	}
	a, err := p.client.Do(ctx, exchange.Request{
		Method: http.MethodGet, URL: p.cfg.BaseURL + "/messages/outbound?" + query.Encode(),
		Header: http.Header{"Accept": {"application/json"}}, Auth: p.auth(),
	})
	if err != nil {
		return dispatch.Found{}, err
	}
	kept := time.Since(q.Since) < p.cfg.Retention-slack
	return found(a, q.Key, kept)
}

// found reads a search. kept tells that the mail would still be there.
func found(a exchange.Answer, key dispatch.Key, kept bool) (dispatch.Found, error) {
	var doc struct {
		answer
		Total    loosejson.Text `json:"TotalCount"`
		Messages []struct {
			ID       loosejson.Text            `json:"MessageID"`
			Status   loosejson.Text            `json:"Status"`
			Metadata map[string]loosejson.Text `json:"Metadata"`
		} `json:"Messages"`
	}
	read := mailapi.Read(a, &doc)
	if a.Status != http.StatusOK {
		e := a.Evidence
		if read {
			e.Code = doc.Code.Word(mailapi.MaxCode)
		}
		return dispatch.Found{}, mailapi.Fault(e, verdict(e))
	}
	if !read || doc.Messages == nil {
		return dispatch.Found{}, nil
	}
	for _, m := range doc.Messages {
		id := NormalizeID(m.ID.Word(mailapi.MaxID))
		if ours(m.Metadata) == key && id != "" {
			return dispatch.Found{Presence: dispatch.Present, ID: id, Status: m.Status.Word(mailapi.MaxCode)}, nil
		}
	}
	if len(doc.Messages) == 0 && doc.Total == "0" && kept {
		return dispatch.Found{Presence: dispatch.Absent}, nil
	}
	return dispatch.Found{}, nil // others than the one that was asked for: no proof of anything
}

// ours is our key in a mail's metadata, whose names have no fixed case.
func ours(metadata map[string]loosejson.Text) dispatch.Key {
	for name, value := range metadata {
		if strings.EqualFold(name, mailapi.KeyName) {
			return mailapi.Key(value)
		}
	}
	return dispatch.Key{}
}
