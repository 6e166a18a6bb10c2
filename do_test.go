package dispatch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

// answer is how the vendor reacts to one attempt.
type answer func(context.Context, dispatch.Envelope) (dispatch.Accepted, error)

// vendor is a provider that gives one answer after the other and keeps what it
// was asked. It fails the test when it is asked more often than it has answers.
type vendor struct {
	dispatch.NoLookup

	t        *testing.T
	contract dispatch.Contract
	answers  []answer
	start    time.Time
	at       []time.Duration // when each attempt came, from the start
	got      []dispatch.Envelope
}

func newVendor(t *testing.T, c dispatch.Contract, answers ...answer) *vendor {
	t.Helper()
	c.Name = "twilio"
	return &vendor{t: t, contract: c, answers: answers, start: time.Now()}
}

func (v *vendor) Contract() dispatch.Contract { return v.contract }

func (v *vendor) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	v.at, v.got = append(v.at, time.Since(v.start)), append(v.got, e)
	require.LessOrEqual(v.t, len(v.got), len(v.answers), "an attempt too many")
	return v.answers[len(v.got)-1](ctx, e)
}

func accept(context.Context, dispatch.Envelope) (dispatch.Accepted, error) {
	return dispatch.Accepted{ID: "SM1", Status: "queued"}, nil
}

func fails(e dispatch.Evidence) answer {
	return func(context.Context, dispatch.Envelope) (dispatch.Accepted, error) {
		return dispatch.Accepted{}, fault(e)
	}
}

func status(code int) answer { return fails(answered(code)) }

func floored(code int, floor time.Duration) answer {
	e := answered(code)
	e.RetryAfter = floor
	return fails(e)
}

// silence is a vendor that answers nothing until the attempt's time is over.
func silence(ctx context.Context, _ dispatch.Envelope) (dispatch.Accepted, error) {
	<-ctx.Done()
	return dispatch.Accepted{}, fault(lost(dispatch.CauseDeadline))
}

func repeat(n int, a answer) (list []answer) {
	for range n {
		list = append(list, a)
	}
	return list
}

// tick is a policy whose every wait is exactly one nanosecond.
func tick(attempts int) dispatch.Route {
	return dispatch.Route{
		Name: "sms", Policy: dispatch.Policy{Backoff: dispatch.Backoff{Base: 1, Cap: 1}, Attempts: attempts},
		Senders: dispatch.Senders{"otp": {"twilio": "+15555550199"}},
	}
}

// ended checks an error of Do: exactly one meaning, the key, the attempts.
func ended(t *testing.T, err, is error, i dispatch.Intent, attempts int) *dispatch.SendError {
	t.Helper()
	var s *dispatch.SendError
	require.ErrorAs(t, err, &s)
	for _, e := range []error{dispatch.ErrRejected, dispatch.ErrUnknown, dispatch.ErrDeferred, dispatch.ErrBudget} {
		assert.Equal(t, e == is, errors.Is(err, e), "%v is %v", err, e) //nolint:errorlint // which one was meant
	}
	assert.Equal(t, i.Key, s.Key)
	assert.Equal(t, attempts, s.Attempts)
	return s
}

func TestDoSendsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVendor(t, dispatch.Contract{}, accept)
		i := sms()
		i.Metadata = map[string]string{"order": "1"}
		i.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		a, err := dispatch.Do(t.Context(), v, tick(8), i)
		require.NoError(t, err)
		assert.Equal(t, dispatch.Accepted{ID: "SM1", Status: "queued"}, a)
		assert.Equal(t, []dispatch.Envelope{{
			Key: i.Key, Route: "sms", Content: i.Content, From: "+15555550199", Attempt: 1, Deadline: v.start.Add(4 * time.Hour).Round(0), Created: v.start.Round(0),
			Metadata: i.Metadata, TraceParent: i.TraceParent,
		}}, v.got)
		assert.Zero(t, time.Since(v.start), "and no time passed")
	})
}

// A refusal of the moment is tried again, after exactly the waits of the
// policy, under the same key, one request per attempt.
func TestDoTriesAMomentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVendor(t, dispatch.Contract{}, status(429), fails(unsent(dispatch.CauseDial)), status(429), accept)
		i := sms()
		_, err := dispatch.Do(t.Context(), v, tick(8), i)
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{0, 1, 2, 3}, v.at)
		for n, e := range v.got {
			assert.Equal(t, i.Key, e.Key)
			assert.Equal(t, n+1, e.Attempt)
			assert.Nil(t, e.Replay, "nothing is open")
			assert.Equal(t, v.got[0].Content, e.Content)
			assert.Equal(t, v.got[0].Deadline, e.Deadline)
		}
	})
}

