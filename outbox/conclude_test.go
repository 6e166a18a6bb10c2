package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// What each course of events comes to, in words.
func TestConclusion(t *testing.T) {
	at := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	fence := int64(0)
	send := func(provider string, o dispatch.Outcome, id string) Event {
		fence++
		rule := decide.RuleOK
		if o != dispatch.OK {
			rule = decide.RuleUnknown
		}
		return Event{Kind: "attempt", Fence: fence, Provider: provider, Outcome: o, ProviderID: id, Rule: int(rule)}
	}
	lost := func(provider string) Event { return send(provider, dispatch.Unknown, "") }
	hand := func(rule decide.Rule) Event {
		return Event{Kind: "manual", Rule: int(rule), By: "ada", Why: "asked"}
	}
	receipt := func(provider, id string) Event {
		return Event{Kind: "receipt", Provider: provider, ProviderID: id, Outcome: dispatch.OK, Detail: "delivered", Rule: int(decide.RuleTruth)}
	}
	for name, c := range map[string]struct {
		state   dispatch.State
		events  []Event
		verdict string
		because []string // in order, each a part of a line
	}{
		"nothing yet": {dispatch.Pending, nil, "It has not been sent.", nil},
		"once":        {dispatch.Sent, []Event{send("a", dispatch.OK, "1"), receipt("a", "1")}, "It was accepted once.", nil},
		"once, without an id, and a receipt with one": {
			dispatch.Sent, []Event{send("a", dispatch.OK, ""), receipt("a", "1"), receipt("a", "1")}, "It was accepted once.", nil,
		},
		"refused everywhere": {
			dispatch.Dead, []Event{send("a", dispatch.Rejected, ""), send("b", dispatch.Rejected, "")}, "It was not accepted.", nil,
		},
		"refused, then the next provider": {
			dispatch.Sent, []Event{send("a", dispatch.Rejected, ""), send("b", dispatch.OK, "1")}, "It was accepted once.", nil,
		},
		"in doubt": {dispatch.InDoubt, []Event{lost("a")}, "It may have been accepted once; that isn't known yet.", nil},
		"held":     {dispatch.Held, []Event{lost("a")}, "It may have been accepted once; nothing could tell.", nil},
		"a lost answer, sent again under its key": {
			dispatch.Sent, []Event{lost("a"), lost("a"), send("a", dispatch.OK, "1"), receipt("a", "1")}, "It was accepted once.", nil,
		},
		"proven absent, then sent again": {
			dispatch.Sent,
			[]Event{lost("a"), {Kind: "look-up", Provider: "a", Rule: int(decide.RuleAbsent), Outcome: dispatch.Rejected}, send("a", dispatch.OK, "1")},
			"It was accepted once.", nil,
		},
		"resolved as not accepted, then sent again": {
			dispatch.Sent, []Event{lost("a"), hand(decide.RuleResolveRefused), send("a", dispatch.OK, "1")}, "It was accepted once.", nil,
		},
		"resolved as accepted": {dispatch.Sent, []Event{lost("a"), hand(decide.RuleResolveAccepted)}, "It was accepted once.", nil},
		"found": {
			dispatch.Sent,
			[]Event{lost("a"), {Kind: "look-up", Provider: "a", Rule: int(decide.RuleFound), Outcome: dispatch.OK, ProviderID: "1"}},
			"It was accepted once.", nil,
		},
		"sent anyway": {
			dispatch.Sent,
			[]Event{lost("a"), hand(decide.RuleSendAnyway), send("a", dispatch.OK, "2")},
			"The recipient may have got it twice.",
			[]string{"Send 1 to a (03:00:00 UTC) ended without an answer: a may have accepted it.", "ada had it sent anyway, knowing that it might be a second copy: “asked”", "Send 2 to a (03:00:00 UTC) was accepted as 2.", "recognises a repeated key"},
		},
		"sent anyway, and both told of": {
			dispatch.Sent,
			[]Event{lost("a"), hand(decide.RuleSendAnyway), send("a", dispatch.OK, "2"), receipt("a", "2"), receipt("a", "1")},
			"It was accepted twice: the recipient got it, or gets it, more than once.",
			[]string{"Send 1 to a (03:00:00 UTC) ended without an answer, and turned out to be accepted as 1.", "ada had it sent anyway", "Send 2 to a (03:00:00 UTC) was accepted as 2."},
		},
		"sent anyway, three times": {
			dispatch.Held,
			[]Event{lost("a"), hand(decide.RuleSendAnyway), lost("a"), hand(decide.RuleSendAnyway), lost("a")},
			"The recipient may have got it 3 times.",
			[]string{"Send 1", "ada had it", "Send 2", "ada had it", "Send 3", "repeated key"},
		},
		"two ids for one send": {
			dispatch.Sent,
			[]Event{send("a", dispatch.OK, "1"), receipt("a", "2")},
			"It was accepted twice: the recipient got it, or gets it, more than once.",
			[]string{"Send 1 to a (03:00:00 UTC) was accepted as 1.", "Another send to a (told of at 03:00:00 UTC) was accepted as 2."},
		},
		"failed over on unknown, by policy": {
			dispatch.Sent,
			[]Event{lost("a"), {Kind: "moved", Rule: int(decide.RuleLapsedAgain)}, send("b", dispatch.OK, "1")},
			"The recipient may have got it twice.",
			[]string{"Send 1 to a", "the policy of its route, or of the message, says to send it again", "Send 2 to b", "repeated key"},
		},
		"a receipt that no send of ours explains": {
			dispatch.Sent,
			[]Event{send("a", dispatch.OK, "1"), receipt("a", "9")},
			"It was accepted twice: the recipient got it, or gets it, more than once.",
			[]string{"Send 1 to a", "as 9"},
		},
		"a late answer": {
			dispatch.Sent, []Event{lost("a"), {Kind: "late", Provider: "a", Fence: -1, Outcome: dispatch.OK, ProviderID: "1"}}, "It was accepted once.", nil,
		},
	} {
		h := History{State: c.state}
		for i, e := range c.events {
			e.At = at
			if e.Kind == "attempt" {
				h.Attempts++
				e.Send = h.Attempts
			}
			c.events[i] = e
		}
		h.Events = c.events
		verdict, because := h.Conclusion()
		require.Equal(t, c.verdict, verdict, name)
		require.Len(t, because, len(c.because), "%s: %q", name, because)
		for i, want := range c.because {
			require.Contains(t, because[i], want, name)
		}
	}
}
