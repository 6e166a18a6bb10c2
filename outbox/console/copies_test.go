package console

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// What each course of events comes to, in the words of the page.
func TestAccount(t *testing.T) {
	at := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	fence := int64(0)
	send := func(provider string, o dispatch.Outcome, id string) outbox.Event {
		fence++
		rule := decide.RuleOK
		if o != dispatch.OK {
			rule = decide.RuleUnknown
		}
		return outbox.Event{Kind: "attempt", Fence: fence, Provider: provider, Outcome: o, ProviderID: id, Rule: int(rule)}
	}
	lost := func(provider string) outbox.Event { return send(provider, dispatch.Unknown, "") }
	hand := func(rule decide.Rule) outbox.Event {
		return outbox.Event{Kind: "manual", Rule: int(rule), By: "ada", Why: "asked"}
	}
	receipt := func(provider, id string) outbox.Event {
		return outbox.Event{Kind: "receipt", Provider: provider, ProviderID: id, Outcome: dispatch.OK, Detail: "delivered", Rule: int(decide.RuleTruth)}
	}
	for name, c := range map[string]struct {
		state   dispatch.State
		events  []outbox.Event
		verdict string
		because []string // in order, each a part of a line
	}{
		"nothing yet": {dispatch.Pending, nil, "It has not been sent.", nil},
		"once":        {dispatch.Sent, []outbox.Event{send("a", dispatch.OK, "1"), receipt("a", "1")}, "It was accepted once.", nil},
		"once, without an id, and a receipt with one": {
			dispatch.Sent, []outbox.Event{send("a", dispatch.OK, ""), receipt("a", "1"), receipt("a", "1")}, "It was accepted once.", nil,
		},
		"refused everywhere": {
			dispatch.Dead, []outbox.Event{send("a", dispatch.Rejected, ""), send("b", dispatch.Rejected, "")}, "It was not accepted.", nil,
		},
		"refused, then the next provider": {
			dispatch.Sent, []outbox.Event{send("a", dispatch.Rejected, ""), send("b", dispatch.OK, "1")}, "It was accepted once.", nil,
		},
		"in doubt": {dispatch.InDoubt, []outbox.Event{lost("a")}, "It may have been accepted once; that isn't known yet.", nil},
		"held":     {dispatch.Held, []outbox.Event{lost("a")}, "It may have been accepted once; nothing could tell.", nil},
		"a lost answer, sent again under its key": {
			dispatch.Sent, []outbox.Event{lost("a"), lost("a"), send("a", dispatch.OK, "1"), receipt("a", "1")}, "It was accepted once.", nil,
		},
		"proven absent, then sent again": {
			dispatch.Sent,
			[]outbox.Event{lost("a"), {Kind: "look-up", Provider: "a", Rule: int(decide.RuleAbsent), Outcome: dispatch.Rejected}, send("a", dispatch.OK, "1")},
			"It was accepted once.", nil,
		},
		"resolved as not accepted, then sent again": {
			dispatch.Sent, []outbox.Event{lost("a"), hand(decide.RuleResolveRefused), send("a", dispatch.OK, "1")}, "It was accepted once.", nil,
		},
		"resolved as accepted": {dispatch.Sent, []outbox.Event{lost("a"), hand(decide.RuleResolveAccepted)}, "It was accepted once.", nil},
		"found": {
			dispatch.Sent,
			[]outbox.Event{lost("a"), {Kind: "look-up", Provider: "a", Rule: int(decide.RuleFound), Outcome: dispatch.OK, ProviderID: "1"}},
			"It was accepted once.", nil,
		},
		"sent anyway": {
			dispatch.Sent,
			[]outbox.Event{lost("a"), hand(decide.RuleSendAnyway), send("a", dispatch.OK, "2")},
			"The recipient may have got it twice.",
			[]string{"Send 1 to a (03:00:00 UTC) ended without an answer: a may have accepted it.", "ada had it sent anyway, knowing that it might be a second copy: “asked”", "Send 2 to a (03:00:00 UTC) was accepted as 2.", "recognises a repeated key"},
		},
		"sent anyway, and both told of": {
			dispatch.Sent,
			[]outbox.Event{lost("a"), hand(decide.RuleSendAnyway), send("a", dispatch.OK, "2"), receipt("a", "2"), receipt("a", "1")},
			"It was accepted twice: the recipient got it, or gets it, more than once.",
			[]string{"Send 1 to a (03:00:00 UTC) ended without an answer, and turned out to be accepted as 1.", "ada had it sent anyway", "Send 2 to a (03:00:00 UTC) was accepted as 2."},
		},
		"sent anyway, three times": {
			dispatch.Held,
			[]outbox.Event{lost("a"), hand(decide.RuleSendAnyway), lost("a"), hand(decide.RuleSendAnyway), lost("a")},
			"The recipient may have got it 3 times.",
			[]string{"Send 1", "ada had it", "Send 2", "ada had it", "Send 3", "repeated key"},
		},
		"failed over on unknown, by policy": {
			dispatch.Sent,
			[]outbox.Event{lost("a"), {Kind: "moved", Rule: int(decide.RuleLapsedAgain)}, send("b", dispatch.OK, "1")},
			"The recipient may have got it twice.",
			[]string{"Send 1 to a", "the policy of its route, or of the message, says to send it again", "Send 2 to b", "repeated key"},
		},
		"a receipt that no send of ours explains": {
			dispatch.Sent,
			[]outbox.Event{send("a", dispatch.OK, "1"), receipt("a", "9")},
			"It was accepted twice: the recipient got it, or gets it, more than once.",
			[]string{"Send 1 to a", "as 9"},
		},
		"a late answer": {
			dispatch.Sent, []outbox.Event{lost("a"), {Kind: "late", Provider: "a", Fence: -1, Outcome: dispatch.OK, ProviderID: "1"}}, "It was accepted once.", nil,
		},
	} {
		h := outbox.History{State: c.state}
		for i, e := range c.events {
			e.At = at
			if e.Kind == "attempt" {
				h.Attempts++
			}
			c.events[i] = e
		}
		h.Events = c.events
		verdict, because := account(h, steps(h))
		require.Equal(t, c.verdict, verdict, name)
		require.Len(t, because, len(c.because), "%s: %q", name, because)
		for i, want := range c.because {
			require.Contains(t, because[i], want, name)
		}
	}
}

