package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// series is what one figure was in each round.
type series []float64

// median of an even number of values is the mean of the two in the middle;
// without values it is not a number.
func (s series) median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(s))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func (s series) min() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return slices.Min(s)
}

func (s series) max() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return slices.Max(s)
}

// ratio of the medians, not a number where there is nothing to divide.
func ratio(a, b series) float64 {
	if d := b.median(); d != 0 {
		return a.median() / d
	}
	return math.NaN()
}

// percentile is the smallest value that at least p of the values do not
// exceed, p in (0, 1]: nearest rank, so it is always one that was measured.
func percentile(values []time.Duration, p float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p * float64(len(v))))
	return v[min(max(rank, 1), len(v))-1]
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// short writes a number with three significant digits, so that no digit is
// noise: 63421 as 63.4k.
func short(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case a >= 999.5:
		return digits(v/1000) + "k"
	default:
		return digits(v)
	}
}

func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case a >= 9.995:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

func (s series) String() string {
	return fmt.Sprintf("%s (%s to %s)", short(s.median()), short(s.min()), short(s.max()))
}

// resultKeys is the order of the last line.
var resultKeys = []string{
	"worked_noop_ratio", "worked_http_ratio", "enqueue_ratio", "enqueue_pipelined_ratio", "bulk_ratio", "latency_p99_ms",
	"cpu_ratio", "wal_ratio", "backlog_slowdown", "held_ratio", "settle_lag_p99_ms", "console_p95_ms",
}

// result is the last line.
type result map[string]float64

// line has what was measured, and a dash where that could not be done.
func (r result) line() string {
	var b strings.Builder
	b.WriteString("RESULT")
	for _, k := range resultKeys {
		if v, ok := r[k]; ok {
			fmt.Fprintf(&b, " %s=%s", k, short(v))
		}
	}
	return b.String()
}
