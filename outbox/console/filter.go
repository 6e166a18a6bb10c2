package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// states and reasons are the choices of the filter, by the word they have in
// addresses.
var (
	states = []dispatch.State{
		dispatch.Held, dispatch.Dead, dispatch.InDoubt, dispatch.Pending, dispatch.Sending, dispatch.Sent, dispatch.Cancelled,
	}
	reasons = []dispatch.Reason{
		dispatch.ReasonRejected, dispatch.ReasonBudget, dispatch.ReasonDeadline, dispatch.ReasonUnresolved, dispatch.ReasonSuperseded,
		dispatch.ReasonDropped, dispatch.ReasonChanged,
	}
)

// filterForm is a filter as it stands in a form or an address. It has no
// recipient: that one is only ever posted.
type filterForm struct {
	State, Route, Provider, Reason, Since, Before string
}

func readFilter(form url.Values) filterForm {
	get := func(name string) string { return strings.TrimSpace(form.Get(name)) }
	return filterForm{get("state"), get("route"), get("provider"), get("reason"), get("since"), get("before")}
}

// Query is the filter in an address.
func (f filterForm) Query() string {
	v := url.Values{}
	for name, value := range map[string]string{
		"state": f.State, "route": f.Route, "provider": f.Provider, "reason": f.Reason, "since": f.Since, "before": f.Before,
	} {
		if value != "" {
			v.Set(name, value)
		}
	}
	return v.Encode()
}

// Words tells the filter, for the page of a job.
func (f filterForm) Words() string {
	words := "messages"
	if f.State != "" {
		words = f.State + " messages"
	}
	for _, part := range []struct{ text, value string }{
		{" of route ", f.Route}, {" last at provider ", f.Provider}, {" with reason ", f.Reason}, {" since ", f.Since}, {" before ", f.Before},
	} {
		if part.value != "" {
			words += part.text + part.value
		}
	}
	return words
}

// timeForm is what a datetime-local input gives; times here are UTC.
const timeForm = "2006-01-02T15:04"

// filter reads the form, or says what of it is wrong.
func (f filterForm) filter() (out outbox.Filter, err error) {
	bad := func(words string) (outbox.Filter, error) {
		return outbox.Filter{}, failure{http.StatusBadRequest, words}
	}
	if f.State != "" {
		for _, s := range states {
			if s.String() == f.State {
				out.States = []dispatch.State{s}
			}
		}
		if out.States == nil {
			return bad("There is no such state.")
		}
	}
	if f.Reason != "" {
		for _, r := range reasons {
			if r.String() == f.Reason {
				out.Reason = r
			}
		}
		if out.Reason == 0 {
			return bad("There is no such reason.")
		}
	}
	out.Route, out.Provider = f.Route, f.Provider
	for _, n := range []string{f.Route, f.Provider} {
		if n != "" && dispatch.ValidName(n) != nil {
			return bad("That isn't the name of a route or a provider.")
		}
	}
	for _, t := range []struct {
		text string
		to   *time.Time
	}{{f.Since, &out.Since}, {f.Before, &out.Before}} {
		if t.text == "" {
			continue
		}
		at, err := time.Parse(timeForm, t.text)
		if err != nil || at.Year() < 1970 || at.Year() > 9998 {
			return bad("A time is written 2026-11-30T17:45, in UTC.")
		}
		*t.to = at
	}
	return out, nil
}

// inWords turns what the outbox says of bad input into an answer in words.
func inWords(err error) error {
	if field, ok := errors.AsType[*dispatch.FieldError](err); ok {
		return failure{http.StatusBadRequest, field.Field + " " + field.Reason + "."}
	}
	return err
}
