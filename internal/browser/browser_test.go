package browser

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/internal/demo"
	"github.com/seed-8098fbb7/dispatch/internal/leaks"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/console"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is what a page may take on a machine that has other things to do.
const patience = 60 * time.Second

// ada may do everything.
var ada = console.Actor{Name: "ada", Act: true}

// site is a console on the demonstration's data, and who looks at it.
type site struct {
	demo   *demo.Demo
	pool   *pgxpool.Pool
	schema string
	url    string
	chrome context.Context //nolint:containedctx // it is how the driver names a browser

	mu    sync.Mutex
	actor console.Actor
}

func (s *site) as(a console.Actor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.actor = a
}

func newSite(t *testing.T) *site {
	t.Helper()
	pool, schema := pgtest.Pool(t)
	d, err := demo.New(t.Context(), pool, schema)
	require.NoError(t, err)
	s := &site{demo: d, pool: pool, schema: schema, actor: ada, chrome: launch(t)}
	s.url = s.mount(t, d.Box)
	return s
}

// mount serves a console of the box, below a prefix, as applications do.
func (s *site) mount(t *testing.T, box *outbox.Box) (url string) {
	t.Helper()
	c, err := console.New(box, console.Config{
		Authorize: func(*http.Request) console.Actor {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.actor
		},
		Logger: leaks.Suite.Logger(slog.NewTextHandler(t.Output(), nil)),
	})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/ops/outbox/", http.StripPrefix("/ops/outbox", c))
	web := httptest.NewServer(mux)
	t.Cleanup(func() {
		web.Close()
		require.NoError(t, c.Close())
	})
	return web.URL + "/ops/outbox/"
}

// tab is a page of the browser, which remembers what went wrong in it.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // it is how the driver names a tab

	mu     sync.Mutex
	faults []string
}

// launch starts the browser for the whole test.
func launch(t *testing.T) context.Context {
	t.Helper()
	path, err := chromium(t.Context())
	require.NoError(t, err)
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.DisableGPU, chromedp.WSURLReadTimeout(patience))
	if os.Geteuid() == 0 { // Chromium's sandbox refuses root
		opts = append(opts, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx))
	return ctx
}

// tab opens a tab. It is of the size of a desktop, in light colours.
func (s *site) tab(t *testing.T) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(s.chrome)
	t.Cleanup(cancel)
	tb := &tab{t: t, ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, func(ev any) {
		switch e := ev.(type) {
		case *page.EventJavascriptDialogOpening:
			tb.fault("a dialog: " + e.Message)
		case *runtime.EventExceptionThrown:
			tb.fault("an exception: " + e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			tb.fault(fmt.Sprintf("the browser's log: %s %s", e.Entry.Text, e.Entry.URL))
		}
	}))
	tb.look(1280, 900, "light")
	return tb
}

func (tb *tab) fault(words string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.faults = append(tb.faults, words)
}

// quiet tells that nothing went wrong so far: no dialog, no exception, and
// nothing in the browser's log, where it would tell of a policy that was broken.
func (tb *tab) quiet() {
	tb.t.Helper()
	tb.mu.Lock()
	defer tb.mu.Unlock()
	require.Empty(tb.t, tb.faults)
}

// forget drops what a test expected to go wrong.
func (tb *tab) forget() {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.faults = nil
}

func (tb *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	require.NoError(tb.t, chromedp.Do(ctx, steps...))
}

// look sets the window's size and the colours that its user prefers.
func (tb *tab) look(width, height int64, scheme string) {
	tb.t.Helper()
	tb.do(chromedp.EmulateViewport(width, height), chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
}

func (tb *tab) open(url string) { tb.t.Helper(); tb.do(chromedp.Navigate(url)) }

// press does something that loads another page, and waits for it.
func (tb *tab) press(steps ...chromedp.Action[chromedp.Void]) (status int64) {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	r, err := chromedp.RunResponse(ctx, steps...)
	require.NoError(tb.t, err)
	return r.Status
}

func ask[T any](tb *tab, expression string) T {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(tb.t, err, expression)
	return v
}

// text is what the page says.
func (tb *tab) text() string { tb.t.Helper(); return ask[string](tb, "document.body.innerText") }

func (tb *tab) location() string { tb.t.Helper(); return ask[string](tb, "location.href") }
