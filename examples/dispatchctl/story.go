package main

import (
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

type event struct {
	At         time.Time `json:"at"`
	Kind       string    `json:"kind"`
	Attempt    int       `json:"attempt,omitempty"`
	Fence      int64     `json:"fence,omitempty"`
	Rule       int       `json:"rule,omitempty"`
	State      string    `json:"state"`
	Reason     string    `json:"reason,omitempty"`
	Outcome    string    `json:"outcome,omitempty"`
	Scope      string    `json:"scope,omitempty"`
	Provider   string    `json:"provider,omitempty"`
	ProviderID string    `json:"provider_id,omitempty"`
	Status     int       `json:"status,omitempty"`
	Code       string    `json:"code,omitempty"`
	Detail     string    `json:"detail,omitempty"`
	Words      string    `json:"words,omitempty"`
	Took       float64   `json:"took_seconds,omitempty"`
	Wait       *float64  `json:"wait_seconds,omitempty"`
	Floor      float64   `json:"floor_seconds,omitempty"`
	By         string    `json:"by,omitempty"`
	Why        string    `json:"why,omitempty"`
	Linked     string    `json:"linked,omitempty"`
}

type historyDoc struct {
	Key       string     `json:"key"`
	Route     string     `json:"route"`
	Channel   string     `json:"channel"`
	State     string     `json:"state"`
	Reason    string     `json:"reason,omitempty"`
	Attempts  int        `json:"attempts"`
	Budget    int        `json:"budget"`
	Created   time.Time  `json:"created"`
	Deadline  *time.Time `json:"deadline,omitempty"`
	Next      *time.Time `json:"next,omitempty"`
	Reference string     `json:"reference,omitempty"`
	Verdict   string     `json:"verdict"`
	Because   []string   `json:"because,omitempty"`
	Holds     []gate     `json:"holds,omitempty"`
	Events    []event    `json:"events"`
}

// historyOf leaves the vendor's words out unless they are asked for: they may
// quote the recipient.
func historyOf(h outbox.History, words bool) historyDoc {
	d := historyDoc{
		Key: h.Key.String(), Route: h.Route, Channel: h.Channel.String(), State: h.State.String(), Reason: h.Reason.String(),
		Attempts: h.Attempts, Budget: h.Budget, Created: h.Created, Deadline: timeOrNil(h.Deadline), Next: timeOrNil(h.Next),
		Reference: h.Reference, Events: []event{},
	}
	d.Verdict, d.Because = h.Conclusion()
	for _, g := range h.Holds {
		d.Holds = append(d.Holds, gateOf(g))
	}
	for _, e := range h.Events {
		v := event{
			At: e.At, Kind: e.Kind, Attempt: e.Send, Fence: e.Fence, Rule: e.Rule, State: e.State.String(), Reason: e.Reason.String(), Provider: e.Provider,
			ProviderID: e.ProviderID, Status: e.Status, Code: e.Code, Detail: e.Detail, Took: e.Took.Seconds(), Floor: e.Floor.Seconds(),
			By: e.By, Why: e.Why,
		}
		switch e.Kind {
		case "attempt", "swept", "late", "look-up":
			v.Outcome = e.Outcome.String()
			if e.Outcome == dispatch.Rejected {
				v.Scope = e.Scope.String()
			}
		}
		if wait := e.Wait.Seconds(); wait >= 0 && (e.State == dispatch.Pending || e.State == dispatch.InDoubt) {
			v.Wait = &wait
		}
		if !e.Linked.IsZero() {
			v.Linked = e.Linked.String()
		}
		if words {
			v.Words = e.Words
		}
		d.Events = append(d.Events, v)
	}
	return d
}
