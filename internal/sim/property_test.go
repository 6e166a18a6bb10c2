package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// The decisions over their whole input space: whatever the row, the outcome
// and the worker's configuration, also such as no history leads to.
const draws = 8_000

// space draws inputs.
type space struct {
	*rand.Rand
	contracts map[string]dispatch.Contract
}

var names = []string{"alpha", "beta", "gamma"}

func (s *space) one(of ...time.Duration) time.Duration { return of[s.IntN(len(of))] }

// around is a moment near now, far from it, or none.
func (s *space) around() time.Time {
	if s.IntN(5) == 0 {
		return time.Time{}
	}
	return epoch.Add(time.Duration(s.Int64N(int64(s.one(time.Second, time.Hour, 100*24*time.Hour)))) - s.one(0, time.Second, time.Hour))
}

func (s *space) setup() decide.Setup {
	s.contracts = map[string]dispatch.Contract{}
	set := decide.Setup{Any: names[s.IntN(3)], Backoff: dispatch.Backoff{Base: s.one(1, time.Second), Cap: s.one(1, time.Minute, dispatch.MaxFloor)}}
	for _, name := range names {
		if s.IntN(8) == 0 {
			continue
		}
		c := dispatch.Contract{Name: name, Account: []string{"1", "2"}[s.IntN(2)], Encoding: int16(s.IntN(2)), Timeout: s.one(0, time.Second, time.Hour)}
		c.Dedupe.Window = s.one(0, time.Second, time.Hour, 24*time.Hour, 3660*24*time.Hour)
		c.Search.Available, c.Search.Lag = s.IntN(2) == 0, s.one(0, time.Second, time.Hour, 3660*24*time.Hour)
		c.Echo.Reference, c.Echo.Grace = s.IntN(2) == 0, s.one(0, time.Minute, 3660*24*time.Hour)
		c.RefusalProves = s.IntN(2) == 0
		s.contracts[name] = c
		if s.IntN(6) > 0 {
			set.Candidates = append(set.Candidates, name)
		}
	}
	set.Contract = func(p string) (dispatch.Contract, bool) { c, ok := s.contracts[p]; return c, ok }
	set.Lease = func(c dispatch.Contract) time.Duration { return 2 * c.AttemptTimeout() }
	set.Random = s.Int64N
	return set
}

func (s *space) row(state dispatch.State) decide.Row {
	r := decide.Row{
		Lane: decide.Lane{Route: "r", Priority: dispatch.Normal}, State: state, Fence: s.Int64N(1 << 40), Budget: 1 + s.IntN(100),
		Ended: decide.Ended(s.IntN(3)), Lookups: s.IntN(1000), Now: epoch, Due: epoch, Claimed: epoch.Add(-time.Second), Deadline: s.around(),
		Provider: names[s.IntN(3)], Account: []string{"1", "2"}[s.IntN(2)], Encoding: int16(s.IntN(2)),
		OnUnknown: dispatch.OnUnknown{Action: dispatch.UnknownAction(1 + s.IntN(4)), After: s.one(0, 0, time.Minute, 3660*24*time.Hour)},
	}
	r.Spent = 1 + s.IntN(r.Budget)
	if s.IntN(6) == 0 {
		r.Pinned, r.Lane.Provider = true, r.Provider
	}
	for _, name := range names {
		for _, account := range []string{"1", "2"} {
			if s.IntN(3) > 0 {
				continue
			}
			leg := decide.Leg{
				Provider: name, Account: account, Encoding: int16(s.IntN(2)), Mark: decide.Mark(s.IntN(3)), Barred: s.IntN(4) == 0,
				First: s.around(), Since: epoch, Reach: s.around(), Until: s.around(),
			}
			if leg.Mark != decide.Closed && leg.First.IsZero() {
				leg.First = epoch
			}
			r.Ledger = append(r.Ledger, leg)
		}
	}
	switch state {
	case dispatch.Pending:
		r.Ledger = r.Ledger.Remark(decide.Open, decide.Waived)
	case dispatch.Sending:
		r.Lease = s.around()
		if r.Ledger.Count(decide.Open) > 0 { // rule 19: only what is open itself
			leg := r.Ledger[slices.IndexFunc(r.Ledger, func(l decide.Leg) bool { return l.Mark == decide.Open })]
			r.Provider, r.Account, r.Encoding = leg.Provider, leg.Account, leg.Encoding
			r.Ledger = r.Ledger.Remark(decide.Open, decide.Waived).Put(leg)
		}
	case dispatch.InDoubt, dispatch.Held:
		if r.Ledger.Count(decide.Open) == 0 {
			r.Ledger = r.Ledger.Put(decide.Leg{Provider: "alpha", Account: "1", Mark: decide.Open, First: epoch, Since: epoch, Reach: epoch})
		}
		r.ResolveUntil = s.around()
	case dispatch.Dead, dispatch.Sent, dispatch.Cancelled:
	}
	return r
}