// The waits of the mail policy: each in (0, bound], the bound doubling.
func TestDoWaitsByThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVendor(t, dispatch.Contract{}, repeat(5, status(429))...)
		i := email(func(e *dispatch.Email) { e.Sender = "" })
		_, err := dispatch.Do(t.Context(), v, dispatch.Route{Policy: dispatch.EmailPolicy()}, i)
		s := ended(t, err, dispatch.ErrBudget, i, 5)
		assert.Zero(t, s.Until)
		assert.Equal(t, 429, s.Evidence.Status)
		for n, bound := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second} {
			wait := v.at[n+1] - v.at[n]
			assert.Positive(t, wait)
			assert.LessOrEqual(t, wait, bound, "wait %d", n+1)
		}
	})
}

// B047, B044: Retry-After is a floor, also above the cap; zero is none.
func TestDoKeepsTheFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVendor(t, dispatch.Contract{}, floored(429, time.Minute), floored(429, 10*time.Minute), floored(429, 0), accept)
		_, err := dispatch.Do(t.Context(), v, tick(8), sms())
		require.NoError(t, err)
		assert.GreaterOrEqual(t, v.at[1], time.Minute)
		assert.Less(t, v.at[1], time.Minute+6*time.Second)
		assert.GreaterOrEqual(t, v.at[2]-v.at[1], 10*time.Minute)
		assert.Less(t, v.at[2]-v.at[1], 11*time.Minute)
		assert.Equal(t, time.Duration(1), v.at[3]-v.at[2])
	})
}

func TestDoStopsAtARefusal(t *testing.T) {
	for name, c := range map[string]struct {
		a     answer
		scope dispatch.Scope
	}{
		"message, B017": {status(400), dispatch.Message}, // one attempt only
		"account":       {status(401), dispatch.Account},
		"redirect":      {status(302), dispatch.Account},
		"certificate":   {fails(unsent(dispatch.CauseCertificate)), dispatch.Account},
		"sender": {func(context.Context, dispatch.Envelope) (dispatch.Accepted, error) {
			return dispatch.Accepted{}, &dispatch.Fault{Evidence: answered(400), Verdict: dispatch.Verdict{Outcome: rejected, Scope: dispatch.Sender}}
		}, dispatch.Sender},
		"changed with nothing open": {fails(unsent(dispatch.CauseChanged)), dispatch.Moment},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, i := newVendor(t, dispatch.Contract{}, c.a), sms()
				_, err := dispatch.Do(t.Context(), v, tick(8), i)
				s := ended(t, err, dispatch.ErrRejected, i, 1)
				assert.Equal(t, c.scope, s.Verdict.Scope)
				assert.Zero(t, s.Until)
				assert.Zero(t, time.Since(v.start))
			})
		})
	}
}

// A caller's running time never ends a message: it is told when to come back.
func TestDoDefers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		v, i := newVendor(t, dispatch.Contract{}, floored(429, time.Minute)), sms()
		_, err := dispatch.Do(ctx, v, tick(8), i)
		s := ended(t, err, dispatch.ErrDeferred, i, 1)
		assert.Zero(t, time.Since(v.start), "no use in waiting for what the context can't hold")
		assert.GreaterOrEqual(t, s.Until.Sub(v.start), time.Minute)
		assert.Less(t, s.Until.Sub(v.start), time.Minute+6*time.Second)
	})
	synctest.Test(t, func(t *testing.T) { // cancelled while it waits
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Second, cancel)
		v, i := newVendor(t, dispatch.Contract{}, floored(429, time.Minute)), sms()
		_, err := dispatch.Do(ctx, v, tick(8), i)
		s := ended(t, err, dispatch.ErrDeferred, i, 1)
		assert.Equal(t, 20*time.Second, time.Since(v.start), "it leaves at once")
		assert.GreaterOrEqual(t, s.Until.Sub(v.start), time.Minute)
	})
	synctest.Test(t, func(t *testing.T) { // cancelled before it began
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		v, i := newVendor(t, dispatch.Contract{}), sms()
		_, err := dispatch.Do(ctx, v, tick(8), i)
		s := ended(t, err, dispatch.ErrDeferred, i, 0)
		assert.Equal(t, v.start, s.Until)
	})
	synctest.Test(t, func(t *testing.T) { // too early
		v, i := newVendor(t, dispatch.Contract{}), sms()
		i.NotBefore = v.start.Add(time.Hour)
		_, err := dispatch.Do(t.Context(), v, tick(8), i)
		s := ended(t, err, dispatch.ErrDeferred, i, 0)
		assert.Equal(t, i.NotBefore, s.Until)
	})
}

