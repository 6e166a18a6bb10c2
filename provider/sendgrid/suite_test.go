package sendgrid_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
	"github.com/seed-8098fbb7/dispatch/provider/sendgrid"
)

// wire is SendGrid's format for the suite's vendor.
func wire() providertest.Options {
	var last atomic.Value // the key of the latest look-up, whose details are asked for next
	return providertest.Options{
		Key: func(_ *http.Request, body []byte) string {
			var m letter
			_ = json.Unmarshal(body, &m)
			return m.Args["dispatch_key"]
		},
		Shape: providertest.Shape{
			Accepted: func(id string, _ bool) providertest.Answer {
				return providertest.Answer{Status: http.StatusAccepted, Header: http.Header{"X-Message-Id": {id}}}
			},
			Refused: func(r providertest.Refusal) providertest.Answer {
				return providertest.JSON(r.Status, map[string]any{"errors": []any{map[string]any{"message": r.Message, "field": r.Code}}})
			},
			LookupKey: func(r *http.Request) string {
				if match := asked.FindStringSubmatch(r.URL.Query().Get("query")); match != nil {
					last.Store(match[1])
					return match[1]
				}
				if strings.HasPrefix(r.URL.Path, "/v3/messages/") {
					key, _ := last.Load().(string)
					return key
				}
				return ""
			},
			Found: func(id string) providertest.Answer {
				args, _ := json.Marshal(map[string]any{"dispatch_key": last.Load()})
				return providertest.JSON(http.StatusOK, map[string]any{
					"messages": []any{map[string]any{"msg_id": id + ".f"}}, "msg_id": id + ".f", "status": "processed", "unique_args": string(args),
				})
			},
			Missing: func() providertest.Answer {
				return providertest.JSON(http.StatusOK, map[string]any{"messages": []any{}})
			},
		},
	}
}

func TestSuite(t *testing.T) {
	refusal := func(status int, field string) providertest.Fault {
		return providertest.Fault{Refuse: true, Status: status, Code: field}
	}
	rejected := func(s dispatch.Scope) providertest.Want {
		return providertest.Want{Outcome: dispatch.Rejected, Scope: s, Stage: dispatch.Answered}
	}
	for name, lag := range map[string]time.Duration{"with activity": time.Minute, "plain": 0} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, providertest.Suite{
				New: func(url string) (dispatch.Provider, error) {
					return sendgrid.New(sendgrid.Config{APIKey: apiKey, BaseURL: url, ActivityLag: lag})
				},
				Content: mailtest.Mail(), From: "Shop <no-reply@shop.example>", Secrets: []string{mailtest.Secret, "ada@example.com", "482901"},
				Options: wire(),
				More: []providertest.Misbehaviour{
					{Name: "sender not verified", Fault: refusal(403, "from"), Want: rejected(dispatch.Sender)},
					{Name: "sender refused", Fault: refusal(400, "from.email"), Want: rejected(dispatch.Sender)},
					{Name: "template", Fault: refusal(400, "template_id"), Want: rejected(dispatch.Account)},
					{Name: "own 404", Fault: refusal(404, "x"), Want: rejected(dispatch.Account)},
					{Name: "too large", Fault: refusal(413, ""), Want: rejected(dispatch.Message)},
					{Name: "a field under a 500", Fault: refusal(500, "from"), Want: providertest.Want{Stage: dispatch.Answered}},
				},
			})
		})
	}
}

// B054: X-RateLimit-Reset is in seconds since the epoch, counted from the
// answer's own Date. Nothing else is a floor.
func TestRateLimitReset(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	for name, c := range map[string]struct {
		reset string
		date  time.Time
		want  time.Duration
	}{
		"epoch":        {strconv.FormatInt(now.Add(20*time.Second).Unix(), 10), now, 20 * time.Second},
		"their clock":  {strconv.FormatInt(now.Add(time.Hour+20*time.Second).Unix(), 10), now.Add(time.Hour), 20 * time.Second},
		"milliseconds": {strconv.FormatInt(now.Add(20*time.Second).UnixMilli(), 10), now, 0},
		"seconds":      {"20", now, 0},
		"past":         {strconv.FormatInt(now.Add(-time.Second).Unix(), 10), now, 0},
		"far":          {strconv.FormatInt(now.Add(2*time.Hour).Unix(), 10), now, 0},
		"nonsense":     {"soon", now, 0},
		"huge":         {strings.Repeat("9", 40), now, 0},
	} {
		h := http.Header{"X-Ratelimit-Reset": {c.reset}, "Date": {c.date.Format(http.TimeFormat)}}
		_, v := dispatch.Judge(sendgrid.JudgeForTest(429, h, []byte(readFile(t, "too_many.json"))))
		require.Equal(t, c.want, v.Floor, name)
		require.Equal(t, dispatch.Rejected, v.Outcome)
	}
}

// Whatever SendGrid answers: no acceptance but by a success status, and no
// mail is found without our key.
func FuzzAnswer(f *testing.F) {
	for _, name := range []string{"credits.json", "bad_to.json", "activity_detail.json"} {
		f.Add(202, "abc.filter", []byte(readFile(f, name)))
		f.Add(400, "", []byte(readFile(f, name)))
	}
	f.Fuzz(func(t *testing.T, status int, id string, body []byte) {
		a, err := sendgrid.JudgeForTest(status, http.Header{"X-Message-Id": {id}}, body)
		_, v := dispatch.Judge(a, err)
		if v.Outcome == dispatch.OK && (status < 200 || status > 299) || len(a.ID) > 200 {
			t.Fatalf("status %d is ok, id %q", status, a.ID)
		}
		if sendgrid.DetailForTest(body, mailtest.Key()).Presence == dispatch.Present && !strings.Contains(strings.ToLower(string(body)), "0000") {
			t.Fatal("present without our key")
		}
	})
}
