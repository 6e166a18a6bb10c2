package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox/console"
)

// everything is a request for each of the console's pages.
func everything(key dispatch.Key) [][2]string {
	return [][2]string{
		{"GET", ""},
		{"GET", "messages"},
		{"GET", "messages/" + key.String()},
		{"GET", "search"},
		{"POST", "search"},
		{"GET", "jobs"},
		{"GET", "jobs/x"},
		{"GET", "providers"},
		{"GET", "style.css"},
		{"GET", "icon.svg"},
		{"GET", "nowhere"},
		{"POST", "messages/" + key.String()},
		{"POST", "jobs"},
		{"POST", "jobs/x"},
		{"POST", "providers"},
		{"HEAD", ""},
		{"DELETE", "messages/" + key.String()},
	}
}

// Without a hook, and for whomever it doesn't name, there is nothing to see.
func TestNobodyIsLetIn(t *testing.T) {
	cases := map[string]struct {
		change func(*console.Config)
		sit    func(*desk)
	}{
		"no hook": {func(c *console.Config) { c.Authorize = nil }, nil},
		"nobody":  {nil, func(d *desk) { d.as = nil }},
		"no name": {func(c *console.Config) {
			c.Authorize = func(*http.Request) console.Actor { return console.Actor{Act: true} }
		}, nil},
		"a long name":   {nil, func(d *desk) { d.sit(strings.Repeat("a", 201)) }},
		"a broken name": {nil, func(d *desk) { d.sit("a\xff") }},
		"a zero byte":   {nil, func(d *desk) { d.sit("a\x00b") }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, c.change)
			key := enqueue(t, d.box, "hello")[0]
			if c.sit != nil {
				c.sit(d)
			}
			for _, r := range everything(key) {
				got := d.send(r[0], r[1], "verb=cancel&why=x&q=%2B15555550123", nil)
				require.Equal(t, http.StatusForbidden, got.status, "%v", r)
				if r[0] != "HEAD" {
					require.Equal(t, "403: you may not see this\n", got.body, "%v", r)
				}
			}
			require.Empty(t, stateOf(t, d.box, key).Events)
		})
	}
}

// Whoever may only look sees everything and changes nothing, and so does
// everybody where the console is read-only.
func TestReadOnly(t *testing.T) {
	for name, c := range map[string]struct {
		actor  string
		change func(*console.Config)
	}{
		"an actor that may look": {"lin", nil},
		"a console that is":      {"ada", func(c *console.Config) { c.ReadOnly = true }},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, c.change)
			keys := enqueue(t, d.box, "refused", "hello")
			work(t, d.box, dispatch.Dead, keys[0])
			token := d.token2(t)
			d.sit(c.actor)
			for _, path := range []string{"", "messages?state=dead", "messages/" + keys[0].String(), "providers", "jobs"} {
				page := d.get(path)
				require.Equal(t, http.StatusOK, page.status, path)
				require.Contains(t, page.body, "read-only")
				require.NotContains(t, page.body, `name="why"`, path)
				require.NotContains(t, page.body, `name="token"`, path)
			}
			for path, form := range map[string]string{
				"messages/" + keys[0].String(): "verb=retry", "jobs": "verb=retry&state=dead", "jobs/x": "", "providers": "kind=provider&name=test&do=pause",
			} {
				got := d.send("POST", path, form+"&why=because&token="+token, nil)
				require.Equal(t, http.StatusForbidden, got.status, path)
				require.Contains(t, got.body, "You may look, but not change anything", path)
			}
			got := d.send("POST", "messages/"+keys[0].String(), "verb=read&why=because", nil)
			require.Equal(t, http.StatusForbidden, got.status, "to read a text is written down, so it is an action")
			require.Len(t, stateOf(t, d.box, keys[0]).Events, 1)
			gates, err := d.box.Gates(t.Context())
			require.NoError(t, err)
			require.Empty(t, gates)
		})
	}
}

