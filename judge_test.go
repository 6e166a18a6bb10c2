package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

func fault(e dispatch.Evidence) *dispatch.Fault {
	return &dispatch.Fault{Evidence: e, Verdict: dispatch.Classify(e), Err: io.ErrUnexpectedEOF}
}

func TestJudge(t *testing.T) {
	var none *dispatch.Fault
	claims := fault(answered(200))
	for name, c := range map[string]struct {
		a       dispatch.Accepted
		err     error
		outcome dispatch.Outcome
		cause   dispatch.Cause
		reason  string
	}{
		"an id":                    {dispatch.Accepted{ID: "SM1"}, nil, ok, 0, "accepted"},
		"no id, and said so, B002": {dispatch.Accepted{NoID: true}, nil, ok, 0, "accepted"},
		"no id":                    {dispatch.Accepted{Status: "queued"}, nil, unknown, 0, "accepted without an id"},
		"fault":                    {dispatch.Accepted{}, fault(answered(400)), rejected, 0, "refused"},
		"fault beside an id":       {dispatch.Accepted{ID: "SM1"}, fault(answered(400)), rejected, 0, "refused"},
		"wrapped fault":            {dispatch.Accepted{}, fmt.Errorf("twilio: %w", fault(answered(429))), rejected, 0, "rate limited"},
		"joined fault":             {dispatch.Accepted{}, errors.Join(io.EOF, fault(answered(401))), rejected, 0, "account refused"},
		"fault that claims OK":     {dispatch.Accepted{ID: "SM1"}, claims, unknown, 0, "accepted"},
		"empty fault":              {dispatch.Accepted{}, &dispatch.Fault{}, unknown, 0, ""},
		"nil fault":                {dispatch.Accepted{}, none, unknown, 0, "error without evidence"},
		"wrapped nil fault":        {dispatch.Accepted{ID: "x"}, fmt.Errorf("x: %w", none), unknown, 0, "error without evidence"},
		"any error":                {dispatch.Accepted{}, io.EOF, unknown, 0, "error without evidence"},
		"an error that says dial":  {dispatch.Accepted{}, errors.New("dial tcp: connection refused"), unknown, 0, "error without evidence"},
		"deadline":                 {dispatch.Accepted{}, fmt.Errorf("x: %w", context.DeadlineExceeded), unknown, dispatch.CauseDeadline, "deadline"},
		"cancelled":                {dispatch.Accepted{}, context.Canceled, unknown, dispatch.CauseDeadline, "deadline"},
		"outcome that is not ours": {dispatch.Accepted{}, &dispatch.Fault{Verdict: dispatch.Verdict{Outcome: 7}}, unknown, 0, ""},
		"negative outcome":         {dispatch.Accepted{}, &dispatch.Fault{Verdict: dispatch.Verdict{Outcome: -1, Scope: dispatch.Message}}, unknown, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e, v := dispatch.Judge(c.a, c.err)
			assert.Equal(t, c.outcome, v.Outcome)
			assert.Equal(t, c.reason, v.Reason)
			assert.Equal(t, c.cause, e.Cause)
			if v.Outcome != rejected {
				assert.Zero(t, v.Scope)
			}
			routed, same := dispatch.Route{}.Judge(c.a, c.err)
			assert.Equal(t, v, same)
			assert.Equal(t, e, routed)
		})
	}
}

// What an adapter made up must fit into the columns and the switches that
// come after it: an outcome that can't be stored is an outcome that is lost.
func TestJudgeBoundsWhatAdaptersSay(t *testing.T) {
	long := strings.Repeat("ä\x00\xff\n", 1000)
	e, v := dispatch.Judge(dispatch.Accepted{}, &dispatch.Fault{
		Evidence: dispatch.Evidence{Stage: 9, Cause: 99, Key: 9, Status: math.MaxInt, Code: long, Reason: long, RetryAfter: math.MaxInt64},
		Verdict:  dispatch.Verdict{Outcome: rejected, Scope: 9, Floor: math.MinInt64, Reason: long},
	})
	assert.Zero(t, e.Stage)
	assert.Zero(t, e.Cause)
	assert.Zero(t, e.Key)
	assert.Zero(t, e.Status)
	assert.Equal(t, dispatch.Moment, v.Scope)
	assert.Equal(t, dispatch.MaxFloor, v.Floor, "the answer's own wait counts, also where the adapter forgot it")
	hostile := func(context.Context, dispatch.Envelope) (dispatch.Accepted, error) {
		return dispatch.Accepted{ID: long, Status: long, NoID: true}, nil
	}
	a, err := dispatch.Do(t.Context(), newVendor(t, dispatch.Contract{}, hostile), tick(1), sms())
	require.NoError(t, err)
	for what, s := range map[string]string{"words": e.Reason, "reason": v.Reason, "id": a.ID, "status": a.Status} {
		assert.True(t, utf8.ValidString(s), what)
		assert.NotContains(t, s, "\x00", what) // B116
		assert.NotContains(t, s, "\n", what)
		assert.LessOrEqual(t, len(s), 500, what) // B024
		assert.Greater(t, len(s), 90, what)
		assert.True(t, strings.HasPrefix(s, "ä???ä"), what)
	}
	assert.True(t, a.NoID)
	assert.Empty(t, e.Code, "it goes where the vendor's words go, which nothing shows")

	e, _ = dispatch.Judge(dispatch.Accepted{ID: "1", Evidence: dispatch.Evidence{Stage: dispatch.NotSent, Code: "a\x00"}}, nil)
	assert.Equal(t, dispatch.Evidence{Stage: dispatch.Answered, Reason: "a?"}, e)
}

