package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A seed is a run: the same faults at the same times, another seed's are
// others, and whatever the seed, each kind of fault comes.
func TestSchedule(t *testing.T) {
	require.Equal(t, schedule(5, 150*time.Second, 0), schedule(5, 150*time.Second, 0))
	require.NotEqual(t, schedule(5, 150*time.Second, 0), schedule(6, 150*time.Second, 0))
	for seed := range uint64(200) {
		count := map[string]int{}
		last := time.Duration(0)
		for _, f := range schedule(seed, 150*time.Second, 0) {
			count[f.kind]++
			require.GreaterOrEqual(t, f.at, last)
			require.Less(t, f.at, 150*time.Second)
			last = f.at
			switch f.kind {
			case freeze:
				require.Greater(t, f.last, leaseTime, "shorter than a lease, it proves nothing")
			case late:
				require.Greater(t, f.n, int(lag.Milliseconds()))
			}
		}
		for _, c := range deck {
			require.Equal(t, 4*c.times, count[c.kind], "seed %d: %s", seed, c.kind)
		}
		require.GreaterOrEqual(t, count[kill], 10)
		require.GreaterOrEqual(t, count[crash], 3)
		require.Equal(t, 1, count[deploy])
	}
}

// The soak's steady worker is never killed.
func TestScheduleSparesTheSteadyWorker(t *testing.T) {
	for seed := range uint64(50) {
		for _, f := range schedule(seed, 10*time.Minute, 1) {
			require.False(t, f.kind == kill && f.target == workerName(0), "%v", f)
		}
	}
}

// A message is the same in every process and at every try, and each route and
// each kind of message comes.
func TestPlan(t *testing.T) {
	a, err := newPlan(3, 5000)
	require.NoError(t, err)
	b, err := newPlan(3, 10)
	require.NoError(t, err)
	routes, kinds := map[string]int{}, map[string]int{}
	for n := range a.messages {
		m := a.message(n)
		require.Equal(t, m, b.message(n))
		require.NotEqual(t, m.key, a.ghost(n).key)
		routes[m.route]++
		for name, is := range map[string]bool{"unwanted": m.unwanted, "short": m.validFor > 0, "notify": m.notify != 0} {
			if is {
				kinds[name]++
			}
		}
		if m.validFor > 0 {
			require.Contains(t, []string{"searched", "brief"}, m.route, "others may not end before their vendor could tell")
		}
	}
	for _, s := range shares {
		require.InDelta(t, s.of100*50, routes[s.route], 150, s.route)
	}
	require.Len(t, kinds, 3)
}
