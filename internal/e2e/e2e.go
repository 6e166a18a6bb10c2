// Package e2e is an application around one provider, for the adapters' own
// tests: an outbox on a real Postgres, a worker that sends, and a webhook on a
// real socket. Adapters can't know the outbox; their tests can.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/leaks"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// Sends is how many messages a test of lost answers sends.
const Sends = 500

// Mails have the logical sender, which stands for from.
const (
	sender = "shop"
	from   = "Shop <no-reply@shop.example>"
)

// World is the application. Its outbox has one route with one provider.
type World struct {
	Box *outbox.Box
	// Keys are those of the messages, in order.
	Keys []dispatch.Key

	pool   *pgxpool.Pool
	schema string
	hook   *httptest.Server
}

// New makes the outbox, with a route to the named provider and the policy,
// whose waits it shortens. From, where not empty, is what Mails go out from.
func New(t *testing.T, provider, from string, policy dispatch.Policy) *World {
	t.Helper()
	policy.Backoff = dispatch.Backoff{Base: 5 * time.Millisecond, Cap: 50 * time.Millisecond}
	route := dispatch.Route{Name: "e2e", Providers: []string{provider}, Policy: policy}
	if from != "" {
		route.Senders = dispatch.Senders{sender: {provider: from}}
	}
	w := &World{}
	w.pool, w.schema = pgtest.Pool(t)
	var err error
	w.Box, err = outbox.New(w.pool, outbox.Config{Schema: w.schema, Routes: []dispatch.Route{route}})
	require.NoError(t, err)
	require.NoError(t, w.Box.Migrate(t.Context()))
	return w
}

// NewMail is New for mail: an attempt too many changes nothing here, so there
// are plenty.
func NewMail(t *testing.T, provider string) *World {
	t.Helper()
	policy := dispatch.EmailPolicy()
	policy.Attempts = 20
	return New(t, provider, from, policy)
}

// Serve lets the webhook answer on a socket, and returns its URL.
func (w *World) Serve(t *testing.T, webhook http.Handler) string {
	t.Helper()
	w.hook = httptest.NewServer(webhook)
	t.Cleanup(w.hook.Close)
	return w.hook.URL
}

// Post makes the vendor's call to the webhook, wherever it was addressed to,
// and reports an answer other than 2xx. It may be called on any goroutine.
func (w *World) Post(t *testing.T, r *http.Request) {
	t.Helper()
	to, err := url.Parse(w.hook.URL)
	if err != nil {
		t.Error(err)
		return
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.RequestURI = to.Scheme, to.Host, ""
	resp, err := w.hook.Client().Transport.RoundTrip(r)
	if err != nil {
		t.Error(err)
		return
	}
	if _ = resp.Body.Close(); resp.StatusCode < 200 || resp.StatusCode > 299 {
		t.Error("the webhook answered " + resp.Status)
	}
}

// Texts are n messages to n numbers.
func Texts(n int) []dispatch.Content {
	list := make([]dispatch.Content, n)
	for i := range list {
		list[i] = dispatch.SMS{To: fmt.Sprintf("+1555%07d", i), Body: fmt.Sprintf("It’s code %06d", i)}
	}
	return list
}

// Mails are n mails.
func Mails(n int) []dispatch.Content {
	list := make([]dispatch.Content, n)
	for i := range list {
		list[i] = dispatch.Email{
			To: []dispatch.Address{{Email: "ada@example.com"}}, Sender: sender, Subject: "Your order", Text: fmt.Sprintf("mail %d", i),
		}
	}
	return list
}

// Begin enqueues messages and starts a worker for them.
func (w *World) Begin(t *testing.T, p dispatch.Provider, messages []dispatch.Content) {
	t.Helper()
	w.Enqueue(t, messages...)
	t.Cleanup(w.Work(t, p))
}

// Enqueue adds messages in one transaction.
func (w *World) Enqueue(t *testing.T, messages ...dispatch.Content) {
	t.Helper()
	intents := make([]dispatch.Intent, len(messages))
	for n, c := range messages {
		intents[n] = dispatch.Intent{Key: dispatch.NewKey(), Content: c}
		w.Keys = append(w.Keys, intents[n].Key)
	}
	require.NoError(t, w.Box.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := w.Box.EnqueueMany(t.Context(), tx, intents)
		return err
	}))
}

// quoting is a provider whose vendor quotes recipient and text in its words. Its
// errors are searched for them.
type quoting struct{ dispatch.Provider }

func (q quoting) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	a, err := q.Provider.Send(ctx, e)
	return a, q.note(err, e.Content)
}

func (q quoting) Lookup(ctx context.Context, query dispatch.Query) (dispatch.Found, error) {
	f, err := q.Provider.Lookup(ctx, query)
	return f, q.note(err, query.Content)
}

func (q quoting) note(err error, c dispatch.Content) error {
	if f, ok := errors.AsType[*dispatch.Fault](err); ok {
		switch c := c.(type) {
		case dispatch.SMS:
			f.Evidence.Reason += " to " + c.To + ": " + c.Body
		case dispatch.Email:
			f.Evidence.Reason += " to " + c.To[0].Email + ": " + c.Text
		}
	}
	if err != nil {
		leaks.Suite.Note("an error of "+q.Contract().Name, err.Error())
	}
	return err
}

// Work starts a worker and returns what ends it.
func (w *World) Work(t *testing.T, p dispatch.Provider) (stop func()) {
	t.Helper()
	worker, err := outbox.NewWorker(w.Box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{quoting{p}}, PollInterval: 20 * time.Millisecond, SweepInterval: 20 * time.Millisecond, Slots: 16,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}
