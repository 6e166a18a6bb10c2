package outbox

import (
	"slices"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
	"github.com/seed-8098fbb7/dispatch/internal/sim"
)

// setup is what some worker knows: now and then another account, encoding or
// set of providers, as while releases roll.
func (tm *tandem) setup() decide.Setup {
	alpha := dispatch.Contract{
		Name: "alpha", Account: "a1", Encoding: 1, Timeout: 10 * time.Second,
		Dedupe: dispatch.Dedupe{Window: oneOf(tm, 10*time.Minute, 10*time.Minute, oneOf(tm, windows...))}, RefusalProves: tm.chance(50),
		Search: dispatch.Search{Available: tm.chance(35), Lag: 15 * time.Second},
	}
	beta := dispatch.Contract{
		Name: "beta", Account: "b1", Encoding: 1, Timeout: 10 * time.Second,
		Search: dispatch.Search{Available: true, Lag: 15 * time.Second}, Echo: dispatch.Echo{Reference: true, Grace: time.Minute},
	}
	known := map[string]dispatch.Contract{"alpha": alpha, "beta": beta}
	candidates := oneOf(tm, []string{"alpha", "beta"}, []string{"alpha", "beta"}, []string{"beta", "alpha"}, []string{"alpha"}, []string{"beta"}, nil)
	switch tm.rnd.IntN(12) {
	case 0:
		delete(known, oneOf(tm, "alpha", "beta"))
	case 1:
		alpha.Account = "a2"
		known["alpha"] = alpha
	case 2:
		alpha.Encoding = 2
		known["alpha"] = alpha
	}
	return decide.Setup{
		Contract:   func(p string) (dispatch.Contract, bool) { c, ok := known[p]; return c, ok },
		Candidates: candidates,
		Any:        "alpha",
		Backoff:    dispatch.Backoff{Base: time.Second, Cap: time.Minute},
		Lease:      func(dispatch.Contract) time.Duration { return 20 * time.Second },
		Random:     func(n int64) int64 { return tm.rnd.Int64N(n) },
		Passing:    tm.chance(50),
	}
}

// task picks a claimed task: mostly one that is still being sent.
func (tm *tandem) task() (t engine.Task, ok bool) {
	if len(tm.tasks) == 0 {
		return t, false
	}
	if tm.chance(75) {
		rows := tm.model.Rows()
		var current []engine.Task
		for _, t := range tm.tasks {
			if slices.ContainsFunc(rows, func(r sim.TandemRow) bool {
				return r.Key == t.Key && r.Fence == t.Fence && r.State == int64(dispatch.Sending)
			}) {
				current = append(current, t)
			}
		}
		if len(current) > 0 {
			return oneOf(tm, current...), true
		}
		if tm.chance(70) {
			return t, false
		}
	}
	return oneOf(tm, tm.tasks...), true
}

// finish settles what one to three sends came to; some of them are stale.
func (tm *tandem) finish() {
	var changes []engine.Change
	for range oneOf(tm, 1, 1, 2, 3) {
		t, ok := tm.task()
		if !ok && len(changes) == 0 {
			tm.claim()
			return
		}
		if len(changes) > 0 && tm.chance(40) { // the same message's earlier or later send
			for _, other := range tm.tasks {
				if other.Key == changes[0].Key && other.Fence != changes[0].Fence {
					t = other
				}
			}
		}
		if !ok || slices.ContainsFunc(changes, func(c engine.Change) bool { return c.Key == t.Key && c.Fence == t.Fence }) {
			continue
		}
		e, v := tm.outcome(t.Row)
		c := engine.Change{Key: t.Key, Fence: t.Fence, From: dispatch.Sending, Move: tm.setup().AfterSend(t.Row, e, v, tm.now)}
		c.Record = engine.Record{Kind: engine.KindAttempt, Provider: t.Provider, Account: t.Account, Evidence: e, Verdict: v, Took: time.Second}
		if v.Outcome == dispatch.OK {
			c.Record.ProviderID = oneOf(tm, "", "id-1", "id-2")
		}
		changes = append(changes, c)
	}
	tm.apply(changes)
}

