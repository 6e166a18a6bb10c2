package postmark

import (
	"net/http"
	"strings"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// codes are Postmark's ErrorCode numbers, which look like HTTP statuses and
// are none: they come in the body of a 4xx, most often 422. Source of each:
// postmarkapp.com/developer/api/overview, "API error codes". A code that isn't
// listed goes by the status (dispatch.Classify): a 422 is the message's.
var codes = dispatch.Codes{
	"10":   mailapi.Account("token refused"),
	"100":  mailapi.Moment("maintenance"), // "not processed": the API is offline
	"300":  mailapi.Message("mail refused"),
	"400":  mailapi.Sender("sender signature not found"),
	"401":  mailapi.Sender("sender signature not confirmed"),
	"402":  mailapi.Account("request is not JSON"), // our encoding, not the mail
	"403":  mailapi.Account("request has other fields"),
	"405":  mailapi.Account("no credit"),
	"406":  mailapi.Message("recipient is inactive"), // after a hard bounce or a complaint, all recipients
	"409":  mailapi.Account("JSON required"),
	"410":  mailapi.Account("too many mails in a batch"),
	"411":  mailapi.Message("attachment's type is forbidden"),
	"412":  mailapi.Account("account is pending"),
	"413":  mailapi.Account("account may not send"),
	"429":  mailapi.Moment("rate limited"),
	"1101": mailapi.Account("template not found"), // a person has to mend it
	"1120": mailapi.Account("template is broken"),
	"1121": mailapi.Account("template is broken"),
	"1122": mailapi.Account("template is broken"),
	"1123": mailapi.Account("template is broken"),
	"1221": mailapi.Account("stream not found"),
	"1226": mailapi.Account("stream not found"),
	"1235": mailapi.Account("stream not found"),
	"1236": mailapi.Account("stream can't send"),
}

// answer is the body of an answer to a send.
type answer struct {
	ID      loosejson.Text `json:"MessageID"`
	Code    loosejson.Text `json:"ErrorCode"`
	Message loosejson.Text `json:"Message"`
}

// judge turns an answer into what Send returns, and names the recipients that
// the mail will not go to. A success status is acceptance, unless the body
// names an error: a missing ErrorCode is none (django-anymail issue 392).
func judge(a exchange.Answer, content dispatch.Content) (dispatch.Accepted, []string, error) {
	var doc answer
	read := mailapi.Read(a, &doc)
	e := a.Evidence
	if code := doc.Code.Word(mailapi.MaxCode); read && code != "" && code != "0" {
		e.OwnBody, e.Code, e.Reason = true, code, doc.Message.Cut(mailapi.MaxWords)
	}
	switch success := a.Status >= 200 && a.Status <= 299; {
	case success && e.Code != "":
		return dispatch.Accepted{}, nil, mailapi.Fault(e, mailapi.Under(codes.Classify(e)))
	case !success:
		return dispatch.Accepted{}, nil, mailapi.Fault(e, verdict(e))
	}
	accepted := dispatch.Accepted{NoID: true, Status: "OK", Evidence: e}
	if !read {
		return accepted, nil, nil
	}
	if id := NormalizeID(doc.ID.Word(mailapi.MaxID)); id != "" {
		accepted.ID, accepted.NoID = id, false
	}
	skipped := inactive(string(doc.Message), content)
	switch text := strings.ToLower(string(doc.Message)); { // the words themselves may quote recipients
	case len(skipped) > 0:
		accepted.Status = "OK, inactive recipients skipped"
	case strings.Contains(text, "delayed"):
		accepted.Status = "OK, delayed"
	case strings.Contains(text, "test job"):
		accepted.Status = "test"
	}
	return accepted, skipped, nil
}

// verdict is that on an error's answer. Codes of refusals count under a 4xx;
// under a 5xx only the one that says that the API is offline does.
func verdict(e dispatch.Evidence) dispatch.Verdict {
	if e.Status >= http.StatusInternalServerError && e.Code != "100" {
		return dispatch.Classify(e)
	}
	v := codes.Classify(e)
	if e.Code == "300" && strings.Contains(e.Reason, "'From'") {
		// The one fault of a sender among those of the mail, told by the
		// field's name in Postmark's words: "Invalid 'From' address: ...".
		floor := v.Floor
		v = mailapi.Sender("sender refused")
		v.Floor = floor
	}
	return v
}

// inactive are the recipients that stand in the words of an answer that says
// that it will not deliver to some: "Message OK, but will not deliver to these
// inactive addresses: a@example.com, b@example.com. Inactive recipients are
// ..." (B010).
func inactive(words string, content dispatch.Content) (out []string) {
	m, ok := content.(dispatch.Email)
	if !ok || !strings.Contains(words, "inactive") {
		return nil
	}
	named := map[string]bool{}
	for word := range strings.FieldsFuncSeq(words, func(c rune) bool { return strings.ContainsRune(" ,;:<>()\t\r\n", c) }) {
		named[strings.ToLower(strings.TrimRight(word, "."))] = true
	}
	for _, list := range [][]dispatch.Address{m.To, m.CC, m.BCC} {
		for _, a := range list {
			if named[strings.ToLower(a.Email)] {
				out = append(out, a.Email)
			}
		}
	}
	return out
}
