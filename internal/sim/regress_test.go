package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// What histories have found, each as the one decision that was wrong.

func setupOf(contracts ...dispatch.Contract) decide.Setup {
	s := decide.Setup{
		Any: contracts[0].Name, Backoff: dispatch.Backoff{Base: time.Second, Cap: time.Minute},
		Lease: func(c dispatch.Contract) time.Duration { return 2 * c.AttemptTimeout() }, Random: func(n int64) int64 { return n - 1 },
		Contract: func(name string) (dispatch.Contract, bool) {
			for _, c := range contracts {
				if c.Name == name {
					return c, true
				}
			}
			return dispatch.Contract{}, false
		},
	}
	for _, c := range contracts {
		s.Candidates = append(s.Candidates, c.Name)
	}
	return s
}

func rowAt(state dispatch.State, provider string, legs ...decide.Leg) decide.Row {
	return decide.Row{
		Lane: decide.Lane{Route: routeName, Priority: dispatch.Normal}, State: state, Fence: 2, Spent: 1, Budget: 5,
		Now: epoch, Claimed: epoch, Provider: provider, Account: "1", Ledger: legs,
		OnUnknown: dispatch.OnUnknown{Action: dispatch.UnknownHold},
	}
}

func openAt(provider string) decide.Leg {
	return decide.Leg{Provider: provider, Account: "1", Mark: decide.Open, First: epoch, Since: epoch, Reach: epoch}
}

// A 429 with a floor behind the end of the dedupe window: the row was due for
// its look-up at once, and the claim sent it again before the floor.
func TestFloorBehindTheWindow(t *testing.T) {
	c := dispatch.Contract{Name: "alpha", Account: "1", Timeout: 10 * time.Second}
	c.Dedupe.Window, c.Search = 90*time.Second, dispatch.Search{Available: true, Lag: time.Minute}
	r := rowAt(dispatch.Sending, "alpha", openAt("alpha"))
	floor := 10 * time.Minute
	m := setupOf(c).AfterSend(r, dispatch.Evidence{Stage: dispatch.Answered}, dispatch.Verdict{Outcome: dispatch.Rejected, Floor: floor}, epoch)
	assert.False(t, m.NotBefore.Before(epoch.Add(floor)), "not before its floor")
	assert.True(t, m.ResolveUntil.After(epoch.Add(floor)), "there is room for a look-up behind the floor")
}

// An account that is refused spends nothing: with OnUnknown resend and After
// over, the message went round as fast as the provider answered, for ever.
func TestResendOfARefusedAccountWaits(t *testing.T) {
	r := rowAt(dispatch.Sending, "alpha", decide.Leg{Provider: "alpha", Account: "1", Mark: decide.Waived, First: epoch, Since: epoch.Add(-time.Hour)})
	r.OnUnknown = dispatch.OnUnknown{Action: dispatch.UnknownResend, After: 5 * time.Second}
	s := setupOf(dispatch.Contract{Name: "alpha", Account: "1"})
	m := s.AfterSend(r, dispatch.Evidence{Stage: dispatch.Answered}, dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Account}, epoch)
	require.Equal(t, decide.RuleRefusedOpen, m.Rule)
	assert.False(t, m.ResolveUntil.Before(epoch.Add(30*time.Second)), "it is sent again after %v", m.ResolveUntil.Sub(epoch))
}

// A held message with a floor that isn't over was sent at once by a retry.
func TestRetryKeepsTheFloor(t *testing.T) {
	leg := openAt("alpha")
	leg.Until = epoch.Add(time.Hour)
	row, _, err := decide.Retry(false)(rowAt(dispatch.Held, "alpha", leg))
	require.NoError(t, err)
	assert.Equal(t, leg.Until, row.Due)
}

// Workers with other providers bound claim the lane of any for another
// provider than the one that was chosen: one that still has a floor.
func TestLaneOfAnyOnlyWhereAnyCanTakeIt(t *testing.T) {
	s := setupOf(dispatch.Contract{Name: "beta", Account: "1"})
	r := rowAt(dispatch.Sending, "beta", decide.Leg{Provider: "alpha", Account: "1", Until: epoch.Add(time.Hour)})
	m := s.AfterSend(r, dispatch.Evidence{Stage: dispatch.NotSent}, dispatch.Verdict{Outcome: dispatch.Rejected}, epoch)
	assert.Equal(t, "beta", m.Lane.Provider)
}

// A failover on unknown went on to the next provider, and back to the first,
// where the message may have been accepted.
func TestFailoverNeverComesBack(t *testing.T) {
	waived := openAt("alpha")
	waived.Mark = decide.Waived
	s := setupOf(dispatch.Contract{Name: "alpha", Account: "1"}, dispatch.Contract{Name: "beta", Account: "1", Search: dispatch.Search{Available: true}})
	r := rowAt(dispatch.InDoubt, "beta", waived, openAt("beta"))
	r.OnUnknown.Action, r.ResolveUntil = dispatch.UnknownFailover, epoch
	m, ok := s.Tend(r)
	require.True(t, ok)
	assert.Equal(t, decide.RuleLapsedHold, m.Rule)

	m = s.AfterLookup(r, dispatch.Found{Presence: dispatch.Absent}, epoch, epoch)
	require.Equal(t, decide.RuleAbsent, m.Rule)
	assert.Equal(t, "beta", m.Lane.Provider)
}

// A worker with the provider's new account gave up on a send to the old one
// that another worker could still ask about.
func TestAnotherAccountGivesTime(t *testing.T) {
	c := dispatch.Contract{Name: "alpha", Account: "2", Search: dispatch.Search{Available: true, Lag: time.Minute}}
	r := rowAt(dispatch.InDoubt, "alpha", openAt("alpha"))
	m, ok := setupOf(c).Tend(r)
	require.True(t, ok)
	assert.True(t, m.ResolveUntil.After(epoch.Add(time.Minute)))
	r.ResolveUntil = m.ResolveUntil
	m, ok = setupOf(c).Tend(r)
	require.True(t, ok)
	assert.Equal(t, decide.RuleLater, m.Rule)
	assert.False(t, m.NotBefore.After(epoch.Add(time.Minute)), "it hides the row from whoever can ask")
}

// A message whose every sender was refused, and that a person sends anyway,
// was claimed and handed back once a minute for ever.
func TestSendAnywayLiftsRefusedSenders(t *testing.T) {
	r := rowAt(dispatch.Dead, "alpha", decide.Leg{Provider: "alpha", Account: "1", Barred: true})
	row, rule, err := decide.SendAnyway(false)(r)
	require.NoError(t, err)
	assert.Equal(t, decide.RuleSendAnyway, rule)
	assert.False(t, row.Ledger[0].Barred)
	assert.True(t, r.Ledger[0].Barred, "the row that was read is left alone")
}
