package leaktest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/provider/httpapi"
)

// both are two observers.
type both [2]outbox.Observer

func (b both) Begin(ctx context.Context, o outbox.Observation) context.Context {
	return b[1].Begin(b[0].Begin(ctx, o), o)
}

func (b both) Observe(ctx context.Context, o outbox.Observation) {
	b[0].Observe(ctx, o)
	b[1].Observe(ctx, o)
}

// The whole life of messages at vendors that quote everything: whatever gets
// out has no recipient, no text and no credential in it.
func TestNothingLeaks(t *testing.T) {
	n := live(t, nil)
	for where, lines := range n.leaks() {
		for _, l := range lines[:min(len(lines), 5)] {
			t.Errorf("%s (%d): %.600s", where, len(lines), l)
		}
	}
	for where, least := range map[string]int{"log": 300, "error": 200, "span": 50, "metric": 5, "webhook": 8, "print": 50} {
		assert.GreaterOrEqual(t, len(n.lines[where]), least, where)
	}
	told := strings.Join(n.lines["error"], "\n")
	for _, name := range strings.Fields("httpapi twilio vonage sinch infobip resend postmark sendgrid mailgun infrai ses smtp") {
		assert.GreaterOrEqual(t, strings.Count(told, name+" send: "), 10, "%s was refused too seldom", name)
	}
}

// The test above finds what is there: an adapter that puts what it must not
// where it must not is found in logs and spans, and in its error.
func TestPlantedLeaksAreFound(t *testing.T) {
	for name, fault := range map[string]*dispatch.Fault{
		"recipient": {Verdict: dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Message, Reason: "no such number " + number}},
		"text":      {Verdict: dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Message, Reason: "spam: " + code}},
		"secret":    {Verdict: dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Message, Reason: "bad key " + secret}},
	} {
		t.Run(name, func(t *testing.T) {
			found := live(t, fault).leaks()
			for _, where := range []string{"log", "span", "error"} {
				assert.NotEmpty(t, found[where], where)
			}
			assert.Empty(t, found["metric"], "labels are taken from fixed lists")
		})
	}
}

// planted is an adapter with a leak.
type planted struct {
	dispatch.Provider
	fault *dispatch.Fault
}

func (p planted) Send(context.Context, dispatch.Envelope) (dispatch.Accepted, error) {
	return dispatch.Accepted{}, p.fault
}

// life is an application with every adapter, each on a route of its own, and
// one route whose messages go known ways.
type life struct {
	*notebook
	box  *outbox.Box
	pool *pgxpool.Pool
	list []adapter
}

func live(t *testing.T, leak *dispatch.Fault) *notebook {
	t.Helper()
	vendor := newHostile(t)
	l := life{list: adapters(t, vendor.URL)}
	if leak != nil {
		l.list = []adapter{{Provider: planted{Provider: l.list[0].Provider, fault: leak}}}
	}
	policy := dispatch.SMSPolicy()
	policy.Attempts, policy.Backoff = 4, dispatch.Backoff{Base: 5 * time.Millisecond, Cap: 20 * time.Millisecond}
	policy.OnUnknown.After = 200 * time.Millisecond
	routes := []dispatch.Route{{Name: "ways", Providers: []string{"first", "second"}, Policy: policy, Before: before}}
	providers := []dispatch.Provider{}
	for _, name := range []string{"first", "second"} {
		p, err := httpapi.New(httpapi.Config{
			Name: name, BaseURL: vendor.URL, Path: "/" + name, Token: secret, CodePaths: []string{"code"}, IDPath: "id", Header: http.Header{"X-Token": {secret}},
		})
		require.NoError(t, err)
		providers = append(providers, p)
	}
	for _, a := range l.list {
		name := a.Contract().Name
		routes = append(routes, dispatch.Route{Name: name, Providers: []string{name}, Policy: policy})
		providers = append(providers, a.Provider)
	}
	pool, schema := pgtest.Pool(t)
	l.pool = pool
	var err error
	l.box, err = outbox.New(pool, outbox.Config{Schema: schema, Routes: routes})
	require.NoError(t, err)
	require.NoError(t, l.box.Migrate(t.Context()))
	l.notebook = newNotebook(t, l.box)

	l.direct(t)
	keys := l.enqueue(t)
	stop := l.work(t, providers)
	if leak == nil {
		l.ways(t, keys)
	}
	l.tried(t, keys)
	l.people(t, keys)
	l.hooks(t, keys)
	l.refused(t)
	stop()
	l.look(t, keys)
	l.close(t)
	if leak != nil { // nothing is left for pgtest to find
		_, err := pool.Exec(t.Context(), "drop schema "+schema+" cascade")
		require.NoError(t, err)
	}
	return l.notebook
}

// before is a hook of an application that fails with what it was asked about.
func before(_ context.Context, e dispatch.Envelope) (dispatch.Advice, error) {
	text, ok := e.Content.(dispatch.SMS)
	switch {
	case !ok:
	case strings.Contains(text.Body, "way-dropped"):
		return dispatch.Advice{Drop: "on the list"}, nil
	case strings.Contains(text.Body, "way-panic"):
		panic(text.To)
	case strings.Contains(text.Body, "way-error"):
		return dispatch.Advice{}, errors.New("no list for " + text.To)
	}
	return dispatch.Advice{}, nil
}

