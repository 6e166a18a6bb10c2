package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// Each verb does what it says, under the name that the hook gave and not that of
// a field, and the page says so afterwards.
func TestVerbsByHand(t *testing.T) {
	d := newDesk(t, nil)
	keys := enqueue(t, d.box, "refused 1", "refused 2", "lost 1", "lost 2", "lost 3", "lost 4", "hello")
	work(t, d.box, dispatch.Dead, keys[:2]...)
	work(t, d.box, dispatch.Held, keys[2:6]...)
	work(t, d.box, dispatch.Sent, keys[6])
	for i, c := range []struct {
		key  dispatch.Key
		form url.Values
		want dispatch.State
	}{
		{keys[0], url.Values{"verb": {"retry"}}, dispatch.Pending},
		{keys[1], url.Values{"verb": {"cancel"}}, dispatch.Cancelled},
		{keys[2], url.Values{"verb": {"accepted"}, "id": {"vendor-77"}}, dispatch.Sent},
		{keys[3], url.Values{"verb": {"not-accepted"}}, dispatch.Pending},
		{keys[4], url.Values{"verb": {"send-anyway"}, "again": {"yes"}}, dispatch.Pending},
		{keys[5], url.Values{"verb": {"give-up"}}, dispatch.Dead},
	} {
		c.form.Set("why", `“because” <of> №`+string(rune('0'+i)))
		c.form.Set("by", "mallory")
		path := "messages/" + c.key.String()
		got := d.post(path, c.form)
		require.Equal(t, http.StatusSeeOther, got.status, got.body)
		require.Equal(t, "../"+path+"?done="+c.form.Get("verb"), got.header.Get("Location"))
		h := stateOf(t, d.box, c.key)
		require.Equal(t, c.want, h.State, c.form)
		last := h.Events[len(h.Events)-1]
		require.Equal(t, []string{"ada", c.form.Get("why")}, []string{last.By, last.Why})
		page := d.get(path + "?done=" + c.form.Get("verb"))
		require.Contains(t, page.body, ": done")
		require.Contains(t, page.body, "“because” &lt;of&gt; №")
		require.NotContains(t, page.body, "mallory")
	}
	require.Contains(t, d.get("messages/"+keys[2].String()).body, "vendor-77")
	require.Contains(t, d.log.String(), "verb=give-up key="+keys[5].String()+" by=ada")
	require.NotContains(t, d.log.String(), "5555550123")
	require.NotContains(t, d.log.String(), "because", "a reason may name a recipient")

	// A new message, once however often the form is sent.
	again := dispatch.NewKey()
	for range 2 {
		got := d.post("messages/"+keys[6].String(), url.Values{"verb": {"resend"}, "again": {"yes"}, "new": {again.String()}, "why": {"lost in the post"}})
		require.Equal(t, "../messages/"+again.String()+"?done=resend", got.header.Get("Location"), got.body)
	}
	require.Len(t, stateOf(t, d.box, again).Events, 1)
	require.Contains(t, d.get("messages/"+again.String()).body, `href="../messages/`+keys[6].String()+`"`, "it names the old one")
	old := d.get("messages/" + keys[6].String()).body
	require.Contains(t, old, `href="../messages/`+again.String()+`"`, "and the old one names it")
	require.Contains(t, old, "Sent again as a new message by ada")
}

// A text is shown where the application permits it, and never elsewhere.
func TestTextIsShownOnlyWithPermission(t *testing.T) {
	d := newDesk(t, nil)
	key := enqueue(t, d.box, `zebra <b>bold</b>`)[0]
	path := "messages/" + key.String()
	for _, page := range []string{path, "messages", ""} {
		require.NotContains(t, d.get(page).body, "zebra")
		require.NotContains(t, d.get(page).body, "5555550123")
	}
	got := d.post(path, url.Values{"verb": {"read"}, "why": {"the customer asks"}})
	require.Equal(t, http.StatusOK, got.status)
	require.Contains(t, got.body, "zebra &lt;b&gt;bold")
	require.Contains(t, got.body, "15555550123")
	require.Contains(t, d.get(path).body, "Text read by ada")
	require.NotContains(t, d.log.String(), "zebra")

	closed, err := outbox.New(d.pool, outbox.Config{Schema: d.schema, Routes: d.box.Routes()})
	require.NoError(t, err)
	_, err = closed.Content(t.Context(), key, outbox.Audit{By: "ada", Why: "x"})
	require.ErrorIs(t, err, outbox.ErrDenied)
}