func (s *space) outcome() (dispatch.Evidence, dispatch.Verdict) {
	e := dispatch.Evidence{Stage: dispatch.Stage(s.IntN(3)), Cause: dispatch.Cause(s.IntN(13)), OwnBody: s.IntN(2) == 0}
	v := dispatch.Verdict{Outcome: dispatch.Outcome(s.IntN(3)), Hold: s.IntN(8) == 0}
	if s.IntN(2) == 0 {
		v.Floor = s.one(time.Second, time.Hour, dispatch.MaxFloor)
	}
	if v.Outcome == dispatch.Rejected {
		v.Scope = dispatch.Scope(s.IntN(4))
	} else {
		e.Stage = dispatch.Answered
	}
	return e, v
}

// checkMove is what holds for every move.
func checkMove(t *testing.T, r decide.Row, m decide.Move) {
	t.Helper()
	l := legal[m.Rule]
	require.NotZero(t, l.from&stateOf(r.State), "rule %d from %s", m.Rule, r.State)
	to := stateOf(m.To)
	if m.To == dispatch.Pending {
		require.NotZero(t, l.to&ends, "rule %d to pending", m.Rule)
	} else {
		require.NotZero(t, l.to&to, "rule %d to %s", m.Rule, m.To)
	}
	require.GreaterOrEqual(t, m.Spent, 0)
	require.LessOrEqual(t, m.Spent, r.Budget)
	require.GreaterOrEqual(t, m.Wait, time.Duration(0))
	due := r.Now.Add(m.Wait)
	require.True(t, due.Year() < 2100 && m.NotBefore.Year() < 2100 && m.ResolveUntil.Year() < 2100, "%v %v %v", due, m.NotBefore, m.ResolveUntil)
	open := m.Ledger.Count(decide.Open)
	switch m.To {
	case dispatch.Pending:
		require.Zero(t, open, "rule %d: open and pending", m.Rule)
		require.True(t, !r.Pinned || m.Lane == r.Lane, "a pinned message leaves its provider")
	case dispatch.InDoubt, dispatch.Held:
		require.NotZero(t, open, "rule %d: nothing is open", m.Rule)
		leg, _ := m.Ledger.Leg(m.Provider, m.Account)
		require.Equal(t, decide.Open, leg.Mark, "bound to what isn't open")
		require.Equal(t, leg.Provider, m.Lane.Provider, "an open row is in another provider's lane")
		require.False(t, m.First.IsZero())
	case dispatch.Dead:
		if m.Reason == dispatch.ReasonRejected {
			require.Zero(t, open+m.Ledger.Count(decide.Waived), "rejected, and may have been accepted")
		}
	case dispatch.Sending, dispatch.Sent, dispatch.Cancelled:
	}
}