func TestRouteClassify(t *testing.T) {
	says := func(v dispatch.Verdict) dispatch.Route {
		return dispatch.Route{Classify: func(dispatch.Evidence, dispatch.Verdict) dispatch.Verdict { return v }}
	}
	final := dispatch.Verdict{Outcome: rejected, Scope: dispatch.Message, Reason: "the route's"}
	known := answered(409)
	known.Key = dispatch.KeyInFlight
	reused := answered(409)
	reused.Key = dispatch.KeyReused
	for name, c := range map[string]struct {
		says dispatch.Verdict
		e    dispatch.Evidence
		want dispatch.Outcome
	}{
		"a refusal is no acceptance":           {dispatch.Verdict{Outcome: ok}, answered(400), rejected},
		"nor is a lost answer":                 {dispatch.Verdict{Outcome: ok}, lost(dispatch.CauseDeadline), unknown},
		"nor a refusal":                        {final, lost(dispatch.CauseDeadline), unknown},
		"nor what a known key says":            {final, known, unknown},
		"nor one of another payload":           {dispatch.Verdict{Outcome: rejected}, reused, unknown},
		"a documented 503 may be a refusal":    {dispatch.Verdict{Outcome: rejected}, answered(503), rejected},
		"a refusal may be doubted":             {dispatch.Verdict{}, answered(429), unknown},
		"an outcome that is not ours is doubt": {dispatch.Verdict{Outcome: 3}, answered(429), unknown},
		"a scope may change":                   {final, answered(401), rejected},
	} {
		t.Run(name, func(t *testing.T) {
			_, v := says(c.says).Judge(dispatch.Accepted{}, fault(c.e))
			assert.Equal(t, c.want, v.Outcome)
		})
	}

	t.Run("an acceptance is not asked about", func(t *testing.T) {
		_, v := says(final).Judge(dispatch.Accepted{ID: "1"}, nil)
		assert.Equal(t, ok, v.Outcome)
	})
	t.Run("a panic is contained", func(t *testing.T) { // B104
		r := dispatch.Route{Classify: func(dispatch.Evidence, dispatch.Verdict) dispatch.Verdict { panic(io.EOF) }}
		e, v := r.Judge(dispatch.Accepted{}, fault(answered(429)))
		assert.Equal(t, dispatch.Classify(answered(429)), v)
		assert.Equal(t, 429, e.Status)
	})
	t.Run("a floor may grow, not shrink", func(t *testing.T) {
		e := answered(429)
		e.RetryAfter = time.Minute
		_, v := says(dispatch.Verdict{Outcome: rejected}).Judge(dispatch.Accepted{}, fault(e))
		assert.Equal(t, time.Minute, v.Floor)
		_, v = says(dispatch.Verdict{Outcome: rejected, Floor: time.Hour}).Judge(dispatch.Accepted{}, fault(e))
		assert.Equal(t, time.Hour, v.Floor)
		_, v = says(dispatch.Verdict{Outcome: rejected, Floor: math.MaxInt64}).Judge(dispatch.Accepted{}, fault(e))
		assert.Equal(t, dispatch.MaxFloor, v.Floor)
	})
	t.Run("a hold stays", func(t *testing.T) {
		_, v := says(dispatch.Verdict{}).Judge(dispatch.Accepted{}, fault(reused))
		assert.True(t, v.Hold)
	})
	t.Run("a widened refusal proves nothing about earlier attempts", func(t *testing.T) {
		denied := answered(401)
		denied.OwnBody = true
		e, v := dispatch.Route{Classify: dispatch.Conservative}.Judge(dispatch.Accepted{}, fault(denied))
		assert.Equal(t, dispatch.Message, v.Scope)
		assert.False(t, e.OwnBody)
		denied.Status = 400
		e, _ = dispatch.Route{Classify: dispatch.Conservative}.Judge(dispatch.Accepted{}, fault(denied))
		assert.True(t, e.OwnBody, "the vendor's own refusal of the message stays one")
	})
}

func TestFaultHidesItsCause(t *testing.T) {
	e := answered(400)
	e.Code, e.Reason = "21211"+strings.Repeat("x", 50), "The 'To' number +15555550100 is not valid" // B162
	f := fault(e)
	f.Err = fmt.Errorf("post https://user:pw@example.com/: %w", io.ErrUnexpectedEOF)
	assert.Equal(t, "rejected: refused, status 400, code 21211"+strings.Repeat("x", 35), f.Error())
	assert.ErrorIs(t, f, io.ErrUnexpectedEOF)
	for _, code := range []string{"+15555550100", "ada@example.com", "Your code is 1", "4\n4"} { // a vendor may answer anything
		f.Evidence.Code = code
		assert.Equal(t, "rejected: refused, status 400, code not shown", f.Error())
		assert.NotContains(t, f.Evidence.LogValue().String(), code)
		shown, _ := dispatch.Judge(dispatch.Accepted{}, f)
		assert.Empty(t, shown.Code)
		assert.Contains(t, shown.Reason, code[:1])
	}
	f.Verdict.Reason = strings.Repeat("y\n", 1000)
	assert.Less(t, len(f.Error()), 300)
	assert.NotContains(t, f.Error(), "\n")

	var none *dispatch.Fault
	assert.Equal(t, "unknown", none.Error())
	require.NoError(t, none.Unwrap())
}