// outcome is what an attempt came to.
func (tm *tandem) outcome(r decide.Row) (e dispatch.Evidence, v dispatch.Verdict) {
	e = dispatch.Evidence{Stage: oneOf(tm, dispatch.MaybeSent, dispatch.MaybeSent, dispatch.NotSent, dispatch.Answered), OwnBody: tm.chance(70), Status: 500, Code: "E1"}
	e.Request = oneOf(tm, nil, []byte{1, 2}, []byte{3})
	v = dispatch.Verdict{Reason: "script", Floor: oneOf(tm, 0, 0, 0, 5*time.Second, 10*time.Minute)}
	switch tm.rnd.IntN(10) {
	case 0, 1, 2:
		v.Outcome = dispatch.OK
	case 3, 4, 5:
		v.Outcome, v.Hold = dispatch.Unknown, tm.chance(6)
	default:
		v.Outcome, v.Scope = dispatch.Rejected, oneOf(tm, dispatch.Moment, dispatch.Moment, dispatch.Account, dispatch.Sender, dispatch.Message)
		if len(r.Ledger) > 0 && tm.chance(30) {
			e.Cause = dispatch.CauseChanged
		}
	}
	return e, v
}

// handBack settles what was claimed and never begun.
func (tm *tandem) handBack() {
	t, ok := tm.task()
	if !ok {
		return
	}
	c := engine.Change{Key: t.Key, Fence: t.Fence, From: dispatch.Sending}
	s := tm.setup()
	switch tm.rnd.IntN(4) {
	case 0:
		c.Move = s.Unstarted(t.Row, tm.now, oneOf(tm, 0, 5*time.Second))
	case 1:
		c.Move = s.PutOff(t.Row, tm.now, tm.now.Add(oneOf(tm, time.Minute, time.Hour, 3*time.Hour)))
	case 2:
		c.Move = s.Unusable(t.Row, tm.now)
	case 3:
		c.Move = s.Dropped(t.Row, tm.now)
		c.Record = engine.Record{
			Kind: engine.KindMoved, Provider: t.Provider, Account: t.Account, Why: "unsubscribed",
			Verdict: dispatch.Verdict{Outcome: dispatch.Rejected, Reason: "dropped before it was sent"},
		}
	}
	tm.apply([]engine.Change{c})
}

// apply settles a batch on both sides; now and then one of its changes is
// bent: another fence or state, or only while no lease holds. What is fenced
// out goes the way of late outcomes.
func (tm *tandem) apply(changes []engine.Change) []engine.Result {
	if len(changes) == 0 {
		return nil
	}
	for n := range changes {
		c := &changes[n]
		c.Move.ResolveUntil = c.Move.ResolveUntil.Truncate(time.Microsecond) // what Postgres keeps
		switch tm.rnd.IntN(20) {
		case 0:
			if len(changes) == 1 { // a batch has each send once
				c.Fence += oneOf(tm, int64(-1), 1)
			}
		case 1:
			if c.Move.Rule != decide.RuleOK { // which is from sending, as its statement has it
				c.From = oneOf(tm, dispatch.Pending, dispatch.Sending, dispatch.InDoubt)
			}
		case 2:
			c.Idle = true
		}
	}
	slices.SortStableFunc(changes, func(a, b engine.Change) int { return a.Key.Compare(b.Key) })
	for _, c := range changes {
		tm.tell("apply", "%s fence %d from %s rule %d to %s %s idle %v %s", c.Key, c.Fence, c.From, c.Move.Rule, c.Move.To, c.Move.Reason, c.Idle, c.Record.Verdict.Outcome)
	}
	want, wantErr := tm.model.Apply(tm.t.Context(), slices.Clone(changes))
	got, err := tm.real.Apply(tm.t.Context(), slices.Clone(changes))
	for n := range got {
		got[n].Now = got[n].Now.UTC()
	}
	if !tm.same("applied", want, got, wantErr, err) {
		return nil
	}
	for n, r := range want {
		c := changes[n]
		if k := c.Record.Kind; r.Status == engine.Fenced && (k == engine.KindAttempt || k == engine.KindLookup) && tm.chance(60) {
			if tm.compareRows(tm.now); tm.diff != "" {
				return nil
			}
			tm.tell("late", "%s fence %d %s", c.Key, c.Fence, c.Record.Verdict.Outcome)
			tm.edit(c.Key, c.Fence, func(v engine.View) (engine.Edit, error) {
				e, _ := engine.Learn(v, c.Fence, c.Record)
				return e, nil
			})
		}
	}
	return want
}

