package mailgun

import (
	"net/http"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// statuses are verdicts by status where it says more than dispatch.Classify
// knows. Source: Mailgun's page on API errors. Not listed: 400, whose words
// tell, 413 and 429, which Classify has, and 5xx, which prove nothing.
var statuses = map[int]dispatch.Verdict{
	http.StatusUnauthorized:    mailapi.Account("API key refused"),
	http.StatusPaymentRequired: mailapi.Account("request failed"), // "parameters were valid but request failed"
	http.StatusForbidden:       mailapi.Account("account may not send so"),
	http.StatusNotFound:        mailapi.Account("domain not found"), // or in the other region; a mail names nothing else
}

// phrase is a part of a refusal's words: Mailgun has no error codes, and the
// same status for a mail's fault and an account's. Each only turns one refusal
// into another.
type phrase struct {
	status  int
	words   string // lower case
	verdict dispatch.Verdict
}

// phrases are looked for in order. Source: mailgun-go's tests and issues, and
// Mailgun's help pages on these texts.
var phrases = []phrase{
	{http.StatusBadRequest, "is not allowed to send", mailapi.Account("domain may not send")}, // sandbox, free, not verified, not activated
	{http.StatusBadRequest, "from parameter", mailapi.Sender("sender refused")},
	{http.StatusBadRequest, "'from' parameter", mailapi.Sender("sender refused")},
	{http.StatusBadRequest, "template", mailapi.Account("template refused")}, // missing template or version: a person has to mend it
}

// judge turns an answer into what Send returns. The status is the verdict;
// some refusals are plain text.
func judge(a exchange.Answer) (dispatch.Accepted, error) {
	var doc struct {
		ID      loosejson.Text `json:"id"`
		Message loosejson.Text `json:"message"`
	}
	read := mailapi.Read(a, &doc)
	e := a.Evidence
	if a.Status >= 200 && a.Status <= 299 {
		accepted := dispatch.Accepted{NoID: true, Evidence: e}
		if id := NormalizeID(doc.ID.Word(mailapi.MaxID)); read && id != "" {
			accepted.ID, accepted.NoID, accepted.Status = id, false, "queued"
		}
		return accepted, nil
	}
	if read && doc.Message != "" {
		e.OwnBody, e.Reason = true, doc.Message.Cut(mailapi.MaxWords)
	}
	if a.Status == http.StatusTooManyRequests && e.RetryAfter == 0 {
		e.RetryAfter = again(string(doc.Message), a.Header.Get("Date"), time.Now())
	}
	return dispatch.Accepted{}, mailapi.Fault(e, verdict(e))
}

func verdict(e dispatch.Evidence) dispatch.Verdict {
	v := dispatch.Classify(e)
	special, ok := statuses[e.Status]
	for _, p := range phrases {
		if !ok && p.status == e.Status && e.OwnBody && strings.Contains(strings.ToLower(e.Reason), p.words) {
			special, ok = p.verdict, true
		}
	}
	if !ok || e.Stage != dispatch.Answered {
		return v
	}
	special.Floor = v.Floor
	return special
}

// again reads the time at the end of a 429's words: "... limit exceeded, try
// again after Mon, 20 Dec 2021 20:33:21 UTC". Nonsense is no floor.
func again(words, date string, now time.Time) time.Duration {
	_, at, ok := strings.Cut(words, "try again after ")
	if !ok {
		return 0
	}
	at = strings.TrimRight(strings.TrimSpace(at), ".")
	if utc, ok := strings.CutSuffix(at, " UTC"); ok {
		at = utc + " GMT"
	}
	return dispatch.ParseRetryAfter(at, date, now)
}
