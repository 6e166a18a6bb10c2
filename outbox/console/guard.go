package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of what is taken in and of how long a page may take.
const (
	maxForm  = 64 << 10
	maxName  = 200  // of an actor: what the history keeps
	maxWhy   = 1000 // characters
	pageTime = 30 * time.Second
)

// policy lets a page load its own style and picture, and nothing else. No
// script runs, whatever stands in a message.
const policy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// request is a request of somebody who was let in.
type request struct {
	*http.Request

	w     http.ResponseWriter
	actor Actor
	act   bool // may change something
}

type requestKey struct{}

// guard lets in whom Authorize names, and sets what every answer carries.
func (c *Console) guard(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.refuse(w, r, failure{http.StatusForbidden, "This came from another site and was refused. Nothing was done."})
	}))
	next = cross.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=()")
		h.Set("Cache-Control", "no-store")
		ctx, cancel := context.WithTimeout(r.Context(), pageTime)
		defer cancel()
		r = r.WithContext(ctx)
		var actor Actor
		if c.authorize != nil {
			actor = c.authorize(r)
		}
		if actor.Name == "" || len(actor.Name) > maxName || !utf8.ValidString(actor.Name) || strings.ContainsRune(actor.Name, 0) {
			// Nothing of the console is shown, not even its style.
			http.Error(w, "403: you may not see this", http.StatusForbidden)
			return
		}
		if r.Method == http.MethodPost {
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		}
		who := &request{w: w, actor: actor, act: actor.Act && !c.readOnly}
		who.Request = r.WithContext(context.WithValue(ctx, requestKey{}, who))
		next.ServeHTTP(w, who.Request)
	})
}

// failure is an answer that isn't what was asked for.
type failure struct {
	status int
	words  string
}

func (f failure) Error() string { return f.words }

// page serves what may be looked at.
func (c *Console) page(show func(ctx context.Context, r *request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, ok := r.Context().Value(requestKey{}).(*request)
		if !ok { // guard is around everything
			http.Error(w, "403: you may not see this", http.StatusForbidden)
			return
		}
		who.Request, who.w = r, w
		if err := readForm(r); err != nil {
			c.refuse(w, r, err)
			return
		}
		if err := show(r.Context(), who); err != nil {
			c.refuse(w, r, err)
		}
	}
}

// action serves what changes something: for somebody who may, from a form of
// this console that was made for the same person.
func (c *Console) action(do func(ctx context.Context, r *request) error) http.HandlerFunc {
	return c.page(func(ctx context.Context, r *request) error {
		switch {
		case !r.act:
			return failure{http.StatusForbidden, "You may look, but not change anything here. Nothing was done."}
		case !c.token.valid(r.PostFormValue("token"), r.actor.Name, c.now()):
			return failure{http.StatusForbidden, "The form is too old, or isn't one of yours. Nothing was done: go back, reload the page and try again."}
		}
		return do(ctx, r)
	})
}

// readForm reads a bounded form, and refuses text that Postgres couldn't keep.
func readForm(r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		var big *http.MaxBytesError
		if errors.As(err, &big) {
			return failure{http.StatusRequestEntityTooLarge, "That is more than a form here may hold. Nothing was done."}
		}
		return failure{http.StatusBadRequest, "The form can't be read. Nothing was done."}
	}
	for _, values := range r.Form {
		for _, v := range values {
			if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
				return failure{http.StatusBadRequest, "The form holds bytes that are no text. Nothing was done."}
			}
		}
	}
	return nil
}

// refuse answers with what went wrong: in words where they are the console's
// own, and in the log where they aren't.
func (c *Console) refuse(w http.ResponseWriter, r *http.Request, err error) {
	f, ok := errors.AsType[failure](err)
	if !ok {
		f = failure{http.StatusInternalServerError, "The outbox can't be read right now. What went wrong is in the application's log."}
		if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
			return // nobody waits for it any more
		}
		c.log.ErrorContext(r.Context(), "console: page failed", slog.String("method", r.Method), slog.String("page", pattern(r)), slog.Any("error", err))
	}
	who, ok := r.Context().Value(requestKey{}).(*request)
	if !ok {
		http.Error(w, f.words, f.status)
		return
	}
	who.Request, who.w = r, w
	c.render(r.Context(), who, f.status, "problem", view{Title: http.StatusText(f.status), Data: f.words})
}

// pattern is the page without what stands in its address.
func pattern(r *http.Request) string {
	if r.Pattern != "" {
		return r.Pattern
	}
	return "none"
}
