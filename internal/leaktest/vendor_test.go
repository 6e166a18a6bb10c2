package leaktest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/httpapi"
	"github.com/seed-8098fbb7/dispatch/provider/infobip"
	"github.com/seed-8098fbb7/dispatch/provider/infrai"
	"github.com/seed-8098fbb7/dispatch/provider/mailgun"
	"github.com/seed-8098fbb7/dispatch/provider/postmark"
	"github.com/seed-8098fbb7/dispatch/provider/resend"
	"github.com/seed-8098fbb7/dispatch/provider/sendgrid"
	"github.com/seed-8098fbb7/dispatch/provider/ses"
	"github.com/seed-8098fbb7/dispatch/provider/sinch"
	"github.com/seed-8098fbb7/dispatch/provider/smtp"
	"github.com/seed-8098fbb7/dispatch/provider/twilio"
	"github.com/seed-8098fbb7/dispatch/provider/vonage"
)

// What must be found nowhere.
const (
	number  = "+15558675309"
	address = "sentinel.ada@leak.example"
	code    = "739154"
	body    = "sentinelbody code " + code
	secret  = "sentinelsecret_abcdefgh_12345" // it looks like an error code
)

// adapter is a provider, its webhook where it has one, and its kind.
type adapter struct {
	dispatch.Provider
	hook func(dispatch.ReceiptSink) http.Handler
	mail bool
}

func (a adapter) content() dispatch.Content {
	if a.mail {
		return dispatch.Email{To: []dispatch.Address{{Name: "sentinelbody", Email: address}}, Subject: body, Text: body, HTML: "<p>" + body + "</p>"}
	}
	return dispatch.SMS{To: number, Body: body}
}

// adapters are all that there are, with everything that they can be told
// secret, each on a path of its own of the vendor's.
func adapters(t *testing.T, url string) []adapter {
	t.Helper()
	const from = "Shop <no-reply@shop.example>"
	var list []adapter
	add := func(p dispatch.Provider, err error, hook func(dispatch.ReceiptSink) http.Handler, mail bool) {
		t.Helper()
		require.NoError(t, err)
		list = append(list, adapter{Provider: p, hook: hook, mail: mail})
	}
	generic, err := httpapi.New(httpapi.Config{
		Name: "httpapi", BaseURL: url, Path: "/httpapi", Token: secret, CodePaths: []string{"code"}, LookupPath: "/httpapi/{key}",
		Header: http.Header{"X-Api-Key": {secret}},
	})
	add(generic, err, nil, false)
	tw, err := twilio.New(twilio.Config{AccountSID: "AC00000000000000000000000000000000", AuthToken: secret, From: "+15555550100", BaseURL: url})
	add(tw, err, tw.Webhook, false)
	vo, err := vonage.New(vonage.Config{APIKey: "abcd1234", APISecret: secret, SignatureSecret: secret, From: "Shop", BaseURL: url + "/vonage", ReportsURL: url + "/vonage", ReportLag: 1})
	add(vo, err, vo.Webhook, false)
	si, err := sinch.New(sinch.Config{ServicePlanID: "plan", APIToken: secret, WebhookSecret: secret, From: "15555550100", BaseURL: url + "/sinch"})
	add(si, err, si.Webhook, false)
	in, err := infobip.New(infobip.Config{APIKey: secret, WebhookSecret: secret, From: "Shop", BaseURL: url + "/infobip"})
	add(in, err, in.Webhook, false)
	re, err := resend.New(resend.Config{APIKey: secret, From: from, BaseURL: url + "/resend"})
	add(re, err, re.Webhook, true)
	po, err := postmark.New(postmark.Config{ServerToken: secret, From: from, HookUser: "hook", HookPassword: secret, BaseURL: url + "/postmark"})
	add(po, err, po.Webhook, true)
	se, err := sendgrid.New(sendgrid.Config{APIKey: secret, From: from, BaseURL: url + "/sendgrid", ActivityLag: 1})
	add(se, err, se.Webhook, true)
	ma, err := mailgun.New(mailgun.Config{APIKey: secret, Domain: "mg.shop.example", From: from, WebhookKey: secret, BaseURL: url + "/mailgun"})
	add(ma, err, ma.Webhook, true)
	ir, err := infrai.New(infrai.Config{APIKey: secret, From: from, BaseURL: url + "/infrai"})
	add(ir, err, nil, true)
	aws, err := ses.New(ses.Config{
		Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("AKIAEXAMPLE", secret, secret), From: from,
		Topics: []string{"arn:aws:sns:eu-west-1:123456789012:mail"}, ConfigurationSet: "mail", BaseURL: url,
	})
	add(aws, err, aws.Webhook, true)
	relay, err := smtp.New(smtp.Config{
		Name: "smtp", Account: "shop", Addr: newMailServer(t), Plaintext: true, Username: "shop", Password: secret, From: from, Hello: "shop.example",
	})
	add(relay, err, nil, true)
	return list
}

