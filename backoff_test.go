package dispatch_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

func TestBackoffBound(t *testing.T) {
	s := time.Second
	for _, c := range []struct {
		b    dispatch.Backoff
		want []time.Duration // after 1, 2, 3, ... attempts
	}{
		{dispatch.SMSPolicy().Backoff, []time.Duration{s / 2, s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s}},
		{dispatch.EmailPolicy().Backoff, []time.Duration{2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 32 * s}},
		{dispatch.Backoff{Base: 3 * s, Cap: 3 * s}, []time.Duration{3 * s, 3 * s}},
		{dispatch.Backoff{Base: s, Cap: math.MaxInt64}, []time.Duration{s, 2 * s}},
		// B052: spans that a random number can't be drawn from.
		{dispatch.Backoff{}, []time.Duration{1, 1}},
		{dispatch.Backoff{Base: 1, Cap: 3}, []time.Duration{1, 2, 3, 3}},
		{dispatch.Backoff{Base: -s, Cap: -s}, []time.Duration{1, 1}},
		{dispatch.Backoff{Base: math.MinInt64, Cap: s}, []time.Duration{1, 2, 4}},
		{dispatch.Backoff{Base: 5 * s, Cap: s}, []time.Duration{s, s}},
	} {
		for n, want := range c.want {
			assert.Equal(t, want, c.b.Bound(n+1), "%+v after %d", c.b, n+1)
		}
		assert.Equal(t, c.want[0], c.b.Bound(0), "B052: no attempt counts as one")
		assert.Equal(t, c.want[0], c.b.Bound(math.MinInt))
	}
}

// B051: no number of attempts overflows; the bound never goes down.
func TestBackoffBoundHoldsForAnyAttempt(t *testing.T) {
	for _, base := range []time.Duration{1, 3, time.Millisecond, time.Second, time.Hour, math.MaxInt64/2 + 1, math.MaxInt64} {
		for _, limit := range []time.Duration{1, time.Second, time.Minute, math.MaxInt64 / 2, math.MaxInt64} {
			b := dispatch.Backoff{Base: base, Cap: limit}
			last := time.Duration(0)
			for _, n := range []int{math.MinInt, -1, 0, 1, 2, 29, 30, 31, 32, 33, 34, 35, 62, 63, 64, 65, 1000, math.MaxInt32, math.MaxInt} {
				got := b.Bound(n)
				require.Positive(t, got, "%+v after %d", b, n)
				require.LessOrEqual(t, got, limit)
				require.GreaterOrEqual(t, got, last, "%+v after %d", b, n)
				last = got
			}
			require.Equal(t, limit, last)
		}
	}
}

// Every wait lies in (0, bound]; with a floor it is at least the floor, also
// above the cap, and no more than the spread above it.
func TestWaitKeepsItsBounds(t *testing.T) {
	least := func(int64) int64 { return 0 }
	most := func(n int64) int64 { return n - 1 }
	random := rand.New(rand.NewPCG(1, 2))
	anything := func() time.Duration {
		return time.Duration(random.Uint64()) >> random.IntN(63)
	}
	for range 20_000 {
		b := dispatch.Backoff{Base: anything(), Cap: anything()}
		spent, floor := int(anything()), anything()
		for _, draw := range []func(int64) int64{least, most, random.Int64N} {
			got := b.Wait(spent, floor, draw)
			kept := min(max(0, floor), dispatch.MaxFloor)
			what := fmt.Sprintf("%+v after %d, floor %d: %d", b, spent, floor, got)
			require.Positive(t, got, what)
			require.GreaterOrEqual(t, got, kept, what)
			require.LessOrEqual(t, got, max(b.Bound(spent), kept+max(time.Second, kept/10)), what)
		}
	}
}

// A floor decides only where the jitter lies below it, and then the fleet is
// spread over a second or a tenth of the floor.
func TestWaitWithFloor(t *testing.T) {
	b := dispatch.Backoff{Base: 8 * time.Second, Cap: 8 * time.Second}
	draws := func(ns ...time.Duration) func(int64) int64 {
		return func(n int64) int64 {
			d := ns[0]
			ns = ns[1:]
			require.Less(t, int64(d), n)
			return int64(d)
		}
	}
	s := time.Second
	assert.Equal(t, 5*s+1, b.Wait(1, 0, draws(5*s)))
	assert.Equal(t, 5*s+1, b.Wait(1, 4*s, draws(5*s)), "above the floor the jitter stays")
	assert.Equal(t, 5*s+1, b.Wait(1, 5*s+1, draws(5*s)))
	assert.Equal(t, 6*s+s/2, b.Wait(1, 6*s, draws(5*s, s/2)), "below it the floor is spread")
	assert.Equal(t, 100*s+9*s, b.Wait(1, 100*s, draws(5*s, 9*s)), "a tenth of a long one, above the cap")
	assert.Equal(t, 5*s+1, b.Wait(1, -5*s, draws(5*s)), "B044: a negative floor is none")
	assert.Equal(t, dispatch.MaxFloor, b.Wait(1, math.MaxInt64, draws(5*s, 0)))
}

// Full jitter: uniform over the whole span, with hardly a draw at the cap
// (B050). The seed is fixed, so that the figures are too.
func TestWaitIsFullJitter(t *testing.T) {
	const draws = 100_000
	random := rand.New(rand.NewPCG(7, 7))
	b := dispatch.Backoff{Base: time.Second, Cap: 10 * time.Minute}
	var sum float64
	var atCap, tenths [10]int
	for range draws {
		w := b.Wait(20, 0, random.Int64N)
		sum += float64(w)
		tenths[min(9, int(w*10/b.Cap))]++
		if w == b.Cap {
			atCap[0]++
		}
	}
	assert.InEpsilon(t, float64(b.Cap)/2, sum/draws, 0.01, "the mean is half the cap")
	for n, count := range tenths {
		assert.InEpsilon(t, draws/10, count, 0.05, "tenth %d", n)
	}
	assert.LessOrEqual(t, atCap[0], 3)
}