func TestAfterSend(t *testing.T) {
	s := &space{Rand: rand.New(rand.NewPCG(1, 1))}
	for range draws {
		set, r := s.setup(), s.row(dispatch.Sending)
		e, v := s.outcome()
		m := set.AfterSend(r, e, v, epoch)
		if v.Outcome == dispatch.OK {
			require.Equal(t, dispatch.Sent, m.To)
			continue
		}
		checkMove(t, r, m)
		before := r.Ledger.Count(decide.Open) + r.Ledger.Count(decide.Waived)
		c := s.contracts[r.Provider]
		proves := v.Outcome == dispatch.Rejected && v.Scope == dispatch.Message && c.RefusalProves && e.OwnBody
		switch {
		case v.Outcome == dispatch.Unknown:
			require.Contains(t, []dispatch.State{dispatch.InDoubt, dispatch.Held}, m.To)
			leg, _ := m.Ledger.Leg(r.Provider, r.Account)
			require.Equal(t, decide.Open, leg.Mark)
		case before > 0 && !proves:
			require.Contains(t, []dispatch.State{dispatch.InDoubt, dispatch.Held}, m.To, "a refusal excuses its own send only")
			require.Equal(t, before, m.Ledger.Count(decide.Open))
		case before == 0:
			require.NotContains(t, []dispatch.State{dispatch.InDoubt, dispatch.Held}, m.To)
		}
		floor := epoch.Add(v.Floor)
		leg, _ := m.Ledger.Leg(r.Provider, r.Account)
		if v.Floor > 0 && m.To != dispatch.Dead {
			require.False(t, leg.Until.Before(floor), "the floor is lost")
		}
		checkFloor(t, m)
	}
}

// checkFloor: a row that a claim may take isn't due before the floor of the
// provider that it goes to.
func checkFloor(t *testing.T, m decide.Move) {
	t.Helper()
	if m.To != dispatch.Pending && m.To != dispatch.InDoubt {
		return
	}
	due := epoch.Add(m.Wait)
	if m.NotBefore.After(due) {
		due = m.NotBefore
	}
	if m.To == dispatch.InDoubt && !m.ResolveUntil.IsZero() && !m.ResolveUntil.After(due) {
		return // it is given up before
	}
	for _, leg := range m.Ledger {
		if m.Lane.Provider == leg.Provider && m.Rule != decide.RuleUnstarted {
			require.False(t, due.Before(leg.Until), "rule %d: due %v before the floor %v of %s", m.Rule, due, leg.Until, leg.Provider)
		}
	}
}

func TestTend(t *testing.T) {
	s := &space{Rand: rand.New(rand.NewPCG(2, 1))}
	for range draws {
		set := s.setup()
		r := s.row(dispatch.State(1 + s.IntN(3)))
		if r.State == dispatch.InDoubt && s.IntN(2) == 0 {
			r.Lease = s.around()
		}
		m, ok := set.Tend(r)
		if !r.Lease.IsZero() && r.Lease.After(r.Now) {
			require.False(t, ok, "the lease holds")
		}
		if !ok {
			continue
		}
		checkMove(t, r, m)
		require.Equal(t, r.Spent, m.Spent, "maintenance spends nothing")
		if m.Rule == decide.RuleLapsedAgain {
			require.Contains(t, []dispatch.UnknownAction{dispatch.UnknownResend, dispatch.UnknownFailover}, r.OnUnknown.Action)
			require.Equal(t, decide.NotEnded, r.Ended)
			if r.OnUnknown.Action == dispatch.UnknownFailover {
				require.NotEmpty(t, m.Lane.Provider)
			}
			continue
		}
		require.GreaterOrEqual(t, m.Ledger.Count(decide.Open), r.Ledger.Count(decide.Open), "maintenance forgets nothing")
		if m.Rule == decide.RuleLookup {
			c := s.contracts[m.Provider]
			require.True(t, c.Search.Available && c.Account == m.Account, "it asks an account that the send didn't go to")
			require.Positive(t, m.Lease)
		}
	}
}

func TestAfterLookup(t *testing.T) {
	s := &space{Rand: rand.New(rand.NewPCG(3, 1))}
	for range draws {
		set, r := s.setup(), s.row(dispatch.InDoubt)
		i := slices.IndexFunc(r.Ledger, func(l decide.Leg) bool { return l.Mark == decide.Open })
		leg := r.Ledger[i]
		r.Provider, r.Account = leg.Provider, leg.Account
		asked := s.around()
		f := dispatch.Found{Presence: dispatch.Presence(s.IntN(3))}
		m := set.AfterLookup(r, f, asked, epoch)
		if f.Presence == dispatch.Present {
			require.Equal(t, dispatch.Sent, m.To)
			continue
		}
		checkMove(t, r, m)
		require.Equal(t, r.Spent, m.Spent, "a look-up spends nothing")
		if m.Rule != decide.RuleAbsent {
			require.Equal(t, r.Ledger.Count(decide.Open), m.Ledger.Count(decide.Open))
			continue
		}
		c := s.contracts[leg.Provider]
		require.Equal(t, dispatch.Absent, f.Presence)
		require.Equal(t, leg.Account, c.Account, "another account proves nothing")
		require.False(t, asked.Before(leg.Reach.Add(c.Search.Lag)), "asked before the lag was over")
		require.Equal(t, r.Ledger.Count(decide.Open)-1, m.Ledger.Count(decide.Open))
	}
}

