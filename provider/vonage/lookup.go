package vonage

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
)

const (
	// slack is what our clock and Vonage's may differ by.
	slack = 10 * time.Minute
	// span is the longest time that one synchronous report covers. Source:
	// the page "Get records synchronously by date range".
	span = 24 * time.Hour
	// maxReport is the size of a report of 1000 records, the most that one
	// has, in bytes. A larger one proves nothing.
	maxReport = 2 << 20
)

// Lookup asks the Reports API for what went to the number in that time. A
// record with our key proves that Vonage has the message. "Absent" is said
// only where the report is complete and each record in it carries another
// reference: one without any may be ours.
func (p *Provider) Lookup(ctx context.Context, q dispatch.Query) (dispatch.Found, error) {
	sms, ok := q.Content.(dispatch.SMS)
	if p.cfg.ReportLag == 0 {
		return dispatch.Found{}, dispatch.ErrNoLookup
	}
	if !ok {
		return dispatch.Found{}, local(account("not a text message"), nil)
	}
	from, until := q.Since.Add(-slack), q.Until.Add(slack)
	whole := until.Sub(from) <= span
	if !whole {
		until = from.Add(span)
	}
	product := map[API]string{Messages: "MESSAGES", SMS: "SMS"}[p.cfg.API]
	query := url.Values{
		"account_id": {p.cfg.APIKey}, "product": {product}, "direction": {"outbound"}, "to": {strings.TrimPrefix(sms.To, "+")},
		"date_start": {from.UTC().Format(time.RFC3339)}, "date_end": {until.UTC().Format(time.RFC3339)},
	}
	a, err := p.reports.Do(ctx, exchange.Request{
		Method: http.MethodGet, URL: p.cfg.ReportsURL + "/v2/reports/records?" + query.Encode(),
		Header: http.Header{"Accept": {"application/json"}}, Auth: p.basic(),
	})
	if err != nil {
		return dispatch.Found{}, err
	}
	return found(a, q.Key, whole)
}

// found reads a report. whole tells that the time which was asked for is all
// that counts.
func found(a exchange.Answer, key dispatch.Key, whole bool) (dispatch.Found, error) {
	e := a.Evidence
	if a.Status != http.StatusOK {
		return dispatch.Found{}, &dispatch.Fault{Evidence: e, Verdict: dispatch.Classify(e)}
	}
	var doc struct {
		Status  loosejson.Text `json:"request_status"`
		Records []struct {
			ID     loosejson.Text `json:"message_id"`
			Ref    loosejson.Text `json:"client_ref"`
			Status loosejson.Text `json:"status"`
		} `json:"records"`
	}
	read := a.Whole() && loosejson.Decode(a.Body, &doc) == nil
	if !read || doc.Records == nil {
		return dispatch.Found{}, nil
	}
	whole = whole && doc.Status == "SUCCESS" // TRUNCATED has more pages
	for _, r := range doc.Records {
		switch ref := strings.ToLower(r.Ref.Word(maxID)); ref {
		case key.String():
			return dispatch.Found{Presence: dispatch.Present, ID: r.ID.Word(maxID), Status: r.Status.Word(maxCode)}, nil
		case "":
			whole = false
		}
	}
	if !whole {
		return dispatch.Found{}, nil
	}
	return dispatch.Found{Presence: dispatch.Absent}, nil
}
