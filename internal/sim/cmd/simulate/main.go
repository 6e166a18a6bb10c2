// Command simulate plays histories of the simulation, or shows that each
// planted bug is caught. Its last line is the result.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch/internal/sim"
)

func main() {
	histories := flag.Int("histories", 200_000, "how many histories to play")
	seed := flag.Uint64("seed", 1, "seed of the first one")
	story := flag.Bool("story", false, "print each history")
	mutants := flag.Bool("mutants", false, "play the planted bugs instead")
	name := flag.String("mutant", "", "plant this bug")
	flag.Parse()
	debug.SetGCPercent(800) // much garbage, little that lives
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := &printer{w: os.Stdout}
	err := errors.New("no such mutant: " + *name)
	switch m := sim.MutantNamed(*name); {
	case *mutants:
		err = playMutants(ctx, out, *histories, *seed)
	case m != nil || *name == "":
		err = play(ctx, out, m, *histories, *seed, *story)
	}
	if err = errors.Join(err, out.err); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// printer keeps the first error of its writer.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(p.w, format, args...); p.err == nil {
		p.err = err
	}
}

// play plays the histories on every core. It prints the story of the first
// that breaks a promise.
func play(ctx context.Context, out *printer, m *sim.Mutant, histories int, seed uint64, story bool) error {
	began := time.Now()
	sum := sim.Crowd{Histories: histories, Seed: seed, Workers: runtime.GOMAXPROCS(0), Mutant: m}
	if story {
		sum.Workers = 1
		sum.Each = func(r sim.Report) { out.printf("%s\n", r.Story) }
	}
	t := sum.Play(ctx)
	if t.Failed != nil {
		out.printf("%s\n%s\nreplay: go run ./internal/sim/cmd/simulate -seed %d -histories 1 -story\n",
			t.Failed.Story, strings.Join(t.Failed.Violations, "\n"), t.Failed.Seed)
	}
	if err := t.Cover.Write(out.w); err != nil {
		return err
	}
	out.printf("residue: %d histories, for example seeds %v\n", t.Residue, t.ResidueSeeds)
	missing := t.Cover.Missing()
	if len(missing) > 0 {
		out.printf("never reached: %s\n", strings.Join(missing, ", "))
	}
	out.printf("took %v\n", time.Since(began).Round(time.Millisecond))
	out.printf("RESULT histories=%d violations=%d residue=%d steps=%d\n", t.Histories, t.Violations, t.Residue, t.Steps)
	switch {
	case t.Violations > 0:
		return errors.New("a promise was broken")
	case len(missing) > 0 && histories >= 100_000:
		return errors.New("something was never reached")
	}
	return ctx.Err()
}

// playMutants plays each planted bug until it is caught: by its moves, and by
// its effects alone, for which it gets as many histories again.
func playMutants(ctx context.Context, out *printer, histories int, seed uint64) error {
	caught, seen := 0, 0
	mutants := sim.Mutants()
	for _, m := range mutants {
		crowd := sim.Crowd{Histories: histories, Seed: seed, Workers: runtime.GOMAXPROCS(0), Mutant: m, First: true}
		t := crowd.Play(ctx)
		if t.Failed == nil {
			out.printf("%-40s NOT CAUGHT in %d histories\n", m.Name, t.Histories)
			continue
		}
		caught++
		out.printf("%-40s seed %-6d %s\n", m.Name, t.Failed.Seed, t.Failed.Violations[0])
		crowd.Effects = true
		if t = crowd.Play(ctx); t.Failed != nil {
			seen++
			out.printf("%-40s seed %-6d %s\n", "", t.Failed.Seed, t.Failed.Violations[0])
		}
	}
	out.printf("%d of them by their effects alone: what vendors got, what was lost, what rows said in the end\n", seen)
	out.printf("RESULT mutants=%d caught=%d\n", len(mutants), caught)
	if caught < len(mutants) {
		return errors.New("a planted bug was not caught")
	}
	return ctx.Err()
}
