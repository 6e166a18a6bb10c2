package vonage_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
	"github.com/seed-8098fbb7/dispatch/provider/vonage"
)

// answers sends one message to a vendor that answers so.
func answers(t *testing.T, api vonage.API, f providertest.Fault) (dispatch.Accepted, dispatch.Evidence, dispatch.Verdict) {
	t.Helper()
	v, err := providertest.NewVendor(providertest.Options{Fault: providertest.Script(f)})
	require.NoError(t, err)
	t.Cleanup(v.Close)
	cfg := config()
	cfg.API, cfg.BaseURL = api, v.URL
	a, err := open(t, cfg).Send(t.Context(), envelope())
	e, verdict := dispatch.Judge(a, err)
	if err != nil {
		require.NotContains(t, err.Error(), "5555550123")
		require.NotContains(t, err.Error(), "not valid", "the vendor's words are not ours to show")
	}
	return a, e, verdict
}

type judged struct {
	status  int
	body    string
	id      string
	code    string
	outcome dispatch.Outcome
	scope   dispatch.Scope
}

func (j judged) check(t *testing.T, api vonage.API) {
	t.Helper()
	a, e, v := answers(t, api, providertest.Fault{Status: j.status, Body: j.body})
	require.Equal(t, j.id, a.ID)
	require.Equal(t, j.code, e.Code)
	require.Equal(t, j.outcome, v.Outcome, v.Reason)
	require.Equal(t, j.scope, v.Scope)
	require.NotEmpty(t, v.Reason)
}

func TestMessagesAnswers(t *testing.T) {
	file := func(name string) string { return recorded(t, name) }
	problem := func(code string) string {
		return `{"type":"https://developer.vonage.com/api-errors/messages#` + code + `","title":"x","detail":"y","instance":"z"}`
	}
	for name, j := range map[string]judged{
		"accepted":          {202, file("messages_accepted.json"), "aaaaaaaa-bbbb-4ccc-8ddd-0123456789ab", "", dispatch.OK, 0},
		"B002, with a BOM":  {202, "\xef\xbb\xbf" + file("messages_accepted.json"), "aaaaaaaa-bbbb-4ccc-8ddd-0123456789ab", "", dispatch.OK, 0},
		"B152, digits":      {202, `{"message_uuid":19421798915720714}`, "19421798915720714", "", dispatch.OK, 0},
		"B002, empty":       {202, " ", "", "", dispatch.Unknown, 0},
		"B002, null":        {202, `{"message_uuid":null}`, "", "", dispatch.Unknown, 0},
		"an id with NUL":    {202, `{"message_uuid":"a\u0000"}`, "", "", dispatch.Unknown, 0},
		"a page":            {200, "<html>", "", "", dispatch.Unknown, 0},
		"two documents":     {202, `{"message_uuid":"a"}{}`, "", "", dispatch.Unknown, 0},
		"a failure inside":  {202, problem("1170"), "", "1170", dispatch.Rejected, dispatch.Message},
		"an unlisted one":   {202, problem("9999"), "", "9999", dispatch.Unknown, 0}, // B015
		"both":              {202, `{"message_uuid":"a","type":"https://developer.vonage.com/api-errors"}`, "", "", dispatch.Unknown, 0},
		"invalid":           {422, file("messages_invalid.json"), "", "1150", dispatch.Rejected, dispatch.Message},
		"no funds":          {402, file("messages_low_balance.json"), "", "low-balance", dispatch.Rejected, dispatch.Account},
		"throttled":         {429, file("messages_throttled.json"), "", "1000", dispatch.Rejected, dispatch.Moment},
		"B016, no 429":      {403, problem("1000"), "", "1000", dispatch.Rejected, dispatch.Moment},
		"internal":          {500, file("messages_internal.json"), "", "1030", dispatch.Unknown, 0},
		"internal, by 422":  {422, problem("1030"), "", "1030", dispatch.Unknown, 0},
		"sent before":       {422, problem("1320"), "", "1320", dispatch.Unknown, 0},
		"B017, sender":      {422, problem("1420"), "", "1420", dispatch.Rejected, dispatch.Sender},
		"opted out":         {422, problem("1240"), "", "1240", dispatch.Rejected, dispatch.Message},
		"B005, in a title":  {422, `{"type":"https://developer.vonage.com/api-errors","title":1430}`, "", "1430", dispatch.Rejected, dispatch.Message},
		"B005, null":        {422, `{"type":null,"title":null}`, "", "", dispatch.Rejected, dispatch.Message},
		"unlisted":          {422, problem("4711"), "", "4711", dispatch.Rejected, dispatch.Message},
		"unlisted, 500":     {500, problem("4711"), "", "4711", dispatch.Unknown, 0},
		"someone else's":    {404, `{"type":"about:blank#1430","title":"Not Found"}`, "", "", dispatch.Rejected, dispatch.Account},
		"its own 404":       {404, `{"type":"https://developer.vonage.com/api-errors#not-found","title":"Not found"}`, "", "not-found", dispatch.Rejected, dispatch.Message},
		"401 without words": {401, "{}", "", "", dispatch.Rejected, dispatch.Account},
	} {
		t.Run(name, func(t *testing.T) { j.check(t, vonage.Messages) })
	}
}

