package browser

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/console"
)

// One browser and one outbox serve all that follows, since starting them is what
// takes the time.
func TestConsole(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct {
		name string
		test func(t *testing.T, s *site)
	}{
		{"finds out why it was sent twice", why},
		{"searches", searches},
		{"is denied without authorization", denied},
		{"refuses what another site posts", forged},
		{"shows hostile content inert", hostile},
		{"puts a message back by hand, with the keyboard alone", byKeyboard},
		{"puts a thousand dead letters back", requeue},
		{"fits and can be read", fits},
		{"names everything", named},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.as(ada)
			c.test(t, s)
		})
	}
}

// From the overview alone, with nothing but the key: the page of the message says
// that it was accepted twice, by whose choice, and why.
func why(t *testing.T, s *site) {
	t.Helper()
	tb := s.tab(t)
	tb.open(s.url)
	tb.do(chromedp.SendKeys("#find", s.demo.Twice.String()))
	require.EqualValues(t, 200, tb.press(chromedp.SendKeys("#find", kb.Enter)))
	text := tb.text()
	for _, want := range []string{
		"It was accepted twice", "Send 1 to plainsms", "ended without an answer, and turned out to be accepted as id-",
		"grace had it sent anyway, knowing that it might be a second copy: “the customer is on the phone and says that nothing came”",
		"Send 2 to plainsms", "was accepted as id-", "Receipt from plainsms: delivered",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "freezer", "the text is not shown")
	require.NotContains(t, text, "+46", "nor is the recipient")
	tb.quiet()
}

func searches(t *testing.T, s *site) {
	t.Helper()
	tb := s.tab(t)
	tb.open(s.url)
	tb.do(chromedp.SendKeys("#find", "+46 70 174 00 42"))
	require.EqualValues(t, 200, tb.press(chromedp.SendKeys("#find", kb.Enter)))
	require.NotContains(t, tb.location(), "70", "a recipient stands in no address")
	require.Contains(t, tb.text(), s.demo.Twice.String())
	require.EqualValues(t, 200, tb.press(chromedp.Click(`a[href$="`+s.demo.Twice.String()+`"]`)))
	require.Contains(t, tb.text(), "Timeline")
	tb.open(s.url)
	tb.do(chromedp.SendKeys("#find", "reader3@mail.example"))
	require.EqualValues(t, 200, tb.press(chromedp.SendKeys("#find", kb.Enter)))
	require.Contains(t, tb.text(), "address_suppressed")
	tb.quiet()
	tb.do(chromedp.SendKeys("#find", "who is it?"))
	require.EqualValues(t, 400, tb.press(chromedp.SendKeys("#find", kb.Enter)))
	require.Contains(t, tb.text(), "neither a key")
}

func denied(t *testing.T, s *site) {
	t.Helper()
	tb := s.tab(t)
	s.as(console.Actor{})
	for _, path := range []string{"", "messages", "messages/" + s.demo.Twice.String(), "providers", "jobs"} {
		require.EqualValues(t, 403, tb.press(chromedp.Navigate(s.url+path)), path)
		require.Equal(t, "403: you may not see this", strings.TrimSpace(tb.text()), path)
	}
	s.as(console.Actor{Name: "lin"})
	tb.open(s.url + "messages/" + s.demo.Twice.String())
	require.Contains(t, tb.text(), "read-only")
	require.Zero(t, ask[int](tb, `document.querySelectorAll("main form").length`), "nothing to press")
}