// A recipient stands in no address, and a key leads to its message.
func TestSearch(t *testing.T) {
	d := newDesk(t, nil)
	bodies := make([]string, 60)
	for i := range bodies {
		bodies[i] = "hello"
	}
	keys := enqueue(t, d.box, bodies...)
	got := d.send("POST", "search", url.Values{"q": {"  " + keys[3].String() + "\n"}}.Encode(), nil)
	require.Equal(t, http.StatusSeeOther, got.status)
	require.Equal(t, "./messages/"+keys[3].String(), got.header.Get("Location"))

	page := d.send("POST", "search", url.Values{"q": {"+1 555 555 01 23"}}.Encode(), nil)
	require.Equal(t, http.StatusOK, page.status)
	require.Equal(t, 50, strings.Count(page.body, `<tr role="row">`)-1)
	require.NotRegexp(t, `(href|action)="[^"]*5555550`, page.body) // a key may hold 555
	_, rest, ok := strings.Cut(page.body, `name="cursor" value="`)
	require.True(t, ok)
	cursor, _, _ := strings.Cut(rest, `"`)
	page = d.send("POST", "search", url.Values{"q": {"+1 555 555 01 23"}, "cursor": {cursor}}.Encode(), nil)
	require.Equal(t, 10, strings.Count(page.body, `<tr role="row">`)-1)
	page = d.send("POST", "search", url.Values{"q": {"ada@mail.example"}}.Encode(), nil)
	require.Contains(t, page.body, "None.")
}

// What a vendor says in words is text.
func TestVendorsWordsAreEscaped(t *testing.T) {
	d := newDesk(t, nil)
	key := enqueue(t, d.box, "refused")[0]
	work(t, d.box, dispatch.Dead, key)
	page := d.get("messages/" + key.String())
	require.Contains(t, page.body, "&lt;script&gt;alert(&#34;vendor&#34;)&lt;/script&gt;")
	require.NotContains(t, page.body, "<script")
}

func TestPauseAndResume(t *testing.T) {
	d := newDesk(t, nil)
	key := enqueue(t, d.box, "hello")[0]
	got := d.post("providers", url.Values{"kind": {"provider"}, "name": {"test"}, "do": {"resume"}, "why": {"why"}})
	require.Equal(t, http.StatusConflict, got.status)
	require.Contains(t, got.body, "nothing holds it any more")
	for _, c := range []struct{ kind, name, do, shown string }{
		{"provider", "test", "pause", "paused by hand <q>&lt;why&gt;</q>, by ada"},
		{"provider", "test", "resume", ""},
		{"route", "sms", "pause", "paused by hand <q>&lt;why&gt;</q>, by ada"},
		{"route", "sms", "resume", ""},
	} {
		got := d.post("providers", url.Values{"kind": {c.kind}, "name": {c.name}, "do": {c.do}, "why": {"<why>"}})
		require.Equal(t, "./providers?done="+c.do, got.header.Get("Location"), got.body)
		gates, err := d.box.Gates(t.Context())
		require.NoError(t, err)
		closed := 0
		for _, g := range gates {
			if g.Closed {
				closed++
				require.Equal(t, c.name, g.Provider+g.Route)
			}
		}
		for _, page := range []string{"providers", ""} {
			body := d.get(page).body
			if c.do == "pause" {
				require.Equal(t, 1, closed)
				require.Contains(t, body, c.shown, page)
				require.Contains(t, d.get("messages/"+key.String()).body, "It waits: "+strings.TrimPrefix(c.kind+" ", "provider ")+c.name+" is held (paused) by ada: &lt;why&gt;.")
			} else {
				require.Zero(t, closed)
				require.NotContains(t, body, "paused by hand", page)
			}
		}
	}
}
