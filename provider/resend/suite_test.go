package resend_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
	"github.com/seed-8098fbb7/dispatch/provider/resend"
)

func refusal(status int, name string) providertest.Fault {
	return providertest.Fault{Refuse: true, Status: status, Code: name}
}

// The suite that every provider passes, in Resend's wire format.
func TestSuite(t *testing.T) {
	rejected := func(s dispatch.Scope, floor time.Duration) providertest.Want {
		return providertest.Want{Outcome: dispatch.Rejected, Scope: s, Stage: dispatch.Answered, Floor: floor}
	}
	limited := refusal(429, "rate_limit_exceeded")
	limited.Header = http.Header{"Ratelimit-Reset": {"2"}}
	providertest.Run(t, providertest.Suite{
		New: func(url string) (dispatch.Provider, error) {
			return resend.New(resend.Config{APIKey: apiKey, BaseURL: url})
		},
		Content: mailtest.Mail(), From: "Shop <no-reply@shop.example>", Secrets: []string{mailtest.Secret, "ada@example.com", "482901"},
		Options: providertest.Options{Shape: providertest.Shape{
			Accepted: func(id string, _ bool) providertest.Answer {
				return providertest.JSON(http.StatusOK, map[string]string{"id": id})
			},
			Refused: func(r providertest.Refusal) providertest.Answer {
				return providertest.JSON(r.Status, map[string]any{"statusCode": r.Status, "name": r.Code, "message": r.Message})
			},
		}},
		More: []providertest.Misbehaviour{
			{Name: "B057 concurrent", Fault: refusal(409, "concurrent_idempotent_requests"), Want: providertest.Want{Stage: dispatch.Answered}},
			{Name: "B057 another body", Fault: refusal(409, "invalid_idempotent_request"), Want: providertest.Want{Stage: dispatch.Answered}},
			{Name: "domain not verified", Fault: refusal(403, "validation_error"), Want: rejected(dispatch.Sender, 0)},
			{Name: "rate limit with a reset", Fault: limited, Want: rejected(dispatch.Moment, 2*time.Second)},
			{Name: "quota", Fault: refusal(429, "daily_quota_exceeded"), Want: rejected(dispatch.Account, 0)},
			{Name: "firewall", Fault: providertest.Fault{Refuse: true, Status: 403, Body: "error code: 1010"}, Want: rejected(dispatch.Account, 0)},
		},
	})
}

// Whatever Resend answers: no acceptance but by a success status, nothing that
// a database could not store.
func FuzzAnswer(f *testing.F) {
	for _, name := range []string{"accepted.json", "validation.json", "invalid_key.json"} {
		f.Add(200, []byte(readFile(f, name)))
		f.Add(422, []byte(readFile(f, name)))
	}
	f.Add(409, []byte(`{"name":5,"message":null}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		accepted, err := resend.JudgeForTest(status, body)
		_, v := dispatch.Judge(accepted, err)
		if success := status >= 200 && status <= 299; v.Outcome == dispatch.OK && !success {
			t.Fatalf("status %d is ok", status)
		}
		if _, err := json.Marshal(accepted.ID); err != nil || len(accepted.ID) > 200 {
			t.Fatal("id can't be kept")
		}
	})
}