// direct calls each adapter without an outbox, with every answer of the vendor.
func (l *life) direct(t *testing.T) {
	t.Helper()
	for _, a := range l.list {
		name := a.Contract().Name
		l.show("print", a.Provider)
		for n := range 3 * 7 * len(statuses) / 3 {
			e := dispatch.Envelope{Key: dispatch.NewKey(), Route: name, Content: a.content(), Attempt: 1}
			acc, err := a.Send(t.Context(), e)
			l.fail(name+" send", err)
			if f := new(dispatch.Fault); errors.As(err, &f) {
				l.show("print", f.Evidence)
			}
			if err == nil && n == 0 {
				l.show("print", e)
				_ = acc // an id is shown as the vendor gave it
			}
			_, err = a.Lookup(t.Context(), dispatch.Query{Key: e.Key, Content: e.Content, Since: time.Now().Add(-time.Minute), Until: time.Now()})
			l.fail(name+" look-up", err)
		}
		_, err := dispatch.Do(t.Context(), a, dispatch.Route{Name: name, Policy: dispatch.Policy{Attempts: 1}}, dispatch.Intent{Key: dispatch.NewKey(), Content: a.content()})
		l.fail(name+" do", err)
	}
}

var ways = []string{"sent", "failover", "lost", "refused", "dropped", "panic", "error"}

func (l *life) enqueue(t *testing.T) map[string]dispatch.Key {
	t.Helper()
	keys := map[string]dispatch.Key{}
	add := func(name string, i dispatch.Intent) {
		i.Key = dispatch.NewKey()
		keys[name] = i.Key
		i.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		i.Notify = dispatch.NotifySent | dispatch.NotifyDead | dispatch.NotifyHeld | dispatch.NotifyDelivered | dispatch.NotifyUndelivered
		i.Metadata = map[string]string{"user": "sentinel"}
		l.show("print", i)
		require.NoError(t, l.box.InTx(t.Context(), func(tx pgx.Tx) error {
			_, err := l.box.Enqueue(t.Context(), tx, i)
			return err
		}))
	}
	for _, way := range ways {
		add(way, dispatch.Intent{Route: "ways", Content: dispatch.SMS{To: number, Body: body + " way-" + way}})
	}
	for _, a := range l.list {
		for n := range 8 {
			add(fmt.Sprint(a.Contract().Name, n), dispatch.Intent{Route: a.Contract().Name, Content: a.content()})
		}
	}
	return keys
}

// work runs a worker whose application fails, and whose second connection has a
// wrong password.
func (l *life) work(t *testing.T, providers []dispatch.Provider) (stop func()) {
	t.Helper()
	listen := l.pool.Config().ConnConfig.Copy()
	listen.Password, listen.Database = secret, "nowhere"
	w, err := outbox.NewWorker(l.box, outbox.WorkerConfig{
		Providers: providers, Logger: l.log, Observer: l.both, Listen: listen, PollInterval: 20 * time.Millisecond, SweepInterval: 20 * time.Millisecond,
		Notices: func(_ context.Context, n outbox.Notice) error {
			if n.Event == dispatch.NotifyDead {
				panic(number)
			}
			return errors.New("could not tell " + number)
		},
	})
	require.NoError(t, err)
	l.show("print", w)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}

func (l *life) state(t *testing.T, key dispatch.Key) outbox.History {
	t.Helper()
	h, err := l.box.History(context.WithoutCancel(t.Context()), key)
	require.NoError(t, err)
	return h
}

// ways waits until the messages with a known way are at its end.
func (l *life) ways(t *testing.T, keys map[string]dispatch.Key) {
	t.Helper()
	for way, want := range map[string]dispatch.State{
		"sent": dispatch.Sent, "failover": dispatch.Sent, "lost": dispatch.Held, "refused": dispatch.Dead, "dropped": dispatch.Dead,
	} {
		require.Eventually(t, func() bool { return l.state(t, keys[way]).State == want }, 30*time.Second, 20*time.Millisecond, "%s is not %s", way, want)
	}
	h := l.state(t, keys["failover"])
	require.Equal(t, "second", h.Events[len(h.Events)-1].Provider, "%s", h)
}

// tried waits until each adapter has sent something.
func (l *life) tried(t *testing.T, keys map[string]dispatch.Key) {
	t.Helper()
	for _, a := range l.list {
		require.Eventually(t, func() bool {
			for n := range 8 {
				if h := l.state(t, keys[fmt.Sprint(a.Contract().Name, n)]); h.Attempts > 0 {
					return true
				}
			}
			return false
		}, 30*time.Second, 20*time.Millisecond, a.Contract().Name)
	}
}

