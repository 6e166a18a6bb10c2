package outbox

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// swamp is a flood whose lanes' begins are full of what is gone: a look from there
// takes its time, one from a second back a part of that.
type swamp struct {
	flood

	far, near, others int
}

func (s *swamp) Peek(ctx context.Context, probes []engine.Probe) (engine.Sight, error) {
	far, near := true, false
	for _, p := range probes {
		far = far && p.From == engine.Cursor{}
		near = near || p.From.Due.Before(time.Now().Add(-500*time.Millisecond))
	}
	switch {
	case far:
		s.far++
		<-time.After(400 * time.Millisecond)
	case near:
		s.near++
		<-time.After(40 * time.Millisecond)
	default:
		s.others++
	}
	return s.flood.Peek(ctx, probes)
}

// What gets dearer while an old snapshot is held takes a twentieth of the time at
// most, and is done all the same.
func TestDearLooksAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &swamp{flood: flood{shelf: &shelf{}, began: time.Now()}}
		w := newDrained(t, s, &vendor{}, time.Minute)
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, stop)
		r := run{Worker: w}
		require.NoError(t, r.run(ctx))
		require.InDelta(t, 60/8.4, s.far, 1)
		require.Greater(t, s.near+s.others, 200, "a busy worker looks around each %v", claimInterval)
		require.Greater(t, s.near, 20)
	})
}

func TestRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rare
		require.True(t, r.due(), "the first time")
		for n, c := range []struct{ took, want time.Duration }{
			{time.Second, 0},
			{time.Millisecond, 20 * time.Millisecond},
			{time.Hour, 20 * time.Millisecond}, // once, it stood still
			{time.Second, 20 * time.Second},
			{time.Hour, 20 * time.Second},
			{time.Hour, time.Minute},
		} {
			began := stopwatch()
			<-time.After(c.took)
			r.done(began)
			require.Equal(t, c.want, r.pause(), n)
			require.Equal(t, c.want == 0, r.due())
			<-time.After(c.want)
			require.True(t, r.due())
		}
	})
}
