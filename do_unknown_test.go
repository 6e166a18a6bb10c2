package dispatch_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

func deduping(window time.Duration) dispatch.Contract {
	return dispatch.Contract{Timeout: 10 * time.Second, Dedupe: dispatch.Dedupe{Window: window}}
}

// withRequest says unknown and what the request's digest was.
func withRequest(digest []byte) answer {
	e := lost(dispatch.CauseConn)
	e.Request = digest
	return fails(e)
}

// What may have been accepted is never sent again at a provider that can't
// tell a repeat (B020, B066): one request, and the caller is told.
func TestDoStopsAtUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		a     answer
		takes time.Duration
	}{
		"no answer":      {silence, 10 * time.Second},
		"reset":          {fails(lost(dispatch.CauseConn)), 0},
		"503":            {status(503), 0},
		"504, B020":      {status(504), 0},
		"409":            {status(409), 0},
		"unlisted, B015": {fails(dispatch.Evidence{Stage: dispatch.Answered, Status: 201, Code: "39999"}), 0},
		"any error": {func(context.Context, dispatch.Envelope) (dispatch.Accepted, error) {
			return dispatch.Accepted{}, io.EOF
		}, 0},
		"accepted, no id": {func(context.Context, dispatch.Envelope) (dispatch.Accepted, error) { return dispatch.Accepted{}, nil }, 0},
		"nil fault": {func(context.Context, dispatch.Envelope) (dispatch.Accepted, error) {
			var f *dispatch.Fault
			return dispatch.Accepted{ID: "SM1"}, f
		}, 0},
		"panic, B104":               {func(context.Context, dispatch.Envelope) (dispatch.Accepted, error) { panic("after it was posted") }, 0},
		"panic with an error, B104": {func(context.Context, dispatch.Envelope) (dispatch.Accepted, error) { panic(io.EOF) }, 0},
		"ignores its context's end": {func(ctx context.Context, _ dispatch.Envelope) (dispatch.Accepted, error) {
			<-ctx.Done()
			return dispatch.Accepted{}, ctx.Err()
		}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, i := newVendor(t, deduping(0), c.a), sms()
				a, err := dispatch.Do(t.Context(), v, tick(8), i)
				s := ended(t, err, dispatch.ErrUnknown, i, 1)
				assert.Zero(t, a)
				assert.Zero(t, s.Until, "no later try would help")
				assert.Equal(t, c.takes, time.Since(v.start), "the attempt's time-out is the contract's")
			})
		})
	}
}

// A refusal and its retry don't make a later unknown repeatable.
func TestDoStopsAtALaterUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, i := newVendor(t, deduping(0), status(429), silence), sms()
		_, err := dispatch.Do(t.Context(), v, tick(8), i)
		_ = ended(t, err, dispatch.ErrUnknown, i, 2)
		assert.Equal(t, 1+10*time.Second, time.Since(v.start))
	})
}

// Where the provider dedupes, the same key goes out again with the digest of
// what may have been accepted.
func TestDoRepeatsUnderTheSameKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		digest := []byte{1, 2, 3}
		v, i := newVendor(t, deduping(24*time.Hour), withRequest(digest), status(429), withRequest([]byte{9}), status(503), accept), sms()
		v.answers[1] = func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
			clear(digest) // an adapter that uses its buffer again
			return status(429)(ctx, e)
		}
		a, err := dispatch.Do(t.Context(), v, tick(8), i)
		require.NoError(t, err)
		assert.Equal(t, "SM1", a.ID)
		assert.Equal(t, []time.Duration{0, 1, 2, 3, 4}, v.at)
		assert.Nil(t, v.got[0].Replay)
		for n, e := range v.got {
			assert.Equal(t, i.Key, e.Key)
			if n > 0 {
				assert.True(t, bytes.Equal([]byte{1, 2, 3}, e.Replay), "attempt %d: the first that may have been accepted counts", n+1)
			}
		}
	})
}

