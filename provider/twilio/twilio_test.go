package twilio_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/twilio"
)

// recorded is an answer of testdata: in the form of Twilio's OpenAPI document
// and pages, with numbers that belong to nobody.
func recorded(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return string(b)
}

// answering makes a provider whose vendor always answers so.
func answering(t *testing.T, status int, body string) *twilio.Provider {
	t.Helper()
	v := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body)) // the client left: nobody to tell
	}))
	t.Cleanup(v.Close)
	p, err := twilio.New(twilio.Config{AccountSID: accountSID, AuthToken: authToken, BaseURL: v.URL, From: "+15555550100"})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func envelope() dispatch.Envelope {
	return dispatch.Envelope{
		Key: dispatch.NewKey(), Route: "sms", Attempt: 1,
		Content: dispatch.SMS{To: "+15555550123", Body: "Your code is 482901"},
	}
}

const oneSID = "SMa1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1"

// A success status is the verdict, whatever its body is.
func TestAccepted(t *testing.T) {
	for name, c := range map[string]struct {
		status   int
		body     string
		id, word string
	}{
		"recorded":                       {201, recorded(t, "created.json"), oneSID, "queued"},
		"recorded, by a service":         {201, recorded(t, "created_by_service.json"), oneSID, "accepted"},
		"B002, null and numbers":         {201, `{"sid":"SM1","price":null,"error_code":null,"num_segments":1}`, "SM1", ""},
		"B002, byte order mark":          {201, "\xef\xbb\xbf{\"sid\":\"SM1\",\"status\":\"queued\"}", "SM1", "queued"},
		"B002, empty":                    {201, "", "", ""},
		"B014, opt-out comes later":      {201, `{"sid":"SM1","status":"accepted","error_code":null}`, "SM1", "accepted"},
		"a page":                         {201, "<html>", "", ""},
		"a list":                         {200, `[{"sid":"SM1"}]`, "", ""},
		"two documents":                  {200, `{"sid":"SM1"}{"sid":"SM2"}`, "", ""},
		"an id that is none":             {201, `{"sid":{"a":1}}`, "", ""},
		"an id with blanks":              {201, `{"sid":"SM 1"}`, "", ""},
		"a status of tomorrow":           {201, `{"sid":"SM1","status":"teleported"}`, "SM1", "teleported"},
		"a warning beside an acceptance": {201, `{"sid":"SM1","status":"accepted","error_code":30018}`, "SM1", "accepted"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := answering(t, c.status, c.body).Send(t.Context(), envelope())
			require.NoError(t, err)
			require.Equal(t, c.id, a.ID)
			require.Equal(t, c.id == "", a.NoID)
			require.Equal(t, c.word, a.Status)
			_, v := dispatch.Judge(a, err)
			require.Equal(t, dispatch.OK, v.Outcome)
		})
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		status  int
		body    string
		code    string
		outcome dispatch.Outcome
		scope   dispatch.Scope
		floor   time.Duration
	}{
		"recorded, B017, B162":       {400, recorded(t, "error_21211.json"), "21211", dispatch.Rejected, dispatch.Message, 0},
		"recorded, opted out":        {400, recorded(t, "error_21610.json"), "21610", dispatch.Rejected, dispatch.Message, 0},
		"recorded, B016, throttled":  {429, recorded(t, "error_20429.json"), "20429", dispatch.Rejected, dispatch.Moment, 0},
		"recorded, wrong token":      {401, recorded(t, "error_20003.json"), "20003", dispatch.Rejected, dispatch.Account, 0},
		"recorded, unavailable":      {503, recorded(t, "error_20503.json"), "20503", dispatch.Unknown, 0, 0},
		"B005, a number":             {400, `{"code":21211}`, "21211", dispatch.Rejected, dispatch.Message, 0},
		"B005, a string":             {400, `{"code":"21211"}`, "21211", dispatch.Rejected, dispatch.Message, 0},
		"B005, null":                 {400, `{"code":null,"status":400}`, "", dispatch.Rejected, dispatch.Message, 0},
		"B005, elsewhere":            {400, `{"errors":[{"code":"21211"}]}`, "", dispatch.Rejected, dispatch.Message, 0},
		"B015, failed in a 201":      {201, recorded(t, "created_failed.json"), "39999", dispatch.Rejected, dispatch.Message, 0},
		"B015, listed":               {201, `{"sid":"SM1","status":"failed","error_code":"30034"}`, "30034", dispatch.Rejected, dispatch.Sender, 0},
		"B015, no code":              {201, `{"sid":"SM1","status":"Undelivered"}`, "", dispatch.Rejected, dispatch.Message, 0},
		"B015, may have arrived":     {201, `{"sid":"SM1","status":"failed","error_code":30410}`, "30410", dispatch.Unknown, 0, 0},
		"B016, overflow as a 400":    {400, `{"code":30001}`, "30001", dispatch.Rejected, dispatch.Moment, 0},
		"B016, 429 without a body":   {429, ``, "", dispatch.Rejected, dispatch.Moment, 0},
		"B017, the sender":           {400, `{"code":21212}`, "21212", dispatch.Rejected, dispatch.Sender, 0},
		"B017, no mobile":            {400, `{"code":21614}`, "21614", dispatch.Rejected, dispatch.Message, 0},
		"region not enabled":         {400, `{"code":21408}`, "21408", dispatch.Rejected, dispatch.Sender, 0},
		"the callback of all":        {400, `{"code":21609}`, "21609", dispatch.Rejected, dispatch.Account, 0},
		"replies in a loop":          {400, `{"code":14107}`, "14107", dispatch.Rejected, dispatch.Moment, 30 * time.Second},
		"unlisted, a 400":            {400, `{"code":29999,"message":"new"}`, "29999", dispatch.Rejected, dispatch.Message, 0},
		"unlisted, a 500":            {500, `{"code":29999,"message":"new"}`, "29999", dispatch.Unknown, 0, 0},
		"unlisted, a 403":            {403, `{"code":29999}`, "29999", dispatch.Rejected, dispatch.Account, 0},
		"20500":                      {500, `{"code":20500}`, "20500", dispatch.Unknown, 0, 0},
		"404, Twilio's own":          {404, `{"code":20404,"message":"not found","status":404}`, "20404", dispatch.Rejected, dispatch.Account, 0},
		"404, a page":                {404, `<html>`, "", dispatch.Rejected, dispatch.Account, 0},
		"B001, a page hides the 503": {503, `<html><h1>Service Unavailable</h1></html>`, "", dispatch.Unknown, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := answering(t, c.status, c.body).Send(t.Context(), envelope())
			require.Error(t, err)
			e, v := dispatch.Judge(a, err)
			require.Equal(t, c.code, e.Code)
			require.Equal(t, c.outcome, v.Outcome)
			require.Equal(t, c.scope, v.Scope)
			require.Equal(t, c.floor, v.Floor)
			require.NotEmpty(t, v.Reason)
			require.NotContains(t, err.Error(), "555") // B162
		})
	}
}

