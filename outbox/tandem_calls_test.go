package outbox

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
	"github.com/seed-8098fbb7/dispatch/internal/sim"
)

// unclaim hands back what a claim took: its own id's, or nobody's. Rule 13.
func (tm *tandem) unclaim() {
	id := [16]byte{1}
	if len(tm.claims) > 0 {
		id = tm.claims[max(0, len(tm.claims)-1-tm.rnd.IntN(3))]
	}
	if tm.chance(15) {
		id[0]++ // another statement's
	}
	tm.tell("unclaim", "%x", id[:4])
	want, wantErr := tm.model.Unclaim(tm.t.Context(), id)
	got, err := tm.real.Unclaim(tm.t.Context(), id)
	tm.same("handed back", want, got, wantErr, err)
}

// look asks what changes nothing: Lanes, Peek, Gates.
func (tm *tandem) look() {
	ctx := tm.t.Context()
	tm.tell("lanes", "")
	want, wantErr := tm.model.Lanes(ctx)
	got, err := tm.real.Lanes(ctx)
	tm.same("lanes", append([]string{}, want...), append([]string{}, got...), wantErr, err)

	probes := []engine.Probe{{Lane: "sms/2/gamma"}}
	for _, lane := range want {
		probes = append(probes, engine.Probe{Lane: lane, From: oneOf(tm, engine.Cursor{}, engine.Cursor{Due: tm.now}, engine.Cursor{Due: tm.now.Add(-time.Minute)})})
	}
	tm.tell("peek", "%v", probes)
	a, wantErr := tm.model.Peek(ctx, probes)
	b, err := tm.real.Peek(ctx, probes)
	tm.same("peeked", a, b, wantErr, err)
}

func (tm *tandem) load() {
	r, ok := tm.row()
	if !ok {
		return
	}
	t := engine.Task{Row: decide.Row{Key: r.Key, Provider: oneOf(tm, "alpha", "beta")}}
	tm.tell("load", "%s for %s", t.Key, t.Provider)
	want, wantErr := tm.model.Load(tm.t.Context(), t)
	got, err := tm.real.Load(tm.t.Context(), t)
	tm.same("loaded", want, got, wantErr, err)
}

// gate closes, probes, passes and opens the shared holds, and reads them.
func (tm *tandem) gate() {
	ctx := tm.t.Context()
	p := oneOf(tm, "alpha", "alpha", "alpha", "alpha", "beta")
	var err, wantErr error
	var want, got any = true, true
	what := tm.rnd.IntN(7)
	if closed := slices.ContainsFunc(tm.model.GateRows(), func(g sim.TandemGate) bool { return g.Until.IsZero() }); closed && tm.chance(25) {
		what = 5
	}
	switch what {
	case 0, 1:
		h := engine.Hold{
			Provider: p, Reason: engine.GateReason(1 + tm.rnd.IntN(5)), For: oneOf(tm, -1, -1, 10*time.Second, time.Minute, 5*time.Minute), // #nosec G115 -- 1 to 5
			Probe: oneOf(tm, 0, time.Second, 10*time.Second, 30*time.Second),
		}
		h.Sticky = h.Reason != engine.GateFloor
		tm.tell("close", "%s %s for %v probe %v", p, h.Reason, h.For, h.Probe)
		wantErr, err = tm.model.CloseGate(ctx, h), tm.real.CloseGate(ctx, h)
		defer func() {
			if tm.diff == "" && tm.chance(65) { // once more, or a probe, while it is closed
				tm.gate()
			}
		}()
	case 2, 3:
		every, most := oneOf(tm, time.Second, 10*time.Second), oneOf(tm, 30*time.Second, 5*time.Minute)
		tm.tell("probe", "%s every %v at most %v", p, every, most)
		want, wantErr = tm.model.ProbeGate(ctx, p, 0, every, most)
		got, err = tm.real.ProbeGate(ctx, p, 0, every, most)
	case 4:
		need, next := oneOf(tm, 1, 3), oneOf(tm, time.Second, 30*time.Second)
		tm.tell("pass", "%s, of %d, next after %v", p, need, next)
		wantErr, err = tm.model.PassGate(ctx, p, 0, need, next), tm.real.PassGate(ctx, p, 0, need, next)
	case 5:
		tm.tell("open", "%s", p)
		tm.model.OpenGate(p)
		_, err = tm.pool.Exec(ctx, tm.real.sql.openGate, p, "", "")
	case 6:
		tm.tell("gates", "")
		a, aErr := tm.model.Gates(ctx)
		b, bErr := tm.real.Gates(ctx)
		want, wantErr, got, err = plainGates(a), aErr, plainGates(b), bErr
	}
	tm.same("gates", want, got, wantErr, err)
}

