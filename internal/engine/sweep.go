package engine

import (
	"context"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// sweeper is where the sweep of each lane has come to.
type sweeper struct{ cursors map[string]Cursor }

// pageSize is how many due rows of a lane one step of the sweep looks at.
const pageSize = 500

// Lookup is a row that was claimed to ask its provider about.
type Lookup struct {
	Task  Task
	asked time.Time // the database's clock before it is asked
	Ask   func(ctx context.Context, q dispatch.Query) (dispatch.Found, error)
	Query dispatch.Query
}

// Sweep makes one step over every lane that holds rows, those of routes and
// providers unknown here too: the lane's first due rows, where the claimed
// ones lie, and one page further on. It ends leases, deadlines, budgets and
// doubts, and claims at most lookups rows to ask about. swept counts the moves.
func (e *Engine) Sweep(ctx context.Context, lookups int) (todo []Lookup, swept []Change, err error) {
	names, err := e.store.Lanes(ctx)
	if err != nil {
		return nil, nil, err
	}
	next := map[string]Cursor{}
	for _, name := range names {
		pages := []Cursor{{}}
		if c, ok := e.sweep.cursors[name]; ok {
			pages = append(pages, c)
		}
		for _, after := range pages {
			rows, cursor, more, err := e.store.Page(ctx, name, after, pageSize)
			if err != nil {
				return todo, swept, err
			}
			if more {
				next[name] = cursor
			} else {
				delete(next, name)
			}
			ask, moved, err := e.tend(ctx, rows, lookups-len(todo))
			todo, swept = append(todo, ask...), append(swept, moved...)
			if err != nil {
				return todo, swept, err
			}
		}
	}
	e.sweep.cursors = next
	return todo, swept, nil
}

func (e *Engine) tend(ctx context.Context, rows []Task, lookups int) (todo []Lookup, moved []Change, err error) {
	var changes []Change
	tasks := map[dispatch.Key]*Task{}
	for i := range rows {
		t := &rows[i]
		s := e.setup(t)
		m, ok := s.Tend(t.Row)
		if !ok {
			continue
		}
		if m.Rule == decide.RuleSwept {
			// No worker begins such a send: Begin hands it back. Its worker died
			// before it could, and nothing has left.
			switch {
			case t.Astray():
				m = s.Unstarted(t.Row, t.Now, 0)
			case !hasSender(t.Senders, t.Provider):
				m = s.Unusable(t.Row, t.Now)
			}
		}
		if m.Rule == decide.RuleLookup {
			if lookups <= 0 {
				continue
			}
			lookups--
		}
		tasks[t.Key] = t
		changes = append(changes, Change{Key: t.Key, Fence: t.Fence, From: t.State, Idle: true, Move: m, Record: tended(t, m)})
	}
	if len(changes) == 0 {
		return nil, nil, nil
	}
	prepare(changes)
	results, err := e.store.Apply(ctx, changes)
	if err != nil {
		return nil, nil, err
	}
	for i, r := range results {
		if r.Status != Applied {
			continue
		}
		c := changes[i]
		if c.Move.Rule != decide.RuleLookup {
			c.Move.To, c.Move.Reason = r.State, r.Reason // the statement decides what pending stands for
			moved = append(moved, c)
			continue
		}
		t := *tasks[c.Key]
		t.Fence, t.Lookups, t.Now = t.Fence+1, c.Move.Lookups, r.Now
		l, ok, err := e.lookup(ctx, t)
		if err != nil {
			return todo, moved, err
		}
		if ok {
			todo = append(todo, l)
		}
	}
	return todo, moved, nil
}

// tended is the record of a move of the sweep; the rest leaves no trace but
// the row's own.
func tended(t *Task, m decide.Move) Record {
	switch m.Rule { //nolint:exhaustive // the sweep makes few of the moves
	case decide.RuleSwept:
		return Record{
			Kind: KindSwept, Provider: t.Provider, Account: t.Account,
			Evidence: dispatch.Evidence{Cause: dispatch.CauseSwept},
			Verdict:  dispatch.Verdict{Outcome: dispatch.Unknown, Reason: "no word of the worker until its lease ended"},
		}
	case decide.RuleEnd, decide.RuleLapsedEnded, decide.RuleLapsedHold, decide.RuleLapsedAgain, decide.RuleLapsedDead:
		return Record{Kind: KindMoved, Provider: t.Provider, Account: t.Account}
	default: // a look-up claims, a later one only waits
		return Record{}
	}
}

func (e *Engine) lookup(ctx context.Context, t Task) (Lookup, bool, error) {
	b, ok := e.providers[t.Provider]
	if !ok {
		return Lookup{}, false, nil
	}
	t, err := e.store.Load(ctx, t)
	if err != nil {
		return Lookup{}, false, err
	}
	content, err := e.content(&t)
	if err != nil { // its lease ends, and a worker that can read it asks
		return Lookup{}, false, nil //nolint:nilerr // the row is left alone
	}
	leg, _ := t.Ledger.Leg(t.Provider, t.Account)
	q := dispatch.Query{Key: t.Key, Content: content, From: t.From, Since: leg.First, Until: leg.Reach}
	return Lookup{Task: t, asked: t.Now, Ask: b.provider.Lookup, Query: q}, true, nil
}

// Do asks. A panic of the adapter is an answer that says nothing.
func (l Lookup) Do(ctx context.Context) (f dispatch.Found, err error) {
	defer func() {
		if recover() != nil {
			f, err = dispatch.Found{}, &dispatch.Fault{Verdict: dispatch.Verdict{Reason: "adapter panicked"}}
		}
	}()
	return l.Ask(ctx, l.Query)
}

// Timeout is how long Do may take.
func (e *Engine) Timeout(l Lookup) time.Duration {
	c, _ := e.contract(l.Task.Provider)
	return c.AttemptTimeout()
}

// FinishLookup turns the answer to a look-up into the change to settle.
// elapsed is the time since before Sweep returned it.
func (e *Engine) FinishLookup(l Lookup, f dispatch.Found, err error, elapsed time.Duration) Change {
	if err != nil {
		f = dispatch.Found{}
	}
	t := &l.Task
	m := e.setup(t).AfterLookup(t.Row, f, l.asked, t.Now.Add(elapsed))
	c := Change{
		Key: t.Key, Fence: t.Fence, From: dispatch.InDoubt, Move: m,
		Record: Record{Kind: KindLookup, Provider: t.Provider, Account: t.Account, ProviderID: f.ID},
	}
	c.Record.Verdict.Reason = f.Presence.String()
	if f.Presence == dispatch.Present {
		c.Record.Verdict.Outcome = dispatch.OK
	}
	if err != nil {
		c.Record.Verdict.Reason = "look-up failed"
	}
	return c
}