// The form, byte for byte: another one needs another encoding version.
func TestForm(t *testing.T) {
	v := newFake(t, fakeOptions{})
	key, err := dispatch.ParseKey("01890a5d-ac96-774b-bcce-b302099a8057")
	require.NoError(t, err)
	e := envelope()
	e.Key, e.From = key, "Shop"
	e.Content = dispatch.SMS{To: "+15555550123", Sender: "otp", Body: "Ünï & =+%\n"}
	for want, p := range map[string]*twilio.Provider{
		"Body=%C3%9Cn%C3%AF+%26+%3D%2B%25%0A&From=Shop&To=%2B15555550123": v.provider(t, nil),
		"Body=%C3%9Cn%C3%AF+%26+%3D%2B%25%0A&From=Shop&StatusCallback=https%3A%2F%2Fh.example.com%2Fcb%3Fa%3Db%26dispatch_key%3D" + key.String() +
			"%23rc%3D5%26rp%3Dall&To=%2B15555550123": v.provider(t, func(c *twilio.Config) { c.StatusCallback = "https://h.example.com/cb?a=b" }),
	} {
		first, err := p.Send(t.Context(), e)
		require.NoError(t, err)
		e.Attempt++
		second, err := p.Send(t.Context(), e)
		require.NoError(t, err)
		require.Equal(t, first.Evidence.Request, second.Evidence.Request)
		all := v.messages()
		form, err := url.ParseQuery(want)
		require.NoError(t, err)
		require.Equal(t, form, all[len(all)-1].form)
		require.Equal(t, form.Encode(), want, "the fields are in order")
	}
	e.From = serviceSID
	a, err := v.provider(t, nil).Send(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, "accepted", a.Status)
	all := v.messages()
	require.Equal(t, serviceSID, all[len(all)-1].form.Get("MessagingServiceSid"))
	require.NotContains(t, all[len(all)-1].form, "From")
}

