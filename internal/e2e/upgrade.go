package e2e

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

// Upgraded sends mails whose answers are lost, and lets another release take
// over that writes other bytes for them: they are noticed by the stored digest
// and held, and nothing goes out a second time. Where somebody forgot to raise
// the encoding version, the bytes tell at the next attempt. Where it was raised,
// as it must be, the release leaves them to a worker of the one before, and
// they are held once the time for that is over.
//
// The vendor is said to dedupe, whatever it does, and to have no other means:
// else a mail that may have been taken wouldn't be sent again at all, or not
// before it was found. taken are the ids of what the vendor took under a key.
func Upgraded(t *testing.T, p dispatch.Provider, taken func(key string) []string) {
	t.Helper()
	for name, c := range map[string]struct {
		raised int16
		giveUp time.Duration
		reason dispatch.Reason
	}{
		"version forgotten": {0, 0, dispatch.ReasonChanged},
		"version raised":    {1, 5 * time.Second, dispatch.ReasonUnresolved},
	} {
		t.Run(name, func(t *testing.T) {
			policy := dispatch.EmailPolicy()
			policy.Attempts, policy.OnUnknown.After = 20, c.giveUp
			w := New(t, p.Contract().Name, from, policy)
			w.Enqueue(t, Mails(5)...)
			stop := w.Work(t, &release{Provider: p, lossy: true})
			for _, key := range w.Keys {
				w.Becomes(t, key, dispatch.InDoubt, dispatch.Held)
				require.Eventually(t, func() bool { return len(taken(key.String())) == 1 }, 10*time.Second, 10*time.Millisecond)
			}
			stop()
			next := &release{Provider: p, raised: c.raised, other: true}
			t.Cleanup(w.Work(t, next))
			for _, key := range w.Keys {
				w.Becomes(t, key, dispatch.Held)
				h := w.History(t, key)
				require.Equal(t, c.reason, h.Reason, "%s", h)
				require.Len(t, taken(key.String()), 1, "%s", h)
			}
			require.Equal(t, c.raised == 0, next.calls.Load() > 0, "what differs in its version isn't tried")
			require.Zero(t, next.accepted.Load())
		})
	}
}

// release is an adapter as another release of it would be.
type release struct {
	dispatch.Provider

	raised   int16 // its encoding version, above the adapter's
	other    bool  // its encoder writes other bytes
	lossy    bool  // its first answers are lost, and it sends nothing more
	calls    atomic.Int64
	accepted atomic.Int64
}

func (r *release) Contract() dispatch.Contract {
	c := r.Provider.Contract()
	c.Encoding += r.raised
	c.Dedupe = dispatch.Dedupe{Window: time.Hour}
	c.Search, c.Echo = dispatch.Search{}, dispatch.Echo{}
	return c
}

func (r *release) Lookup(context.Context, dispatch.Query) (dispatch.Found, error) {
	return dispatch.Found{}, dispatch.ErrNoLookup
}

func (r *release) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	r.calls.Add(1)
	if m, ok := e.Content.(dispatch.Email); ok && r.other {
		m.Text += "\n"
		e.Content = m
	}
	if r.lossy && len(e.Replay) > 0 {
		lost := dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseDial, RetryAfter: time.Second}
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: lost, Verdict: dispatch.Classify(lost)}
	}
	a, err := r.Provider.Send(ctx, e)
	if err != nil {
		return a, err
	}
	r.accepted.Add(1)
	if r.lossy {
		lost := dispatch.Evidence{Cause: dispatch.CauseConn, Request: a.Evidence.Request}
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: lost, Verdict: dispatch.Classify(lost)}
	}
	return a, nil
}