// A page of another site posts with the browser of somebody who may act.
func forged(t *testing.T, s *site) {
	t.Helper()
	tb := s.tab(t)
	tb.open("data:text/html,<form method=post action='" + s.url + "providers'><input name=kind value=provider><input name=name value=postbox>" +
		"<input name=do value=pause><input name=why value=because><button id=go>Win</button></form>")
	require.EqualValues(t, 403, tb.press(chromedp.Click("#go")))
	require.Contains(t, tb.text(), "from another site")
	// The same from the console's own origin, with a token that isn't one.
	tb.open(s.url + "providers")
	tb.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach(d => d.open = true);
		document.querySelectorAll("[name=token]").forEach(i => i.value = "1." + i.value.split(".")[1])`),
		chromedp.SendKeys("#why-provider-postbox", "because"))
	require.EqualValues(t, 403, tb.press(chromedp.Click(`//button[text()="Pause postbox"]`)))
	require.Contains(t, tb.text(), "isn't one of yours")
	gates, err := s.demo.Box.Gates(t.Context())
	require.NoError(t, err)
	for _, g := range gates {
		require.NotEqual(t, "postbox", g.Provider)
	}
}

// What vendors and people write is text, wherever it is shown.
func hostile(t *testing.T, s *site) {
	t.Helper()
	tb := s.tab(t)
	key := dead(t, s, 1, `<script>alert("subject")</script>`)[0]
	evil := `"><img src=x onerror=alert(1)><script>alert(2)</script>` + "𝒜𠮷𒀀 \u202eevil"
	_, err := s.demo.Box.Retry(t.Context(), key, outbox.Audit{By: evil, Why: evil})
	require.NoError(t, err)
	_, err = s.pool.Exec(t.Context(), `update `+pgx.Identifier{s.schema}.Sanitize()+`.history set words = $1, detail = $1, code = $1, provider_id = $1 where id = $2::text::uuid`,
		evil, key.String())
	require.NoError(t, err)
	for _, path := range []string{"messages/" + key.String(), "messages?state=pending", "messages"} {
		tb.open(s.url + path)
		require.Zero(t, ask[int](tb, `document.querySelectorAll("script, main img, iframe, object").length`), path)
	}
	tb.open(s.url + "messages/" + key.String())
	require.Contains(t, tb.text(), evil)
	require.NotContains(t, tb.text(), "subject")

	tb.do(chromedp.Click("#v-read"), chromedp.SendKeys("#why-one", evil))
	require.EqualValues(t, 200, tb.press(chromedp.Click("main .do")))
	require.Contains(t, tb.text(), `<script>alert("subject")</script>`, "the text, asked for, is text")
	require.Contains(t, tb.text(), "山田 𠮷野")
	require.Zero(t, ask[int](tb, `document.querySelectorAll("script, main img").length`))
	tb.quiet()

	// A reason of a megabyte is refused before it is read.
	tb.open(s.url + "messages/" + key.String())
	tb.do(chromedp.Click("#v-cancel"), chromedp.Evaluate[chromedp.Void](`document.querySelector("#why-one").removeAttribute("maxlength"); document.querySelector("#why-one").value = "x".repeat(1 << 20)`))
	require.EqualValues(t, 413, tb.press(chromedp.Click("main .do")))
	require.Contains(t, tb.text(), "more than a form here may hold")
	h, err := s.demo.Box.History(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, dispatch.Pending, h.State)
	tb.forget() // the browser logs the 413
}

// Everything can be reached and pressed without a mouse, and it is seen where
// one is.
func byKeyboard(t *testing.T, s *site) {
	t.Helper()
	tb := s.tab(t)
	key := dead(t, s, 1, "once more")[0]
	tb.open(s.url + "messages/" + key.String())
	tb.do(chromedp.KeyEvent(kb.Tab))
	require.Equal(t, "Skip to the content", ask[string](tb, "document.activeElement.textContent"))
	require.Positive(t, ask[float64](tb, "parseFloat(getComputedStyle(document.activeElement).outlineWidth)"))
	require.GreaterOrEqual(t, ask[float64](tb, "document.activeElement.getBoundingClientRect().left"), 0.0, "it is seen")
	tb.do(chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent(kb.Tab))
	require.Equal(t, "radio", ask[string](tb, "document.activeElement.type"), "the content's first control")
	tb.do(chromedp.KeyEvent(" "), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab))
	require.Equal(t, "why", ask[string](tb, "document.activeElement.name"))
	tb.do(chromedp.KeyEvent("the list was mended"), chromedp.KeyEvent(kb.Tab))
	require.EqualValues(t, 200, tb.press(chromedp.KeyEvent(kb.Enter)))
	require.Contains(t, tb.text(), "Put back: done")
	require.Contains(t, tb.text(), "Put back by ada")
	h, err := s.demo.Box.History(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, dispatch.Pending, h.State)
	last := h.Events[len(h.Events)-1]
	require.Equal(t, []string{"ada", "the list was mended"}, []string{last.By, last.Why})
	tb.quiet()
}

