package console

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/outbox"
)

func TestToken(t *testing.T) {
	now := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	one, other := tokens{secret: []byte("one")}, tokens{secret: []byte("other")}
	token := one.issue("ada", now)
	require.True(t, one.valid(token, "ada", now))
	require.True(t, one.valid(token, "ada", now.Add(tokenLife-time.Second)))
	require.False(t, one.valid(token, "ada", now.Add(tokenLife)), "it ends")
	require.False(t, one.valid(token, "ad", now))
	require.False(t, other.valid(token, "ada", now))
	for i := range len(token) {
		changed := []byte(token)
		changed[i] ^= 1
		require.False(t, one.valid(string(changed), "ada", now), "byte %d", i)
	}
	for _, bad := range []string{"", ".", "1", "1.", ".x", token + "A", token + "=", " " + token} {
		require.False(t, one.valid(bad, "ada", now), bad)
	}
}

func TestWords(t *testing.T) {
	now := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	v := view{Now: now}
	for d, want := range map[time.Duration]string{
		0: "just now", -time.Second: "just now", 59 * time.Second: "59 s ago", time.Minute: "1 min ago", 90 * time.Minute: "1 h 30 min ago", 50 * time.Hour: "2 days ago",
		-2 * time.Hour: "in 2 h 0 min",
	} {
		require.Equal(t, want, v.Ago(now.Add(-d)), d)
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		require.Equal(t, want, number(n))
	}
	for d, want := range map[time.Duration]string{0: "none", 25 * time.Millisecond: "≤25ms", 25600 * time.Millisecond: "≤25.6s", 51200 * time.Millisecond: ">25.6s"} {
		require.Equal(t, want, bound(d))
	}
	for path, want := range map[string]string{"": "./", "/": "./", "/messages": "./", "/messages/x": "../", "/a/b/c": "../../"} {
		require.Equal(t, want, root(path), path)
	}
}

// One failure among thousands is seen, and no bar leaves the picture.
func TestCharts(t *testing.T) {
	now := time.Date(2026, 11, 30, 3, 0, 30, 0, time.UTC)
	last := now.Truncate(time.Minute)
	all := charts([]outbox.Trend{
		{Provider: "a", From: last.Add(-2 * time.Hour), Accepted: 1e6},
		{Provider: "a", From: last.Add(-time.Minute), Accepted: 100_000, Failed: 1},
		{Provider: "a", From: last, Failed: 3},
		{Provider: "b", From: last, Accepted: 1},
		{Provider: "b", From: last.Add(time.Hour), Accepted: 1},
	}, now)
	require.Len(t, all, 2)
	require.Equal(t, "a in the last hour: 100,000 accepted, 4 failed, most of them (3) at 03:00 UTC", all[0].Label)
	require.Len(t, all[0].Bars, 2, "what is older is left out")
	for _, c := range all {
		for _, b := range c.Bars {
			require.GreaterOrEqual(t, b.FailTop, 0.0)
			require.InDelta(t, barHeight, b.FailHeight+b.OKHeight+b.FailTop, 1e-9)
			require.GreaterOrEqual(t, b.X, 0.0)
			require.LessOrEqual(t, b.X, 590.0)
			require.Equal(t, b.HasFail, b.FailHeight >= leastBar)
			require.Equal(t, b.HasAccepted, b.OKHeight > 0)
		}
	}
}
