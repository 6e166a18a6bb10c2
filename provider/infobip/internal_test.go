package infobip

import (
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/hook"
)

// Whatever Infobip answers: no panic, acceptance only by a success status,
// and nothing that a database could not store.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"messages":[{"messageId":"a","status":{"groupId":1,"id":26,"name":"PENDING_ACCEPTED"}}]}`))
	f.Add(200, []byte(`{"messages":[{"messageId":"a","status":{"groupId":5,"id":52,"description":"+15555550123"}}]}`))
	f.Add(400, []byte(`{"errorCode":"E400","description":"x"}`))
	f.Add(200, []byte(`{"results":[]}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		a := exchange.Answer{Status: status, Body: body, Evidence: dispatch.Evidence{Stage: dispatch.Answered, Status: status}}
		accepted, err := judge(a)
		e, v := dispatch.Judge(accepted, err)
		success := status >= 200 && status <= 299
		if v.Outcome == dispatch.OK && !success {
			t.Fatalf("status %d is ok", status)
		}
		if _, listed := codes[e.Code]; success && v.Outcome == dispatch.Rejected && !listed {
			t.Fatalf("status %d is rejected by code %q", status, e.Code)
		}
		for _, s := range []string{accepted.ID, accepted.Status, e.Code, e.Reason} {
			if len(s) > maxWords || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				t.Fatalf("%q", s)
			}
		}
		if found, _ := found(a, dispatch.NewKey()); found.Presence == dispatch.Present || found.Presence == dispatch.Absent && status != 200 {
			t.Fatalf("%v", found.Presence)
		}
	})
}

// What is read from a report can be stored, and one without the secret is
// refused.
func FuzzReports(f *testing.F) {
	f.Add("token=x", "Basic x", []byte(`{"results":[{"messageId":"a","doneAt":"2026-05-01T14:00:05.000+0000","status":{"groupId":3,"id":5},"error":{"id":0}}]}`))
	f.Add("token", "Bearer x", []byte(`{"results":[null,{"messageId":"01920000-0000-7000-8000-000000000001","status":{"groupId":5,"id":23}},7]}`))
	p := &Provider{cfg: Config{WebhookSecret: "0123456789abcdef"}.withDefaults()}
	f.Fuzz(func(t *testing.T, query, auth string, body []byte) {
		if !strings.Contains(query, "0123456789") {
			if r, err := p.parse(hook.Call{Query: query, Header: http.Header{"Authorization": {auth}}, Body: body}); err == nil || len(r) > 0 {
				t.Fatal("taken")
			}
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
