package console

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// pageRows is how many messages a page lists.
const pageRows = 50

// list is a page of messages.
type list struct {
	Filter    filterForm
	Messages  []outbox.Message
	Next      string // cursor
	More      bool   // that another page follows
	Cut       bool   // nothing passed of what was looked at, and there is more
	States    []string
	Reasons   []string
	Routes    []string
	Providers []string
	Verbs     []verb // that may be done to all of them
	Recipient string // only in the answer to a post
	Parked    bool   // so that times bound the parking
}

func (c *Console) messages(ctx context.Context, r *request) error {
	form := readFilter(r.Form)
	l := list{Filter: form, Verbs: bulkVerbs(form.State), Parked: form.State == "held" || form.State == "dead"}
	f, err := form.filter()
	if err != nil {
		return err
	}
	if l.Messages, l.Next, err = c.box.List(ctx, f, cursor(r), pageRows); err != nil {
		return inWords(err)
	}
	l.More, l.Cut = l.Next != "", l.Next != "" && len(l.Messages) == 0
	for _, s := range states {
		l.States = append(l.States, s.String())
	}
	for _, s := range reasons {
		l.Reasons = append(l.Reasons, s.String())
	}
	for _, route := range c.box.Routes() {
		l.Routes = append(l.Routes, route.Name)
	}
	l.Providers = c.names(outbox.Stats{})
	title, nav := "Messages", "messages"
	switch form.State {
	case "dead":
		title, nav = "Dead letters", "dead"
	case "held":
		title, nav = "Held messages", "held"
	}
	c.render(ctx, r, http.StatusOK, "messages", view{Title: title, Nav: nav, Data: l})
	return nil
}

func cursor(r *request) string { return r.Form.Get("cursor") }

func (c *Console) searchForm(ctx context.Context, r *request) error {
	c.render(ctx, r, http.StatusOK, "search", view{Title: "Search", Nav: "search", Data: list{}})
	return nil
}

// search finds a message by its key, or a recipient's messages.
func (c *Console) search(ctx context.Context, r *request) error {
	text := strings.TrimSpace(r.PostFormValue("q"))
	switch {
	case text == "":
		return failure{http.StatusBadRequest, "Search for a key, a phone number or an email address."}
	case len(text) > 400:
		return failure{http.StatusBadRequest, "That is too long for a key, a phone number or an email address."}
	}
	if key, err := dispatch.ParseKey(text); err == nil {
		r.redirect("messages/" + key.String())
		return nil
	}
	l := list{Recipient: text}
	var err error
	if l.Messages, l.Next, err = c.box.List(ctx, outbox.Filter{Recipient: text}, cursor(r), pageRows); err != nil {
		if field, ok := errors.AsType[*dispatch.FieldError](err); ok && field.Field == "Recipient" {
			return failure{http.StatusBadRequest, "That is neither a key (a UUID), nor a phone number with its country code (+46…), nor an email address."}
		}
		return inWords(err)
	}
	l.More = l.Next != ""
	c.render(ctx, r, http.StatusOK, "search", view{Title: "Search", Nav: "search", Data: l})
	return nil
}

// keyOf is the key in the address.
func keyOf(r *request) (dispatch.Key, error) {
	key, err := dispatch.ParseKey(r.PathValue("key"))
	if err != nil {
		return dispatch.Key{}, failure{http.StatusNotFound, "That isn't a key."}
	}
	return key, nil
}