func plainGates(list []engine.Gate) []engine.Gate {
	out := append([]engine.Gate{}, list...)
	for n := range out {
		g := &out[n]
		g.Until, g.Since, g.Open = g.Until.UTC(), g.Since.UTC(), max(g.Open, -1)
		if g.Closed { // they say how a gate opens, and are read of open ones only
			g.Open, g.Held = 0, 0
		}
	}
	slices.SortFunc(out, func(a, b engine.Gate) int { return slices.Compare([]byte(a.Provider), []byte(b.Provider)) })
	return out
}

// edit makes one locked move on both sides, and compares what each saw.
func (tm *tandem) edit(key dispatch.Key, fence int64, change func(engine.View) (engine.Edit, error)) {
	var seen [2]engine.View
	call := func(n int, s engine.Store) error {
		return s.Edit(tm.t.Context(), key, fence, func(v engine.View) (engine.Edit, error) {
			seen[n] = v
			return change(v)
		})
	}
	wantErr, err := call(0, tm.model), call(1, tm.real)
	for n := range seen {
		seen[n].Row = plainRow(seen[n].Row)
	}
	if a, b := show(seen[0]), show(seen[1]); a != b {
		tm.diff = "seen:\n  model    " + a + "\n  postgres " + b
		return
	}
	tm.same("edit", "done", "done", wantErr, err)
	if errors.Is(wantErr, engine.ErrNotFound) != errors.Is(err, engine.ErrNotFound) {
		tm.diff = fmt.Sprintf("edit: model %v, postgres %v", wantErr, err)
	}
}

// byHand is a verb of a person.
func (tm *tandem) byHand() {
	if len(tm.messages) == 0 {
		return
	}
	key := oneOf(tm, tm.messages...).Key
	verbs := []string{"cancel", "supersede", "retry", "send anyway", "give up", "accepted", "not accepted"}
	for _, r := range tm.model.Rows() {
		if !tm.chance(40) {
			continue
		}
		if key = r.Key; r.Table == "parked" {
			verbs = []string{"cancel", "retry", "retry", "send anyway", "send anyway", "give up", "accepted", "not accepted"}
		} else {
			verbs = []string{"cancel", "supersede", "not accepted", "give up"}
		}
	}
	name := oneOf(tm, verbs...)
	if tm.chance(3) {
		key[0]++ // nobody's
	}
	verb := map[string]decide.Verb{
		"cancel": decide.Cancel(decide.EndedCancelled), "supersede": decide.Cancel(decide.EndedSuperseded), "retry": decide.Retry(false),
		"send anyway": decide.SendAnyway(false), "give up": decide.GiveUp, "accepted": decide.Accepted, "not accepted": decide.NotAccepted,
	}[name]
	tm.tell("by hand", "%s %s", name, key)
	tm.edit(key, 0, func(v engine.View) (engine.Edit, error) {
		row, rule, err := verb(v.Row)
		if err != nil || rule == 0 {
			return engine.Edit{}, err
		}
		return engine.Edit{Row: row, Write: true, Entries: []engine.Entry{manual(v, row, rule, Audit{By: "ada", Why: name}, "id-3")}}, nil
	})
}

// learn is a receipt, a look-up or an outcome that comes late, from any send.
func (tm *tandem) learn() {
	if len(tm.tasks) == 0 {
		return
	}
	t := oneOf(tm, tm.tasks...)
	r := engine.Record{
		Kind: oneOf(tm, engine.KindAttempt, engine.KindAttempt, engine.KindLookup, engine.KindReceipt), Provider: t.Provider, Account: t.Account,
		Verdict: dispatch.Verdict{Outcome: oneOf(tm, dispatch.OK, dispatch.Unknown, dispatch.Rejected), Reason: "late"},
	}
	if r.Verdict.Outcome == dispatch.OK {
		r.ProviderID = oneOf(tm, "", "id-1", "id-2")
	}
	fence := t.Fence
	if r.Kind == engine.KindReceipt {
		fence = 0
	}
	tm.tell("learn", "%s fence %d kind %d %s %s", t.Key, fence, r.Kind, r.Verdict.Outcome, fmt.Sprintf("%q", r.ProviderID))
	tm.edit(t.Key, fence, func(v engine.View) (engine.Edit, error) {
		of := fence
		if r.Kind == engine.KindReceipt {
			of = v.Fence
		}
		e, _ := engine.Learn(v, of, r)
		return e, nil
	})
}
