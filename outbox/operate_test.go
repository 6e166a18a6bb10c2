package outbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

// A paused route sends nothing, whatever its provider does for others, until it
// is resumed; nothing of it is spent meanwhile.
func TestPauseOfARoute(t *testing.T) {
	t.Parallel()
	news := route()
	news.Name = "news"
	box, _, _ := newBox(t, route(), news)
	p := &outboxtest.Provider{}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	require.ErrorIs(t, box.PauseRoute(t.Context(), "news", outbox.Audit{By: "ada"}), outbox.ErrAudit)
	require.ErrorContains(t, box.PauseRoute(t.Context(), "none", ada), "not a route")
	require.ErrorContains(t, box.PauseRoute(t.Context(), "No", ada), "route name")
	require.ErrorContains(t, box.ResumeRoute(t.Context(), "", ada), "route name")
	require.NoError(t, box.PauseRoute(t.Context(), "news", ada))

	held, free := sms("held"), sms("free")
	held.Route, free.Route = "news", "sms"
	enqueue(t, box, held, free)
	reaches(t, box, free.Key, dispatch.Sent)
	last := sms("the worker has looked at all lanes since")
	last.Route = "sms"
	enqueue(t, box, last)
	reaches(t, box, last.Key, dispatch.Sent)
	h := stateOf(t, box, held.Key)
	require.Equal(t, []any{dispatch.Pending, 0, 0}, []any{h.State, h.Attempts, h.Spent})
	gates, err := box.Gates(t.Context())
	require.NoError(t, err)
	require.Len(t, gates, 1)
	require.Equal(t, []any{"", "news", true, "paused", "ada"}, []any{gates[0].Provider, gates[0].Route, gates[0].Closed, gates[0].Reason, gates[0].By})
	require.NoError(t, box.ResumeRoute(t.Context(), "news", ada))
	reaches(t, box, held.Key, dispatch.Sent)
}

// Resume opens all that holds a provider, and says so where nothing does: a name
// that was mistyped is no success.
func TestResumeOpensWhatHolds(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	_, err := pool.Exec(t.Context(), `insert into `+schema+`.gate (provider, country, reason) values ('test', 0, 5), ('test', 46, 2)`)
	require.NoError(t, err)
	require.NoError(t, box.Resume(t.Context(), "test", ada))
	for _, g := range gatesOf(t, box) {
		require.False(t, g.Closed, g)
	}
	for err, want := range map[error]string{
		box.Resume(t.Context(), "test", ada):      `nothing holds provider "test"`,
		box.Resume(t.Context(), "tset", ada):      `nothing holds provider "tset"`,
		box.ResumeRoute(t.Context(), "smss", ada): `nothing holds route "smss"`,
	} {
		require.ErrorIs(t, err, outbox.ErrNotHeld)
		require.EqualError(t, err, want)
	}
}

