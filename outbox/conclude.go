package outbox

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// copied is what may have reached a recipient as one message: sends under one
// key to one provider that recognises a repeat, or a single send.
type copied struct {
	provider string
	sends    []Event
	outcome  dispatch.Outcome
	ids      []string
	closed   bool // proven not accepted
	waived   bool // somebody chose to send once more all the same
}

// Conclusion tells, from the events alone, how often the message may have
// reached its recipient, what holds its next step, and for each copy beyond the
// first why it was sent: the answers to "why is it not sent yet?" and "why did
// she get it twice?". It holds no recipient or text.
func (h History) Conclusion() (verdict string, because []string) {
	groups, choices := copies(h.Events)
	var accepted, doubtful, waived int
	for _, g := range groups {
		switch {
		case g.closed || g.outcome == dispatch.Rejected:
		case g.outcome == dispatch.OK:
			accepted++
		default:
			doubtful++
			if g.waived {
				waived++
			}
		}
	}
	switch {
	case accepted > 1:
		verdict = fmt.Sprintf("It was accepted %s: the recipient got it, or gets it, more than once.", times(accepted))
	case accepted+doubtful > 1:
		verdict = fmt.Sprintf("The recipient may have got it %s.", times(accepted+doubtful))
	case accepted == 1:
		verdict = "It was accepted once."
	case doubtful == 1:
		verdict = "It may have been accepted once; that isn't known yet."
		if h.State == dispatch.Held || h.State == dispatch.Dead {
			verdict = "It may have been accepted once; nothing could tell."
		}
	case h.Attempts == 0:
		verdict = "It has not been sent."
	default:
		verdict = "It was not accepted."
	}
	if waits := h.waits(); waits != "" {
		verdict += " " + waits
	}
	if accepted+doubtful < 2 {
		return verdict, nil
	}
	for i, g := range groups {
		if i > 0 && choices[i] != "" {
			because = append(because, choices[i])
		}
		because = append(because, g.tell())
	}
	if waived > 0 {
		because = append(because, "Whether a provider recognises a repeated key is said by its adapter's contract; where it does, the repeat was answered and not delivered again.")
	}
	return verdict, because
}

// copies groups the sends. choices[i] says why group i was sent though the one
// before it may have been accepted.
func copies(all []Event) (groups []copied, choices map[int]string) {
	choices = map[int]string{}
	choice := ""
	for _, e := range all {
		last := len(groups) - 1
		switch rule := decide.Rule(e.Rule); {
		case e.Kind == "attempt" || e.Kind == "swept":
			if repeat := last >= 0 && groups[last].outcome == dispatch.Unknown && !groups[last].closed && !groups[last].waived &&
				groups[last].provider == e.Provider; !repeat {
				groups = append(groups, copied{provider: e.Provider, outcome: dispatch.Rejected})
				last++
				choices[last], choice = choice, ""
			}
			g := &groups[last]
			g.sends = append(g.sends, e)
			g.learn(e)
		case e.Outcome == dispatch.OK:
			if i := whose(groups, e, e.Send); i >= 0 {
				groups[i].learn(e)
			} else if e.Kind == "late" || e.ProviderID != "" { // a send that no row tells of
				groups = append(groups, copied{provider: e.Provider, outcome: dispatch.OK, ids: []string{e.ProviderID}, sends: []Event{e}})
			}
		case rule == decide.RuleAbsent || rule == decide.RuleResolveRefused:
			for i := range groups {
				if groups[i].outcome == dispatch.Unknown {
					groups[i].closed = true
				}
			}
		case rule == decide.RuleResolveAccepted:
			if i := whose(groups, e, 0); i >= 0 {
				groups[i].outcome = dispatch.OK
			}
		case rule == decide.RuleSendAnyway || rule == decide.RuleLapsedAgain:
			for i := range groups {
				groups[i].waived = groups[i].waived || groups[i].outcome == dispatch.Unknown
			}
			choice = why(e)
		}
	}
	return groups, choices
}

// learn takes in an event about the group's sends. An unknown among refusals
// stays one, and an acceptance outweighs both.
func (g *copied) learn(e Event) {
	switch {
	case e.Outcome == dispatch.OK || g.outcome == dispatch.OK:
		g.outcome = dispatch.OK
	case e.Outcome == dispatch.Unknown:
		g.outcome = dispatch.Unknown
	}
	if e.ProviderID != "" && !slices.Contains(g.ids, e.ProviderID) {
		g.ids = append(g.ids, e.ProviderID)
	}
}

// whose is the group that an acceptance without a send of its own is about: the
// one with its id, else that of its send, else the first that is in doubt at the
// same provider.
func whose(groups []copied, e Event, send int) int {
	for i, g := range groups {
		if e.ProviderID != "" && g.provider == e.Provider && slices.Contains(g.ids, e.ProviderID) {
			return i
		}
	}
	for i, g := range groups { // accepted without an id
		if g.provider == e.Provider && g.outcome == dispatch.OK && len(g.ids) == 0 {
			return i
		}
	}
	if e.Kind == "late" {
		for i, g := range groups {
			if slices.ContainsFunc(g.sends, func(s Event) bool { return s.Send == send }) {
				return i
			}
		}
	}
	for i, g := range groups {
		if g.outcome == dispatch.Unknown && (g.provider == e.Provider || e.Provider == "") {
			return i
		}
	}
	if e.ProviderID == "" {
		return len(groups) - 1
	}
	return -1
}

// tell says what became of a group.
func (g copied) tell() string {
	first, last := g.sends[0], g.sends[len(g.sends)-1]
	began := first.At.Add(-first.Took).UTC().Format("15:04:05 UTC")
	words := fmt.Sprintf("Send %d to %s (%s)", first.Send, g.provider, began)
	switch {
	case first.Send == 0: // an acceptance whose send has no row
		words = fmt.Sprintf("Another send to %s (told of at %s)", g.provider, began)
	case len(g.sends) > 1:
		words = fmt.Sprintf("Sends %d to %d to %s (%s and after), under one key, which the provider recognises,", first.Send, last.Send, g.provider, began)
	}
	ids := ""
	if len(g.ids) > 0 {
		ids = " as " + strings.Join(g.ids, " and ")
	}
	switch {
	case g.outcome == dispatch.OK && last.Outcome != dispatch.OK:
		return words + " ended without an answer, and turned out to be accepted" + ids + "."
	case g.outcome == dispatch.OK:
		return words + " was accepted" + ids + "."
	case g.closed:
		return words + " ended without an answer, and was proven not to be accepted."
	case g.outcome == dispatch.Rejected:
		return words + " was refused."
	}
	detail := ""
	if last.Detail != "" {
		detail = " (" + last.Detail + ")"
	}
	return words + " ended without an answer" + detail + ": " + g.provider + " may have accepted it."
}

// why tells who chose to send a message once more.
func why(e Event) string {
	at := e.At.UTC().Format("15:04:05 UTC")
	if e.By == "" {
		return "At " + at + " nothing could tell what became of it, and the policy of its route, or of the message, says to send it again all the same."
	}
	return fmt.Sprintf("At %s %s had it sent anyway, knowing that it might be a second copy: “%s”", at, e.By, e.Why)
}

func times(n int) string {
	if n == 2 {
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}