// The window is counted from the first attempt that may have left, with room
// for the attempt itself: here 100 s − 2 × 10 s. After it a repeat would be a
// second message.
func TestDoEndsWithTheWindow(t *testing.T) {
	wait := func(floor time.Duration) answer {
		e := answered(503)
		e.RetryAfter = floor
		return fails(e)
	}
	fixed := func(at time.Duration) answer { // answers at an exact moment, so that the jitter above a floor doesn't count
		return func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
			<-time.After(at)
			return status(503)(ctx, e)
		}
	}
	for name, c := range map[string]struct {
		window   time.Duration
		answers  []answer
		attempts int
		err      error
	}{
		"inside":             {100 * time.Second, []answer{wait(70 * time.Second), accept}, 2, nil},
		"the wait is beyond": {100 * time.Second, []answer{wait(80 * time.Second)}, 1, dispatch.ErrUnknown},
		"last tick inside":   {25 * time.Second, []answer{fixed(5*time.Second - 2), accept}, 2, nil},
		"first tick outside": {25 * time.Second, []answer{fixed(5*time.Second - 1)}, 1, dispatch.ErrUnknown},
		"not since a dial error": {100 * time.Second, []answer{func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
			u := unsent(dispatch.CauseDial)
			u.RetryAfter = time.Hour
			return fails(u)(ctx, e)
		}, status(503), accept}, 3, nil},
		"since a refusal, which may have bound the key": {100 * time.Second, []answer{floored(429, 75*time.Second), wait(10 * time.Second)}, 2, dispatch.ErrUnknown},
		"shorter than two attempts":                     {20 * time.Second, []answer{status(503)}, 1, dispatch.ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, i := newVendor(t, deduping(c.window), c.answers...), sms()
				_, err := dispatch.Do(t.Context(), v, tick(8), i)
				assert.Len(t, v.got, c.attempts)
				if c.err == nil {
					require.NoError(t, err)
					return
				}
				assert.Zero(t, ended(t, err, c.err, i, c.attempts).Until)
			})
		})
	}
}

// A refusal says something about its own attempt only: while an earlier one
// is open it proves nothing, unless the contract says that it does.
func TestDoRefusalWhileOpen(t *testing.T) {
	own := func(code int) answer {
		e := answered(code)
		e.OwnBody = true
		return fails(e)
	}
	proves := deduping(24 * time.Hour)
	proves.RefusalProves = true
	undeduped := deduping(0)
	undeduped.RefusalProves = true
	short := deduping(30 * time.Second)
	short.RefusalProves = true
	slow := func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
		<-time.After(9 * time.Second)
		return own(400)(ctx, e)
	}
	slower := func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
		<-time.After(2 * time.Second)
		return status(503)(ctx, e)
	}
	key := answered(409)
	key.Key, key.OwnBody = dispatch.KeyReused, true
	for name, c := range map[string]struct {
		contract dispatch.Contract
		last     answer
		first    answer
		want     error
	}{
		"message":                             {deduping(24 * time.Hour), own(400), silence, dispatch.ErrUnknown},
		"account":                             {proves, own(401), silence, dispatch.ErrUnknown},
		"message, and it proves":              {proves, own(400), silence, dispatch.ErrRejected},
		"not in the vendor's words":           {proves, status(400), silence, dispatch.ErrUnknown},
		"outside the window":                  {short, slow, slower, dispatch.ErrUnknown},
		"key used with another payload, B057": {proves, fails(key), silence, dispatch.ErrUnknown},
		"bytes changed":                       {proves, fails(unsent(dispatch.CauseChanged)), silence, dispatch.ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, i := newVendor(t, c.contract, c.first, c.last), sms()
				_, err := dispatch.Do(t.Context(), v, tick(8), i)
				assert.Zero(t, ended(t, err, c.want, i, 2).Until)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // a first refusal needs no proof
		v, i := newVendor(t, undeduped, own(400)), sms()
		_, err := dispatch.Do(t.Context(), v, tick(8), i)
		_ = ended(t, err, dispatch.ErrRejected, i, 1)
	})
	synctest.Test(t, func(t *testing.T) { // 401 is not "the message's" because a route's Classify says so
		v, i, r := newVendor(t, proves, own(500), own(401)), sms(), tick(8)
		r.Classify = dispatch.Conservative
		_, err := dispatch.Do(t.Context(), v, r, i)
		_ = ended(t, err, dispatch.ErrUnknown, i, 2)
	})
}