// ValidityPeriod is what is left of the deadline, within Twilio's bounds.
func TestValidityPeriod(t *testing.T) {
	v := newFake(t, fakeOptions{})
	p := v.provider(t, nil)
	for name, c := range map[string]struct {
		left     time.Duration
		from, to int // 0: no field
	}{
		"none":                     {0, 0, 0},
		"five minutes":             {5 * time.Minute, 295, 300},
		"ten hours and more":       {11 * time.Hour, 0, 0},
		"a year":                   {365 * 24 * time.Hour, 0, 0},
		"a second":                 {time.Second, 30, 30},
		"over by our clock":        {-time.Hour, 30, 30},
		"far over by our clock":    {-400 * 24 * time.Hour, 30, 30},
		"nearly ten hours":         {10*time.Hour - time.Minute, 35930, 35940},
		"a time beyond any number": {1 << 62, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := envelope()
			if c.left != 0 {
				e.Deadline = time.Now().Add(c.left)
			}
			_, err := p.Send(t.Context(), e)
			require.NoError(t, err)
			all := v.messages()
			field := all[len(all)-1].form.Get("ValidityPeriod")
			if c.to == 0 {
				require.Empty(t, field)
				return
			}
			n, err := strconv.Atoi(field)
			require.NoError(t, err)
			require.GreaterOrEqual(t, n, c.from)
			require.LessOrEqual(t, n, c.to)
		})
	}
}

// What can't be sent is refused before a byte leaves.
func TestNotSent(t *testing.T) {
	v := newFake(t, fakeOptions{})
	p := v.provider(t, func(c *twilio.Config) { c.From = "" })
	for name, c := range map[string]struct {
		from    string
		content dispatch.Content
		scope   dispatch.Scope
	}{
		"no sender":           {"", dispatch.SMS{To: "+15555550123", Body: "x"}, dispatch.Sender},
		"B095, 12 characters": {"ABCDEFGHIJKL", dispatch.SMS{To: "+15555550123", Body: "x"}, dispatch.Sender},
		"B095, odd signs":     {"My-Shop!", dispatch.SMS{To: "+15555550123", Body: "x"}, dispatch.Sender},
		"half a service":      {"MG0001", dispatch.SMS{To: "+15555550123", Body: "x"}, dispatch.Scope(-1)},
		"B095, a short code":  {"12345", dispatch.SMS{To: "+15555550123", Body: "x"}, dispatch.Scope(-1)},
		"mail":                {"Shop", dispatch.Email{}, dispatch.Account},
		"nothing":             {"Shop", nil, dispatch.Account},
	} {
		t.Run(name, func(t *testing.T) {
			e := envelope()
			e.From, e.Content = c.from, c.content
			a, err := p.Send(t.Context(), e)
			if c.scope < 0 { // passed as it is, for Twilio to judge
				require.NoError(t, err)
				return
			}
			ev, verdict := dispatch.Judge(a, err)
			require.Equal(t, dispatch.NotSent, ev.Stage)
			require.Equal(t, dispatch.Rejected, verdict.Outcome)
			require.Equal(t, c.scope, verdict.Scope)
		})
	}
	require.Len(t, v.messages(), 2)
}

// The magic numbers of test credentials, as the package's doc has them.
func TestMagicNumbers(t *testing.T) {
	p := newFake(t, fakeOptions{test: true}).provider(t, nil)
	for _, c := range []struct {
		from, to, code string
		scope          dispatch.Scope
	}{
		{"+15005550006", "+15555550123", "", 0},
		{"+15005550001", "+15555550123", "21212", dispatch.Sender},
		{"+15005550007", "+15555550123", "21606", dispatch.Sender},
		{"+15555550100", "+15555550123", "21606", dispatch.Sender},
		{"+15005550008", "+15555550123", "21611", dispatch.Moment},
		{"+15005550006", "+15005550001", "21211", dispatch.Message},
		{"+15005550006", "+15005550002", "21612", dispatch.Sender},
		{"+15005550006", "+15005550003", "21408", dispatch.Sender},
		{"+15005550006", "+15005550004", "21610", dispatch.Message},
		{"+15005550006", "+15005550009", "21614", dispatch.Message},
	} {
		e := envelope()
		e.From, e.Content = c.from, dispatch.SMS{To: c.to, Body: "x"}
		a, err := p.Send(t.Context(), e)
		if c.code == "" {
			require.NoError(t, err)
			continue
		}
		ev, v := dispatch.Judge(a, err)
		require.Equal(t, c.code, ev.Code)
		require.Equal(t, dispatch.Rejected, v.Outcome)
		require.Equal(t, c.scope, v.Scope, c.code)
	}
}
