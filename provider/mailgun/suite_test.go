package mailgun_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/mailgun"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

// memory is the Message-Id of the latest call: the suite's vendor answers with
// it, as Mailgun does. Where several calls are under way at once, whose answer
// is whose can't be told, and an answer has no id.
type memory struct {
	mu      sync.Mutex
	last    string
	pending int
}

func (m *memory) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last, m.pending = "", 0
}

func (m *memory) call(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = id
	m.pending++
}

func (m *memory) answer() map[string]any {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]any{"message": "Queued. Thank you."}
	if m.pending == 1 {
		out["id"] = m.last
	}
	m.pending--
	return out
}

func (m *memory) id() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Trim(m.last, "<>")
}

// wire is Mailgun's format for the suite's vendor.
func wire(mem *memory) providertest.Options {
	return providertest.Options{
		Key: func(r *http.Request, body []byte) string {
			m, _ := parse(r.Header.Get("Content-Type"), body)
			mem.call(m.get("h:Message-Id"))
			return m.key()
		},
		Shape: providertest.Shape{
			Accepted: func(string, bool) providertest.Answer { return providertest.JSON(http.StatusOK, mem.answer()) },
			Refused: func(r providertest.Refusal) providertest.Answer {
				return providertest.JSON(r.Status, map[string]any{"message": r.Message + " " + r.Code})
			},
			LookupKey: func(r *http.Request) string {
				key, _, _ := strings.Cut(r.URL.Query().Get("message-id"), "@")
				return key
			},
			Found: func(string) providertest.Answer {
				item := map[string]any{"event": "accepted", "message": map[string]any{"headers": map[string]string{"message-id": mem.id()}}}
				return providertest.JSON(http.StatusOK, map[string]any{"items": []any{item}})
			},
			Missing: func() providertest.Answer {
				return providertest.JSON(http.StatusOK, map[string]any{"items": []any{}, "paging": map[string]string{}})
			},
		},
	}
}

func TestSuite(t *testing.T) {
	rejected := func(s dispatch.Scope) providertest.Want {
		return providertest.Want{Outcome: dispatch.Rejected, Scope: s, Stage: dispatch.Answered}
	}
	words := func(status int, s string) providertest.Fault {
		b, _ := json.Marshal(map[string]string{"message": s})
		return providertest.Fault{Refuse: true, Status: status, Body: string(b)}
	}
	for name, sendingKey := range map[string]bool{"account's key": false, "sending key": true} {
		t.Run(name, func(t *testing.T) {
			var mem memory
			providertest.Run(t, providertest.Suite{
				New: func(url string) (dispatch.Provider, error) {
					mem.reset()
					return mailgun.New(mailgun.Config{APIKey: apiKey, Domain: domain, BaseURL: url, SendingKey: sendingKey})
				},
				Content: mailtest.Mail(), From: "Shop <no-reply@mg.shop.example>", Secrets: []string{mailtest.Secret, "ada@example.com", "482901"},
				Options: wire(&mem),
				More: []providertest.Misbehaviour{
					{Name: "domain may not send", Fault: words(400, "Domain x is not allowed to send: ..."), Want: rejected(dispatch.Account)},
					{Name: "from", Fault: words(400, "from parameter is not a valid address"), Want: rejected(dispatch.Sender)},
					{Name: "domain not found", Fault: words(404, "Domain not found: x"), Want: rejected(dispatch.Account)},
					{Name: "plain text", Fault: providertest.Fault{Refuse: true, Status: 401, Body: "Forbidden"}, Want: rejected(dispatch.Account)},
					{Name: "words under a 500", Fault: words(500, "is not allowed to send"), Want: providertest.Want{Stage: dispatch.Answered}},
				},
			})
		})
	}
}

// Whatever Mailgun answers: no acceptance but by a success status, and absent
// only where it says so.
func FuzzAnswer(f *testing.F) {
	for _, name := range []string{"accepted.json", "limited.json", "events.json", "forbidden.txt"} {
		f.Add(200, []byte(readFile(f, name)))
		f.Add(429, []byte(readFile(f, name)))
	}
	f.Add(200, []byte(`{"items":[]}`))
	id := mailtest.Key().String() + "@" + domain
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		a, err := mailgun.JudgeForTest(status, http.Header{}, body)
		_, v := dispatch.Judge(a, err)
		if v.Outcome == dispatch.OK && (status < 200 || status > 299) || v.Floor < 0 || len(a.ID) > 200 {
			t.Fatalf("status %d: %v", status, v.Outcome)
		}
		found, err := mailgun.FoundForTest(status, body, id, true)
		if found.Presence == dispatch.Absent && (err != nil || status != 200) {
			t.Fatal("absent without the vendor's word")
		}
	})
}
