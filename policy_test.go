package dispatch_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

func TestPolicyDefaults(t *testing.T) {
	hold := dispatch.OnUnknown{Action: dispatch.UnknownHold}
	assert.Equal(t, dispatch.Policy{
		Backoff: dispatch.Backoff{Base: 500 * time.Millisecond, Cap: time.Minute}, Attempts: 8, ValidFor: 4 * time.Hour, OnUnknown: hold,
	}, dispatch.Policy{}.WithDefaults(), "an empty policy is the one for SMS")
	assert.Equal(t, dispatch.Policy{
		Backoff: dispatch.Backoff{Base: 2 * time.Second, Cap: 32 * time.Second}, Attempts: 5, ValidFor: 48 * time.Hour, OnUnknown: hold,
	}, dispatch.EmailPolicy().WithDefaults())
	some := dispatch.Policy{Attempts: 1, ValidFor: dispatch.Never, OnUnknown: dispatch.OnUnknown{After: time.Minute}}.WithDefaults()
	assert.Equal(t, 1, some.Attempts)
	assert.Equal(t, dispatch.Never, some.ValidFor)
	assert.Equal(t, dispatch.OnUnknown{Action: dispatch.UnknownHold, After: time.Minute}, some.OnUnknown)
}

func TestPolicyValidate(t *testing.T) {
	for _, p := range []dispatch.Policy{
		{},
		dispatch.SMSPolicy(), dispatch.EmailPolicy(),
		{Attempts: 100},
		{ValidFor: dispatch.Never},
		{Backoff: dispatch.Backoff{Base: 1, Cap: 1}},
		{Backoff: dispatch.Backoff{Base: dispatch.MaxFloor, Cap: dispatch.MaxFloor}},
	} {
		assert.NoError(t, p.Validate(), "%+v", p)
	}
	for want, p := range map[string]dispatch.Policy{
		"policy: backoff is negative":             {Backoff: dispatch.Backoff{Base: -1}},
		"policy: backoff cap is below its base":   {Backoff: dispatch.Backoff{Base: 2, Cap: 1}}, // B052
		"policy: backoff cap is above":            {Backoff: dispatch.Backoff{Cap: math.MaxInt64}},
		"policy: -1 attempts, want 1 to 100":      {Attempts: -1},
		"policy: 101 attempts, want 1 to 100":     {Attempts: 101},
		"policy: valid for a negative time":       {ValidFor: -2},
		"policy: valid for more than":             {ValidFor: math.MaxInt64},
		"policy: on unknown: action 5 is unknown": {OnUnknown: dispatch.OnUnknown{Action: 5}},
		"policy: on unknown: after -1ns":          {OnUnknown: dispatch.OnUnknown{After: -1}},
		"policy: on unknown: after 2562047h":      {OnUnknown: dispatch.OnUnknown{After: math.MaxInt64}},
	} {
		require.ErrorContains(t, p.Validate(), want)
	}
}

func TestWorstCase(t *testing.T) {
	ms := time.Millisecond
	assert.Equal(t, 30*time.Second, dispatch.EmailPolicy().WorstCase(0), "2 + 4 + 8 + 16 s before request times")
	assert.Equal(t, 30*time.Second+5*30*time.Second, dispatch.EmailPolicy().WorstCase(30*time.Second))
	assert.Equal(t, 63500*ms, dispatch.SMSPolicy().WorstCase(0), "0.5 + 1 + 2 + 4 + 8 + 16 + 32 s")
	assert.Equal(t, 63500*ms+8*30*time.Second, dispatch.Policy{}.WorstCase(30*time.Second))
	assert.Equal(t, 30*time.Second, dispatch.Policy{Attempts: 1}.WorstCase(30*time.Second), "one attempt waits for nothing")

	const longest = time.Duration(math.MaxInt64)
	assert.Equal(t, longest, dispatch.SMSPolicy().WorstCase(longest))
	assert.Equal(t, longest, dispatch.SMSPolicy().WorstCase(longest/4))
	assert.Equal(t, longest-8, dispatch.Policy{Attempts: 1}.WorstCase(longest-8))
	assert.Equal(t, 63500*ms, dispatch.SMSPolicy().WorstCase(math.MinInt64))
	assert.Equal(t, longest, dispatch.Policy{Attempts: math.MaxInt}.WorstCase(1), "what Validate refuses has no bound")
	assert.Equal(t, longest, dispatch.Policy{Attempts: -1}.WorstCase(1))
}
