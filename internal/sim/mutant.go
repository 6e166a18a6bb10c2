package sim

import (
	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// flag is a planted bug that a branch of the simulation knows by name.
type flag int8

const (
	noFlag flag = iota
	auditsAnswered
	auditsAll
	losesEvidence
	anyBytes
)

// Mutant is a planted bug: it bends what passes between the engine and its
// surroundings. A nil Mutant bends nothing.
type Mutant struct {
	Name string

	flag       flag
	onSetup    func(w *world)
	onContract func(c *dispatch.Contract)
	onClaim    func(c *engine.Claim)
	onTasks    func(tasks []engine.Task)
	onPage     func(k *worker, tasks []engine.Task)
	onChange   func(w *world, c *engine.Change)
	onResult   func(w *world, c *engine.Change, r *engine.Result)
	onEdit     func(v engine.View, e engine.Edit) engine.Edit
	onVerb     func(name string, v decide.Verb) decide.Verb
}

func (m *Mutant) is(f flag) bool { return m != nil && m.flag == f }

func (m *Mutant) setup(w *world) {
	if m != nil && m.onSetup != nil {
		m.onSetup(w)
	}
}

func (m *Mutant) contract(c *dispatch.Contract) {
	if m != nil && m.onContract != nil {
		m.onContract(c)
	}
}

func (m *Mutant) claim(c *engine.Claim) {
	if m != nil && m.onClaim != nil {
		m.onClaim(c)
	}
}

func (m *Mutant) tasks(tasks []engine.Task) {
	if m != nil && m.onTasks != nil {
		m.onTasks(tasks)
	}
}

func (m *Mutant) page(k *worker, tasks []engine.Task) {
	if m != nil && m.onPage != nil {
		m.onPage(k, tasks)
	}
}

func (m *Mutant) change(w *world, c *engine.Change) {
	if m != nil && m.onChange != nil {
		m.onChange(w, c)
	}
}

func (m *Mutant) result(w *world, c *engine.Change, r *engine.Result) {
	if m != nil && m.onResult != nil {
		m.onResult(w, c, r)
	}
}

func (m *Mutant) edit(change func(engine.View) (engine.Edit, error)) func(engine.View) (engine.Edit, error) {
	if m == nil || m.onEdit == nil {
		return change
	}
	return func(v engine.View) (engine.Edit, error) {
		e, err := change(v)
		if err != nil {
			return e, err
		}
		return m.onEdit(v, e), nil
	}
}

func (m *Mutant) verb(name string, v decide.Verb) decide.Verb {
	if m == nil || m.onVerb == nil {
		return v
	}
	return m.onVerb(name, v)
}
