package sim

import (
	"context"
	"sync"
	"sync/atomic"
)

// Crowd plays many histories on several cores. Its goroutines share nothing
// but the count of seeds: each has a Player of its own.
type Crowd struct {
	Histories int
	Seed      uint64
	Workers   int
	Mutant    *Mutant
	// Effects is Player.Effects.
	Effects bool
	// First ends the play at the first violation.
	First bool
	// Each, where set, gets each report with its story; Workers must be 1.
	Each func(r Report)
}

// Total is what came of all histories.
type Total struct {
	Histories    int
	Violations   int
	Residue      int
	ResidueSeeds []uint64 // the first few
	Steps        int
	Cover        Coverage
	// Failed is the report of the lowest seed that broke a promise, with its
	// story; nil where none did.
	Failed *Report
}

// Play plays all histories, or until ctx ends.
func (c *Crowd) Play(ctx context.Context) Total {
	var next atomic.Int64
	var stop atomic.Bool
	totals := make([]Total, max(1, c.Workers))
	var wg sync.WaitGroup
	for i := range totals {
		wg.Go(func() { c.play(ctx, &totals[i], &next, &stop) })
	}
	wg.Wait()
	t := totals[0]
	for i := range totals[1:] {
		t.add(&totals[i+1])
	}
	if t.Failed != nil {
		l := Player{Mutant: c.Mutant, Effects: c.Effects, Story: true}
		defer l.Close()
		r := l.Play(t.Failed.Seed)
		t.Failed = &r
	}
	return t
}

func (c *Crowd) play(ctx context.Context, t *Total, next *atomic.Int64, stop *atomic.Bool) {
	l := Player{Mutant: c.Mutant, Effects: c.Effects, Story: c.Each != nil}
	defer l.Close()
	for ctx.Err() == nil && !stop.Load() {
		n := next.Add(1) - 1
		if n >= int64(c.Histories) {
			break
		}
		r := l.Play(c.Seed + uint64(n)) // #nosec G115 -- not negative
		t.Histories++
		t.Steps += r.Steps
		if len(r.Residue) > 0 {
			t.Residue++
			if len(t.ResidueSeeds) < 3 {
				t.ResidueSeeds = append(t.ResidueSeeds, r.Seed)
			}
		}
		if len(r.Violations) > 0 {
			t.Violations++
			if t.Failed == nil || r.Seed < t.Failed.Seed {
				t.Failed = &r
			}
			if c.First {
				stop.Store(true)
			}
		}
		if c.Each != nil {
			c.Each(r)
		}
	}
	t.Cover = l.Cover
}

func (t *Total) add(o *Total) {
	t.Histories += o.Histories
	t.Violations += o.Violations
	t.Residue += o.Residue
	t.ResidueSeeds = append(t.ResidueSeeds, o.ResidueSeeds...)
	t.Steps += o.Steps
	t.Cover.add(&o.Cover)
	if o.Failed != nil && (t.Failed == nil || o.Failed.Seed < t.Failed.Seed) {
		t.Failed = o.Failed
	}
}
