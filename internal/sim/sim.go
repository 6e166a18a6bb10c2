// Package sim plays histories: the worker's own steps (package engine) and its
// own decisions (package decide) over a database, vendors and processes that
// are modelled, with whatever may go wrong drawn from a seed. A referee with
// books of its own judges each move. One seed is one history, always the same.
//
// A history that breaks a promise is printed as a story and can be played
// again. That the simulation can fail is shown by planted bugs, which live in
// this package only and wrap what passes between the engine and its
// surroundings.
package sim

import (
	"math/rand/v2"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/form"
)

// Report is what came of one history.
type Report struct {
	Seed       uint64
	Steps      int
	Violations []string
	Residue    []string
	Story      string // "" unless it was asked for
}

// Player plays histories one after the other. It is not safe for concurrent
// use: give each goroutine its own, and Close it in the end.
type Player struct {
	// Mutant is the planted bug, nil for none.
	Mutant *Mutant
	// Story asks for each history's story.
	Story bool
	// Effects judges only what the world sees: second acceptances, losses, wrong
	// ends; not the moves that lead there.
	Effects bool
	// Cover counts what the histories reached.
	Cover Coverage

	pool pool
}

// Close ends the player's coroutines.
func (l *Player) Close() { l.pool.close() }

// Play plays the history of a seed.
func (l *Player) Play(seed uint64) Report {
	pcg := rand.NewPCG(seed, 0x64697370617463)
	w := &world{pcg: pcg, pool: &l.pool, mutant: l.Mutant, cover: &l.Cover}
	if l.Story {
		w.story = &story{}
	}
	w.db.w, w.ref.w = w, w
	w.ref.blind = l.Effects
	l.Mutant.setup(w)
	w.draw(seed)
	w.run()
	w.clear()
	report := Report{Seed: seed, Steps: w.steps, Violations: w.ref.violations, Residue: w.ref.residue}
	if w.story != nil {
		report.Story = w.story.b.String()
	}
	return report
}

// forms are the contents of the messages, which nothing here depends on.
var forms = func() (list [maxMessages][]byte) {
	for i := range list {
		list[i] = form.Encode(dispatch.SMS{To: "+1555555010" + string(rune('0'+i)), Body: "hello"})
	}
	return list
}()
