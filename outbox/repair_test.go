package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

var ada = outbox.Audit{By: "ada", Why: "asked by support"}

// inState returns a box with one message in the state, and no worker.
func inState(t *testing.T, state dispatch.State) (*outbox.Box, *outboxtest.Provider, dispatch.Intent, *pgxpool.Pool, string) {
	t.Helper()
	box, pool, schema := newBox(t)
	entered, release := make(chan struct{}, 10), make(chan struct{})
	p := &outboxtest.Provider{Promise: dispatch.Contract{Timeout: time.Minute}}
	if state == dispatch.InDoubt {
		p.Promise.Dedupe.Window = 24 * time.Hour
	}
	p.Respond = func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		switch {
		case e.Attempt > 1 || state == dispatch.Sent:
			return accept(), nil
		case state == dispatch.Dead:
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.Answered, Status: 400})
		case state == dispatch.Sending:
			entered <- struct{}{}
			<-release
			return accept(), nil
		}
		accept()
		return dispatch.Accepted{}, context.DeadlineExceeded
	}
	i := sms("hello")
	if state == dispatch.InDoubt { // so that no second attempt comes before the worker stops
		i.NotBefore = time.Now().Add(-time.Hour)
	}
	enqueue(t, box, i)
	if state == dispatch.Pending {
		return box, p, i, pool, schema
	}
	cfg := outbox.WorkerConfig{Providers: []dispatch.Provider{p}}
	stop := start(t, box, cfg)
	switch state { //nolint:exhaustive // the others are reached
	case dispatch.Sending:
		waitFor(t, entered)
		t.Cleanup(func() { close(release) })
		return box, p, i, pool, schema
	case dispatch.InDoubt:
		require.Eventually(t, func() bool { return len(p.Sends()) > 0 }, 10*time.Second, time.Millisecond)
	default:
		reaches(t, box, i.Key, state)
	}
	require.NoError(t, stop())
	return box, p, i, pool, schema
}

func stateOf(t *testing.T, box *outbox.Box, key dispatch.Key) outbox.History {
	t.Helper()
	h, err := box.History(t.Context(), key)
	require.NoError(t, err)
	return h
}

