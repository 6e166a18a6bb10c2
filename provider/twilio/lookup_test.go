package twilio_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/twilio"
)

var sentAt = time.Date(2023, 8, 24, 5, 1, 45, 0, time.UTC)

func asked() dispatch.Query {
	return dispatch.Query{
		Key: dispatch.NewKey(), Content: dispatch.SMS{To: "+15555550123", Body: "Your code is 482901"}, From: "+15555550100",
		Since: sentAt.Add(-time.Second), Until: sentAt.Add(30 * time.Second),
	}
}

func ours() stored {
	return stored{
		to: "+15555550123", from: "+15555550100", body: "Your code is 482901", status: "queued", direction: "outbound-api", created: sentAt,
	}
}

func distinct(c *twilio.Config) { c.DistinctTexts = true }

// What the list holds, and what follows from it: without a promise that texts
// are distinct, and with it.
func TestLookup(t *testing.T) {
	const absent, unclear, present = dispatch.Absent, dispatch.Unclear, dispatch.Present
	change := func(f func(*stored)) stored {
		m := ours()
		f(&m)
		return m
	}
	for name, c := range map[string]struct {
		list           []stored
		plain, promise dispatch.Presence
	}{
		"nothing":                     {nil, absent, absent},
		"ours":                        {[]stored{ours()}, unclear, present},
		"ours, sent and delivered":    {[]stored{change(func(m *stored) { m.status, m.sent = "delivered", sentAt.Add(time.Second) })}, unclear, present},
		"ours, failed later":          {[]stored{change(func(m *stored) { m.status, m.code = "failed", 30003 })}, unclear, present},
		"two that fit":                {[]stored{ours(), ours()}, unclear, unclear},
		"another text":                {[]stored{change(func(m *stored) { m.body = "Your code is 482902" })}, absent, absent},
		"ours among others":           {[]stored{change(func(m *stored) { m.body = "Hi" }), ours(), change(func(m *stored) { m.to = "+15555550124" })}, unclear, present},
		"trial account":               {[]stored{change(func(m *stored) { m.body = "Sent from your Twilio trial account - " + m.body })}, unclear, present},
		"redacted":                    {[]stored{change(func(m *stored) { m.body = "" })}, unclear, unclear},
		"ours and a redacted one":     {[]stored{ours(), change(func(m *stored) { m.body = "" })}, unclear, unclear},
		"a footer":                    {[]stored{change(func(m *stored) { m.body += " Reply STOP" })}, unclear, unclear},
		"the same, inbound":           {[]stored{change(func(m *stored) { m.direction = "inbound" })}, absent, absent},
		"the same, as a reply":        {[]stored{change(func(m *stored) { m.direction = "outbound-reply" })}, absent, absent},
		"a direction of tomorrow":     {[]stored{change(func(m *stored) { m.direction = "outbound-x" })}, unclear, unclear},
		"another sender":              {[]stored{change(func(m *stored) { m.from = "+15555550101" })}, unclear, unclear},
		"a service took it":           {[]stored{change(func(m *stored) { m.from, m.service = "", serviceSID })}, unclear, unclear},
		"a day before":                {[]stored{change(func(m *stored) { m.created = sentAt.Add(-24 * time.Hour) })}, absent, absent},
		"ten minutes behind":          {[]stored{change(func(m *stored) { m.created = sentAt.Add(10 * time.Minute) })}, absent, absent},
		"Twilio's clock is behind":    {[]stored{change(func(m *stored) { m.created = sentAt.Add(-4 * time.Minute) })}, unclear, present},
		"Twilio's clock is ahead":     {[]stored{change(func(m *stored) { m.created = sentAt.Add(4 * time.Minute) })}, unclear, present},
		"ours, and one of last month": {[]stored{ours(), change(func(m *stored) { m.created = sentAt.AddDate(0, -1, 0) })}, unclear, present},
	} {
		t.Run(name, func(t *testing.T) {
			v := newFake(t, fakeOptions{})
			for _, m := range c.list {
				v.put(m)
			}
			found, err := v.provider(t, nil).Lookup(t.Context(), asked())
			require.NoError(t, err)
			require.Equal(t, c.plain, found.Presence)
			require.Empty(t, found.ID)
			found, err = v.provider(t, distinct).Lookup(t.Context(), asked())
			require.NoError(t, err)
			require.Equal(t, c.promise, found.Presence)
			require.Equal(t, c.promise == present, found.ID != "")
		})
	}
}

// The recorded list: an inbound message, ours, and another code.
func TestLookupRecorded(t *testing.T) {
	v := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, listPath, r.URL.Path)
		assert.Equal(t, "PageSize=50&To=%2B15555550123", r.URL.RawQuery, "no filter that hides what is queued")
		_, _ = w.Write([]byte(recorded(t, "list.json"))) // the client left: nobody to tell
	}))
	t.Cleanup(v.Close)
	p, err := twilio.New(twilio.Config{AccountSID: accountSID, AuthToken: authToken, BaseURL: v.URL, DistinctTexts: true})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	found, err := p.Lookup(t.Context(), asked())
	require.NoError(t, err)
	require.Equal(t, dispatch.Found{Presence: dispatch.Present, ID: oneSID, Status: "delivered"}, found)
}

