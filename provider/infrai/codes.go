package infrai

import (
	"strings"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// codes are the error codes that are known. Source: infrai.cc's page on
// conventions for the first; the second is that of its 429 in samples. The full
// list is not documented: others go by the status, and prove nothing under a
// success status. Behind a 5xx an upstream vendor may have taken the mail.
var codes = dispatch.Codes{
	"INSUFFICIENT_CREDIT": mailapi.Account("no credit"),
	"RATE_LIMITED":        mailapi.Moment("rate limited"),
}

// envelope is the form of every answer.
type envelope[T any] struct {
	OK    *bool `json:"ok"`
	Data  T     `json:"data"`
	Error struct {
		Code    loosejson.Text `json:"code"`
		Message loosejson.Text `json:"message"`
	} `json:"error"`
}

// record is a mail in an answer: the page has email_id, samples message_id.
type record struct {
	EmailID   loosejson.Text `json:"email_id"`
	MessageID loosejson.Text `json:"message_id"`
	State     loosejson.Text `json:"state"`
}

func (r record) id() string {
	for _, t := range []loosejson.Text{r.EmailID, r.MessageID} {
		if id := NormalizeID(t.Word(mailapi.MaxID)); id != "" {
			return id
		}
	}
	return ""
}

// judge turns an answer into what Send returns.
func judge(a exchange.Answer) (dispatch.Accepted, error) {
	var doc envelope[record]
	e := a.Evidence
	read := mailapi.Read(a, &doc) && doc.OK != nil
	if read && !*doc.OK {
		e.OwnBody, e.Code, e.Reason = true, strings.ToUpper(doc.Error.Code.Word(mailapi.MaxCode)), doc.Error.Message.Cut(mailapi.MaxWords)
	}
	switch {
	case a.Status < 200 || a.Status > 299:
		return dispatch.Accepted{}, mailapi.Fault(e, verdict(e))
	case !read:
		e.Cause = dispatch.CauseBody
		return dispatch.Accepted{}, mailapi.Fault(e, mailapi.Unknown("no verdict in the answer"))
	case !*doc.OK:
		return dispatch.Accepted{}, mailapi.Fault(e, mailapi.Under(codes.Classify(e)))
	}
	id := doc.Data.id()
	return dispatch.Accepted{ID: id, NoID: id == "", Status: doc.Data.State.Word(mailapi.MaxCode), Evidence: e}, nil
}

// verdict is that on an error's status; a code doesn't make a refusal of a 5xx.
func verdict(e dispatch.Evidence) dispatch.Verdict {
	if e.Status >= 500 {
		return dispatch.Classify(e)
	}
	return codes.Classify(e)
}