// sweep reads a page, and tends what it saw, now or long ago.
func (tm *tandem) sweep() {
	lane := tm.lane().String()
	if r, ok := tm.row(); ok && r.State == int64(dispatch.InDoubt) {
		lane = r.Lane
	}
	var after engine.Cursor
	if r, ok := tm.row(); ok && tm.chance(30) {
		after = engine.Cursor{Due: r.Due, Key: r.Key}
	}
	tm.tell("page", "%s after %v", lane, after)
	type page struct {
		Rows []engine.Task
		Next engine.Cursor
	}
	var a, b page
	var wantErr, err error
	a.Rows, a.Next, _, wantErr = tm.model.Page(tm.t.Context(), lane, after, smallPage)
	b.Rows, b.Next, _, err = tm.real.Page(tm.t.Context(), lane, after, smallPage)
	a.Rows, b.Rows, a.Next.Due, b.Next.Due = plain(a.Rows), plain(b.Rows), a.Next.Due.UTC(), b.Next.Due.UTC()
	if !tm.same("page", a, b, wantErr, err) {
		return
	}
	rows := a.Rows
	if len(tm.pages) > 0 && tm.chance(20) {
		rows = append(rows, oneOf(tm, tm.pages...))
	}
	tm.pages = keep(tm, append(tm.pages, a.Rows...), 6)
	seen := map[dispatch.Key]bool{}
	var tasks []engine.Task
	var changes []engine.Change
	for _, t := range rows {
		if m, ok := tm.setup().Tend(t.Row); ok && !seen[t.Key] && tm.chance(90) {
			seen[t.Key] = true
			tasks = append(tasks, t)
			changes = append(changes, tended(t, m))
		}
	}
	tm.tend(tasks, changes)
}

// tended is the change of a sweep.
func tended(t engine.Task, m decide.Move) engine.Change {
	c := engine.Change{Key: t.Key, Fence: t.Fence, From: t.State, Idle: true, Move: m}
	switch m.Rule { //nolint:exhaustive // the sweep makes few of the moves
	case decide.RuleSwept:
		c.Record = engine.Record{Kind: engine.KindSwept, Provider: t.Provider, Account: t.Account}
	case decide.RuleLater, decide.RuleLookup:
	default:
		c.Record = engine.Record{Kind: engine.KindMoved, Provider: t.Provider, Account: t.Account}
	}
	return c
}

func (tm *tandem) tend(tasks []engine.Task, changes []engine.Change) {
	for n, r := range tm.apply(changes) {
		c := changes[n]
		if c.Move.Rule != decide.RuleLookup || r.Status != engine.Applied {
			continue
		}
		for _, t := range tasks {
			if t.Key == c.Key {
				t.Fence, t.Lookups, t.Now = c.Fence+1, c.Move.Lookups, r.Now
				tm.asks = keep(tm, append(tm.asks, asking{t, tm.now}), 6)
			}
		}
	}
}

// hurry is a sweep that takes a lease for over that holds.
func (tm *tandem) hurry() {
	t, ok := tm.task()
	if len(tm.asks) > 0 && tm.chance(50) {
		t, ok = oneOf(tm, tm.asks...).Task, true
	}
	if !ok {
		return
	}
	t.Now = t.Lease
	if m, ok := tm.setup().Tend(t.Row); ok {
		tm.tend([]engine.Task{t}, []engine.Change{tended(t, m)})
	}
}

// answer settles a look-up: rules 21 to 23.
func (tm *tandem) answer() {
	if len(tm.asks) == 0 {
		return
	}
	a := oneOf(tm, tm.asks...)
	for _, ask := range tm.asks { // mostly one that is still waited for
		if tm.chance(75) && slices.ContainsFunc(tm.model.Rows(), func(r sim.TandemRow) bool { return r.Key == ask.Key && r.Fence == ask.Fence }) {
			a = ask
		}
	}
	f := dispatch.Found{Presence: oneOf(tm, dispatch.Absent, dispatch.Absent, dispatch.Unclear, dispatch.Present)}
	c := engine.Change{Key: a.Key, Fence: a.Fence, From: dispatch.InDoubt}
	c.Record = engine.Record{Kind: engine.KindLookup, Provider: a.Provider, Account: a.Account, Verdict: dispatch.Verdict{Reason: f.Presence.String()}}
	if f.Presence == dispatch.Present {
		c.Record.ProviderID, c.Record.Verdict.Outcome = oneOf(tm, "id-1", "id-2"), dispatch.OK
	}
	c.Move = tm.setup().AfterLookup(a.Row, f, a.asked, tm.now)
	tm.apply([]engine.Change{c})
}
