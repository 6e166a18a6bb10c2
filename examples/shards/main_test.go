package main

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// One process drains two databases. Each message lives in one of them and is
// delivered once; while one is away, at the start or later, the other goes on,
// at its own share of the vendor's rate, and what is on the other waits.
func TestADatabaseThatIsAwayKeepsOnlyItsOwn(t *testing.T) {
	name := "shard_" + strings.ToLower(rand.Text()[:16])
	s, err := tell(t.Context(), pgtest.DirectURL(t), name+"_one", name+"_two")
	require.NoError(t, err)

	require.Len(t, s.deliveries, 48)
	on := map[string]int{}
	for key, n := range s.deliveries {
		require.Equal(t, 1, n, "deliveries of %s", key)
		require.Len(t, s.places[key], 1, "where %s is known", key)
		on[s.places[key][0]]++
	}
	require.Len(t, on, 2)
	require.Greater(t, on[name+"_one"], 15)
	require.Greater(t, on[name+"_two"], 15)

	require.Positive(t, s.first)
	require.Zero(t, s.early, "it was away")
	require.Positive(t, s.second)
	require.Error(t, s.refused)

	// What the first database may send without waiting, and then at its share.
	const share, burst = perSecond / 2, perSecond / 2 / 4
	least := time.Duration(s.first-burst) * time.Second / share
	require.Greater(t, s.took, least*9/10, "%d messages at %d a second", s.first, share)
}
