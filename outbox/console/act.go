package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// audit is who and why. Who is never a field of the form.
func (r *request) audit() (outbox.Audit, error) {
	why := strings.TrimSpace(r.PostFormValue("why"))
	switch {
	case why == "":
		return outbox.Audit{}, failure{http.StatusBadRequest, "Say why: it is kept in the history. Nothing was done."}
	case utf8.RuneCountInString(why) > maxWhy:
		return outbox.Audit{}, failure{http.StatusBadRequest, "That reason is longer than 1,000 characters. Nothing was done."}
	}
	return outbox.Audit{By: r.actor.Name, Why: why}, nil
}

// chosen is the verb that the form names, confirmed where it must be.
func (r *request) chosen() (verb, error) {
	v, ok := findVerb(r.PostFormValue("verb"))
	switch {
	case !ok:
		return verb{}, failure{http.StatusBadRequest, "Choose what to do. Nothing was done."}
	case v.Again && r.PostFormValue("again") != "yes":
		return verb{}, failure{http.StatusBadRequest, "Confirm that the recipient may get it twice. Nothing was done."}
	}
	return v, nil
}

// act does one verb to one message.
func (c *Console) act(ctx context.Context, r *request) error {
	key, err := keyOf(r)
	if err != nil {
		return err
	}
	v, err := r.chosen()
	if err != nil {
		return err
	}
	a, err := r.audit()
	if err != nil {
		return err
	}
	if v.Name == "read" {
		return c.read(ctx, r, key, a)
	}
	to := key
	switch v.Name {
	case "accepted":
		id := strings.TrimSpace(r.PostFormValue("id"))
		if utf8.RuneCountInString(id) > 200 {
			return failure{http.StatusBadRequest, "That is too long for a provider's id. Nothing was done."}
		}
		_, err = c.box.ResolveAccepted(ctx, key, id, a)
	case "resend":
		if to, err = dispatch.ParseKey(r.PostFormValue("new")); err != nil {
			return failure{http.StatusBadRequest, "The form holds no key for the new message. Nothing was done."}
		}
		err = c.box.InTx(ctx, func(tx pgx.Tx) error {
			_, err := c.box.ResendAsNew(ctx, tx, key, to, a)
			return err
		})
	default:
		_, err = v.one(c.box)(ctx, key, a)
	}
	if err != nil {
		return refused(err)
	}
	c.log.InfoContext(ctx, "console: action", slog.String("verb", v.Name), slog.String("key", key.String()), slog.String("by", a.By))
	r.redirect("messages/" + to.String() + "?done=" + v.Name)
	return nil
}

// refusals are what a verb's errors mean to the person who asked for it.
var refusals = []struct {
	err   error
	words string
}{
	{outbox.ErrNotFound, "there is no message with this key"},
	{outbox.ErrTooLate, "it was sent already"},
	{outbox.ErrMayHaveBeenAccepted, "it may have been accepted: resolve it, or send it anyway"},
	{outbox.ErrNotParked, "it is in the wrong state for this by now"},
	{outbox.ErrExpired, "its deadline has passed, or its content was removed"},
	{outbox.ErrEnded, "it was cancelled or superseded"},
	{outbox.ErrNotHeld, "nothing holds it any more"},
	{outbox.ErrDenied, "the application doesn't permit it"},
	{outbox.ErrSealed, "it is sealed, and its key is not here"},
}

// refused turns a refusal into an answer; anything else is passed on.
func refused(err error) error {
	if words := refusal(err); words != "" {
		status := http.StatusConflict
		switch {
		case errors.Is(err, outbox.ErrNotFound):
			status = http.StatusNotFound
		case errors.Is(err, outbox.ErrDenied):
			status = http.StatusForbidden
		}
		return failure{status, "Nothing was done: " + words + "."}
	}
	if _, ok := errors.AsType[*dispatch.ConflictError](err); ok {
		return failure{http.StatusConflict, "Nothing was done: the new key stands for another message. Reload the page and try again."}
	}
	return inWords(err)
}

func refusal(err error) string {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return r.words
		}
	}
	return ""
}

// readable is the text of a message.
type readable struct {
	Key   string
	SMS   *dispatch.SMS
	Email *dispatch.Email
}

// read shows what a message says, where the box's Reveal permits it.
func (c *Console) read(ctx context.Context, r *request, key dispatch.Key, a outbox.Audit) error {
	content, err := c.box.Content(ctx, key, a)
	if err != nil {
		return refused(err)
	}
	c.log.InfoContext(ctx, "console: text read", slog.String("key", key.String()), slog.String("by", a.By))
	page := readable{Key: key.String()}
	switch text := content.(type) {
	case dispatch.SMS:
		page.SMS = &text
	case dispatch.Email:
		page.Email = &text
	}
	c.render(ctx, r, http.StatusOK, "content", view{Title: "Text of " + key.String(), Data: page})
	return nil
}
