package sim

import (
	"context"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// person makes one move by hand, on a message that is there.
func (w *world) person() {
	if len(w.db.rows) == 0 || w.calm {
		return
	}
	r := &w.db.rows[w.n(int64(len(w.db.rows)))]
	n := r.m.n
	type move struct {
		name string
		verb decide.Verb
	}
	moves := [...]move{
		{"cancel", decide.Cancel(decide.EndedCancelled)},
		{"supersede", decide.Cancel(decide.EndedSuperseded)},
		{"retry", decide.Retry(false)},
		{"retry", decide.Retry(false)},
		{"send anyway", decide.SendAnyway(false)},
		{"give up", decide.GiveUp},
		{"accepted", decide.Accepted},
		{"not accepted", decide.NotAccepted},
	}
	m := moves[w.n(int64(len(moves)))]
	// Who says what became of a message tells the truth.
	if m.name == "accepted" && !w.accepted(n) || m.name == "not accepted" && (w.accepted(n) || w.ref.mayArrive(n)) {
		m = moves[0]
	}
	verb := w.mutant.verb(m.name, m.verb)
	err := w.edit(r.Key, func(v engine.View) (engine.Edit, error) {
		row, rule, err := verb(v.Row)
		if err != nil || rule == 0 {
			return engine.Edit{}, err
		}
		return engine.Edit{Row: row, Write: true, Entries: []engine.Entry{{
			Fence: v.Fence, Rule: rule, State: row.State, Reason: row.Reason,
			Record: engine.Record{Kind: engine.KindManual, Actor: "ada", Why: m.name},
		}}}, nil
	})
	w.tellPerson(m.name, r, err)
	for _, k := range w.workers {
		k.ring(laneName(r.Lane))
	}
	if w.n(3) == 0 {
		w.after(time.Duration(w.n(int64(pick(w, time.Second, time.Minute, 20*time.Minute)))), w.person)
	}
}

// accepted is the truth: some vendor has accepted the message.
func (w *world) accepted(n int) bool {
	for _, v := range w.vendors {
		for i := range v.accept {
			if v.accept[i].n == n {
				return true
			}
		}
	}
	return false
}

// receipts are what a vendor tells later about an acceptance: perhaps twice,
// perhaps never.
func (w *world) receipts(v *vendor, a acceptance) {
	if !v.contract.Echo.Reference {
		return
	}
	for range w.n(3) {
		w.after(pick(w, 10*time.Millisecond, 300*time.Millisecond, 5*time.Second, 20*time.Second, 5*time.Minute, time.Hour),
			func() { w.receipt(v, a) })
	}
}

// receipt is stored and applied; the vendor repeats it where that fails.
func (w *world) receipt(v *vendor, a acceptance) {
	record := engine.Record{
		Kind: engine.KindReceipt, Provider: v.name, Account: a.account, ProviderID: a.id,
		Verdict: dispatch.Verdict{Outcome: dispatch.OK, Reason: "receipt"},
	}
	key := keyOf(a.n)
	w.tellReceipt(v, a)
	err := w.edit(key, func(view engine.View) (engine.Edit, error) {
		edit, _ := engine.Learn(view, view.Fence, record)
		return edit, nil
	})
	if err != nil {
		w.after(10*time.Second, func() { w.receipt(v, a) })
		return
	}
	w.ref.learnt(key)
}

// drawVendors draws one provider or two, each of a kind of its own.
func (w *world) drawVendors() {
	for i, name := range []string{"alpha", "beta"}[:1+w.n(2)] {
		v := &vendor{w: w, n: i, name: name, accounts: accounts[i], noID: w.n(6) == 0, keeps: w.n(2) == 0}
		c := dispatch.Contract{Name: name, Account: v.accounts[0], Encoding: 1, Timeout: 10 * time.Second}
		kind := w.n(8)
		if kind == 0 || kind == 1 || kind == 5 || kind == 6 {
			c.Dedupe.Window = pick(w, 30*time.Second, 45*time.Second, 90*time.Second, 5*time.Minute, 24*time.Hour)
			c.Dedupe.BindsBody = w.n(2) == 0
			c.RefusalProves = w.n(2) == 0
		}
		if kind == 2 || kind == 3 || kind == 5 {
			c.Search.Available = true
			c.Search.Lag = pick(w, 2*time.Second, 15*time.Second, 2*time.Minute)
			v.index = c.Search.Lag * time.Duration(w.n(95)) / 100
		}
		if kind == 3 || kind == 4 || kind == 6 {
			c.Echo.Reference = true
			c.Echo.Grace = pick(w, 30*time.Second, 10*time.Minute)
		}
		v.contract = c
		for n := range v.refuses {
			if w.n(1000) < int64(w.plan.reject) {
				v.refuses[n] = pick(w, 1, 1, 5*time.Second, time.Minute, 10*time.Minute)
			}
			v.barred[n] = w.n(1000) < int64(w.plan.sender)
		}
		w.vendors = append(w.vendors, v)
	}
}

var accounts = [...][2]string{{"a1", "a2"}, {"b1", "b2"}}

// routes are the same in every history but for the providers.
var routes = [...][]dispatch.Route{
	{{Name: routeName, Providers: []string{"alpha"}}},
	{{Name: routeName, Providers: []string{"alpha", "beta"}}},
}

func (w *world) routes() []dispatch.Route {
	list := routes[len(w.vendors)-1]
	if w.plan.hook == 0 {
		return list
	}
	r := list[0]
	r.Before = w.before
	return []dispatch.Route{r}
}

// before is the application's hook: suppression lists and quiet hours.
func (w *world) before(context.Context, dispatch.Envelope) (dispatch.Advice, error) {
	if w.n(4) == 0 && !w.running.sleep(pick(w, time.Millisecond, 500*time.Millisecond)) {
		return dispatch.Advice{}, errDead
	}
	switch {
	case !w.chance(w.plan.hook):
		return dispatch.Advice{}, nil
	case w.n(3) == 0:
		return dispatch.Advice{Drop: "unsubscribed"}, nil
	case w.n(2) == 0:
		return dispatch.Advice{NotBefore: w.clock().Add(pick(w, time.Second, time.Minute, time.Hour))}, nil
	}
	return dispatch.Advice{}, errLost
}
