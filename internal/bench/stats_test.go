package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMedianDoesNotDependOnTheOrder(t *testing.T) {
	t.Parallel()
	s := series{9, 1, 5}
	require.InDelta(t, 5, s.median(), 0)
	require.Equal(t, series{9, 1, 5}, s, "the rounds keep their order")
	require.InDelta(t, 3, series{5, 1}.median(), 0)
	require.InDelta(t, 7, series{7}.median(), 0)
	require.True(t, math.IsNaN(series{}.median()))
	require.InDelta(t, 1, s.min(), 0)
	require.InDelta(t, 9, s.max(), 0)
}

func TestRatioIsOfTheMedians(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 2, ratio(series{1, 4, 100}, series{2, 2, 2}), 0)
	require.True(t, math.IsNaN(ratio(series{1}, series{0})))
	require.True(t, math.IsNaN(ratio(series{1}, nil)))
}

func TestPercentileIsAMeasuredValue(t *testing.T) {
	t.Parallel()
	var v []time.Duration
	for i := range 100 {
		v = append(v, time.Duration(100-i))
	}
	require.Equal(t, time.Duration(50), percentile(v, 0.5))
	require.Equal(t, time.Duration(99), percentile(v, 0.99))
	require.Equal(t, time.Duration(100), percentile(v, 1))
	require.Equal(t, time.Duration(7), percentile([]time.Duration{7}, 0.01))
	require.Zero(t, percentile(nil, 0.5))
}

func TestShort(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0.274: "0.27", 4.9: "4.90", 12.34: "12.3", 99.96: "100", 873.4: "873", 999.6: "1.00k", 63421: "63.4k", 142e3: "142k", math.NaN(): "-",
	} {
		require.Equal(t, want, short(v))
	}
}

func TestResultLineKeepsItsOrder(t *testing.T) {
	t.Parallel()
	r := result{"cpu_ratio": math.NaN(), "enqueue_ratio": 2.345, "worked_noop_ratio": 4.2}
	require.Equal(t, "RESULT worked_noop_ratio=4.20 enqueue_ratio=2.35 cpu_ratio=-", r.line())
}