// hostile is a vendor that answers with whatever it was sent, in every field
// that an adapter may read, with one status after the other.
type hostile struct {
	*httptest.Server
	calls atomic.Int64
}

var statuses = []int{200, 202, 400, 401, 403, 404, 409, 413, 422, 429, 500, 503}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	h := &hostile{}
	h.Server = httptest.NewServer(http.HandlerFunc(h.answer))
	t.Cleanup(h.Close)
	return h
}

func (h *hostile) answer(w http.ResponseWriter, r *http.Request) {
	sent, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	n := int(h.calls.Add(1))
	quote := []string{number, address, code, secret, body, r.Header.Get("Authorization"), string(sent)}[n%7]
	if script(w, r, string(sent), quote) {
		return
	}
	status := statuses[n/7%len(statuses)]
	w.Header().Set("X-Message-Id", quote)
	w.Header().Set("Location", "https://"+quote)
	if status == 429 {
		w.Header().Set("Retry-After", "1")
	}
	switch n / 7 / len(statuses) % 3 {
	case 1: // not the vendor's form
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "<html>"+quote+" "+string(sent)+"</html>")
	case 2: // half an answer
		w.Header().Set("Content-Length", "100000")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"id":"`+quote)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(everything(quote, 2))
	}
}

// everything is a document with a quote under each name that the adapters read.
func everything(quote string, depth int) map[string]any {
	doc := map[string]any{}
	for _, name := range strings.Fields(`id code status message title detail type name description text reason error_code ErrorCode
		error_message Message MessageID sid messageId message_uuid msg_id error-text messageid To to SubmittedAt request_id`) {
		doc[name] = quote
	}
	doc["message-count"], doc["ok"] = "1", false
	if depth == 0 {
		return doc
	}
	for _, name := range strings.Fields("error requestError serviceException data invalid_parameters") {
		doc[name] = everything(quote, depth-1)
	}
	for _, name := range strings.Fields("errors messages Messages results items events") {
		doc[name] = []any{everything(quote, depth-1)}
	}
	return doc
}

// script answers the two providers whose messages take a known way: the first
// word of the text says which.
func script(w http.ResponseWriter, r *http.Request, sent, quote string) bool {
	first := strings.HasPrefix(r.URL.Path, "/first")
	if !first && !strings.HasPrefix(r.URL.Path, "/second") {
		return false
	}
	refuse := func(status int) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"code": quote, "message": sent})
	}
	switch {
	case strings.Contains(sent, "way-failover") && first:
		w.Header().Set("Retry-After", "1")
		refuse(http.StatusTooManyRequests)
	case strings.Contains(sent, "way-lost"):
		refuse(http.StatusInternalServerError)
	case strings.Contains(sent, "way-refused"):
		refuse(http.StatusBadRequest)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"id": quote + " " + r.Header.Get("Idempotency-Key"), "status": sent})
	}
	return true
}
