package console

import (
	"fmt"
	"strings"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// reasonWords say why a message is held or dead.
var reasonWords = map[dispatch.Reason]string{
	dispatch.ReasonRejected:   "the provider refused it",
	dispatch.ReasonBudget:     "its attempts are spent and nothing was accepted",
	dispatch.ReasonDeadline:   "it couldn't be sent before its deadline",
	dispatch.ReasonUnresolved: "it may have been accepted, and nothing could tell",
	dispatch.ReasonSuperseded: "it was ended while it may have been accepted",
	dispatch.ReasonDropped:    "the application's own hook dropped it",
	dispatch.ReasonChanged:    "a repeat would have been another message",
}

// step is an entry of the timeline.
type step struct {
	Event  outbox.Event
	Title  string
	Why    string // the rule, in words
	Tone   string // "ok", "bad", "doubt", "hand" or ""
	Linked string // another message's key that it speaks of
}

// steps tells a history's events, oldest first.
func steps(h outbox.History) []step {
	out := make([]step, 0, len(h.Events))
	for _, e := range h.Events {
		s := step{Event: e, Why: sentence(e.Meaning())}
		s.Title, s.Tone = title(e)
		if !e.Linked.IsZero() {
			s.Linked = e.Linked.String()
		}
		out = append(out, s)
	}
	return out
}

// sentence makes one of words that begin small.
func sentence(words string) string {
	if words == "" {
		return ""
	}
	return strings.ToUpper(words[:1]) + words[1:] + "."
}

func title(e outbox.Event) (words, tone string) {
	at := ""
	if e.Provider != "" {
		at = " to " + e.Provider
	}
	switch e.Kind {
	case "attempt", "swept", "late":
		words = fmt.Sprintf("Send %d%s", e.Send, at)
		if e.Kind == "late" {
			words += ", its answer came late"
		}
		switch e.Outcome {
		case dispatch.OK:
			return words + ": accepted", "ok"
		case dispatch.Rejected:
			return words + ": refused", "bad"
		case dispatch.Unknown:
		}
		return words + ": no answer that says what became of it", "doubt"
	case "look-up":
		switch decide.Rule(e.Rule) { //nolint:exhaustive // the other look-ups brought nothing
		case decide.RuleAbsent:
			return "Asked " + e.Provider + ": it has no such message", ""
		case decide.RuleLater:
			return "Asked " + e.Provider + ": no answer yet", ""
		}
		if e.Outcome == dispatch.OK {
			return "Asked " + e.Provider + ": it has the message", "ok"
		}
		return "Asked " + e.Provider, ""
	case "receipt":
		tone = "ok"
		switch e.Detail {
		case dispatch.Undelivered.String(), dispatch.Failed.String(), dispatch.Bounced.String(), dispatch.Complained.String():
			tone = "bad"
		}
		return "Receipt from " + e.Provider + ": " + e.Detail, tone
	case "manual":
		return byHand(e) + " by " + e.By, "hand"
	case "moved":
		return "Moved to " + e.State.String(), moved(e.State)
	}
	return e.Kind, ""
}

func moved(s dispatch.State) string {
	if s == dispatch.Dead || s == dispatch.Held {
		return "bad"
	}
	return ""
}

func byHand(e outbox.Event) string {
	switch decide.Rule(e.Rule) { //nolint:exhaustive // these are the verbs
	case decide.RuleEnqueue:
		return "Enqueued as a repeat of another message"
	case decide.RuleCancelPending, decide.RuleCancelWaived, decide.RuleCancelSending, decide.RuleCancelUnknown, decide.RuleCancelHeld, decide.RuleCancelDead:
		if !e.Linked.IsZero() {
			return "Superseded"
		}
		return "Cancelled"
	case decide.RuleResolveAccepted:
		return "Resolved as accepted"
	case decide.RuleResolveRefused:
		return "Resolved as not accepted"
	case decide.RuleResolveGiveUp:
		return "Given up"
	case decide.RuleRetry, decide.RuleRequeue:
		return "Put back"
	case decide.RuleSendAnyway:
		return "Sent anyway"
	}
	switch {
	case !e.Linked.IsZero():
		return "Sent again as a new message"
	case e.Detail == "content was read":
		return "Text read"
	}
	return "Done"
}
