package twilio

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-8098fbb7/dispatch"
)

// maxCallback bounds the body of a status callback, in bytes.
const maxCallback = 64 << 10

// Webhook takes the status callbacks of this account and hands them to the
// sink. It is safe for concurrent use. Serve it where Config.StatusCallback
// leads to, whatever path or host that becomes behind a proxy: the signature is
// checked over the configured URL and the query that arrived. Nothing that a
// client can write, such as X-Forwarded-Host, is looked at.
//
// It answers
//
//   - 204 when the receipt is stored,
//   - 400 to a body that can't be read as a whole, or that has a field twice,
//   - 403 without Twilio's signature, for another account, and always where no
//     StatusCallback is configured,
//   - 405 and 413 to what isn't a POST or is larger than 64 KiB,
//   - 503 when the sink can't store it. Twilio repeats it if its URL says so:
//     see Config.StatusCallback.
//
// Twilio calls in no order, repeats, and gives neither time nor event id, so
// the event's key is the message's id and its status: one receipt for each
// status. A status that isn't known becomes dispatch.Noted, which still proves
// the acceptance. A call without our key, of a message that something else
// sent, is stored under Twilio's id alone.
func (p *Provider) Webhook(sink dispatch.ReceiptSink) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(p.receive(w, r, sink))
	})
}

func (p *Provider) receive(w http.ResponseWriter, r *http.Request, sink dispatch.ReceiptSink) (status int) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return http.StatusMethodNotAllowed
	}
	signature := r.Header.Values("X-Twilio-Signature")
	if p.callback == nil || len(signature) != 1 {
		return http.StatusForbidden
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCallback))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return http.StatusRequestEntityTooLarge
		}
		return http.StatusBadRequest
	}
	form, err := url.ParseQuery(string(body))
	if err != nil { // a part of it may be there: not to be used
		return http.StatusBadRequest
	}
	if !p.callback.signed(p.cfg.AuthToken, signature[0], r.URL.RawQuery, body, form) {
		return http.StatusForbidden
	}
	if a := form.Get("AccountSid"); a != "" && a != p.cfg.AccountSID {
		return http.StatusForbidden
	}
	receipt, ok := p.receipt(r.URL.RawQuery, form)
	if !ok {
		return http.StatusBadRequest
	}
	if sink == nil || sink.Receive(r.Context(), []dispatch.Receipt{receipt}) != nil {
		return http.StatusServiceUnavailable
	}
	return http.StatusNoContent
}

// receipt is what a signed callback says, ok false where it can't be read.
func (p *Provider) receipt(rawQuery string, form url.Values) (r dispatch.Receipt, ok bool) {
	for _, name := range []string{"MessageSid", "SmsSid", "MessageStatus", "SmsStatus", "ErrorCode", "AccountSid"} {
		if len(form[name]) > 1 {
			return r, false
		}
	}
	id := sid(first(form, "MessageSid", "SmsSid"))
	status := strings.ToLower(text(first(form, "MessageStatus", "SmsStatus"), maxWord))
	if id == "" || status == "" {
		return r, false
	}
	r = dispatch.Receipt{
		Provider: p.cfg.Name, Account: p.cfg.account(), EventKey: id + "/" + status, ProviderID: id,
		Kind: kinds[status], Code: text(form.Get("ErrorCode"), maxWord),
	}
	if r.Kind == dispatch.Undelivered || r.Kind == dispatch.Failed { // else a warning, of a message that goes on
		r.Permanent = lasting[r.Code]
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil || len(query[keyParam]) > 1 {
		return r, false
	}
	if key, err := dispatch.ParseKey(query.Get(keyParam)); err == nil {
		r.Key = key
	}
	return r, true
}

func first(form url.Values, names ...string) string {
	for _, name := range names {
		if v := form.Get(name); v != "" {
			return v
		}
	}
	return ""
}

// kinds are the statuses of a message (OpenAPI document, enum of
// message_status).
var kinds = map[string]dispatch.ReceiptKind{
	"accepted":            dispatch.Queued,
	"scheduled":           dispatch.Queued,
	"queued":              dispatch.Queued,
	"sending":             dispatch.Queued,
	"sent":                dispatch.Passed,
	"delivered":           dispatch.Delivered,
	"read":                dispatch.Opened,
	"partially_delivered": dispatch.Undelivered, // not all of it arrived
	"undelivered":         dispatch.Undelivered,
	"failed":              dispatch.Failed,
	"canceled":            dispatch.Failed,
}
