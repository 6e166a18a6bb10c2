package console

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// rules says why a message moved as it did: the rows of the transition table in
// words.
var rules = map[decide.Rule]string{
	decide.RuleEnqueue:         "It was enqueued.",
	decide.RuleEnd:             "Its deadline came, or its attempts were spent, with nothing that may have been accepted.",
	decide.RuleCancelPending:   "Nothing of it was accepted, so it ended as cancelled.",
	decide.RuleCancelWaived:    "An earlier send may have been accepted, so that is found out first.",
	decide.RuleOK:              "The provider accepted it.",
	decide.RuleUnknown:         "It may have been accepted, so it isn't sent to anybody else: what became of it is found out first.",
	decide.RuleRefusedOpen:     "This send was refused, but an earlier one may have been accepted.",
	decide.RuleMessageRefused:  "The fault is the message's own: no other try would change it.",
	decide.RuleRefused:         "It certainly wasn't accepted, so it may be sent again, or to the next provider.",
	decide.RuleSenderRefused:   "The sender isn't registered, and no other provider can take the message.",
	decide.RuleUnstarted:       "It was handed back before its send began; that spends nothing.",
	decide.RuleClaimLost:       "It was claimed and never handed to a sender; that spends nothing.",
	decide.RuleDropped:         "The application's own hook asked for it not to be sent.",
	decide.RuleChanged:         "A repeat would not have been the same request, so it was held.",
	decide.RuleSwept:           "Its worker didn't come back in time: the send may have gone out.",
	decide.RuleCancelSending:   "A send was under way; it ends as soon as that one's outcome is known.",
	decide.RuleTruthSending:    "It turned out to be accepted while another send was under way.",
	decide.RuleResend:          "It was sent again under the same key.",
	decide.RuleFound:           "The provider knows it: it was accepted.",
	decide.RuleAbsent:          "The provider, asked late enough, doesn't know it: it wasn't accepted.",
	decide.RuleLater:           "The provider couldn't say yet, so it is asked again.",
	decide.RuleCancelUnknown:   "It may have been accepted; it ends once that is known.",
	decide.RuleLapsedEnded:     "It was ended, and what became of its send could not be found out.",
	decide.RuleLapsedHold:      "Nothing could tell what became of its send, so it waits for a person.",
	decide.RuleLapsedAgain:     "Nothing could tell what became of its send, and its policy says to send it again all the same.",
	decide.RuleLapsedDead:      "Nothing could tell what became of its send, and its policy says to give up then.",
	decide.RuleResolveAccepted: "A person says that it was accepted.",
	decide.RuleResolveRefused:  "A person says that no send of it was accepted, so it may be sent again.",
	decide.RuleResolveGiveUp:   "A person gave up finding out what became of it.",
	decide.RuleRetry:           "It was put back: what became of it is looked up, or it is sent again under the same key where the provider recognises that.",
	decide.RuleSendAnyway:      "It was sent once more by hand, though an earlier send may have been accepted.",
	decide.RuleCancelHeld:      "It was ended by hand; an earlier send may have been accepted.",
	decide.RuleRequeue:         "It was put back with a fresh budget; nothing of it had been accepted.",
	decide.RuleCancelDead:      "It was ended by hand.",
	decide.RuleTruth:           "It turned out to be accepted.",
	decide.RuleDouble:          "A second acceptance of the same message: it was accepted twice.",
	decide.RuleStale:           "This came too late to change anything, and is kept as evidence.",
}

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
	Began  time.Time // of a send
	Title  string
	Why    string // the rule, in words
	Tone   string // "ok", "bad", "doubt", "hand" or ""
	Send   int    // the number of the send, 0 for none
	Linked string // another message's key that it speaks of
}

// steps tells a history's events, oldest first.
func steps(h outbox.History) []step {
	out := make([]step, 0, len(h.Events))
	sends := map[int64]int{}
	for _, e := range h.Events {
		s := step{Event: e, Why: rules[decide.Rule(e.Rule)], Began: e.At}
		switch e.Kind {
		case "attempt", "swept":
			sends[e.Fence] = len(sends) + 1
			s.Began = e.At.Add(-e.Took)
		}
		s.Send = sends[e.Fence]
		s.Title, s.Tone = title(e, s.Send)
		s.Linked = linked(e.Detail)
		out = append(out, s)
	}
	return out
}

func title(e outbox.Event, send int) (words, tone string) {
	at := ""
	if e.Provider != "" {
		at = " to " + e.Provider
	}
	switch e.Kind {
	case "attempt", "swept", "late":
		words = fmt.Sprintf("Send %d%s", send, at)
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
		return "Sent again as a new message"
	case decide.RuleCancelPending, decide.RuleCancelWaived, decide.RuleCancelSending, decide.RuleCancelUnknown, decide.RuleCancelHeld, decide.RuleCancelDead:
		if linked(e.Detail) != "" {
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
	if e.Detail == "content was read" {
		return "Text read"
	}
	return "Done"
}

// linked finds the key of another message in the outbox's own words.
func linked(detail string) string {
	for _, before := range []string{"repeats ", "superseded by "} {
		if rest, ok := strings.CutPrefix(detail, before); ok {
			if key, err := dispatch.ParseKey(rest); err == nil {
				return key.String()
			}
		}
	}
	return ""
}
