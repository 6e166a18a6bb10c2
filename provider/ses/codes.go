package ses

import (
	"errors"
	"net/http"
	"strings"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// codes are SES's exceptions under a 4xx. A code that isn't listed goes by the
// status (dispatch.Classify).
var codes = dispatch.Codes{
	// API reference of SES v2, SendEmail, "Errors".
	"AccountSuspendedException":          mailapi.Account("account is suspended"),
	"BadRequestException":                mailapi.Message("mail refused"),
	"LimitExceededException":             mailapi.Account("too many resources"),
	"MailFromDomainNotVerifiedException": mailapi.Sender("MAIL FROM domain is not verified"),
	"MessageRejected":                    mailapi.Message("mail refused"), // but see verdict
	"NotFoundException":                  mailapi.Account("configuration set or template not found"),
	"SendingPausedException":             mailapi.Account("sending is paused"),
	"TooManyRequestsException":           mailapi.Moment("rate limited"), // but see verdict

	// The developer guide's page on the errors of sending quotas.
	"Throttling":          mailapi.Moment("rate limited"), // but see verdict
	"ThrottlingException": mailapi.Moment("rate limited"), // but see verdict

	// API reference of SES v2, "Common errors", and the SDK's list of codes for
	// throttled, expired and skewed requests (aws/retry, signer).
	"AccessDenied":                   mailapi.Account("may not send"),
	"AccessDeniedException":          mailapi.Account("may not send"),
	"ExpiredToken":                   mailapi.Moment("credentials are expired"),
	"ExpiredTokenException":          mailapi.Moment("credentials are expired"),
	"IncompleteSignature":            mailapi.Account("signature refused"),
	"IncompleteSignatureException":   mailapi.Account("signature refused"),
	"InvalidClientTokenId":           mailapi.Account("credentials refused"),
	"InvalidSignatureException":      mailapi.Account("signature refused"),
	"MissingAuthenticationToken":     mailapi.Account("credentials refused"),
	"NotAuthorized":                  mailapi.Account("may not send"),
	"OptInRequired":                  mailapi.Account("account has no SES"),
	"RequestExpired":                 mailapi.Moment("clock is off"), // the SDK corrects it by the answer's date
	"RequestLimitExceeded":           mailapi.Moment("rate limited"),
	"RequestThrottled":               mailapi.Moment("rate limited"),
	"RequestThrottledException":      mailapi.Moment("rate limited"),
	"RequestTimeTooSkewed":           mailapi.Moment("clock is off"),
	"SerializationException":         mailapi.Account("request is not understood"), // our encoding, not the mail
	"SignatureDoesNotMatch":          mailapi.Account("signature refused"),
	"UnknownOperationException":      mailapi.Account("not SES's API"),
	"UnrecognizedClientException":    mailapi.Account("credentials refused"),
	"ValidationError":                mailapi.Message("mail refused"),
	"ValidationException":            mailapi.Message("mail refused"),
	"RequestEntityTooLargeException": mailapi.Message("mail is too large"),
}

// judge turns an answer into what Send returns. The status is the verdict:
// "If the action is successful, the service sends back an HTTP 200 response"
// (SendEmail, "Response elements").
func judge(a exchange.Answer) (dispatch.Accepted, error) {
	var doc struct {
		ID      loosejson.Text `json:"MessageId"`
		Type    loosejson.Text `json:"__type"`
		Code    loosejson.Text `json:"code"`
		Message loosejson.Text `json:"message"`
	}
	e := a.Evidence
	read := mailapi.Read(a, &doc)
	if a.Status >= 200 && a.Status <= 299 {
		accepted := dispatch.Accepted{NoID: true, Evidence: e}
		if id := NormalizeID(doc.ID.Word(mailapi.MaxID)); read && id != "" {
			accepted.ID, accepted.NoID = id, false
		}
		return accepted, nil
	}
	// The field counts where there is one, as in the SDK; the body's words are
	// SES's in either case.
	code := loosejson.Text(a.Header.Get("X-Amzn-Errortype")).Word(mailapi.MaxWords)
	if code == "" && read {
		if code = doc.Type.Word(mailapi.MaxWords); code == "" {
			code = doc.Code.Word(mailapi.MaxWords)
		}
	}
	if e.Code = bare(code); e.Code != "" && read {
		e.OwnBody, e.Reason = true, doc.Message.Cut(mailapi.MaxWords)
	}
	return dispatch.Accepted{}, mailapi.Fault(e, verdict(e))
}

// bare is an exception's name without namespace and link: it comes as
// "MessageRejected:http://..." and "com.amazonaws.ses#MessageRejected" too.
func bare(code string) string {
	code, _, _ = strings.Cut(code, ":")
	code = code[strings.LastIndex(code, "#")+1:]
	return loosejson.Text(code).Word(mailapi.MaxCode)
}

// verdict is that on an error's answer. Codes of refusals count under a 4xx.
//
// Three faults of SES have no code of their own and are told by the words that
// the developer guide lists (sending quotas; "Amazon SES API errors"). Each is
// narrower than its code, and what isn't recognised stays the code's.
func verdict(e dispatch.Evidence) dispatch.Verdict {
	if e.Status < http.StatusBadRequest || e.Status >= http.StatusInternalServerError {
		return dispatch.Classify(e)
	}
	v := codes.Classify(e)
	words := strings.ToLower(e.Reason)
	var special dispatch.Verdict
	switch e.Code {
	case "MessageRejected":
		if !strings.HasPrefix(words, "email address is not verified") {
			return v
		}
		special = mailapi.Sender("address is not verified")
	case "Throttling", "ThrottlingException", "TooManyRequestsException":
		if !strings.Contains(words, "daily message quota exceeded") {
			return v
		}
		special = mailapi.Account("daily quota is spent")
	default:
		return v
	}
	special.Floor = v.Floor
	return special
}

// expired reports whether the credentials were.
func expired(err error) bool {
	var f *dispatch.Fault
	return errors.As(err, &f) && (f.Evidence.Code == "ExpiredToken" || f.Evidence.Code == "ExpiredTokenException")
}