// B057: "in flight" is no refusal: the same key goes again, later.
func TestDoKeyInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := answered(409)
		e.Key = dispatch.KeyInFlight
		v := newVendor(t, deduping(time.Hour), silence, fails(e), accept)
		_, err := dispatch.Do(t.Context(), v, tick(8), sms())
		require.NoError(t, err)
		assert.Len(t, v.got, 3)
	})
}

func TestDoUnknownKeepsItsBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // attempts, B061: a cached 500 is replayed for ever
		v, i := newVendor(t, deduping(24*time.Hour), repeat(3, status(500))...), sms()
		_, err := dispatch.Do(t.Context(), v, tick(3), i)
		_ = ended(t, err, dispatch.ErrUnknown, i, 3)
	})
	synctest.Test(t, func(t *testing.T) { // the caller's time: it may go on later under the same key
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		e := lost(dispatch.CauseDeadline)
		e.RetryAfter = 20 * time.Second
		v, i := newVendor(t, deduping(24*time.Hour), fails(e)), sms()
		_, err := dispatch.Do(ctx, v, tick(8), i)
		s := ended(t, err, dispatch.ErrUnknown, i, 1)
		assert.GreaterOrEqual(t, s.Until.Sub(v.start), 20*time.Second)
	})
	synctest.Test(t, func(t *testing.T) { // the caller's time runs out within an attempt
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		v, i := newVendor(t, deduping(24*time.Hour), silence), sms()
		_, err := dispatch.Do(ctx, v, tick(8), i)
		_ = ended(t, err, dispatch.ErrUnknown, i, 1)
		assert.Equal(t, 5*time.Second, time.Since(v.start))
	})
	synctest.Test(t, func(t *testing.T) { // the message's time
		v, i := newVendor(t, deduping(24*time.Hour), silence), sms()
		i.ValidFor = 10 * time.Second
		_, err := dispatch.Do(t.Context(), v, tick(8), i)
		assert.Zero(t, ended(t, err, dispatch.ErrUnknown, i, 1).Until)
	})
	synctest.Test(t, func(t *testing.T) { // conservative: a transport error is reconciled, here by its key
		v, r := newVendor(t, deduping(24*time.Hour), fails(unsent(dispatch.CauseDial)), accept), tick(8)
		r.Classify = dispatch.Conservative
		_, err := dispatch.Do(t.Context(), v, r, sms())
		require.NoError(t, err)
	})
}

// No sequence of answers makes Do send after an uncertain one at a provider
// that doesn't dedupe, or say "nothing was accepted" after one.
func TestDoNeverRepeatsInTheDark(t *testing.T) {
	kinds := map[string]answer{"429": status(429), "dial": fails(unsent(dispatch.CauseDial)), "503": status(503), "400": status(400), "401": status(401), "lost": fails(lost(dispatch.CauseConn)), "ok": accept}
	uncertain := map[string]bool{"503": true, "lost": true}
	names := []string{"429", "dial", "503", "400", "401", "lost", "ok"}
	for n := range 7 * 7 * 7 * 7 {
		var order []string
		for k := n; len(order) < 4; k /= 7 {
			order = append(order, names[k%7])
		}
		for _, window := range []time.Duration{0, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				v := newVendor(t, deduping(window))
				for _, name := range order {
					v.answers = append(v.answers, kinds[name])
				}
				_, err := dispatch.Do(t.Context(), v, tick(4), sms())
				open := false
				for k, name := range order[:len(v.got)] {
					require.False(t, open && window == 0, "%v, attempt %d", order, k+1)
					open = open || uncertain[name]
				}
				if order[len(v.got)-1] == "ok" {
					require.NoError(t, err, order)
					return
				}
				require.Equal(t, open, errors.Is(err, dispatch.ErrUnknown), "%v: %v", order, err)
			})
		}
	}
}
