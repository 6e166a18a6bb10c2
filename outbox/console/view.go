package console

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
)

//go:embed templates/*.html style.css icon.svg
var files embed.FS

// pageNames are the pages; each is a template of its own inside the layout.
var pageNames = []string{"overview", "search", "messages", "message", "jobs", "job", "providers", "problem", "content"}

func parsePages() (map[string]*template.Template, error) {
	pages := map[string]*template.Template{}
	for _, name := range pageNames {
		t, err := template.New("layout.html").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/parts.html", "templates/"+name+".html")
		if err != nil {
			return nil, err
		}
		pages[name] = t
	}
	return pages, nil
}

// functions are what templates call. None returns HTML: html/template escapes
// everything.
var functions = template.FuncMap{
	"utc":        func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"precise":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") },
	"machine":    func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"long":       long,
	"exact":      exact,
	"bound":      bound,
	"number":     number,
	"number64":   func(n int) string { return number(int64(n)) },
	"count":      count,
	"hourMinute": func(t time.Time) string { return t.UTC().Format("15:04") },
}

// view is what the layout shows.
type view struct {
	Title   string
	Nav     string // the entry of the navigation that is current
	Refresh int    // seconds, 0 for never
	Data    any

	// These are filled in by render.
	Root  string // the way to the console's root, "./" or "../" and so on
	Actor string
	Act   bool
	Token string
	Now   time.Time
}

// Ago tells a time as seen from now, such as "3 min ago".
func (v view) Ago(t time.Time) string {
	d := v.Now.Sub(t)
	switch {
	case d < -time.Second:
		return "in " + long(-d)
	case d < time.Second:
		return "just now"
	}
	return long(d) + " ago"
}

// With hands a part of a page what it shows together with the view around it.
func (v view) With(data any) view {
	v.Data = data
	return v
}

// render writes a page, or nothing of it where its template fails.
func (c *Console) render(ctx context.Context, r *request, status int, page string, v view) {
	v.Root, v.Actor, v.Act, v.Now = root(r.URL.Path), r.actor.Name, r.act, c.now()
	if v.Act {
		v.Token = c.token.issue(v.Actor, v.Now)
	}
	var b bytes.Buffer
	if err := c.pages[page].Execute(&b, v); err != nil {
		c.log.ErrorContext(ctx, "console: page can't be drawn", slog.String("page", page), slog.Any("error", err))
		http.Error(r.w, "500: the page can't be drawn", http.StatusInternalServerError)
		return
	}
	r.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	r.w.WriteHeader(status)
	_, _ = b.WriteTo(r.w) // the browser has gone
}

// root is the way from a page to the console's root. A relative one is right
// below any prefix, which the console needn't know.
func root(path string) string {
	depth := strings.Count(strings.TrimPrefix(path, "/"), "/")
	if depth == 0 {
		return "./"
	}
	return strings.Repeat("../", min(depth, 20))
}

// redirect sends the browser to another page after an action. http.Redirect
// would make it absolute, without the prefix that was stripped.
func (r *request) redirect(to string) {
	r.w.Header().Set("Location", root(r.URL.Path)+to)
	r.w.WriteHeader(http.StatusSeeOther)
}

// asset serves an embedded file.
func asset(name, kind string) http.HandlerFunc {
	data, err := files.ReadFile(name)
	return func(w http.ResponseWriter, _ *http.Request) {
		if err != nil { // it is embedded
			http.Error(w, "404", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "private, max-age=300")
		_, _ = w.Write(data)
	}
}

// long tells a duration with one unit, or two where that says more.
func long(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return strconv.Itoa(int(d.Hours()/24)) + " days"
}

// exact tells a short duration, such as an answer's time.
func exact(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// bound tells a quantile, which is the end of a class of durations; the last
// class has none.
func bound(d time.Duration) string {
	switch {
	case d == 0:
		return "none"
	case d > 30*time.Second:
		return ">25.6s"
	}
	return "≤" + exact(d)
}

// number puts a comma at each thousand.
func number(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
