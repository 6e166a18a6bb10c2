package console

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// told is the page of a message.
type told struct {
	History outbox.History
	Reason  string
	Verdict string
	Because []string
	Steps   []step
	Verbs   []verb
	NewKey  string // for "send again as a new message": twice pressed, once done
	Done    string // what was just done
	Text    string // the history as plain text, to copy
}

func (c *Console) message(ctx context.Context, r *request) error {
	key, err := keyOf(r)
	if err != nil {
		return err
	}
	h, err := c.box.History(ctx, key)
	if errors.Is(err, outbox.ErrNotFound) {
		return failure{http.StatusNotFound, "There is no message with this key: it was never enqueued here, its transaction was rolled back, or it was deleted since."}
	}
	if err != nil {
		return err
	}
	m := told{History: h, Reason: reasonWords[h.Reason], Steps: steps(h), Verbs: verbsOf(h.State), NewKey: dispatch.NewKey().String(), Text: h.String()}
	m.Verdict, m.Because = h.Conclusion()
	if v, ok := findVerb(r.URL.Query().Get("done")); ok {
		m.Done = v.Label
	}
	c.render(ctx, r, http.StatusOK, "message", view{Title: "Message " + key.String(), Data: m})
	return nil
}

// verb is something that a person may do to a message.
type verb struct {
	Name, Label, Help string
	// Again tells that the recipient may get the message a second time: the form
	// asks for that to be confirmed.
	Again bool
	// Wants a provider's id, or a new key.
	WantsID, WantsKey bool
	From              []dispatch.State
	one               func(b *outbox.Box) outbox.Verb // nil where Bulk has none
}

var verbs = []verb{
	{
		Name: "retry", Label: "Put back", From: []dispatch.State{dispatch.Held, dispatch.Dead},
		Help: "Under its own key, by whatever means is left. What may have been accepted is looked up, or sent again only where the provider recognises the key.",
		one:  func(b *outbox.Box) outbox.Verb { return b.Retry },
	},
	{
		Name: "accepted", Label: "Resolve as accepted", From: []dispatch.State{dispatch.InDoubt, dispatch.Held}, WantsID: true,
		Help: "You know from the provider that it was accepted. Say below how.",
		one: func(b *outbox.Box) outbox.Verb {
			return func(ctx context.Context, key dispatch.Key, a outbox.Audit) (dispatch.State, error) {
				return b.ResolveAccepted(ctx, key, "", a)
			}
		},
	},
	{
		Name: "not-accepted", Label: "Resolve as not accepted", From: []dispatch.State{dispatch.InDoubt, dispatch.Held},
		Help: "You know from the provider that no send of it was accepted. It may be sent again.",
		one:  func(b *outbox.Box) outbox.Verb { return b.ResolveNotAccepted },
	},
	{
		Name: "send-anyway", Label: "Send anyway", From: []dispatch.State{dispatch.Held, dispatch.Dead}, Again: true,
		Help: "Once more under its own key, though it may have been accepted: the recipient may get it twice.",
		one:  func(b *outbox.Box) outbox.Verb { return b.SendAnyway },
	},
	{
		Name: "give-up", Label: "Give up", From: []dispatch.State{dispatch.InDoubt, dispatch.Held},
		Help: "Nobody will find out. It is dead, and says that it may have been accepted.",
		one:  func(b *outbox.Box) outbox.Verb { return b.GiveUp },
	},
	{
		Name: "cancel", Label: "Cancel", From: []dispatch.State{dispatch.Pending, dispatch.Sending, dispatch.InDoubt, dispatch.Held, dispatch.Dead},
		Help: "No send of it begins any more.",
		one:  func(b *outbox.Box) outbox.Verb { return b.Cancel },
	},
	{
		Name: "resend", Label: "Send again as a new message", From: []dispatch.State{dispatch.Sent, dispatch.Dead, dispatch.Cancelled}, Again: true, WantsKey: true,
		Help: "A second message with the same text, under a key of its own and linked to this one.",
	},
	{
		Name: "read", Label: "Read the text", Help: "Where the application permits it. That you read it, and why, is kept in the message's history.",
		From: []dispatch.State{dispatch.Pending, dispatch.Sending, dispatch.InDoubt, dispatch.Held, dispatch.Dead, dispatch.Sent, dispatch.Cancelled},
	},
}

func verbsOf(s dispatch.State) (out []verb) {
	for _, v := range verbs {
		if slices.Contains(v.From, s) {
			out = append(out, v)
		}
	}
	return out
}

// bulkVerbs are those that Bulk knows, for the messages of a state.
func bulkVerbs(state string) (out []verb) {
	for _, v := range verbs {
		if v.one != nil && slices.ContainsFunc(v.From, func(s dispatch.State) bool { return s.String() == state }) {
			out = append(out, v)
		}
	}
	return out
}

func findVerb(name string) (verb, bool) {
	i := slices.IndexFunc(verbs, func(v verb) bool { return v.Name == name })
	if i < 0 {
		return verb{}, false
	}
	return verbs[i], true
}
