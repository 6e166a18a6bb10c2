package sinch

import (
	"encoding/base64"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/hook"
)

// The vector of Sinch's own SDK: right but for its age.
func TestVectorSignature(t *testing.T) {
	body, err := os.ReadFile("testdata/report_vector.json")
	require.NoError(t, err)
	p := &Provider{cfg: Config{WebhookSecret: "SMSWebhooksSecret"}.withDefaults()}
	p.cfg.Replay = time.Since(time.Unix(1736760161, 0)) + time.Hour
	h := http.Header{}
	for name, value := range map[string]string{
		"": "ZoHei66PPN/kZjw7hFVfGhJOnml3iGNCMWoyQVcE5o0=", "-algorithm": "HmacSHA256", "-nonce": "01JHFFHWYY7HSS4FWTMDTQEK8V", "-timestamp": "1736760161",
	} {
		h.Set("x-sinch-webhook-signature"+name, value)
	}
	require.NoError(t, p.authentic(hook.Call{Header: h, Body: body}))
	body[10]++
	require.ErrorContains(t, p.authentic(hook.Call{Header: h, Body: body}), "differs")
}

// Whatever Sinch answers: no panic, acceptance only by a success status, and
// nothing that a database could not store.
func FuzzAnswer(f *testing.F) {
	f.Add(201, []byte(`{"id":"01JHFFHQ0P99JPPNQPJDV7JTBP"}`))
	f.Add(400, []byte(`{"code":"syntax_invalid_parameter_format","text":"+15555550123"}`))
	f.Add(200, []byte(`{"count":0,"batches":[]}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		a := exchange.Answer{Status: status, Body: body, Evidence: dispatch.Evidence{Stage: dispatch.Answered, Status: status}}
		accepted, err := judge(a)
		e, v := dispatch.Judge(accepted, err)
		success := status >= 200 && status <= 299
		if v.Outcome == dispatch.OK && !success || success && v.Outcome == dispatch.Rejected {
			t.Fatalf("status %d is %v", status, v.Outcome)
		}
		for _, s := range []string{accepted.ID, e.Code, e.Reason} {
			if len(s) > maxWords || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				t.Fatalf("%q", s)
			}
		}
		if found, _ := found(a, dispatch.NewKey()); found.Presence == dispatch.Present || found.Presence == dispatch.Absent && status != 200 {
			t.Fatalf("%v", found.Presence)
		}
	})
}

// What is read from a report can be stored, and an unsigned one is refused.
func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"batch_id":"a","client_reference":"01920000-0000-7000-8000-000000000001","code":0,"status":"Delivered","at":"2026-01-13T09:22:40.914Z"}`))
	f.Add([]byte(`{"batch_id":"a","statuses":[{"code":0,"status":"Delivered"},null,{"status":5}]}`))
	p := &Provider{cfg: Config{ServicePlanID: "p", WebhookSecret: "s"}.withDefaults()}
	f.Fuzz(func(t *testing.T, body []byte) {
		h := http.Header{"X-Sinch-Webhook-Signature": {base64.StdEncoding.EncodeToString(body)}, "X-Sinch-Webhook-Signature-Algorithm": {"HmacSHA256"}}
		if r, err := p.parse(hook.Call{Header: h, Body: body}); err == nil || len(r) > 0 {
			t.Fatal("taken")
		}
		for _, r := range p.read(body) {
			if r.EventKey == "" || r.ProviderID == "" || !r.At.IsZero() && (r.At.Year() < 2000 || r.At.Year() > 2199) {
				t.Fatal(r.EventKey)
			}
			for _, s := range []string{r.EventKey, r.ProviderID, r.Code, r.Recipient} {
				if len(s) > 400 || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
					t.Fatalf("%q", s)
				}
			}
		}
	})
}
