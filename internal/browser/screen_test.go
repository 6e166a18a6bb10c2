package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// screens are the pages that are measured and drawn.
func screens(s *site) map[string]string {
	return map[string]string{
		"overview": "", "dead": "messages?state=dead", "held": "messages?state=held", "messages": "messages", "providers": "providers",
		"twice": "messages/" + s.demo.Twice.String(), "jobs": "jobs", "search": "search", "problem": "nowhere",
	}
}

// contrast finds text that is too faint for its ground: WCAG's 4.5:1.
const contrast = `(() => {
	const rgb = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length > 3 ? m : [...m, 1] };
	const light = c => { const f = v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4 };
		return .2126 * f(c[0]) + .7152 * f(c[1]) + .0722 * f(c[2]) };
	const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] > 0) return c } return [255, 255, 255, 1] };
	const out = new Set();
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; n = walk.nextNode();) {
		const e = n.parentElement;
		if (!n.textContent.trim() || !e.checkVisibility()) continue;
		const a = light(rgb(getComputedStyle(e).color)), b = light(ground(e));
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (ratio < 4.5) out.add(e.tagName + "." + e.className + " " + ratio.toFixed(2) + " " + n.textContent.trim().slice(0, 30));
	}
	return [...out];
})()`

// Each page fits a phone and a desktop without being pushed sideways, and its
// text stands out from its ground in light and dark. With SCREENS set to a
// folder the pages are drawn there, for somebody to look at.
func fits(t *testing.T, s *site) {
	t.Helper()
	tb := s.tab(t)
	for name, path := range screens(s) {
		tb.open(s.url + path)
		tb.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach(d => d.open = true)`))
		for _, size := range []struct{ name, width int64 }{{0, 390}, {0, 1280}} {
			for _, scheme := range []string{"light", "dark"} {
				tb.look(size.width, 844, scheme)
				require.LessOrEqual(t, ask[int64](tb, "document.documentElement.scrollWidth"), size.width, "%s at %d is pushed sideways", name, size.width)
				require.Empty(t, ask[[]string](tb, contrast), "%s at %d in %s", name, size.width, scheme)
				draw(t, tb, fmt.Sprintf("%s-%d-%s.png", name, size.width, scheme))
			}
		}
		if name != "problem" { // whose 404 stands in the browser's log
			tb.quiet()
		}
		tb.forget()
	}
}

func draw(t *testing.T, tb *tab, name string) {
	t.Helper()
	folder := os.Getenv("SCREENS")
	if folder == "" {
		return
	}
	png, err := chromedp.Run(tb.ctx, chromedp.FullScreenshot(100))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(folder, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(folder, name), png, 0o600))
}

// What a screen reader is told: every control, picture, table and landmark has
// a name, and each page has one main part and one heading of the first rank.
func named(t *testing.T, s *site) {
	t.Helper()
	tb := s.tab(t)
	must := map[string]bool{
		"link": true, "button": true, "textbox": true, "searchbox": true, "combobox": true, "checkbox": true, "radio": true, "image": true,
		"img": true, "table": true, "region": true, "navigation": true, "form": true, "progressbar": true, "DisclosureTriangle": true, "group": false,
	}
	for page, path := range screens(s) {
		tb.open(s.url + path)
		tree, err := chromedp.Call(tb.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		require.NoError(t, err)
		count := map[string]int{}
		for _, n := range tree.Nodes {
			if n.Ignored || n.Role == nil {
				continue
			}
			role := unquote(n.Role.Value)
			count[role]++
			name := ""
			if n.Name != nil {
				name = unquote(n.Name.Value)
			}
			if must[role] {
				require.NotEmpty(t, strings.TrimSpace(name), "%s: a %s without a name", page, role)
			}
		}
		require.Equal(t, 1, count["main"], "%s: %v", page, count)
		require.Equal(t, 1, count["banner"], "%s: %v", page, count)
		require.GreaterOrEqual(t, count["navigation"], 1, page)
		require.Equal(t, 1, ask[int](tb, `document.querySelectorAll("h1").length`), page)
		require.Zero(t, ask[int](tb, `document.querySelectorAll("[id]").length - new Set([...document.querySelectorAll("[id]")].map(e => e.id)).size`), "%s: an id stands twice", page)
		require.Equal(t, "en", ask[string](tb, "document.documentElement.lang"))
	}
}

func unquote(raw any) string { return strings.Trim(fmt.Sprintf("%s", raw), `"`) }