// What a message says is read only with permission, and never unseen.
func TestContent(t *testing.T) {
	t.Parallel()
	pool, schema := pgtest.Pool(t)
	nosy := errors.New("only support may")
	box, err := outbox.New(pool, outbox.Config{
		Schema: schema, Routes: []dispatch.Route{route()},
		Reveal: func(_ context.Context, _ dispatch.Key, a outbox.Audit) error {
			if a.By != "ada" {
				return nosy
			}
			return nil
		},
	})
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	i := sms("zebra 482901")
	enqueue(t, box, i)
	got, err := box.Content(t.Context(), i.Key, ada)
	require.NoError(t, err)
	require.Equal(t, i.Content, got)
	h := stateOf(t, box, i.Key)
	require.Len(t, h.Events, 1)
	require.Equal(t, []any{"manual", dispatch.Pending, "ada", "asked by support", "content was read"},
		[]any{h.Events[0].Kind, h.Events[0].State, h.Events[0].By, h.Events[0].Why, h.Events[0].Detail})
	require.NotContains(t, h.String(), "zebra")

	_, err = box.Content(t.Context(), i.Key, outbox.Audit{By: "bob", Why: "curious"})
	require.ErrorIs(t, err, outbox.ErrDenied)
	require.ErrorIs(t, err, nosy)
	_, err = box.Content(t.Context(), i.Key, outbox.Audit{By: "ada"})
	require.ErrorIs(t, err, outbox.ErrAudit)
	_, err = box.Content(t.Context(), dispatch.NewKey(), ada)
	require.ErrorIs(t, err, outbox.ErrNotFound)
	require.Len(t, stateOf(t, box, i.Key).Events, 1)
	closed, err := outbox.New(pool, outbox.Config{Schema: schema, Routes: []dispatch.Route{route()}})
	require.NoError(t, err)
	_, err = closed.Content(t.Context(), i.Key, ada)
	require.ErrorIs(t, err, outbox.ErrDenied)

	_, err = pool.Exec(t.Context(), "update "+schema+".message set content = null, scrubbed_at = now()")
	require.NoError(t, err)
	_, err = box.Content(t.Context(), i.Key, ada)
	require.ErrorIs(t, err, outbox.ErrExpired)
}

// A worker scrubs a one-time code right after it was sent.
func TestWorkerScrubsAtOnce(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	p := &outboxtest.Provider{}
	_, err := outbox.NewWorker(box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Retention: []outbox.Retention{{Delete: time.Hour}}})
	require.ErrorContains(t, err, "retention: Delete")
	start(t, box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{p}, Retention: []outbox.Retention{{Route: "sms", Scrub: time.Nanosecond}},
	})
	sent, waiting := sms("482901"), sms("later")
	waiting.NotBefore = time.Now().Add(time.Hour)
	enqueue(t, box, sent, waiting)
	reaches(t, box, sent.Key, dispatch.Sent)
	scrubbed := func(key dispatch.Key) bool {
		return ask[bool](t, pool, "select content is null from "+schema+".message where id = '"+key.String()+"'")
	}
	require.Eventually(t, func() bool { return scrubbed(sent.Key) }, 20*time.Second, 5*time.Millisecond)
	require.False(t, scrubbed(waiting.Key))
	page, _, err := box.List(t.Context(), outbox.Filter{States: []dispatch.State{dispatch.Sent}}, "", 0)
	require.NoError(t, err)
	require.Len(t, page, 1)
	require.True(t, page[0].Scrubbed)
}

// A sealed recipient is found under every key, and the content opened.
func TestSealedRecipientIsListed(t *testing.T) {
	t.Parallel()
	pool, schema := pgtest.Pool(t)
	cfg := outbox.Config{
		Schema: schema, Routes: []dispatch.Route{route()}, Reveal: func(context.Context, dispatch.Key, outbox.Audit) error { return nil },
	}
	var sent []dispatch.Intent
	for _, keys := range [][]string{nil, {"k1"}, {"k2", "k1"}} {
		if cfg.Seal = nil; keys != nil {
			cfg.Seal = ring(t, keys...)
		}
		box, err := outbox.New(pool, cfg)
		require.NoError(t, err)
		require.NoError(t, box.Migrate(t.Context()))
		sent = append(sent, sms("hello"))
		enqueue(t, box, sent[len(sent)-1])
		page, _, err := box.List(t.Context(), outbox.Filter{Recipient: "+1 555 555 0123"}, "", 0)
		require.NoError(t, err)
		require.Len(t, page, len(sent))
		for _, i := range sent {
			got, err := box.Content(t.Context(), i.Key, ada)
			require.NoError(t, err)
			require.Equal(t, i.Content, got)
		}
	}
	cfg.Seal = nil
	box, err := outbox.New(pool, cfg)
	require.NoError(t, err)
	_, err = box.Content(t.Context(), sent[2].Key, ada)
	require.ErrorIs(t, err, outbox.ErrSealed)
}