// The message's own end is final, and nothing is sent after it (B132).
func TestDoKeepsTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // over before the first attempt
		v, i := newVendor(t, dispatch.Contract{}), sms()
		i.Deadline = v.start
		_, err := dispatch.Do(t.Context(), v, tick(8), i)
		assert.Zero(t, ended(t, err, dispatch.ErrBudget, i, 0).Until)
	})
	synctest.Test(t, func(t *testing.T) { // the floor lies beyond it
		v, i := newVendor(t, dispatch.Contract{}, floored(429, time.Minute)), sms()
		i.ValidFor = time.Minute
		_, err := dispatch.Do(t.Context(), v, tick(8), i)
		assert.Zero(t, ended(t, err, dispatch.ErrBudget, i, 1).Until)
		assert.Zero(t, time.Since(v.start))
	})
	synctest.Test(t, func(t *testing.T) { // a nanosecond before it there is time
		v, i := newVendor(t, dispatch.Contract{}, status(429), accept), sms()
		i.ValidFor = 2
		_, err := dispatch.Do(t.Context(), v, tick(8), i)
		require.NoError(t, err)
	})
	synctest.Test(t, func(t *testing.T) { // never means never
		v, i := newVendor(t, dispatch.Contract{}, floored(429, 20*24*time.Hour), accept), sms()
		i.ValidFor = dispatch.Never
		_, err := dispatch.Do(t.Context(), v, tick(8), i)
		require.NoError(t, err)
		assert.Zero(t, v.got[1].Deadline)
	})
	synctest.Test(t, func(t *testing.T) { // the policy's end counts where the intent has none
		v, i, r := newVendor(t, dispatch.Contract{}, floored(429, time.Hour)), sms(), tick(8)
		r.Policy.ValidFor = time.Hour
		_, err := dispatch.Do(t.Context(), v, r, i)
		_ = ended(t, err, dispatch.ErrBudget, i, 1)
	})
}

func TestDoRefusesNonsense(t *testing.T) {
	for name, c := range map[string]struct {
		bend  func(*dispatch.Contract, *dispatch.Route, *dispatch.Intent)
		field string
	}{
		"intent":           {func(_ *dispatch.Contract, _ *dispatch.Route, i *dispatch.Intent) { i.Key = dispatch.Key{} }, "Key"},
		"contract":         {func(c *dispatch.Contract, _ *dispatch.Route, _ *dispatch.Intent) { c.Timeout = -1 }, "Provider"},
		"policy":           {func(_ *dispatch.Contract, r *dispatch.Route, _ *dispatch.Intent) { r.Policy.Attempts = -1 }, "Route.Policy"},
		"route name":       {func(_ *dispatch.Contract, r *dispatch.Route, _ *dispatch.Intent) { r.Name = "SMS" }, "Route.Name"},
		"another route":    {func(_ *dispatch.Contract, _ *dispatch.Route, i *dispatch.Intent) { i.Route = "mail" }, "Route"},
		"another provider": {func(_ *dispatch.Contract, _ *dispatch.Route, i *dispatch.Intent) { i.Provider = "vonage" }, "Provider"},
		"sender line": {func(_ *dispatch.Contract, r *dispatch.Route, _ *dispatch.Intent) {
			r.Senders["otp"]["twilio"] = "a\r\nb"
		}, "Route.Senders"},
		"sender elsewhere": {func(_ *dispatch.Contract, r *dispatch.Route, _ *dispatch.Intent) {
			r.Senders = dispatch.Senders{"otp": {"vonage": "Shop"}}
		}, "Content.Sender"},
		"no such sender": {func(_ *dispatch.Contract, r *dispatch.Route, _ *dispatch.Intent) { r.Senders = nil }, "Content.Sender"},
	} {
		t.Run(name, func(t *testing.T) {
			v, r, i := newVendor(t, dispatch.Contract{}), tick(8), sms()
			c.bend(&v.contract, &r, &i)
			_, err := dispatch.Do(t.Context(), v, r, i)
			var f *dispatch.FieldError
			require.ErrorAs(t, err, &f)
			assert.Equal(t, c.field, f.Field)
			assert.Empty(t, v.got)
		})
	}
	_, err := dispatch.Do(t.Context(), nil, tick(1), sms())
	require.EqualError(t, err, "Provider is nil")
	found, err := dispatch.NoLookup{}.Lookup(t.Context(), dispatch.Query{})
	require.ErrorIs(t, err, dispatch.ErrNoLookup)
	assert.Zero(t, found)
}