// token2 is a token of ada's own desk, for whoever must not profit from it.
func (d *desk) token2(t *testing.T) string {
	t.Helper()
	other := newDesk(t, nil)
	return other.token("providers")
}

// An action needs a form of this console, made for the same person, and a
// browser that says that it comes from here.
func TestForgedActions(t *testing.T) {
	d := newDesk(t, func(c *console.Config) {
		c.Authorize = func(r *http.Request) console.Actor {
			session, err := r.Cookie("session")
			if err != nil {
				return console.Actor{}
			}
			return console.Actor{Name: session.Value, Act: true}
		}
	})
	key := enqueue(t, d.box, "hello")[0]
	path := "messages/" + key.String()
	own := d.token("providers")
	d.sit("bob")
	bobs := d.token("providers")
	d.sit("ada")
	require.NotEqual(t, own, bobs)
	form := func(token string) string {
		return url.Values{"verb": {"cancel"}, "why": {"because"}, "token": {token}}.Encode()
	}
	for name, c := range map[string]struct {
		token  string
		change func(*http.Request)
	}{
		"no token":                       {"", nil},
		"somebody else's token":          {bobs, nil},
		"a token of another console":     {d.token2(t), nil},
		"a token that ends later":        {"9" + own, nil},
		"half a token":                   {own[:len(own)-4], nil},
		"no token and no browser":        {"", func(r *http.Request) { r.Header.Del("Sec-Fetch-Site") }},
		"another site":                   {own, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }},
		"a sibling domain":               {own, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }},
		"another origin, an old browser": {own, func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "https://evil.example") }},
		"no origin that is any":          {own, func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "null") }},
	} {
		got := d.send("POST", path, form(c.token), c.change)
		require.Equal(t, http.StatusForbidden, got.status, name)
		require.Contains(t, got.body, "Nothing was done", name)
	}
	// A token in the address is none.
	require.Equal(t, http.StatusForbidden, d.send("POST", path+"?token="+url.QueryEscape(own), form(""), nil).status)
	require.Equal(t, dispatch.Pending, stateOf(t, d.box, key).State)
	require.Empty(t, stateOf(t, d.box, key).Events)

	got := d.send("POST", path, form(own), nil)
	require.Equal(t, http.StatusSeeOther, got.status)
	require.Equal(t, dispatch.Cancelled, stateOf(t, d.box, key).State)
}

// Two processes with one secret take each other's forms.
func TestSharedSecret(t *testing.T) {
	secret := []byte(strings.Repeat("k", 32))
	share := func(c *console.Config) { c.Secret = secret }
	one, two := newDesk(t, share), newDesk(t, share)
	key := enqueue(t, two.box, "hello")[0]
	form := url.Values{"verb": {"cancel"}, "why": {"because"}, "token": {one.token("providers")}}
	require.Equal(t, http.StatusSeeOther, two.send("POST", "messages/"+key.String(), form.Encode(), nil).status)
}