func TestHandBack(t *testing.T) {
	s := &space{Rand: rand.New(rand.NewPCG(4, 1))}
	for range draws {
		set, r := s.setup(), s.row(dispatch.Sending)
		for _, m := range []decide.Move{set.Unstarted(r, epoch, s.one(0, time.Second)), set.Unusable(r, epoch)} {
			checkMove(t, r, m)
			require.Equal(t, r.Spent-1, m.Spent)
			require.Equal(t, r.Ledger.Count(decide.Open), m.Ledger.Count(decide.Open))
			require.Equal(t, r.Ledger.Count(decide.Waived), m.Ledger.Count(decide.Waived))
		}
		if c, ok := s.contracts[r.Provider]; ok && set.Startable(r, c, epoch) {
			require.False(t, epoch.Add(c.AttemptTimeout()).After(r.Lease), "the lease ends before the attempt does")
			require.True(t, r.Deadline.IsZero() || epoch.Before(r.Deadline))
			if leg, _ := r.Ledger.Leg(r.Provider, r.Account); r.Ledger.Count(decide.Open) > 0 {
				require.Equal(t, leg.Encoding, c.Encoding)
				require.True(t, epoch.Add(set.Lease(c)).Before(leg.First.Add(c.Dedupe.Window)), "the window ends before the attempt may")
			}
		}
	}
}

func TestVerbs(t *testing.T) {
	s := &space{Rand: rand.New(rand.NewPCG(5, 1))}
	verbs := map[string]decide.Verb{
		"cancel": decide.Cancel(decide.EndedCancelled), "supersede": decide.Cancel(decide.EndedSuperseded),
		"retry": decide.Retry(false), "retry scrubbed": decide.Retry(true), "send anyway": decide.SendAnyway(false), "give up": decide.GiveUp,
		"accepted": decide.Accepted, "not accepted": decide.NotAccepted,
	}
	for range draws / 8 {
		r := s.row(dispatch.State(1 + s.IntN(7)))
		for name, verb := range verbs {
			kept := slices.Clone(r.Ledger)
			to, rule, err := verb(r)
			require.Equal(t, kept, r.Ledger, "%s changes the row it was given", name)
			if err != nil || rule == 0 {
				continue
			}
			l := legal[rule]
			require.NotZero(t, l.from&stateOf(r.State), "%s: rule %d from %s", name, rule, r.State)
			require.NotZero(t, l.to&stateOf(to.State), "%s: rule %d to %s", name, rule, to.State)
			require.GreaterOrEqual(t, to.Fence, r.Fence)
			require.LessOrEqual(t, to.Spent, to.Budget)
			before := r.Ledger.Count(decide.Open) + r.Ledger.Count(decide.Waived)
			if rule != decide.RuleResolveRefused {
				require.Equal(t, before, to.Ledger.Count(decide.Open)+to.Ledger.Count(decide.Waived), "%s forgets", name)
			}
			switch to.State {
			case dispatch.Pending:
				require.Zero(t, to.Ledger.Count(decide.Open))
				require.Equal(t, decide.NotEnded, to.Ended)
			case dispatch.Cancelled:
				require.True(t, rule == decide.RuleResolveRefused || before == 0, "%s: cancelled, and may have been accepted", name)
			case dispatch.InDoubt:
				require.NotZero(t, to.Ledger.Count(decide.Open))
				if leg, _ := to.Ledger.Leg(to.Provider, to.Account); to.Ended == decide.NotEnded {
					require.False(t, to.Due.Before(leg.Until), "%s: due before the floor", name)
				}
			case dispatch.Sending, dispatch.Held, dispatch.Dead, dispatch.Sent:
			}
		}
	}
}
