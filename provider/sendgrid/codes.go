package sendgrid

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// SendGrid has no error codes: an error names a field of the request, which
// stands for one here. fields are verdicts on a 400 or 403 by that field.
// Source: sendgrid-oai mail/send, "errors", and SendGrid's page of mail/send
// errors. A field that isn't listed is the mail's.
var fields = map[string]dispatch.Verdict{
	"from":          mailapi.Sender("sender not verified"), // 403: "does not match a verified Sender Identity"
	"from.email":    mailapi.Sender("sender refused"),
	"from.name":     mailapi.Sender("sender refused"),
	"template_id":   mailapi.Account("template refused"), // a person has to mend it
	"custom_args":   mailapi.Account("custom arguments refused"),
	"asm":           mailapi.Account("unsubscribe group refused"),
	"authorization": mailapi.Account("API key refused"),
}

// statuses are verdicts by status where it says more than dispatch.Classify
// knows. Source: sendgrid-oai mail/send, responses. 401 is also what an account
// without credits gets ("Maximum credits exceeded"); 500 and 503 say nothing
// of what was taken.
var statuses = map[int]dispatch.Verdict{
	http.StatusUnauthorized:         mailapi.Account("API key or credits"),
	http.StatusForbidden:            mailapi.Account("API key may not send"),
	http.StatusNotFound:             mailapi.Account("not the API's path"), // a mail names nothing that could be missing
	http.StatusMethodNotAllowed:     mailapi.Account("not the API's method"),
	http.StatusNotAcceptable:        mailapi.Account("not the API's format"),
	http.StatusUnsupportedMediaType: mailapi.Account("not the API's format"),
}

// judge turns an answer into what Send returns. The status is the verdict, and
// the id stands in the header, so that a body that was cut changes nothing.
func judge(a exchange.Answer) (dispatch.Accepted, error) {
	e := a.Evidence
	if a.Status >= 200 && a.Status <= 299 {
		id := NormalizeID(loosejson.Text(a.Header.Get("X-Message-Id")).Word(mailapi.MaxID))
		return dispatch.Accepted{ID: id, NoID: id == "", Evidence: e}, nil
	}
	var doc struct {
		Errors []struct {
			Message loosejson.Text `json:"message"`
			Field   loosejson.Text `json:"field"`
		} `json:"errors"`
	}
	if mailapi.Read(a, &doc) && len(doc.Errors) > 0 {
		e.OwnBody, e.Code, e.Reason = true, doc.Errors[0].Field.Word(mailapi.MaxCode), doc.Errors[0].Message.Cut(mailapi.MaxWords)
	}
	if a.Status == http.StatusTooManyRequests && e.RetryAfter == 0 {
		e.RetryAfter = reset(a.Header, time.Now())
	}
	return dispatch.Accepted{}, mailapi.Fault(e, verdict(e))
}

func verdict(e dispatch.Evidence) dispatch.Verdict {
	v := dispatch.Classify(e)
	special, ok := statuses[e.Status]
	if by, listed := fields[strings.ToLower(e.Code)]; listed && (e.Status == http.StatusBadRequest || e.Status == http.StatusForbidden) {
		special, ok = by, true
	}
	if !ok || e.Stage != dispatch.Answered {
		return v
	}
	special.Floor = v.Floor
	return special
}

// reset reads X-RateLimit-Reset, whose unit is seconds since the epoch, as
// sendgrid-go has it. It counts from the answer's own Date where there is one.
// The past, milliseconds and anything above an hour are no floor (B054).
func reset(h http.Header, now time.Time) time.Duration {
	if d, err := http.ParseTime(h.Get("Date")); err == nil {
		now = d
	}
	n, err := strconv.ParseInt(strings.TrimSpace(h.Get("X-Ratelimit-Reset")), 10, 64)
	if err != nil || n <= 0 || n > 1<<40 {
		return 0
	}
	if d := time.Unix(n, 0).Sub(now); d > 0 && d <= time.Hour {
		return d
	}
	return 0
}
