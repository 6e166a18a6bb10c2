package sim

import (
	"slices"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// Mutants returns the planted bugs, each a way in which queues and
// notification systems send twice, lose or lie.
func Mutants() []*Mutant {
	return slices.Concat(mutantsOfSettle(), mutantsOfClaim(), mutantsOfDoubt(), mutantsOfTruth())
}

// MutantNamed returns the planted bug with a name, nil where there is none.
func MutantNamed(name string) *Mutant {
	for _, m := range Mutants() {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// closed forgets what may have been accepted.
func closed(l decide.Ledger) decide.Ledger {
	return l.Remark(decide.Open, decide.Closed).Remark(decide.Waived, decide.Closed)
}

// repeat turns a change into one that sends the message again as if nothing
// had been accepted.
func repeat(c *engine.Change, to string) {
	m := &c.Move
	m.Rule, m.To, m.Reason = decide.RuleRefused, dispatch.Pending, dispatch.NoReason
	m.Ledger, m.Lane.Provider, m.Wait, m.NotBefore = closed(m.Ledger), to, time.Second, time.Time{}
}

func other(w *world, provider string) string {
	for _, v := range w.vendors {
		if v.name != provider {
			return v.name
		}
	}
	return ""
}

// mutantsOfSettle judge the outcome of a send wrongly.
func mutantsOfSettle() []*Mutant {
	return []*Mutant{
		{Name: "unknown treated as failed", onChange: func(_ *world, c *engine.Change) {
			if c.Move.Rule == decide.RuleUnknown {
				repeat(c, c.Move.Lane.Provider)
			}
		}},
		{Name: "failover on unknown", onChange: func(w *world, c *engine.Change) {
			if to := other(w, c.Record.Provider); c.Move.Rule == decide.RuleUnknown && to != "" {
				repeat(c, to)
			}
		}},
		{Name: "refused repeat taken as final", onChange: func(_ *world, c *engine.Change) {
			if c.Move.Rule == decide.RuleRefusedOpen && c.Record.Verdict.Scope == dispatch.Message {
				m := &c.Move
				m.Rule, m.To, m.Reason, m.Ledger = decide.RuleMessageRefused, dispatch.Dead, dispatch.ReasonRejected, closed(m.Ledger)
			}
		}},
		{Name: "refused repeat fails over", onChange: func(w *world, c *engine.Change) {
			if to := other(w, c.Record.Provider); c.Move.Rule == decide.RuleRefusedOpen && to != "" {
				repeat(c, to)
			}
		}},
		{Name: "refusal leaves the waived waived", onChange: func(_ *world, c *engine.Change) {
			if m := &c.Move; m.Rule == decide.RuleRefusedOpen && m.Ledger.Count(decide.Open) == 1 {
				m.Rule, m.To, m.Ledger = decide.RuleRefused, dispatch.Pending, m.Ledger.Remark(decide.Open, decide.Waived)
				m.NotBefore, m.Wait = time.Time{}, time.Second
			}
		}},
		{Name: "floor capped", onChange: func(w *world, c *engine.Change) {
			limit := w.clock().Add(5 * time.Second)
			c.Move.NotBefore = sooner(c.Move.NotBefore, limit)
			c.Move.Wait = min(c.Move.Wait, 5*time.Second)
			c.Move.Ledger = slices.Clone(c.Move.Ledger)
			for i := range c.Move.Ledger {
				c.Move.Ledger[i].Until = sooner(c.Move.Ledger[i].Until, limit)
			}
		}},
		{Name: "settle doesn't see a cancel", onSetup: func(w *world) { w.db.blindSettle = true }},
		{Name: "account refusal spends and returns", onChange: func(_ *world, c *engine.Change) {
			if c.Move.Rule == decide.RuleRefused && c.Move.Spent > 0 {
				c.Move.Spent-- // every refusal is free
			}
		}},
	}
}

func sooner(t, limit time.Time) time.Time {
	if t.After(limit) {
		return limit
	}
	return t
}

// mutantsOfClaim take rows that are another's, or not to be sent.
func mutantsOfClaim() []*Mutant {
	return []*Mutant{
		{Name: "no fence", onSetup: func(w *world) { w.db.noFence = true }},
		{Name: "attempt number as the fence", onSetup: func(w *world) { w.db.spentFence = true }},
		{Name: "superseded row sent again", onSetup: func(w *world) { w.db.sendEnded = true }},
		{Name: "deadline not read by the claim", onSetup: func(w *world) { w.db.sendExpired = true }},
		{
			Name:       "window ignored",
			onContract: func(c *dispatch.Contract) { c.Dedupe.Window *= 1000 },
		},
		{Name: "window of the first repeat only", onChange: func(w *world, c *engine.Change) {
			if c.Move.To != dispatch.InDoubt || c.Move.Spent < 2 {
				return
			}
			c.Move.First = w.clock() // each repeat starts the window anew
			c.Move.Ledger = slices.Clone(c.Move.Ledger)
			for i := range c.Move.Ledger {
				c.Move.Ledger[i].First = c.Move.First
			}
		}},
		{Name: "encoding not compared", flag: anyBytes, onContract: func(c *dispatch.Contract) { c.Encoding = 1 }},
		{Name: "audit of an answered claim", flag: auditsAnswered},
		{Name: "audit of every claim", flag: auditsAll},
		{Name: "lease ignored by the sweeper", onSetup: func(w *world) { w.db.noLease = true }},
		{Name: "swept to pending", onChange: func(_ *world, c *engine.Change) {
			if c.Move.Rule == decide.RuleSwept {
				repeat(c, c.Move.Lane.Provider)
				c.Move.Rule = decide.RuleSwept
			}
		}},
		{Name: "lease too short for an attempt", onTasks: func(tasks []engine.Task) {
			for i := range tasks {
				tasks[i].Lease = tasks[i].Lease.Add(time.Minute)
			}
		}},
	}
}

// mutantsOfDoubt believe what isn't proven.
func mutantsOfDoubt() []*Mutant {
	return []*Mutant{
		{Name: "absence believed before the lag", onContract: func(c *dispatch.Contract) { c.Search.Lag = 0 }},
		{Name: "absence judged when applied", onChange: func(w *world, c *engine.Change) {
			m := &c.Move
			if c.Record.Kind != engine.KindLookup || m.Rule != decide.RuleLater || c.Record.Verdict.Reason != dispatch.Absent.String() {
				return
			}
			leg, _ := m.Ledger.Leg(m.Provider, m.Account)
			lag := w.vendor(m.Provider).contract.Search.Lag
			if m.Ledger.Count(decide.Open) == 1 && !w.clock().Before(leg.Reach.Add(lag)) {
				repeat(c, m.Lane.Provider)
				m.Rule = decide.RuleAbsent
			}
		}},
		{Name: "reach counted from the claim", onChange: func(_ *world, c *engine.Change) {
			c.Move.Ledger = slices.Clone(c.Move.Ledger)
			for i := range c.Move.Ledger {
				if leg := &c.Move.Ledger[i]; leg.Mark == decide.Open {
					leg.Reach = leg.Since
				}
			}
		}},
		{Name: "look-up at another account", onPage: func(k *worker, tasks []engine.Task) {
			for i := range tasks {
				t := &tasks[i]
				if t.State != dispatch.InDoubt {
					continue
				}
				t.Ledger = slices.Clone(t.Ledger)
				for j := range t.Ledger {
					for _, b := range k.binds {
						if t.Ledger[j].Provider == b.vendor.name {
							t.Ledger[j].Account = b.account
						}
					}
				}
			}
		}},
		{Name: "an error taken for absent", onChange: func(_ *world, c *engine.Change) {
			if c.Record.Kind == engine.KindLookup && c.Move.Rule == decide.RuleLater && c.Move.Ledger.Count(decide.Open) == 1 &&
				c.Record.Verdict.Reason != dispatch.Absent.String() {
				repeat(c, c.Move.Lane.Provider)
				c.Move.Rule = decide.RuleAbsent
			}
		}},
		{Name: "look-up without a fence of its own", onSetup: func(w *world) { w.db.sameFence = true }},
		{Name: "held sends again by itself", onChange: func(_ *world, c *engine.Change) {
			if c.Move.Rule == decide.RuleLapsedHold {
				repeat(c, c.Move.Lane.Provider)
				c.Move.Rule = decide.RuleLapsedHold
			}
		}},
	}
}

// mutantsOfTruth lose what was learnt, or let what is stale win.
func mutantsOfTruth() []*Mutant {
	return []*Mutant{
		{Name: "stale failure overwrites", onEdit: func(v engine.View, e engine.Edit) engine.Edit {
			n := len(e.Entries)
			if n > 0 && e.Entries[n-1].Rule == decide.RuleStale && e.Entries[n-1].Record.Verdict.Outcome == dispatch.Rejected {
				e.Row, e.Write = v.Row, v.State != dispatch.Sending
				e.Row.State, e.Row.Reason, e.Row.Ledger = dispatch.Dead, dispatch.ReasonRejected, closed(v.Ledger)
			}
			return e
		}},
		{Name: "late ok dropped", onEdit: func(_ engine.View, e engine.Edit) engine.Edit {
			if n := len(e.Entries); n > 0 && e.Entries[n-1].Record.Kind == engine.KindLate {
				return engine.Edit{}
			}
			return e
		}},
		{Name: "receipt dropped while sending", onEdit: func(v engine.View, e engine.Edit) engine.Edit {
			if v.State == dispatch.Sending && len(e.Entries) > 0 && e.Entries[0].Rule == decide.RuleTruthSending {
				return engine.Edit{}
			}
			return e
		}},
		{Name: "late truth without the send's evidence", onEdit: func(_ engine.View, e engine.Edit) engine.Edit {
			if n := len(e.Entries); n > 1 {
				e.Entries = e.Entries[n-1:]
			}
			return e
		}},
		{Name: "evidence lost on a lost commit", flag: losesEvidence, onEdit: func(v engine.View, e engine.Edit) engine.Edit {
			if n := len(e.Entries); n > 0 && e.Entries[n-1].Record.Kind == engine.KindAttempt && v.State == dispatch.Sent {
				return engine.Edit{} // "my own commit, done", without a look
			}
			return e
		}},
		{Name: "cancel of a send under way", onVerb: func(name string, v decide.Verb) decide.Verb {
			if name != "cancel" {
				return v
			}
			return func(r decide.Row) (decide.Row, decide.Rule, error) {
				if r.State == dispatch.Sending && r.Ledger.Count(decide.Open) == 0 {
					r.State, r.Ended = dispatch.Cancelled, decide.EndedCancelled
					return r, decide.RuleCancelSending, nil
				}
				return v(r)
			}
		}},
		{Name: "requeue of what may have been accepted", onVerb: func(name string, v decide.Verb) decide.Verb {
			if name != "retry" {
				return v
			}
			return func(r decide.Row) (decide.Row, decide.Rule, error) {
				r.Ledger = closed(r.Ledger)
				return v(r)
			}
		}},
		{Name: "send anyway forgets instead of waiving", onVerb: func(name string, v decide.Verb) decide.Verb {
			if name != "send anyway" {
				return v
			}
			return func(r decide.Row) (decide.Row, decide.Rule, error) {
				row, rule, err := v(r)
				row.Ledger = closed(row.Ledger)
				return row, rule, err
			}
		}},
		{Name: "requeue resets the fence", onVerb: func(name string, v decide.Verb) decide.Verb {
			if name != "retry" {
				return v
			}
			return func(r decide.Row) (decide.Row, decide.Rule, error) {
				row, rule, err := v(r)
				row.Fence = 0
				return row, rule, err
			}
		}},
	}
}
