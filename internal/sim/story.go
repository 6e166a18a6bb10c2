package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// story is a history as a person reads it: one line for each step. It is told
// only where somebody listens, since texts cost more than the steps.
type story struct{ b strings.Builder }

func (w *world) tell(text string) {
	if w.story != nil {
		fmt.Fprintf(&w.story.b, "%12v  %s\n", w.now.Round(time.Millisecond), text)
	}
}

func (w *world) tellf(k *worker, text string) {
	if w.story != nil {
		w.tell(k.String() + " " + text)
	}
}

func (k *worker) String() string { return fmt.Sprintf("w%d.%d", k.n+1, k.run) }

func (w *world) tellBoot(k *worker) {
	if w.story == nil {
		return
	}
	text := "starts with"
	for _, b := range k.binds {
		text += fmt.Sprintf(" %s/%s/%d", b.vendor.name, b.account, b.encoding)
	}
	w.tellf(k, text)
}

func (w *world) tellClaim(k *worker, tasks []engine.Task, f fate) {
	if w.story == nil || len(tasks) == 0 {
		return
	}
	text := "claims"
	for _, t := range tasks {
		text += fmt.Sprintf(" %s attempt %d at %s", nameOf(t.Key), t.Fence, t.Provider)
	}
	if f == lost {
		text += ", and its answer is lost"
	}
	w.tellf(k, text)
}

func (w *world) tellTask(k *worker, t engine.Task, what string) {
	if w.story != nil {
		w.tellf(k, fmt.Sprintf("%s attempt %d %s", nameOf(t.Key), t.Fence, what))
	}
}

func (w *world) tellRequest(q *request, what string) {
	if w.story != nil {
		w.tell(fmt.Sprintf("     %s attempt %d at %s: %s", nameOf(q.key), q.fence, q.vendor.name, what))
	}
}

func (w *world) tellReply(q *request, r reply) {
	if w.story == nil {
		return
	}
	text := fmt.Sprintf("arrives, answered %d", r.status)
	if r.fresh {
		text += ": ACCEPTED as " + r.id
	}
	if r.floor > 0 {
		text += fmt.Sprintf(", not before %v", r.floor)
	}
	if r.sender {
		text += ", its sender is unknown"
	}
	w.tellRequest(q, text)
}

func (w *world) tellReceipt(v *vendor, a acceptance) {
	if w.story != nil {
		w.tell(fmt.Sprintf("     m%d receipt of %s for %s", a.n+1, v.name, a.id))
	}
}

func (w *world) tellPerson(name string, r *row, err error) {
	if w.story != nil {
		w.tell(fmt.Sprintf("     a person asks to %s %s: %v", name, nameOf(r.Key), err))
	}
}

func (w *world) tellMove(rule decide.Rule, before, after *row) {
	if w.story == nil {
		return
	}
	was := "-"
	if before.m != nil {
		was = before.State.String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "  => %s row %d: %s → %s", nameOf(after.Key), rule, was, after.State)
	if after.in != nowhere {
		fmt.Fprintf(&b, " %s fence %d spent %d/%d", after.Reason, after.Fence, after.Spent, after.Budget)
	}
	if after.in == inQueue {
		fmt.Fprintf(&b, " due %v lane %q", since(after.Due).Round(time.Millisecond), after.Lane.Provider)
		if !after.Lease.IsZero() {
			fmt.Fprintf(&b, " lease %v", since(after.Lease).Round(time.Millisecond))
		}
		if after.State == dispatch.InDoubt {
			fmt.Fprintf(&b, " until %v", since(after.ResolveUntil).Round(time.Millisecond))
		}
	}
	if after.Ended != decide.NotEnded {
		b.WriteString(" ended")
	}
	for _, leg := range after.Ledger {
		fmt.Fprintf(&b, " [%s/%s %s]", leg.Provider, leg.Account, [...]string{"closed", "open", "waived"}[leg.Mark])
	}
	w.tell(b.String())
}

// begin tells what the history is made of.
func (w *world) tellPlan(seed uint64) {
	if w.story == nil {
		return
	}
	fmt.Fprintf(&w.story.b, "history of seed %d\n", seed)
	for _, v := range w.vendors {
		c := v.contract
		fmt.Fprintf(&w.story.b, "  %s: dedupe %v binds %v proves %v, search %v lag %v (really %v), receipts %v grace %v\n", v.name,
			c.Dedupe.Window, c.Dedupe.BindsBody, c.RefusalProves, c.Search.Available, c.Search.Lag, v.index, c.Echo.Reference, c.Echo.Grace)
	}
	for _, m := range w.messages {
		fmt.Fprintf(&w.story.b, "  m%d: budget %d, deadline %v, on unknown %v after %v, pinned %q, senders %s\n", m.n+1, m.budget, m.deadline,
			m.unknown.Action, m.unknown.After, m.pinned, m.senders)
	}
	fmt.Fprintf(&w.story.b, "  faults: %+v\n", w.plan)
}