// What each verb does in each state: the state after it, or the refusal.
func TestVerbs(t *testing.T) {
	type verb func(*outbox.Box, dispatch.Key, outbox.Audit) (dispatch.State, error)
	ctx := t.Context()
	verbs := map[string]verb{
		"cancel": func(b *outbox.Box, k dispatch.Key, a outbox.Audit) (dispatch.State, error) {
			return b.Cancel(ctx, k, a)
		},
		"retry": func(b *outbox.Box, k dispatch.Key, a outbox.Audit) (dispatch.State, error) { return b.Retry(ctx, k, a) },
		"anyway": func(b *outbox.Box, k dispatch.Key, a outbox.Audit) (dispatch.State, error) {
			return b.SendAnyway(ctx, k, a)
		},
		"accepted": func(b *outbox.Box, k dispatch.Key, a outbox.Audit) (dispatch.State, error) {
			return b.ResolveAccepted(ctx, k, "SM1", a)
		},
		"not accepted": func(b *outbox.Box, k dispatch.Key, a outbox.Audit) (dispatch.State, error) {
			return b.ResolveNotAccepted(ctx, k, a)
		},
		"give up": func(b *outbox.Box, k dispatch.Key, a outbox.Audit) (dispatch.State, error) {
			return b.GiveUp(ctx, k, a)
		},
	}
	for _, c := range []struct {
		verb  string
		from  dispatch.State
		to    dispatch.State
		error error
		rule  int
	}{
		{"cancel", dispatch.Pending, dispatch.Cancelled, nil, 4}, // B126
		{"cancel", dispatch.Sending, dispatch.Sending, nil, 17},
		{"cancel", dispatch.Held, dispatch.Dead, nil, 35},
		{"cancel", dispatch.Dead, dispatch.Cancelled, nil, 37},
		{"cancel", dispatch.Sent, 0, outbox.ErrTooLate, 0},
		{"retry", dispatch.Pending, 0, outbox.ErrNotParked, 0},
		{"retry", dispatch.Sending, 0, outbox.ErrNotParked, 0},
		{"retry", dispatch.Sent, 0, outbox.ErrNotParked, 0},
		{"retry", dispatch.Held, dispatch.InDoubt, nil, 33},
		{"retry", dispatch.Dead, dispatch.Pending, nil, 36},
		{"anyway", dispatch.Held, dispatch.Pending, nil, 34},
		{"anyway", dispatch.Dead, dispatch.Pending, nil, 34},
		{"anyway", dispatch.Sent, 0, outbox.ErrNotParked, 0},
		{"accepted", dispatch.Held, dispatch.Sent, nil, 30},
		{"accepted", dispatch.Dead, 0, outbox.ErrNotParked, 0},
		{"not accepted", dispatch.Held, dispatch.Pending, nil, 31},
		{"not accepted", dispatch.Sending, 0, outbox.ErrNotParked, 0},
		{"give up", dispatch.Held, dispatch.Dead, nil, 32},
		{"give up", dispatch.Pending, 0, outbox.ErrNotParked, 0},
	} {
		t.Run(c.verb+" "+c.from.String(), func(t *testing.T) {
			box, _, i, _, _ := inState(t, c.from)
			before := stateOf(t, box, i.Key)
			_, err := verbs[c.verb](box, i.Key, outbox.Audit{By: "ada"})
			require.ErrorIs(t, err, outbox.ErrAudit)
			_, err = verbs[c.verb](box, dispatch.NewKey(), ada)
			require.ErrorIs(t, err, outbox.ErrNotFound)
			state, err := verbs[c.verb](box, i.Key, ada)
			h := stateOf(t, box, i.Key)
			if c.error != nil {
				require.ErrorIs(t, err, c.error)
				require.ErrorContains(t, err, map[error]string{
					outbox.ErrTooLate:   "message " + i.Key.String() + " is sent already",
					outbox.ErrNotParked: "message " + i.Key.String() + " is " + c.from.String() + ": it is in the wrong state for this",
				}[c.error])
				require.Equal(t, before, h, "a refusal changes nothing")
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.to, state)
			require.Equal(t, c.to, h.State, "%s", h)
			last := h.Events[len(h.Events)-1]
			require.Equal(t, "manual", last.Kind)
			require.Equal(t, c.rule, last.Rule)
			require.Equal(t, ada, outbox.Audit{By: last.By, Why: last.Why})
		})
	}
}

// B126 c: a cancel while a send is under way never says "cancelled" for a
// message that left.
func TestCancelWhileSending(t *testing.T) {
	box, _, _ := newBox(t)
	entered, release := make(chan struct{}), make(chan struct{})
	p := &outboxtest.Provider{Promise: deduping(time.Minute)}
	p.Respond = func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		entered <- struct{}{}
		<-release
		if e.Content.(dispatch.SMS).Body == "left" {
			return accept(), nil
		}
		return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.Answered, Status: 429})
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	left, refused := sms("left"), sms("refused")
	enqueue(t, box, left, refused)
	waitFor(t, entered)
	waitFor(t, entered)
	for _, i := range []dispatch.Intent{left, refused} {
		state, err := box.Cancel(t.Context(), i.Key, ada)
		require.NoError(t, err)
		require.Equal(t, dispatch.Sending, state)
	}
	close(release)
	reaches(t, box, left.Key, dispatch.Sent)
	h := reaches(t, box, refused.Key, dispatch.Cancelled)
	require.Equal(t, 1, h.Attempts, "it is not sent again")
	state, err := box.Cancel(t.Context(), refused.Key, ada)
	require.NoError(t, err)
	require.Equal(t, dispatch.Cancelled, state)
}

