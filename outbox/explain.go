package outbox

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// String tells the history as a person would want to read it: what happened,
// when, by whom, what it means, and the Conclusion. Times are UTC. It holds no recipient, text
// or vendor's words; Box.Content has the text, for those who may read it.
func (h History) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "message %s on route %s is %s", h.Key, h.Route, h.State)
	if h.Reason != 0 {
		fmt.Fprintf(&b, " (%s)", h.Reason)
	}
	fmt.Fprintf(&b, ", %d of %d attempts", h.Attempts, h.Budget)
	if h.Template.Name != "" {
		fmt.Fprintf(&b, ", template %s %s", oneLine(h.Template.Name), oneLine(h.Template.Revision))
	}
	b.WriteByte('\n')
	fmt.Fprintf(&b, "  %s  enqueued", clock(h.Created))
	if !h.Deadline.IsZero() {
		fmt.Fprintf(&b, ", to be sent before %s", clock(h.Deadline))
	}
	b.WriteByte('\n')
	for _, e := range h.Events {
		fmt.Fprintf(&b, "  %s  %s\n", clock(e.At), e)
		if words := e.Meaning(); words != "" {
			fmt.Fprintf(&b, "  %*s  %s\n", len(clock(e.At)), "", words)
		}
	}
	if !h.Next.IsZero() {
		fmt.Fprintf(&b, "  %s  next step is due\n", clock(h.Next))
	}
	verdict, because := h.Conclusion()
	b.WriteString(oneLine(verdict))
	if len(because) > 0 {
		b.WriteString(" Why more than once:")
	}
	b.WriteByte('\n')
	for _, words := range because {
		fmt.Fprintf(&b, "  %s\n", oneLine(words))
	}
	return b.String()
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

// oneLine makes what a vendor or a person wrote fit for a line: a reason of many
// lines can't pose as another event.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
}

// Meaning is what the event's row of the transition table means to somebody who
// has never seen it; empty where the event says it all.
func (e Event) Meaning() string {
	switch decide.Rule(e.Rule) {
	case decide.RuleUnknown:
		return "it may have been accepted: that is settled first, by its key, a look-up or a receipt, else as its policy says"
	case decide.RuleRefusedOpen:
		return "an earlier send may still have been accepted: that is settled first"
	case decide.RuleMessageRefused:
		return "the message itself was refused, so nothing else is tried"
	case decide.RuleRefused:
		return "proven not to be accepted, so it may be sent again"
	case decide.RuleSenderRefused:
		return "the sender was refused, and no other provider has one"
	case decide.RuleDropped:
		return "the application's hook dropped it before the send"
	case decide.RuleChanged:
		return "a repeat would not have been the same message, so a person decides"
	case decide.RuleSwept:
		return "the worker never reported: the message may have been accepted"
	case decide.RuleTruth, decide.RuleTruthSending:
		return "it turned out to have been accepted"
	case decide.RuleFound:
		return "the provider has it"
	case decide.RuleAbsent:
		return "the provider doesn't have it, and was asked late enough to know"
	case decide.RuleLater:
		return "the provider couldn't tell yet"
	case decide.RuleLapsedHold:
		return "nothing could find out whether it was accepted: it waits for a person"
	case decide.RuleLapsedAgain:
		return "it may have been accepted, and is sent once more all the same, as its policy says: the recipient may get it twice"
	case decide.RuleLapsedDead:
		return "nothing could find out whether it was accepted, and its policy gives it up"
	case decide.RuleLapsedEnded:
		return "it was cancelled or superseded, and may have been accepted before"
	case decide.RuleEnd:
		return "its deadline or its budget was over before it was accepted"
	case decide.RuleCancelPending, decide.RuleCancelDead:
		return "cancelled or superseded: nothing of it is sent any more"
	case decide.RuleCancelWaived, decide.RuleCancelUnknown, decide.RuleCancelSending, decide.RuleCancelHeld:
		return "cancelled or superseded, though it may have been accepted already"
	case decide.RuleResolveAccepted:
		return "a person found out that it was accepted"
	case decide.RuleResolveRefused:
		return "a person found out that it was not accepted, so it may be sent again"
	case decide.RuleResolveGiveUp:
		return "a person gave it up; it may have been accepted"
	case decide.RuleRetry:
		return "put back by hand: it is found out what became of it, under the same key"
	case decide.RuleSendAnyway:
		return "sent once more by hand though it may have been accepted: the recipient may get it twice"
	case decide.RuleRequeue:
		return "put back by hand with a fresh budget; nothing of it was accepted"
	case decide.RuleDouble:
		return "accepted a second time: the recipient may have got it twice"
	case decide.RuleStale:
		return "told too late to change anything"
	case decide.RuleEnqueue, decide.RuleClaim, decide.RuleOK, decide.RuleUnstarted, decide.RuleClaimLost, decide.RuleResend,
		decide.RuleLookup, decide.RuleLookupLost:
	}
	return ""
}

// String tells the event in one line.
func (e Event) String() string {
	var b strings.Builder
	b.WriteString(e.Kind)
	if e.Send > 0 {
		fmt.Fprintf(&b, " %d", e.Send)
	}
	if e.Provider != "" {
		fmt.Fprintf(&b, " at %s", e.Provider)
	}
	switch e.Kind {
	case "attempt", "swept", "late", "look-up":
		fmt.Fprintf(&b, ": %s", e.Outcome)
		if e.Outcome == dispatch.Rejected {
			fmt.Fprintf(&b, " (%s)", e.Scope)
		}
	}
	for _, part := range []struct{ name, value string }{
		{"", oneLine(e.Detail)}, {"status ", itoa(e.Status)}, {"code ", oneLine(e.Code)}, {"id ", oneLine(e.ProviderID)}, {"by ", oneLine(e.By)}, {"why ", oneLine(e.Why)},
	} {
		if part.value != "" {
			fmt.Fprintf(&b, ", %s%s", part.name, part.value)
		}
	}
	if e.Took > 0 {
		fmt.Fprintf(&b, ", took %v", e.Took.Round(time.Millisecond))
	}
	fmt.Fprintf(&b, " → %s", e.State)
	if e.Reason != 0 {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	if e.Floor > 0 {
		fmt.Fprintf(&b, ", %s asked to wait %v", e.Provider, e.Floor.Round(time.Millisecond))
	}
	if e.Wait >= 0 && (e.State == dispatch.Pending || e.State == dispatch.InDoubt) {
		fmt.Fprintf(&b, ", next step in %v", e.Wait.Round(time.Millisecond))
	}
	return b.String()
}

func itoa(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
