package vonage

import (
	"crypto/hmac"
	"crypto/md5"  //nolint:gosec // one of the account's settings; Vonage chose it
	"crypto/sha1" //nolint:gosec // one of the account's settings; Vonage chose it
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"hash"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/hook"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
)

// parseReceipt reads a delivery receipt of the SMS API, which is a GET, a
// form or JSON, as the account is set.
func (p *Provider) parseReceipt(c hook.Call) ([]dispatch.Receipt, error) {
	params, err := parameters(c)
	if err != nil {
		return nil, hook.Refuse(http.StatusBadRequest, err.Error())
	}
	switch {
	case p.cfg.SignatureSecret == "" || params["sig"] == "":
		return nil, hook.Refuse(http.StatusUnauthorized, "unsigned")
	case !p.signed(params):
		return nil, hook.Refuse(http.StatusUnauthorized, "signature differs")
	case params["api-key"] != "" && params["api-key"] != p.cfg.APIKey:
		return nil, hook.Refuse(http.StatusUnauthorized, "receipt is another account's")
	case !p.fresh(params["timestamp"], time.Now()):
		return nil, hook.Refuse(http.StatusUnauthorized, "receipt is outside the window")
	}
	return p.readReceipt(params), nil
}

func (p *Provider) readReceipt(params map[string]string) []dispatch.Receipt {
	id := loosejson.Text(params["messageId"])
	r := p.receipt(id, loosejson.Text(params["client-ref"]), loosejson.Text(params["status"]))
	r.Kind, r.Code = smsKinds[r.EventKey], loosejson.Text(params["err-code"]).Word(maxCode)
	r.Recipient = loosejson.Text(params["msisdn"]).Word(maxID)
	// The time has no zone; Vonage's own are UTC.
	r.At = moderate(time.Parse(time.DateTime, params["message-timestamp"]))
	if !r.Key.IsZero() {
		// Each part of a long text has an id and a receipt of its own, and the
		// answer to the send gave the first one: another id would look like a
		// second message. It stays in the event's key.
		r.ProviderID = ""
	}
	return p.one(r, id.Word(maxID))
}

// smsKinds are the statuses of the SMS API. Source: SMS API 1.5.1, status of
// DeliveryReceipt. "unknown" says nothing of the delivery; it and others are
// Noted.
var smsKinds = map[string]dispatch.ReceiptKind{
	"accepted":  dispatch.Passed, // by the carrier
	"buffered":  dispatch.Deferred,
	"delivered": dispatch.Delivered,
	"expired":   dispatch.Undelivered,
	"failed":    dispatch.Undelivered,
	"rejected":  dispatch.Failed, // by Vonage or a supplier
	"deleted":   dispatch.Undelivered,
}

// parameters are the fields of a receipt. One that stands twice is refused,
// and so is a name that could hide another in the signed text.
func parameters(c hook.Call) (map[string]string, error) {
	out := map[string]string{}
	kind, _, _ := strings.Cut(c.Header.Get("Content-Type"), ";")
	if c.Method == http.MethodPost && strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		var err error
		if out, err = loosejson.Flat(c.Body); err != nil {
			return nil, err
		}
	} else {
		raw := string(c.Body)
		if c.Method == http.MethodGet {
			raw = c.Query
		}
		form, err := url.ParseQuery(raw)
		if err != nil {
			return nil, errors.New("form can't be read")
		}
		for name, values := range form {
			if len(values) > 1 {
				return nil, errors.New("a field stands twice")
			}
			out[name] = values[0]
		}
	}
	for name := range out {
		if strings.ContainsAny(name, "&=") {
			return nil, errors.New("a field's name is no name")
		}
	}
	return out, nil
}

// signed checks sig: over every other field, in the order of their names,
// "&name=value" with & and = inside values replaced by _.
func (p *Provider) signed(params map[string]string) bool {
	got, err := hex.DecodeString(params["sig"]) // either case
	if err != nil {
		return false
	}
	return hmac.Equal(sign(p.cfg.Signature, p.cfg.SignatureSecret, params), got)
}

func sign(how Signature, secret string, params map[string]string) []byte {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if name != "sig" {
			text.WriteString("&" + name + "=" + strings.NewReplacer("&", "_", "=", "_").Replace(params[name]))
		}
	}
	var mac hash.Hash
	switch how {
	case HMACSHA256:
		mac = hmac.New(sha256.New, []byte(secret))
	case HMACSHA512:
		mac = hmac.New(sha512.New, []byte(secret))
	case HMACSHA1:
		mac = hmac.New(sha1.New, []byte(secret))
	case HMACMD5:
		mac = hmac.New(md5.New, []byte(secret))
	case MD5Hash:
		mac = md5.New() //nolint:gosec // see the import
		text.WriteString(secret)
	}
	mac.Write([]byte(text.String()))
	return mac.Sum(nil)
}