// A thousand dead letters go back, the page tells how far it is, and says at the
// end what became of them. One in the middle is locked for a while, so that there
// is a half-way to be seen however fast it goes.
func requeue(t *testing.T, s *site) {
	t.Helper()
	dead(t, s, 1000, "once more")
	count := func(state dispatch.State) int64 {
		stats, err := s.demo.Box.Stats(t.Context())
		require.NoError(t, err)
		var n int64
		for _, d := range stats.Depths {
			if d.State == state && d.Route == "newsletter" {
				n += d.Count
			}
		}
		return n
	}
	before, waiting := count(dispatch.Dead), count(dispatch.Pending)
	require.GreaterOrEqual(t, before, int64(1000))
	tb := s.tab(t)
	list, _, err := s.demo.Box.List(t.Context(), outbox.Filter{States: []dispatch.State{dispatch.Dead}, Route: "newsletter"}, "", 500)
	require.NoError(t, err)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), "select from "+pgx.Identifier{s.schema}.Sanitize()+".message where id = $1::text::uuid for update", list[499].Key.String())
	require.NoError(t, err)

	tb.open(s.url + "messages?state=dead&route=newsletter")
	tb.do(chromedp.Click("summary"), chromedp.Click("#v-retry"), chromedp.SendKeys("#why-bulk", "the suppression list was emptied"))
	require.EqualValues(t, 200, tb.press(chromedp.Click("main form[action$=jobs] .do")))
	require.Contains(t, tb.text(), "To dead messages of route newsletter. Begun by ada")
	far := tb.until(t, func(p progress) bool { return p.Value >= 490 })
	require.LessOrEqual(t, far.Value, 500)
	require.InDelta(t, before, far.Max, 10)
	require.Regexp(t, `^running: 49\d of 1,\d+ messages|^running: 500 of`, far.Text)
	draw(t, tb, "job-1280-light.png")
	require.NoError(t, tx.Rollback(t.Context()))
	end := tb.until(t, func(p progress) bool { return strings.HasPrefix(p.Text, "done") })
	require.False(t, end.Bar)
	require.Zero(t, count(dispatch.Dead))
	require.Equal(t, waiting+before, count(dispatch.Pending))
	require.Contains(t, tb.text(), "pending")
	tb.quiet()
}

// progress is what the page of a job says.
type progress struct {
	Text       string
	Bar        bool
	Value, Max int
}

// until waits for the page, which loads itself again, to say something.
func (tb *tab) until(t *testing.T, enough func(progress) bool) (p progress) {
	t.Helper()
	require.Eventually(t, func() bool {
		p = ask[progress](tb, `(() => { const p = document.querySelector("progress");
			return {Text: document.querySelector("[role=status]")?.innerText ?? "", Bar: !!p, Value: p?.value ?? 0, Max: p?.max ?? 0} })()`)
		return enough(p)
	}, 3*time.Minute, 50*time.Millisecond)
	return p
}

// dead leaves letters that were refused, with a subject.
func dead(t *testing.T, s *site, n int, subject string) (keys []dispatch.Key) {
	t.Helper()
	keys, err := s.demo.Dead(t.Context(), n, subject)
	require.NoError(t, err)
	return keys
}
