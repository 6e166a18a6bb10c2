package postmark_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/postmark"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

// wire is Postmark's format for the suite's vendor.
func wire() providertest.Options {
	var asked atomic.Value // the key of the latest look-up: an answer repeats it
	return providertest.Options{
		Key: func(_ *http.Request, body []byte) string {
			var m letter
			_ = json.Unmarshal(body, &m)
			return m.Metadata["dispatch_key"]
		},
		Shape: providertest.Shape{
			Accepted: func(id string, _ bool) providertest.Answer {
				return providertest.JSON(http.StatusOK, map[string]any{"To": "x", "MessageID": id, "ErrorCode": 0, "Message": "OK"})
			},
			Refused: func(r providertest.Refusal) providertest.Answer {
				return providertest.JSON(r.Status, map[string]any{"ErrorCode": json.RawMessage(code(r.Code)), "Message": r.Message})
			},
			LookupKey: func(r *http.Request) string {
				key := r.URL.Query().Get("metadata_dispatch_key")
				asked.Store(key)
				return key
			},
			Found: func(id string) providertest.Answer {
				return providertest.JSON(http.StatusOK, map[string]any{
					"TotalCount": 1, "Messages": []any{map[string]any{"MessageID": id, "Status": "Sent", "Metadata": map[string]any{"dispatch_key": asked.Load()}}},
				})
			},
			Missing: func() providertest.Answer {
				return providertest.JSON(http.StatusOK, map[string]any{"TotalCount": 0, "Messages": []any{}})
			},
		},
	}
}

// code is a number as Postmark writes it, 9999 for the suite's words.
func code(s string) string {
	if strings.Trim(s, "0123456789") != "" {
		return "9999"
	}
	return s
}

func TestSuite(t *testing.T) {
	refusal := func(status int, code string) providertest.Fault {
		return providertest.Fault{Refuse: true, Status: status, Code: code}
	}
	rejected := func(s dispatch.Scope) providertest.Want {
		return providertest.Want{Outcome: dispatch.Rejected, Scope: s, Stage: dispatch.Answered}
	}
	providertest.Run(t, providertest.Suite{
		New: func(url string) (dispatch.Provider, error) {
			return postmark.New(postmark.Config{ServerToken: token, BaseURL: url})
		},
		Content: mailtest.Mail(), From: "Shop <no-reply@shop.example>", Secrets: []string{mailtest.Secret, "ada@example.com", "482901"},
		Options: wire(),
		More: []providertest.Misbehaviour{
			{Name: "B010 inactive recipient", Fault: refusal(422, "406"), Want: rejected(dispatch.Message)},
			{Name: "no credit", Fault: refusal(422, "405"), Want: rejected(dispatch.Account)},
			{Name: "sender not confirmed", Fault: refusal(422, "401"), Want: rejected(dispatch.Sender)},
			{Name: "maintenance", Fault: refusal(503, "100"), Want: rejected(dispatch.Moment)},
			{Name: "a refusal's code under a 500", Fault: refusal(500, "406"), Want: providertest.Want{Stage: dispatch.Answered}},
			{Name: "somebody else's 404", Fault: providertest.Fault{Refuse: true, Status: 404, Body: `{"Message":"no route"}`}, Want: rejected(dispatch.Account)},
			{Name: "firewall", Fault: providertest.Fault{Refuse: true, Status: 403, Body: "<html>"}, Want: rejected(dispatch.Account)},
		},
	})
}

// Whatever Postmark answers: no acceptance but by a success status, "absent"
// only where it says so.
func FuzzAnswer(f *testing.F) {
	for _, name := range []string{"accepted.json", "partial.json", "inactive.json", "search.json"} {
		f.Add(200, []byte(readFile(f, name)))
		f.Add(422, []byte(readFile(f, name)))
	}
	f.Add(200, []byte(`{"TotalCount":0,"Messages":[]}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		a, _, err := postmark.JudgeForTest(evidence(status), body, mailtest.Full())
		_, v := dispatch.Judge(a, err)
		if v.Outcome == dispatch.OK && (status < 200 || status > 299) {
			t.Fatalf("status %d is ok", status)
		}
		found, err := postmark.FoundForTest(evidence(status), body, mailtest.Key(), true)
		switch {
		case found.Presence == dispatch.Present && !strings.Contains(strings.ToLower(string(body)), "dispatch_key"):
			t.Fatal("present without our key")
		case found.Presence == dispatch.Absent && (err != nil || status != 200):
			t.Fatal("absent without the vendor's word")
		}
	})
}