// A messaging service picks the number: the service is what has to be equal.
// The text comes back as smart encoding made it.
func TestLookupByService(t *testing.T) {
	v := newFake(t, fakeOptions{smart: true})
	p := v.provider(t, distinct)
	e := envelope()
	e.From, e.Content = serviceSID, dispatch.SMS{To: "+15555550123", Body: "It’s “482901” – use it…"}
	sent, err := p.Send(t.Context(), e)
	require.NoError(t, err)
	require.NotEqual(t, v.messages()[0].form.Get("Body"), v.messages()[0].body)
	q := dispatch.Query{Key: e.Key, Content: e.Content, From: e.From, Since: time.Now().Add(-time.Second), Until: time.Now()}
	found, err := p.Lookup(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, dispatch.Found{Presence: dispatch.Present, ID: sent.ID, Status: "accepted"}, found)
	q.Content = dispatch.SMS{To: "+15555550123", Body: "It’s “482902” – use it…"}
	found, err = p.Lookup(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, dispatch.Absent, found.Presence)
}

// Ours is on the last of many pages; a filter by date would not have listed it.
func TestLookupReadsEveryPage(t *testing.T) {
	v := newFake(t, fakeOptions{limit: 7})
	v.put(ours())
	for n := range 100 {
		m := ours()
		m.body, m.sent = fmt.Sprint("message ", n), sentAt
		v.put(m)
	}
	found, err := v.provider(t, distinct).Lookup(t.Context(), asked())
	require.NoError(t, err)
	require.Equal(t, dispatch.Present, found.Presence)
	require.Equal(t, "SM"+strings.Repeat("0", 31)+"1", found.ID)
	require.Len(t, v.lists, 15)

	q, err := url.ParseQuery("To=%2B15555550123&DateSent>=2023-08-24")
	require.NoError(t, err)
	require.False(t, matches(ours(), q), "the fake is as unkind as the vendor")
}

// Pages that don't lead to the end of this very list prove nothing, and the
// credentials go nowhere else.
func TestLookupStrayPages(t *testing.T) {
	for name, next := range map[string]any{
		"for ever":       listPath + "?Page=1",
		"another host":   "https://evil.example" + listPath + "?Page=1",
		"another path":   "/2010-04-01/Accounts.json?Page=1",
		"another list":   strings.Replace(listPath, "0001", "0002", 1) + "?Page=1",
		"a user":         "@evil.example" + listPath + "?Page=1",
		"a second query": listPath + "?Page=1 HTTP/1.1",
		"a number":       5,
		"not said":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			v := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls++
				assert.Equal(t, listPath, r.URL.Path)
				doc := map[string]any{"messages": []any{}}
				if next != nil {
					doc["next_page_uri"] = next
				}
				reply(w, 200, doc)
			}))
			t.Cleanup(v.Close)
			p, err := twilio.New(twilio.Config{AccountSID: accountSID, AuthToken: authToken, BaseURL: v.URL})
			require.NoError(t, err)
			t.Cleanup(p.Close)
			found, err := p.Lookup(t.Context(), asked())
			require.NoError(t, err)
			require.Equal(t, dispatch.Unclear, found.Presence)
			if name == "for ever" {
				require.Equal(t, 40, calls)
			} else {
				require.Equal(t, 1, calls)
			}
		})
	}
}

// Answers that are odd prove nothing; above all, not absence.
func TestLookupOddAnswers(t *testing.T) {
	for name, body := range map[string]string{
		"no list":           `{"next_page_uri":null}`,
		"a null list":       `{"messages":null,"next_page_uri":null}`,
		"an odd entry":      `{"messages":[5],"next_page_uri":null}`,
		"an empty entry":    `{"messages":[{}],"next_page_uri":null}`,
		"no text":           `{"messages":[{"sid":"SM1","to":"+15555550123","body":null,"direction":"outbound-api"}],"next_page_uri":null}`,
		"no date":           `{"messages":[{"sid":"SM1","to":"+15555550123","from":"+15555550100","body":"Your code is 482901","direction":"outbound-api"}],"next_page_uri":null}`,
		"no id":             `{"messages":[{"to":"+15555550123","from":"+15555550100","body":"Your code is 482901","direction":"outbound-api","date_created":"Thu, 24 Aug 2023 05:01:45 +0000"}],"next_page_uri":null}`,
		"two documents":     `{"messages":[],"next_page_uri":null}{}`,
		"a page":            `<html>`,
		"a list of its own": `[]`,
	} {
		t.Run(name, func(t *testing.T) {
			p := answering(t, 200, body)
			found, err := p.Lookup(t.Context(), asked())
			require.NoError(t, err)
			require.Equal(t, dispatch.Found{}, found)
		})
	}
	_, err := answering(t, 404, `{"code":20404,"message":"x","status":404}`).Lookup(t.Context(), asked())
	require.ErrorContains(t, err, "20404")
	found, err := answering(t, 200, `{}`).Lookup(t.Context(), dispatch.Query{Content: dispatch.Email{}})
	require.NoError(t, err)
	require.Equal(t, dispatch.Unclear, found.Presence)
}
