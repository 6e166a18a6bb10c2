package resend

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// codes are Resend's error names. Sources: "page", its page on errors;
// "sdk", the error list of resend-rust; "anymail", what django-anymail met. A
// name that isn't listed goes by its status (dispatch.Classify), where 5xx and
// a bare 409 prove nothing.
var codes = dispatch.Codes{
	"invalid_idempotency_key":    mailapi.Account("idempotency key refused"),    // page, 400: ours always has the same form
	"validation_error":           mailapi.Message("mail refused"),               // page, 400 and 422; see byStatus
	"missing_api_key":            mailapi.Account("no API key"),                 // page, 401
	"restricted_api_key":         mailapi.Account("API key may not send"),       // page, 401
	"invalid_api_key":            mailapi.Account("API key refused"),            // older page, 403
	"invalid_permission":         mailapi.Account("API key may not send"),       // sdk, 403
	"suspended_api_key":          mailapi.Account("API key suspended"),          // sdk, 403
	"not_found":                  mailapi.Account("template or path not found"), // page, 404: a person has to mend it
	"method_not_allowed":         mailapi.Account("not the API's method"),       // page, 405
	"resource_locked":            mailapi.Unknown("resource locked"),            // sdk, 409: what is locked isn't documented
	"missing_required_field":     mailapi.Message("a field is missing"),         // page, 422
	"missing_required_parameter": mailapi.Message("a field is missing"),         // sdk, 422
	"invalid_parameter":          mailapi.Message("a field is invalid"),         // page, 422
	"invalid_attachment":         mailapi.Message("attachment refused"),         // page, 422
	"invalid_from_address":       mailapi.Sender("sender refused"),              // page, 422
	"invalid_access":             mailapi.Account("access refused"),             // page, 422
	"invalid_region":             mailapi.Account("region refused"),             // page, 422
	"rate_limit_exceeded":        mailapi.Moment("rate limited"),                // page, 429
	"daily_quota_exceeded":       mailapi.Account("daily quota spent"),          // page, 429
	"monthly_quota_exceeded":     mailapi.Account("monthly quota spent"),        // page, 429
	"security_error":             mailapi.Sender("sender refused"),              // anymail, 451: invalid characters in from
	"application_error":          mailapi.Unknown("internal error"),             // page, 500
	"internal_server_error":      mailapi.Unknown("internal error"),             // page, 500
	"service_unavailable":        mailapi.Unknown("service unavailable"),        // sdk, 503
}

// byStatus are names that mean something else under one status.
var byStatus = map[int]dispatch.Codes{
	http.StatusUnauthorized: {"validation_error": mailapi.Account("API key refused")},    // page: "API key is invalid"
	http.StatusForbidden:    {"validation_error": mailapi.Sender("sender not verified")}, // page: a domain that isn't verified, or testing mails to others
}

// words are messages that tell an account's fault from a mail's, which have
// one name and one status. Only these exact texts count.
var words = map[string]dispatch.Verdict{
	"api key is invalid": mailapi.Account("API key refused"), // page, 400 validation_error
}

// judge turns an answer into what Send returns. A success status is
// acceptance, also where the body with the id was cut: a mail that is sent
// again under its key gets the same answer, but needn't be.
func judge(a exchange.Answer) (dispatch.Accepted, error) {
	var doc struct {
		ID      loosejson.Text `json:"id"`
		Name    loosejson.Text `json:"name"`
		Message loosejson.Text `json:"message"`
	}
	read := mailapi.Read(a, &doc)
	e := a.Evidence
	if read && doc.Name != "" {
		e.OwnBody, e.Code, e.Reason = true, doc.Name.Word(mailapi.MaxCode), doc.Message.Cut(mailapi.MaxWords)
	}
	if a.Status >= 200 && a.Status <= 299 {
		if e.Code != "" {
			return dispatch.Accepted{}, mailapi.Fault(e, mailapi.Under(verdict(e)))
		}
		id := ""
		if read {
			id = NormalizeID(doc.ID.Word(mailapi.MaxID))
		}
		return dispatch.Accepted{ID: id, NoID: id == "", Evidence: e}, nil
	}
	if a.Status == http.StatusConflict {
		switch e.Code {
		case "concurrent_idempotent_requests":
			e.Key = dispatch.KeyInFlight
		case "invalid_idempotent_request":
			e.Key = dispatch.KeyReused
		}
	}
	if a.Status == http.StatusTooManyRequests && e.RetryAfter == 0 {
		e.RetryAfter = reset(a.Header.Get("Ratelimit-Reset"))
	}
	return dispatch.Accepted{}, mailapi.Fault(e, verdict(e))
}

func verdict(e dispatch.Evidence) dispatch.Verdict {
	v := codes.Classify(e)
	if e.Stage != dispatch.Answered || e.Key != dispatch.KeyFine || e.Code == "" {
		return v
	}
	special, ok := byStatus[e.Status][e.Code]
	if !ok && e.Code == "validation_error" {
		special, ok = words[strings.ToLower(strings.TrimSpace(e.Reason))]
	}
	if !ok {
		return v
	}
	special.Floor = v.Floor
	return special
}

// reset reads ratelimit-reset, whose unit is seconds from now; nonsense is no
// floor (B054).
func reset(s string) time.Duration {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || f <= 0 || f > 3600 {
		return 0
	}
	return time.Duration(math.Ceil(f*1000)) * time.Millisecond
}
