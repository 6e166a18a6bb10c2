package outbox_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

// told keeps what an application is told.
type told struct {
	mu   sync.Mutex
	list []outbox.Notice
}

func (h *told) take(n outbox.Notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, n)
}

func (h *told) of(key dispatch.Key) (out []outbox.Notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.list {
		if n.Key == key {
			out = append(out, n)
		}
	}
	return out
}

// The application is told what it asked for, by every way that a message can
// end, and nothing else.
func TestNotices(t *testing.T) {
	box, pool, schema := newBox(t)
	p := &outboxtest.Provider{Promise: echoing()}
	p.Respond = func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		if e.Content.(dispatch.SMS).Body == "dead" {
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.Answered, Status: 400})
		}
		return accept(), nil
	}
	var heard told
	start(t, box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{p},
		Notices: func(_ context.Context, n outbox.Notice) error {
			heard.take(n)
			return nil
		},
	})
	sent, dead, quiet, cancelled := sms("sent"), sms("dead"), sms("quiet"), sms("cancelled")
	sent.Notify = dispatch.NotifySent | dispatch.NotifyUndelivered
	sent.Metadata = map[string]string{"order": "123"}
	dead.Notify = dispatch.NotifyDead
	cancelled.Notify, cancelled.NotBefore = dispatch.NotifyCancelled, time.Now().Add(time.Hour)
	enqueue(t, box, sent, dead, quiet, cancelled)
	_, err := box.Cancel(t.Context(), cancelled.Key, ada)
	require.NoError(t, err)
	reaches(t, box, sent.Key, dispatch.Sent)
	reaches(t, box, quiet.Key, dispatch.Sent)
	bounce := receipt(sent.Key, "id-1", dispatch.Bounced)
	bounce.ProviderID = ""
	require.NoError(t, box.Receive(t.Context(), []dispatch.Receipt{bounce, bounce}))
	require.Eventually(t, func() bool {
		return len(heard.of(sent.Key)) == 2 && len(heard.of(dead.Key)) == 1 && len(heard.of(cancelled.Key)) == 1 && count(t, pool, schema, "notice") == 0
	}, 10*time.Second, 10*time.Millisecond)
	n := heard.of(sent.Key)
	require.Equal(t, dispatch.NotifySent, n[0].Event)
	require.Equal(t, map[string]string{"order": "123"}, n[0].Metadata)
	require.Equal(t, "sms", n[0].Route)
	require.Equal(t, []any{dispatch.NotifyUndelivered, "bounced"}, []any{n[1].Event, n[1].Detail})
	require.Equal(t, []any{dispatch.NotifyDead, dispatch.ReasonRejected}, []any{heard.of(dead.Key)[0].Event, heard.of(dead.Key)[0].Reason})
	require.Empty(t, heard.of(quiet.Key))
}

// A notice that the application doesn't take, by an error or a panic, is told
// again under the same number; one whose worker died is told by another; and
// sends go on meanwhile.
func TestNoticesAreToldAtLeastOnce(t *testing.T) {
	box, pool, schema := newBox(t)
	p := &outboxtest.Provider{}
	i := sms("hello")
	i.Notify = dispatch.NotifySent
	enqueue(t, box, i)
	stop := start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	reaches(t, box, i.Key, dispatch.Sent)
	require.NoError(t, stop())
	require.Equal(t, 1, count(t, pool, schema, "notice"), "kept for a worker that tells")

	var heard told
	var calls atomic.Int64
	start(t, box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{p},
		Notices: func(_ context.Context, n outbox.Notice) error {
			heard.take(n)
			switch calls.Add(1) {
			case 1:
				return errors.New("not now")
			case 2:
				panic("not now either")
			}
			return nil
		},
	})
	other := sms("not kept waiting")
	enqueue(t, box, other)
	reaches(t, box, other.Key, dispatch.Sent)
	require.Eventually(t, func() bool { return count(t, pool, schema, "notice") == 0 }, 20*time.Second, 20*time.Millisecond)
	n := heard.of(i.Key)
	require.Len(t, n, 3)
	require.Equal(t, []int64{n[0].Number, n[0].Number}, []int64{n[1].Number, n[2].Number})
	require.Equal(t, []int{1, 2, 3}, []int{n[0].Tries, n[1].Tries, n[2].Tries})
}

// B137: suppressed between enqueue and send, and while waiting for a retry; and
// quiet hours; a hook that fails sends nothing.
func TestBefore(t *testing.T) {
	var stopped, broken atomic.Bool
	later := time.Now().Add(1500 * time.Millisecond)
	r := route()
	r.Before = func(_ context.Context, e dispatch.Envelope) (dispatch.Advice, error) {
		switch body := e.Content.(dispatch.SMS).Body; {
		case body == "suppressed", body == "in backoff" && stopped.Load():
			return dispatch.Advice{Drop: "suppressed"}, nil
		case body == "quiet hours":
			return dispatch.Advice{NotBefore: later}, nil
		case body == "broken hook" && !broken.Swap(true):
			panic("no database")
		}
		return dispatch.Advice{}, nil
	}
	box, _, _ := newBox(t, r)
	p := &outboxtest.Provider{Promise: deduping(time.Second)}
	p.Respond = func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		if e.Content.(dispatch.SMS).Body == "in backoff" {
			stopped.Store(true)
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseDial})
		}
		return accept(), nil
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	suppressed, backoff, quiet, free := sms("suppressed"), sms("in backoff"), sms("quiet hours"), sms("broken hook")
	enqueue(t, box, suppressed, backoff, quiet, free)
	h := reaches(t, box, suppressed.Key, dispatch.Dead)
	require.Equal(t, []any{dispatch.ReasonDropped, 0, 0}, []any{h.Reason, h.Attempts, h.Spent})
	require.Equal(t, "suppressed", h.Events[0].Why)
	require.Empty(t, p.SendsOf(suppressed.Key))
	h = reaches(t, box, backoff.Key, dispatch.Dead)
	require.Equal(t, dispatch.ReasonDropped, h.Reason)
	require.Len(t, p.SendsOf(backoff.Key), 1)
	reaches(t, box, quiet.Key, dispatch.Sent)
	require.False(t, p.SendsOf(quiet.Key)[0].Before(later))
	h = reaches(t, box, free.Key, dispatch.Sent)
	require.Equal(t, 1, h.Attempts, "a failed hook costs no attempt")
}
