package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What grows is told, by its name; what is flat, or grows only while the run
// warms up, isn't.
func TestGrowthIsTold(t *testing.T) {
	flat := func() (all []sample) {
		for i := range 30 {
			s := sample{
				at: time.Duration(i) * sampleEvery, rss: 60 << 20, heap: 12 << 20, goroutines: 80, conns: 30, work: 20 << 20,
				messages: int64(i+1) * 600, kept: int64(i+1) * 600 * 1100,
			}
			if i < 8 {
				s.rss /= 2
			}
			all = append(all, s)
		}
		return all
	}
	require.Empty(t, tellSamples(flat()))
	require.ErrorContains(t, tellSamples(flat()[:5])[0], "too few")
	for name, grow := range map[string]func(s *sample, i int64){
		"rss":         func(s *sample, i int64) { s.rss += i << 22 },
		"heap":        func(s *sample, i int64) { s.heap += i << 21 },
		"goroutines":  func(s *sample, i int64) { s.goroutines += i * 6 },
		"connections": func(s *sample, i int64) { s.conns += 2 * i },
		"work tables": func(s *sample, i int64) { s.work += i << 20 * 3 },
		"kept bytes":  func(s *sample, i int64) { s.kept += i * i * 60_000 },
	} {
		all := flat()
		for i := range all {
			grow(&all[i], int64(i))
		}
		problems := tellSamples(all)
		require.Len(t, problems, 1, name)
		require.ErrorContains(t, problems[0], name)
	}
}