func TestSupersede(t *testing.T) {
	box, pool, schema := newBox(t)
	old := sms("the wrong code")
	enqueue(t, box, old)
	fresh := sms("the right code")
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		state, err := box.Supersede(t.Context(), tx, old.Key, fresh, ada)
		require.Equal(t, dispatch.Cancelled, state)
		return err
	}))
	require.Equal(t, dispatch.Cancelled, stateOf(t, box, old.Key).State)
	require.Equal(t, dispatch.Pending, stateOf(t, box, fresh.Key).State)
	var supersedes, linked string
	require.NoError(t, pool.QueryRow(t.Context(), `select supersedes::text, linked::text from "`+schema+`".message where id = $1::text::uuid`,
		fresh.Key.String()).Scan(&supersedes, &linked))
	require.Equal(t, []string{old.Key.String(), old.Key.String()}, []string{supersedes, linked})

	// A refusal leaves nothing behind, and the transaction usable.
	p := &outboxtest.Provider{}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	reaches(t, box, fresh.Key, dispatch.Sent)
	third := sms("too late")
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := box.Supersede(t.Context(), tx, fresh.Key, third, ada)
		require.ErrorIs(t, err, outbox.ErrTooLate)
		_, err = tx.Exec(t.Context(), "select 1")
		return err
	}))
	_, err := box.History(t.Context(), third.Key)
	require.ErrorIs(t, err, outbox.ErrNotFound)
}

// B060: pressing the button twice is a no-op, a retry keeps the key, and only
// ResendAsNew makes a second message.
func TestResendAsNew(t *testing.T) {
	box, p, i, _, _ := inState(t, dispatch.Sent)
	again := dispatch.NewKey()
	for n, want := range []bool{true, false} {
		require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
			added, err := box.ResendAsNew(t.Context(), tx, i.Key, again, ada)
			require.Equal(t, want, added, n)
			return err
		}))
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	h := reaches(t, box, again, dispatch.Sent)
	require.Equal(t, "ada", h.Events[0].By)
	require.Equal(t, i.Content, p.Accepted()[1].Content)
	require.Equal(t, i.Key, h.Events[0].Linked)
	h = stateOf(t, box, i.Key)
	require.Equal(t, dispatch.Sent, h.State)
	require.Len(t, h.Events, 2, "the second press left no trace")
	require.Equal(t, again, h.Events[1].Linked)
	require.Contains(t, h.String(), "manual at test, sent again as new message "+again.String()+", by ada, why asked by support → sent\n")
	all, _, err := box.List(t.Context(), outbox.Filter{Provider: "test"}, "", 10)
	require.NoError(t, err)
	require.Len(t, all, 2, "the provider is still known of both")
	err = box.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := box.ResendAsNew(t.Context(), tx, dispatch.NewKey(), dispatch.NewKey(), ada)
		return err
	})
	require.ErrorIs(t, err, outbox.ErrNotFound)
}

// Held, retried by hand: inside the window the same key goes out again and the
// provider knows it.
func TestRetryOfHeldUsesTheKey(t *testing.T) {
	r := route()
	r.Policy.Attempts = 1
	box, pool, schema := newBox(t, r)
	p := &outboxtest.Provider{Promise: deduping(time.Second)}
	p.Respond = func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		a := accept()
		if e.Attempt == 1 {
			return dispatch.Accepted{}, context.DeadlineExceeded
		}
		return a, nil
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	i := sms("hello")
	enqueue(t, box, i)
	reaches(t, box, i.Key, dispatch.Held)
	// The budget of one is spent: no automatic repeat. Retry goes through the
	// means that are left: none, so that it is held again, visibly.
	_, err := box.Retry(t.Context(), i.Key, ada)
	require.NoError(t, err)
	reaches(t, box, i.Key, dispatch.Held)
	require.Len(t, p.Sends(), 1)
	// A person who accepts a second message says so; here the provider dedupes.
	_, err = box.SendAnyway(t.Context(), i.Key, ada)
	require.NoError(t, err)
	h := reaches(t, box, i.Key, dispatch.Sent)
	require.Equal(t, 2, h.Attempts)
	require.Equal(t, 1, p.Deliveries(i.Key))
	require.Zero(t, count(t, pool, schema, "parked"))
}
