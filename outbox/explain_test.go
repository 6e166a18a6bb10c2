package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// A history as support reads it: why it was sent twice, and by whose choice.
func TestHistoryAsText(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 11, 30, 3, 0, s, 0, time.FixedZone("", 3600)) }
	h := History{
		Key: dispatch.Key{1}, Route: "sms", State: dispatch.Sent, Attempts: 3, Budget: 8, Created: at(0), Deadline: at(300),
		Template: dispatch.Template{Name: "login", Revision: "r7"},
		Events: []Event{
			{At: at(1), Kind: "attempt", Fence: 1, Send: 1, Rule: int(decide.RuleRefused), State: dispatch.Pending, Outcome: dispatch.Rejected, Scope: dispatch.Moment, Provider: "acme", Status: 429, Detail: "too many", Took: 120 * time.Millisecond, Wait: 2 * time.Second, Floor: time.Second},
			{At: at(3), Kind: "attempt", Fence: 2, Send: 2, Rule: int(decide.RuleUnknown), State: dispatch.InDoubt, Outcome: dispatch.Unknown, Provider: "acme", Detail: "deadline", Wait: time.Minute},
			{At: at(63), Kind: "look-up", Fence: 3, Rule: int(decide.RuleLater), State: dispatch.InDoubt, Outcome: dispatch.Unknown, Provider: "acme", Wait: -1},
			{At: at(90), Kind: "moved", Fence: 3, Rule: int(decide.RuleLapsedHold), State: dispatch.Held, Reason: dispatch.ReasonUnresolved, Wait: -1},
			{At: at(100), Kind: "manual", Fence: 3, Rule: int(decide.RuleSendAnyway), State: dispatch.Pending, By: "ada", Why: "she waits\n  2026-11-30 02:02:00.000  attempt 9 at acme: ok", Wait: -1},
			{At: at(101), Kind: "attempt", Fence: 4, Send: 3, Rule: int(decide.RuleOK), State: dispatch.Sent, Outcome: dispatch.OK, Provider: "acme", ProviderID: "SM2", Words: "zebra", Wait: -1},
			{At: at(102), Kind: "receipt", Fence: 4, Rule: int(decide.RuleDouble), State: dispatch.Sent, Outcome: dispatch.OK, Provider: "acme", ProviderID: "SM1", Detail: "delivered", Wait: -1},
		},
	}
	require.Equal(t, `message 01000000-0000-0000-0000-000000000000 on route sms is sent, 3 of 8 attempts, template login r7
  2026-11-30 02:00:00.000  enqueued, to be sent before 2026-11-30 02:05:00.000
  2026-11-30 02:00:01.000  attempt 1 at acme: rejected (moment), too many, status 429, took 120ms → pending, acme asked to wait 1s, next step in 2s
                           proven not to be accepted, so it may be sent again
  2026-11-30 02:00:03.000  attempt 2 at acme: unknown, deadline → unknown, next step in 1m0s
                           it may have been accepted: that is settled first, by its key, a look-up or a receipt, else as its policy says
  2026-11-30 02:01:03.000  look-up at acme: unknown → unknown
                           the provider couldn't tell yet
  2026-11-30 02:01:30.000  moved → held (unresolved)
                           nothing could find out whether it was accepted: it waits for a person
  2026-11-30 02:01:40.000  manual, by ada, why she waits   2026-11-30 02:02:00.000  attempt 9 at acme: ok → pending
                           sent once more by hand though it may have been accepted: the recipient may get it twice
  2026-11-30 02:01:41.000  attempt 3 at acme: ok, id SM2 → sent
  2026-11-30 02:01:42.000  receipt at acme, delivered, id SM1 → sent
                           accepted a second time: the recipient may have got it twice
It was accepted twice: the recipient got it, or gets it, more than once. Why more than once:
  Send 1 to acme (02:00:00 UTC) was refused.
  Send 2 to acme (02:00:03 UTC) ended without an answer, and turned out to be accepted as SM1.
  At 02:01:40 UTC ada had it sent anyway, knowing that it might be a second copy: “she waits   2026-11-30 02:02:00.000  attempt 9 at acme: ok”
  Send 3 to acme (02:01:41 UTC) was accepted as SM2.
`, h.String())
}

// Every row of the table that leaves a trace of its own is told in words.
func TestMeaning(t *testing.T) {
	seen := map[string]int{}
	for r := decide.RuleEnqueue; r <= decide.RuleStale; r++ {
		words := Event{Rule: int(r)}.Meaning()
		if words != "" {
			seen[words]++
		}
		require.NotRegexp(t, `^[A-Z]|\.$`, words)
	}
	require.Greater(t, len(seen), 20)
	require.Empty(t, Event{}.Meaning())
	require.Empty(t, Event{Rule: 99}.Meaning())
}