// people are the verbs by hand, with their refusals.
func (l *life) people(t *testing.T, keys map[string]dispatch.Key) {
	t.Helper()
	ctx, audit := t.Context(), outbox.Audit{By: "ada", Why: "test"}
	for _, key := range append([]dispatch.Key{dispatch.NewKey()}, keys["sent"], keys["lost"], keys["refused"], keys["error"]) {
		for name, verb := range map[string]outbox.Verb{
			"not accepted": l.box.ResolveNotAccepted, "retry": l.box.Retry, "give up": l.box.GiveUp, "cancel": l.box.Cancel, "anyway": l.box.SendAnyway,
		} {
			_, err := verb(ctx, key, audit)
			l.fail(name, err)
		}
		_, err := l.box.Content(ctx, key, audit)
		l.fail("content", err)
	}
	conflict := dispatch.Intent{Key: keys["sent"], Route: "ways", Content: dispatch.SMS{To: number, Body: "sentinelbody changed"}}
	for name, bad := range map[string]dispatch.Intent{
		"conflict": conflict,
		"number":   {Key: dispatch.NewKey(), Route: "ways", Content: dispatch.SMS{To: "+1 555 867 5309 x sentinel", Body: body}},
		"body":     {Key: dispatch.NewKey(), Route: "ways", Content: dispatch.SMS{To: number, Body: body + "\x00"}},
		"sender":   {Key: dispatch.NewKey(), Route: "ways", Content: dispatch.SMS{To: number, Body: body, Sender: "unlisted"}},
		"address":  {Key: dispatch.NewKey(), Route: "ways", Content: dispatch.Email{To: []dispatch.Address{{Email: address + " x"}}, Text: body}},
		"subject":  {Key: dispatch.NewKey(), Route: "ways", Content: dispatch.Email{To: []dispatch.Address{{Email: address}}, Subject: body + "\r\n", Text: body}},
	} {
		err := l.box.InTx(ctx, func(tx pgx.Tx) error {
			_, err := l.box.Enqueue(ctx, tx, bad)
			return err
		})
		require.Error(t, err, name)
		l.fail("enqueue", err)
	}
	_, _, err := l.box.List(ctx, outbox.Filter{Recipient: "sentinel " + number}, "", 10)
	l.fail("list", err)
}

// hooks are what vendors and strangers tell.
func (l *life) hooks(t *testing.T, keys map[string]dispatch.Key) {
	t.Helper()
	for _, a := range l.list {
		if a.hook == nil {
			continue
		}
		for _, kind := range []string{"application/json", "application/x-www-form-urlencoded"} {
			r := httptest.NewRequest(http.MethodPost, "/hook?secret="+url.QueryEscape(secret), strings.NewReader(`{"to":"`+number+`","text":"`+body+`"}`))
			r.Header.Set("Content-Type", kind)
			r.Header.Set("Authorization", "Bearer "+secret)
			l.serve(a.Contract().Name, a.hook(l.box), r)
		}
	}
	receipts := []dispatch.Receipt{
		{Provider: "first", EventKey: "1", Key: keys["lost"], Kind: dispatch.Bounced, Code: number, Recipient: number},
		{Provider: "second", EventKey: "2", Key: keys["sent"], Kind: dispatch.Delivered, Code: body, Recipient: address, ProviderID: "other"},
		{Provider: "first", EventKey: "3", ProviderID: number, Kind: dispatch.Undelivered, Code: "739154 is spam", Recipient: number},
	}
	for _, r := range receipts {
		l.show("print", r)
	}
	require.NoError(t, l.box.Receive(t.Context(), receipts))
	l.fail("receive", l.box.Receive(t.Context(), []dispatch.Receipt{{Provider: "first", Recipient: number, Code: body}}))
}

// refused are configurations that are wrong, with a secret in them.
func (l *life) refused(t *testing.T) {
	t.Helper()
	_, err := httpapi.New(httpapi.Config{Name: "x", BaseURL: "https://user:" + url.QueryEscape(secret) + "@api.example", Token: secret})
	require.Error(t, err)
	l.fail("config", err)
	_, err = httpapi.New(httpapi.Config{Name: "x", BaseURL: "https://api.example", Token: secret + "\n" + secret})
	require.Error(t, err)
	l.fail("config", err)
	l.show("print", httpapi.Config{Name: "x", Token: secret})
}

// look is what a person sees of each message.
func (l *life) look(t *testing.T, keys map[string]dispatch.Key) {
	t.Helper()
	for _, key := range keys {
		h := l.state(t, key)
		for n := range h.Events { // an id is shown as the vendor gave it
			h.Events[n].ProviderID = ""
		}
		l.write("print", h.String())
	}
	list, _, err := l.box.List(t.Context(), outbox.Filter{}, "", 1000)
	require.NoError(t, err)
	l.write("print", fmt.Sprintf("%+v", list))
	s, err := l.box.Stats(t.Context())
	require.NoError(t, err)
	l.write("print", fmt.Sprintf("%+v", s))
	err = l.box.Check(t.Context(), outbox.Alarms{Held: 1, DeadLastHour: 1})
	require.Error(t, err)
	l.fail("check", err)
}
