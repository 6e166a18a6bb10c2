package console_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/leaks"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/console"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// desk is an outbox with a console below a prefix, and whoever sits before it.
type desk struct {
	t       *testing.T
	box     *outbox.Box
	pool    *pgxpool.Pool
	schema  string
	console *console.Console
	server  *httptest.Server
	log     *strings.Builder
	as      *http.Cookie // who asks; nil is nobody
}

const prefix = "/ops/outbox/"

// newDesk lets in ada, who may act, and lin, who may look.
func newDesk(t *testing.T, change func(*console.Config)) *desk {
	t.Helper()
	pool, schema := pgtest.Pool(t)
	policy := dispatch.SMSPolicy()
	policy.Backoff = dispatch.Backoff{Base: time.Millisecond, Cap: 10 * time.Millisecond}
	box, err := outbox.New(pool, outbox.Config{
		Schema: schema,
		Routes: []dispatch.Route{{Name: "sms", Providers: []string{"test"}, Policy: policy}},
		Reveal: func(_ context.Context, _ dispatch.Key, a outbox.Audit) error {
			if a.By != "ada" {
				return outbox.ErrDenied
			}
			return nil
		},
	})
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	d := &desk{t: t, box: box, pool: pool, schema: schema, log: &strings.Builder{}}
	cfg := console.Config{
		Authorize: func(r *http.Request) console.Actor {
			c, err := r.Cookie("session")
			if err != nil {
				return console.Actor{}
			}
			name, err := url.QueryUnescape(c.Value)
			return console.Actor{Name: name, Act: err == nil && name == "ada"}
		},
		Logger: leaks.Suite.Logger(slog.NewTextHandler(d.log, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	d.console, err = console.New(box, cfg)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle(prefix, http.StripPrefix(strings.TrimSuffix(prefix, "/"), d.console))
	d.server = httptest.NewServer(mux)
	t.Cleanup(func() {
		d.server.Close()
		require.NoError(t, d.console.Close())
	})
	d.sit("ada")
	return d
}

func (d *desk) sit(name string) {
	d.as = &http.Cookie{Name: "session", Value: url.QueryEscape(name)}
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// send makes a request and follows nothing.
func (d *desk) send(method, path, body string, change func(*http.Request)) answer {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.server.URL+prefix+path, strings.NewReader(body))
	require.NoError(d.t, err)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if d.as != nil {
		req.AddCookie(d.as)
	}
	if change != nil {
		change(req)
	}
	client := &http.Client{Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	require.NoError(d.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(d.t, err)
	return answer{res.StatusCode, res.Header, string(text)}
}

func (d *desk) get(path string) answer { d.t.Helper(); return d.send(http.MethodGet, path, "", nil) }

// token is that of the forms on a page.
func (d *desk) token(path string) string {
	d.t.Helper()
	m := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(d.get(path).body)
	require.NotNil(d.t, m, "%s has no form", path)
	return m[1]
}

// post sends a form with its token.
func (d *desk) post(path string, form url.Values) answer {
	d.t.Helper()
	form.Set("token", d.token("providers"))
	return d.send(http.MethodPost, path, form.Encode(), nil)
}

func enqueue(t *testing.T, box *outbox.Box, bodies ...string) (keys []dispatch.Key) {
	t.Helper()
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		for _, body := range bodies {
			i := dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.SMS{To: "+15555550123", Body: body}}
			keys = append(keys, i.Key)
			if _, err := box.Enqueue(t.Context(), tx, i); err != nil {
				return err
			}
		}
		return nil
	}))
	return keys
}

// work sends what is there until each message is in the state. A body "refused"
// is refused, a first answer to "lost" never comes.
func work(t *testing.T, box *outbox.Box, state dispatch.State, keys ...dispatch.Key) {
	t.Helper()
	p := &outboxtest.Provider{Respond: func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		body := e.Content.(dispatch.SMS).Body
		if strings.HasPrefix(body, "refused") {
			ev := dispatch.Evidence{Stage: dispatch.Answered, Status: 400, OwnBody: true, Code: "bad_number", Reason: `<script>alert("vendor")</script>`}
			return dispatch.Accepted{}, &dispatch.Fault{Evidence: ev, Verdict: dispatch.Classify(ev)}
		}
		a := accept()
		if strings.HasPrefix(body, "lost") && e.Attempt == 1 {
			return dispatch.Accepted{}, context.DeadlineExceeded
		}
		return a, nil
	}}
	w, err := outbox.NewWorker(box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{p}, PollInterval: 20 * time.Millisecond, SweepInterval: 20 * time.Millisecond,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for _, key := range keys {
		require.Eventually(t, func() bool { return stateOf(t, box, key).State == state }, time.Minute, 10*time.Millisecond, "wanted %s", state)
	}
	cancel()
	require.NoError(t, <-done)
}

func stateOf(t *testing.T, box *outbox.Box, key dispatch.Key) outbox.History {
	t.Helper()
	h, err := box.History(context.WithoutCancel(t.Context()), key)
	require.NoError(t, err)
	return h
}

func TestNewRefusesWhatCantWork(t *testing.T) {
	_, err := console.New(nil, console.Config{})
	require.EqualError(t, err, "console: no box")
	box, err := outbox.New(nil, outbox.Config{Routes: []dispatch.Route{{Name: "sms", Providers: []string{"test"}, Policy: dispatch.SMSPolicy()}}})
	require.NoError(t, err)
	_, err = console.New(box, console.Config{Secret: []byte("short")})
	require.EqualError(t, err, "console: secret of 5 bytes, want 32 at least")
	// A box without a database: a page that says so, and no panic.
	var log strings.Builder
	c, err := console.New(box, console.Config{
		Authorize: func(*http.Request) console.Actor { return console.Actor{Name: "ada", Act: true} },
		Logger:    leaks.Suite.Logger(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	for _, path := range []string{"/", "/messages", "/providers", "/messages/" + dispatch.NewKey().String()} {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, http.StatusInternalServerError, w.Code, path)
		require.Contains(t, w.Body.String(), "in the application&#39;s log", path)
		require.NotContains(t, w.Body.String(), "no pool")
	}
	require.Contains(t, log.String(), "box has no pool")
}

// Every page is found below a prefix that the console doesn't know, and every
// link of every page leads somewhere.
func TestLinksBelowAPrefix(t *testing.T) {
	d := newDesk(t, nil)
	keys := enqueue(t, d.box, "refused", "hello")
	work(t, d.box, dispatch.Dead, keys[0])
	link := regexp.MustCompile(`(?:href|action)="([^"]*)"`)
	seen := map[string]bool{}
	queue := []string{prefix}
	base, err := url.Parse(d.server.URL)
	require.NoError(t, err)
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		require.True(t, strings.HasPrefix(at, prefix), "%s leaves the console", at)
		page := d.get(strings.TrimPrefix(at, prefix))
		require.Equal(t, http.StatusOK, page.status, at)
		from, err := base.Parse(at)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(page.body, -1) {
			to, err := from.Parse(strings.ReplaceAll(m[1], "&amp;", "&"))
			require.NoError(t, err)
			if to.Fragment == "" && !seen[to.RequestURI()] {
				seen[to.RequestURI()] = true
				queue = append(queue, to.RequestURI())
			}
		}
	}
	for _, want := range []string{"", "messages/" + keys[0].String(), "messages?state=dead", "providers", "jobs", "style.css", "search"} {
		require.True(t, seen[prefix+want], "%s isn't linked", want)
	}
}

func TestHeaders(t *testing.T) {
	d := newDesk(t, nil)
	pages := []answer{d.get(""), d.get("style.css"), d.get("nowhere"), d.get("messages/x")}
	d.as = nil
	pages = append(pages, d.get(""))
	for _, page := range pages {
		policy := page.header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "style-src 'self'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
			require.Contains(t, policy, want)
		}
		require.NotContains(t, policy, "unsafe")
		require.Equal(t, "nosniff", page.header.Get("X-Content-Type-Options"))
		require.Equal(t, "no-referrer", page.header.Get("Referrer-Policy"))
		require.Equal(t, "DENY", page.header.Get("X-Frame-Options"))
		require.NotEmpty(t, page.header.Get("Cache-Control"))
	}
	require.Equal(t, "no-store", pages[0].header.Get("Cache-Control"))
	require.NotContains(t, pages[0].body, "<script")
	require.NotContains(t, pages[0].body, "style=")
}
