package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The template was edited and the category moved to another queue while both
// confirmations waited for their retry. The first goes out as it was frozen:
// old words, old queue, once. The second was superseded: it never goes out, and
// its correction does, once, under a new key, with new words on the new queue.
func TestWhatWaitsStaysAsItWas(t *testing.T) {
	pool, _ := pgtest.Pool(t)
	s, err := tell(t.Context(), pool)
	require.NoError(t, err)

	got := map[dispatch.Key]dispatch.Envelope{}
	for _, e := range s.delivered {
		require.NotContains(t, got, e.Key, "one delivery for each key")
		got[e.Key] = e
	}
	require.Len(t, got, 2)

	old, ok := got[s.confirmed.Key]
	require.True(t, ok)
	require.Equal(t, "sales", old.Route)
	require.Equal(t, `Dear customer, a quote for "ten chairs" follows within two days.`, old.Content.(dispatch.Email).Text)
	require.Greater(t, s.confirmed.Attempts, 1)
	require.Equal(t, "quote", s.confirmed.Template.Name)

	require.Equal(t, dispatch.Cancelled, s.replaced.State)
	require.NotContains(t, got, s.replaced.Key)

	fresh, ok := got[s.corrected.Key]
	require.True(t, ok)
	require.NotEqual(t, s.replaced.Key, s.corrected.Key)
	require.Equal(t, "support", fresh.Route)
	require.Equal(t, "Dear customer, our prices are on our site now.", fresh.Content.(dispatch.Email).Text)
	require.Equal(t, "grace@example.com", fresh.Content.(dispatch.Email).To[0].Email)
	require.Equal(t, "quote", s.corrected.Template.Name)
	require.NotEqual(t, s.confirmed.Template.Revision, s.corrected.Template.Revision)
}