// What nobody would type is an answer in words, and nothing happens.
func TestBadInput(t *testing.T) {
	d := newDesk(t, nil)
	keys := enqueue(t, d.box, "refused", "hello")
	work(t, d.box, dispatch.Dead, keys[0])
	for path, want := range map[string]int{
		"messages/x": 404, "messages/" + dispatch.NewKey().String(): 404, "messages/%00": 404, "jobs/x": 404, "a/b/c/d": 404,
		"messages?state=lost": 400, "messages?reason=none": 400, "messages?route=a%20b": 400, "messages?provider=%3Cscript%3E": 400,
		"messages?since=yesterday": 400, "messages?since=0001-01-01T00:00": 400, "messages?before=9999-12-31T00:00": 400,
		"messages?cursor=x": 400, "messages?state=dead&cursor=m.1.x": 400, "messages?route=%ff": 400, "messages?route=a%00": 400,
		"messages?cursor=" + strings.Repeat("9", 5000): 400, "messages?state=%zz": 400,
	} {
		got := d.get(path)
		require.Equal(t, want, got.status, path)
		require.NotContains(t, got.body, "<script", path)
		require.Contains(t, got.body, `role="alert"`, path)
	}
	dead := "messages/" + keys[0].String()
	for _, c := range []struct {
		name, path string
		form       url.Values
		want       int
		words      string
	}{
		{"no reason", dead, url.Values{"verb": {"retry"}}, 400, "Say why"},
		{"a reason of blanks", dead, url.Values{"verb": {"retry"}, "why": {" \n\t "}}, 400, "Say why"},
		{"a long reason", dead, url.Values{"verb": {"retry"}, "why": {strings.Repeat("é", 1001)}}, 400, "longer than 1,000"},
		{"a megabyte", dead, url.Values{"verb": {"retry"}, "why": {strings.Repeat("x", 1<<20)}}, 413, "more than a form"},
		{"a zero byte", dead, url.Values{"verb": {"retry"}, "why": {"a\x00b"}}, 400, "no text"},
		{"broken letters", dead, url.Values{"verb": {"retry"}, "why": {"a\xff"}}, 400, "no text"},
		{"no verb", dead, url.Values{"why": {"because"}}, 400, "Choose what to do"},
		{"no such verb", dead, url.Values{"verb": {"delete"}, "why": {"because"}}, 400, "Choose what to do"},
		{"unconfirmed", dead, url.Values{"verb": {"send-anyway"}, "why": {"because"}}, 400, "may get it twice"},
		{"no new key", dead, url.Values{"verb": {"resend"}, "why": {"because"}, "again": {"yes"}}, 400, "no key"},
		{"a verb of another state", dead, url.Values{"verb": {"give-up"}, "why": {"because"}}, 409, "in the wrong state"},
		{"a message that isn't there", "messages/" + dispatch.NewKey().String(), url.Values{"verb": {"retry"}, "why": {"because"}}, 404, "no message"},
		{"a provider that isn't there", "providers", url.Values{"kind": {"provider"}, "name": {"other"}, "do": {"pause"}, "why": {"because"}}, 400, "no such provider"},
		{"a gate of another kind", "providers", url.Values{"kind": {"country"}, "name": {"test"}, "do": {"pause"}, "why": {"because"}}, 400, "no such provider"},
		{"all messages", "jobs", url.Values{"verb": {"cancel"}, "why": {"because"}}, 400, "this state"},
		{"all of a route", "jobs", url.Values{"verb": {"cancel"}, "why": {"because"}, "route": {"sms"}}, 400, "this state"},
		{"a verb that bulk hasn't", "jobs", url.Values{"verb": {"resend"}, "why": {"because"}, "state": {"dead"}, "again": {"yes"}}, 400, "this state"},
		{"a bulk without a reason", "jobs", url.Values{"verb": {"retry"}, "state": {"dead"}}, 400, "Say why"},
		{"a bulk unconfirmed", "jobs", url.Values{"verb": {"send-anyway"}, "why": {"because"}, "state": {"dead"}}, 400, "may get it twice"},
	} {
		got := d.post(c.path, c.form)
		require.Equal(t, c.want, got.status, c.name)
		require.Contains(t, got.body, c.words, c.name)
	}
	for body, want := range map[string]int{"q=": 400, "q=" + strings.Repeat("1", 401): 400, "q=who%3F": 400, "q=%2B15555550123&cursor=x": 400, "q=%00": 400, "%zz": 400} {
		require.Equal(t, want, d.send("POST", "search", body, nil).status, body)
	}
	require.Len(t, stateOf(t, d.box, keys[0]).Events, 1, "nothing was done")
	gates, err := d.box.Gates(t.Context())
	require.NoError(t, err)
	require.Empty(t, gates)
	require.NotContains(t, d.log.String(), "level=ERROR")
}