func TestToken(t *testing.T) {
	now := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	one, other := tokens{secret: []byte("one")}, tokens{secret: []byte("other")}
	token := one.issue("ada", now)
	require.True(t, one.valid(token, "ada", now))
	require.True(t, one.valid(token, "ada", now.Add(tokenLife-time.Second)))
	require.False(t, one.valid(token, "ada", now.Add(tokenLife)), "it ends")
	require.False(t, one.valid(token, "ad", now))
	require.False(t, other.valid(token, "ada", now))
	for i := range len(token) {
		changed := []byte(token)
		changed[i] ^= 1
		require.False(t, one.valid(string(changed), "ada", now), "byte %d", i)
	}
	for _, bad := range []string{"", ".", "1", "1.", ".x", token + "A", token + "=", " " + token} {
		require.False(t, one.valid(bad, "ada", now), bad)
	}
}

func TestWords(t *testing.T) {
	now := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	v := view{Now: now}
	for d, want := range map[time.Duration]string{
		0: "just now", -time.Second: "just now", 59 * time.Second: "59 s ago", time.Minute: "1 min ago", 90 * time.Minute: "1 h 30 min ago", 50 * time.Hour: "2 days ago",
		-2 * time.Hour: "in 2 h 0 min",
	} {
		require.Equal(t, want, v.Ago(now.Add(-d)), d)
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		require.Equal(t, want, number(n))
	}
	for path, want := range map[string]string{"": "./", "/": "./", "/messages": "./", "/messages/x": "../", "/a/b/c": "../../"} {
		require.Equal(t, want, root(path), path)
	}
	for detail, want := range map[string]string{
		"repeats 01a22b53-ab68-790f-9c5d-6ea7d1d2563c": "01a22b53-ab68-790f-9c5d-6ea7d1d2563c", "superseded by x": "", "repeats": "", "": "",
	} {
		require.Equal(t, want, linked(detail))
	}
}

// One failure among thousands is seen, and no bar leaves the picture.
func TestCharts(t *testing.T) {
	now := time.Date(2026, 11, 30, 3, 0, 30, 0, time.UTC)
	last := now.Truncate(time.Minute)
	all := charts([]outbox.Trend{
		{Provider: "a", From: last.Add(-2 * time.Hour), Accepted: 1e6},
		{Provider: "a", From: last.Add(-time.Minute), Accepted: 100_000, Failed: 1},
		{Provider: "a", From: last, Failed: 3},
		{Provider: "b", From: last, Accepted: 1},
		{Provider: "b", From: last.Add(time.Hour), Accepted: 1},
	}, now)
	require.Len(t, all, 2)
	require.Equal(t, "a in the last hour: 100,000 accepted, 4 failed, most of them (3) at 03:00 UTC", all[0].Label)
	require.Len(t, all[0].Bars, 2, "what is older is left out")
	for _, c := range all {
		for _, b := range c.Bars {
			require.GreaterOrEqual(t, b.FailTop, 0.0)
			require.InDelta(t, barHeight, b.FailHeight+b.OKHeight+b.FailTop, 1e-9)
			require.GreaterOrEqual(t, b.X, 0.0)
			require.LessOrEqual(t, b.X, 590.0)
			require.Equal(t, b.HasFail, b.FailHeight >= leastBar)
			require.Equal(t, b.HasAccepted, b.OKHeight > 0)
		}
	}
}
