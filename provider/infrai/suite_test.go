package infrai_test

import (
	"net/http"
	"testing"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/infrai"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

// The verdict stands in the body: one that can't be read says nothing.
func TestSuite(t *testing.T) {
	want := map[string]providertest.Want{}
	for _, name := range []string{
		"body cut after acceptance", "body stalls after acceptance", "endless body after acceptance", "unreadable body after acceptance",
	} {
		want[name] = providertest.Want{Stage: dispatch.Answered}
	}
	providertest.Run(t, providertest.Suite{
		New: func(url string) (dispatch.Provider, error) {
			return infrai.New(infrai.Config{APIKey: apiKey, BaseURL: url})
		},
		Content: mailtest.Mail(), From: "Shop <no-reply@shop.example>", Secrets: []string{mailtest.Secret, "ada@example.com", "482901"},
		Want: want,
		Options: providertest.Options{Shape: providertest.Shape{
			Accepted: func(id string, _ bool) providertest.Answer {
				return providertest.JSON(http.StatusOK, map[string]any{"ok": true, "data": map[string]string{"email_id": id, "state": "queued"}, "error": nil})
			},
			Refused: func(r providertest.Refusal) providertest.Answer {
				return providertest.JSON(r.Status, map[string]any{"ok": false, "data": nil, "error": map[string]string{"code": r.Code, "message": r.Message}})
			},
		}},
		More: []providertest.Misbehaviour{
			{
				Name: "no credit in a 200", Fault: providertest.Fault{Refuse: true, Body: `{"ok":false,"error":{"code":"INSUFFICIENT_CREDIT"}}`, Status: 200},
				Want: providertest.Want{Outcome: dispatch.Rejected, Scope: dispatch.Account, Stage: dispatch.Answered},
			},
			{
				Name: "an unlisted failure in a 200", Fault: providertest.Fault{Body: `{"ok":false,"error":{"code":"NEW"}}`, Status: 200},
				Want: providertest.Want{Stage: dispatch.Answered},
			},
			{
				Name: "a code under a 502", Fault: providertest.Fault{Status: 502, Body: `{"ok":false,"error":{"code":"INSUFFICIENT_CREDIT"}}`},
				Want: providertest.Want{Stage: dispatch.Answered},
			},
		},
	})
}

// Whatever Infrai answers: accepted only where it says so.
func FuzzAnswer(f *testing.F) {
	for _, name := range []string{"accepted.json", "no_credit.json", "events.json"} {
		f.Add(200, []byte(readFile(f, name)))
		f.Add(402, []byte(readFile(f, name)))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		a, err := infrai.JudgeForTest(status, body)
		_, v := dispatch.Judge(a, err)
		if v.Outcome == dispatch.OK && (status < 200 || status > 299) || len(a.ID) > 200 {
			t.Fatalf("status %d is ok", status)
		}
	})
}

// Whatever a list of events says, what comes of it can be stored.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(readFile(f, "events.json")))
	f.Add([]byte(`{"ok":true,"data":[{"email_id":1e9,"state":"x","timestamp":1e400}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		receipts, _, _ := open(t, config("https://api.example")).ReadForTest(200, body)
		mailtest.CheckReceipts(t, receipts)
	})
}