// B006, B009: the SMS API answers 200 to everything.
func TestSMSAnswers(t *testing.T) {
	one := func(status string) string {
		return `{"message-count":"1","messages":[{"status":` + status + `,"error-text":"x"}]}`
	}
	two := func(a, b string) string {
		return `{"message-count":"2","messages":[{"status":"` + a + `"},{"status":"` + b + `"}]}`
	}
	for name, j := range map[string]judged{
		"accepted":            {200, recorded(t, "sms_accepted.json"), "0A0000001234567B", "", dispatch.OK, 0},
		"some parts accepted": {200, recorded(t, "sms_parts.json"), "0A0000000000000A", "", dispatch.OK, 0},
		"the last part":       {200, two("1", "0"), "", "", dispatch.OK, 0},
		"B005, as a number":   {200, `{"message-count":1,"messages":[{"status":0,"message-id":194217989157207140}]}`, "194217989157207140", "", dispatch.OK, 0},

		"B006, demo list":     {200, recorded(t, "sms_refused.json"), "", "29", dispatch.Rejected, dispatch.Message},
		"B006, throttled":     {200, one(`"1"`), "", "1", dispatch.Rejected, dispatch.Moment},
		"B006, credentials":   {200, one(`"4"`), "", "4", dispatch.Rejected, dispatch.Account},
		"B006, bare number":   {200, one(`4`), "", "4", dispatch.Rejected, dispatch.Account},
		"B006, internal":      {200, one(`"5"`), "", "5", dispatch.Unknown, 0},
		"B006, invalid":       {200, one(`"6"`), "", "6", dispatch.Rejected, dispatch.Message},
		"B006, quota":         {200, one(`"9"`), "", "9", dispatch.Rejected, dispatch.Account},
		"B017, sender":        {200, one(`"15"`), "", "15", dispatch.Rejected, dispatch.Sender},
		"B015, unlisted":      {200, one(`"4711"`), "", "4711", dispatch.Unknown, 0},
		"no status":           {200, one(`null`), "", "", dispatch.Unknown, 0},
		"B009, widest":        {200, two("1", "9"), "", "9", dispatch.Rejected, dispatch.Account},
		"B009, one unknown":   {200, two("6", "5"), "", "5", dispatch.Unknown, 0},
		"a part is missing":   {200, `{"message-count":"2","messages":[{"status":"6"}]}`, "", "", dispatch.Unknown, 0},
		"no parts":            {200, `{"message-count":"0","messages":[]}`, "", "", dispatch.Unknown, 0},
		"something else":      {200, `{"status":"ok"}`, "", "", dispatch.Unknown, 0},
		"a list":              {200, `[]`, "", "", dispatch.Unknown, 0},
		"a page":              {200, `<html>`, "", "", dispatch.Unknown, 0},
		"refused by an edge":  {403, `<html>`, "", "", dispatch.Rejected, dispatch.Account},
		"limited by an edge":  {429, one(`"1"`), "", "", dispatch.Rejected, dispatch.Moment},
		"gateway, body says0": {502, recorded(t, "sms_accepted.json"), "", "", dispatch.Unknown, 0},
	} {
		t.Run(name, func(t *testing.T) { j.check(t, vonage.SMS) })
	}
}

// An accepted message without an id is accepted all the same.
func TestNoID(t *testing.T) {
	a, _, v := answers(t, vonage.SMS, providertest.Fault{Body: `{"message-count":"1","messages":[{"status":"0"}]}`})
	require.True(t, a.NoID)
	require.Equal(t, dispatch.OK, v.Outcome)
}

// B004, and a limit that Vonage names: Retry-After is the floor, whatever the
// code says.
func TestRetryAfter(t *testing.T) {
	f := providertest.Fault{
		Status: 429, Body: recorded(t, "messages_throttled.json"),
		Header: http.Header{"Retry-After": {"15"}, "X-Ratelimit-Reset": {"1769182705723"}},
	}
	_, e, v := answers(t, vonage.Messages, f)
	require.Equal(t, 15*time.Second, v.Floor)
	require.Equal(t, 15*time.Second, e.RetryAfter)
	f.Wire = providertest.HalfBody
	_, e, v = answers(t, vonage.Messages, f)
	require.Empty(t, e.Code)
	require.Equal(t, dispatch.Rejected, v.Outcome)
	require.Equal(t, 15*time.Second, v.Floor)
}

// The words of a refusal are kept for operators, cut short.
func TestWords(t *testing.T) {
	_, e, _ := answers(t, vonage.SMS, providertest.Fault{Body: `{"messages":[{"status":"3","error-text":"` + strings.Repeat("ä", 400) + `"}]}`})
	require.Len(t, e.Reason, 300)
	require.True(t, e.OwnBody)
}
