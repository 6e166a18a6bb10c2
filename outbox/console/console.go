// Package console is a web page for whoever operates an outbox: how it stands,
// what happened to a message and why, and the verbs by hand. The application
// mounts it where it likes, behind its own log-in:
//
//	c, err := console.New(box, console.Config{Authorize: func(r *http.Request) console.Actor { ... }})
//	mux.Handle("/outbox/", http.StripPrefix("/outbox", c))
//
// Nobody may see anything until Authorize says so. Pages hold no recipient and
// no text: a text is shown only where the box's Reveal permits it, and that it
// was read is recorded in the message's history. What vendors say in words is
// shown, and may quote a recipient. Everything works without JavaScript; there
// is none.
package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"time"

	"github.com/seed-8098fbb7/dispatch/outbox"
)

// Actor is who asks. The zero Actor is nobody and sees nothing.
type Actor struct {
	// Name is written into the history of what this person does, 200 bytes at
	// most: the name of an account, as the application knows it.
	Name string
	// Act permits actions. Without it everything can be looked at.
	Act bool
}

// Config says who may use a console.
type Config struct {
	// Authorize says who asks, from what the application's log-in left in the
	// request: a session, a client certificate. It is called for every request
	// and must be safe for concurrent use. Where it is nil, everybody is refused.
	// A refusal is a 403 and no redirect: wrap the Console for a log-in page.
	Authorize func(r *http.Request) Actor
	// ReadOnly refuses all actions, whoever asks.
	ReadOnly bool
	// Secret signs the tokens of the forms, 32 bytes at least. Where it is nil,
	// one is drawn: right for one process; where several serve the console
	// behind one address, a form would work only at the process that made it.
	Secret []byte
	// Logger gets one line for each action, and for what could not be read;
	// slog.Default() where nil. It never gets a recipient or a text.
	Logger *slog.Logger
}

// Console is an http.Handler. It is safe for concurrent use. Make it with New
// and mount it with http.StripPrefix below any prefix, or at the root: its pages
// link to each other relatively.
type Console struct {
	box       *outbox.Box
	authorize func(r *http.Request) Actor
	readOnly  bool
	log       *slog.Logger
	handler   http.Handler
	pages     map[string]*template.Template
	token     tokens
	jobs      jobs
	now       func() time.Time
}

// minSecret is how many bytes a secret has at least.
const minSecret = 32

// New checks the configuration and returns a console for the box. The caller
// closes it.
func New(box *outbox.Box, cfg Config) (*Console, error) {
	if box == nil {
		return nil, errors.New("console: no box")
	}
	secret := append([]byte(nil), cfg.Secret...)
	switch {
	case cfg.Secret == nil:
		secret = make([]byte, minSecret)
		_, _ = rand.Read(secret) // it never returns an error
	case len(secret) < minSecret:
		return nil, fmt.Errorf("console: secret of %d bytes, want %d at least", len(secret), minSecret)
	}
	c := &Console{
		box: box, authorize: cfg.Authorize, readOnly: cfg.ReadOnly, log: cfg.Logger, token: tokens{secret: secret}, now: time.Now,
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	var err error
	if c.pages, err = parsePages(); err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	c.handler = c.routes()
	return c, nil
}

// Close stops the bulk jobs that run and waits until their last message is
// done. The console answers on, but starts no job any more.
func (c *Console) Close() error {
	c.jobs.close()
	return nil
}

// ServeHTTP answers a request.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

// routes are the console's pages. What changes something is a POST, and so is
// a search, whose recipient would stand in logs and in the browser's history
// if it stood in an address.
func (c *Console) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /style.css", asset("style.css", "text/css; charset=utf-8"))
	mux.HandleFunc("GET /icon.svg", asset("icon.svg", "image/svg+xml"))
	mux.HandleFunc("GET /{$}", c.page(c.overview))
	mux.HandleFunc("GET /search", c.page(c.searchForm))
	mux.HandleFunc("POST /search", c.page(c.search))
	mux.HandleFunc("GET /messages", c.page(c.messages))
	mux.HandleFunc("GET /messages/{key}", c.page(c.message))
	mux.HandleFunc("POST /messages/{key}", c.action(c.act))
	mux.HandleFunc("GET /jobs", c.page(c.jobList))
	mux.HandleFunc("POST /jobs", c.action(c.startJob))
	mux.HandleFunc("GET /jobs/{id}", c.page(c.job))
	mux.HandleFunc("POST /jobs/{id}", c.action(c.stopJob))
	mux.HandleFunc("GET /providers", c.page(c.providers))
	mux.HandleFunc("POST /providers", c.action(c.hold))
	mux.HandleFunc("/", c.page(func(context.Context, *request) error { return failure{http.StatusNotFound, "There is no such page."} }))
	return c.guard(mux)
}
