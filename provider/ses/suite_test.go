package ses_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
	"github.com/seed-8098fbb7/dispatch/provider/ses"
)

// answering is a vendor that gives each call the same error.
func answering(t *testing.T, status int, code, message string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { refuse(w, status, code, message) }))
	t.Cleanup(s.Close)
	return s.URL
}

// wire is SES's format for the suite's vendor.
func wire() providertest.Options {
	return providertest.Options{
		Key: func(_ *http.Request, body []byte) string {
			var m letter
			_ = json.Unmarshal(body, &m)
			return m.key()
		},
		Shape: providertest.Shape{
			Accepted: func(id string, _ bool) providertest.Answer {
				return providertest.JSON(http.StatusOK, map[string]any{"MessageId": id})
			},
			Refused: func(r providertest.Refusal) providertest.Answer {
				a := providertest.JSON(r.Status, map[string]any{"message": r.Message})
				a.Header.Set("X-Amzn-Errortype", r.Code)
				return a
			},
		},
	}
}

func TestSuite(t *testing.T) {
	refusal := func(status int, code string) providertest.Fault {
		return providertest.Fault{Refuse: true, Status: status, Code: code}
	}
	rejected := func(s dispatch.Scope) providertest.Want {
		return providertest.Want{Outcome: dispatch.Rejected, Scope: s, Stage: dispatch.Answered}
	}
	providertest.Run(t, providertest.Suite{
		New:     func(url string) (dispatch.Provider, error) { return ses.New(config(url)) },
		Content: mailtest.Mail(), From: "Shop <no-reply@shop.example>", Secrets: []string{mailtest.Secret, "AKID", "ada@example.com", "482901"},
		Options: wire(),
		More: []providertest.Misbehaviour{
			{Name: "throttled under a 400", Fault: refusal(400, "ThrottlingException"), Want: rejected(dispatch.Moment)},
			{Name: "domain not verified", Fault: refusal(400, "MailFromDomainNotVerifiedException"), Want: rejected(dispatch.Sender)},
			{Name: "suspended under a 400", Fault: refusal(400, "AccountSuspendedException"), Want: rejected(dispatch.Account)},
			{Name: "own 404", Fault: refusal(404, "NotFoundException"), Want: rejected(dispatch.Account)},
			{Name: "a refusal's code under a 500", Fault: refusal(500, "MessageRejected"), Want: providertest.Want{Stage: dispatch.Answered}},
			{Name: "internal failure", Fault: refusal(500, "InternalFailure"), Want: providertest.Want{Stage: dispatch.Answered}},
			{Name: "request timed out", Fault: refusal(408, "RequestTimeoutException"), Want: providertest.Want{Stage: dispatch.Answered}},
		},
	})
}

// Each exception of the table, as SES writes it: in the header, with a link
// behind it, or in the body with its namespace.
func TestRecordedAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		header string
		code   string
		want   dispatch.Scope
	}{
		"not_verified.json":    {400, "MessageRejected", "MessageRejected", dispatch.Sender},
		"rejected.json":        {400, "MessageRejected", "MessageRejected", dispatch.Message},
		"from_domain.json":     {400, "MailFromDomainNotVerifiedException:http://internal.amazon.com/coral/com.amazonaws.ses/", "MailFromDomainNotVerifiedException", dispatch.Sender},
		"suspended.json":       {400, "AccountSuspendedException", "AccountSuspendedException", dispatch.Account},
		"paused.json":          {400, "SendingPausedException", "SendingPausedException", dispatch.Account},
		"limit.json":           {400, "LimitExceededException", "LimitExceededException", dispatch.Account},
		"bad_request.json":     {400, "BadRequestException", "BadRequestException", dispatch.Message},
		"rate.json":            {429, "TooManyRequestsException", "TooManyRequestsException", dispatch.Moment},
		"daily.json":           {429, "TooManyRequestsException", "TooManyRequestsException", dispatch.Account},
		"throttled.json":       {400, "", "ThrottlingException", dispatch.Moment},
		"daily_throttled.json": {400, "", "ThrottlingException", dispatch.Account},
		"denied.json":          {403, "AccessDeniedException", "AccessDeniedException", dispatch.Account},
		"expired.json":         {403, "ExpiredTokenException", "ExpiredTokenException", dispatch.Moment},
		"no_set.json":          {404, "NotFoundException", "NotFoundException", dispatch.Account},
	} {
		h := http.Header{}
		if c.header != "" {
			h.Set("X-Amzn-ErrorType", c.header)
		}
		_, err := ses.JudgeForTest(c.status, h, []byte(mailtest.Recorded(t, name)))
		e, v := dispatch.Judge(dispatch.Accepted{}, err)
		require.Equal(t, dispatch.Rejected, v.Outcome, name)
		require.Equal(t, c.want, v.Scope, name)
		require.Equal(t, c.code, e.Code, name)
		require.True(t, e.OwnBody, name)
		require.NotContains(t, err.Error(), "example.com", "the vendor's words stay in the evidence")
	}
	a, err := ses.JudgeForTest(200, nil, []byte(mailtest.Recorded(t, "accepted.json")))
	require.NoError(t, err)
	require.Equal(t, "010201919c3f5e2a-6d2c1b0a-1111-2222-3333-444455556666-000000", a.ID)
	_, err = ses.JudgeForTest(503, nil, []byte(`{"message":"Service Unavailable"}`))
	_, v := dispatch.Judge(dispatch.Accepted{}, err)
	require.Equal(t, dispatch.Unknown, v.Outcome)
}

// Whatever SES answers: no acceptance but by a success status, no refusal
// under a 5xx.
func FuzzAnswer(f *testing.F) {
	f.Add(200, "", []byte(`{"MessageId":"0102018f"}`))
	f.Add(400, "MessageRejected:http://x", []byte(`{"message":"Email address is not verified."}`))
	f.Add(500, "", []byte(`{"__type":"com.amazonaws#ThrottlingException","message":5}`))
	f.Fuzz(func(t *testing.T, status int, code string, body []byte) {
		a, err := ses.JudgeForTest(status, http.Header{"X-Amzn-Errortype": {code}}, body)
		_, v := dispatch.Judge(a, err)
		if v.Outcome == dispatch.OK && (status < 200 || status > 299) || len(a.ID) > 200 {
			t.Fatalf("status %d is ok, id %q", status, a.ID)
		}
		if v.Outcome == dispatch.Rejected && status >= 500 && status <= 599 {
			t.Fatalf("status %d is a refusal", status)
		}
	})
}
