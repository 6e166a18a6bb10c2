package demo

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

// stub is a provider that does what the first word of a text says.
type stub struct {
	name string
	p    *outboxtest.Provider

	mu  sync.Mutex
	ids map[dispatch.Key][]string
}

func stubs() []*stub {
	day := 24 * time.Hour
	return []*stub{
		newStub("northtext", dispatch.Dedupe{Window: day}),
		newStub("plainsms", dispatch.Dedupe{}), // it knows no key and can't be asked
		newStub("postbox", dispatch.Dedupe{Window: day}),
		newStub("parcelmail", dispatch.Dedupe{Window: day}),
	}
}

func newStub(name string, dedupe dispatch.Dedupe) *stub {
	s := &stub{name: name, ids: map[dispatch.Key][]string{}}
	s.p = &outboxtest.Provider{Promise: dispatch.Contract{Name: name, Account: "demo", Dedupe: dedupe, Timeout: 5 * time.Second}, Respond: s.respond}
	return s
}

func (s *stub) provider() dispatch.Provider { return s.p }

func (s *stub) respond(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
	var text string
	switch c := e.Content.(type) {
	case dispatch.SMS:
		text = c.Body
	case dispatch.Email:
		text = c.Subject
	}
	what, _, _ := strings.Cut(text, ":")
	refuse := func(ev dispatch.Evidence) (dispatch.Accepted, error) {
		ev.Stage = dispatch.Answered
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: ev, Verdict: dispatch.Classify(ev)}
	}
	switch {
	case what == "refused":
		return refuse(dispatch.Evidence{Status: 422, OwnBody: true, Code: "address_suppressed", Reason: `reader is on the list of <b>bounced</b> addresses`})
	case what == "busy" && e.Attempt == 1:
		ev := dispatch.Evidence{Status: 429, OwnBody: true, Code: "slow_down", Reason: "too many requests", Stage: dispatch.Answered}
		v := dispatch.Classify(ev)
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: ev, Verdict: v}
	}
	a := accept()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids[e.Key] = append(s.ids[e.Key], a.ID)
	if what == "lost" && e.Attempt == 1 || what == "silent" {
		ev := dispatch.Evidence{Stage: dispatch.MaybeSent, Cause: dispatch.CauseDeadline}
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: ev, Verdict: dispatch.Classify(ev), Err: context.DeadlineExceeded}
	}
	return a, nil
}

// idsOf are the ids under which a message was accepted.
func (s *stub) idsOf(key dispatch.Key) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.ids[key]...)
}
