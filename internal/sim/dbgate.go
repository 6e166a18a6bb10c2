package sim

import (
	"context"
	"time"

	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// gate is a row of the gates: the shared hold on a provider.
type gate struct {
	provider     string
	reason       engine.GateReason
	step, passed int
	until        time.Duration // forever until a probe passes, or a person opens it
	since, probe time.Duration
	opened       time.Duration
	opens        bool // it was open before
}

const forever = never

// hysteresis is how long a sticky gate stays closed at least.
const hysteresis = time.Minute

func (d *database) gate(provider string) *gate {
	for i := range d.gates {
		if d.gates[i].provider == provider {
			return &d.gates[i]
		}
	}
	return nil
}

// held tells that a provider's gate is closed.
func (d *database) held(provider string) bool {
	g := d.gate(provider)
	return g != nil && g.until > d.w.now
}

// closeGate is closeGateSQL.
func (d *database) closeGate(h engine.Hold) {
	now := d.w.now
	until := forever
	if h.For >= 0 {
		until = now + h.For
	}
	probe := now + h.Probe
	if h.Sticky {
		probe = max(probe, now+hysteresis)
	}
	if until != forever { // a wait that the provider named holds probes too
		probe = max(probe, until)
	}
	g := d.gate(h.Provider)
	switch {
	case g == nil:
		d.gates = append(d.gates, gate{provider: h.Provider, reason: h.Reason, until: until, since: now, probe: probe})
		return
	case g.until > now:
		if g.until != forever {
			g.probe = max(probe, g.until)
		}
		if until != forever {
			g.probe = max(g.probe, until)
		}
		g.reason = max(g.reason, h.Reason)
		g.until = max(g.until, until)
	default:
		g.reason, g.until, g.since, g.step, g.probe = h.Reason, until, now, 0, probe
	}
	g.passed = 0
}

// probeGate is probeGateSQL.
func (d *database) probeGate(provider string, every, most time.Duration) bool {
	g, now := d.gate(provider), d.w.now
	if g == nil || g.until != forever || g.reason == engine.GatePaused || g.probe > now {
		return false
	}
	g.probe = now + min(every<<min(g.step, 20), most)
	g.step++
	return true
}

// passGate is passGateSQL.
func (d *database) passGate(provider string, need int, next time.Duration) {
	g, now := d.gate(provider), d.w.now
	if g == nil || g.until != forever || g.reason == engine.GatePaused {
		return
	}
	g.passed++
	g.step, g.probe = 0, now+next
	if g.passed >= need {
		g.until, g.opened, g.opens = now, now, true
	}
}

// openGate is openGateSQL.
func (d *database) openGate(provider string) {
	if g := d.gate(provider); g != nil && g.until > d.w.now {
		g.until, g.opened, g.opens, g.step, g.passed = d.w.now, d.w.now, true, 0, 0
	}
}

var _ engine.Gates = (*link)(nil)

// Gates is gatesSQL.
func (l *link) Gates(context.Context) ([]engine.Gate, error) {
	f, err := l.begin(callGates)
	if err != nil {
		return nil, err
	}
	now := l.k.w.now
	var list []engine.Gate
	for i := range l.k.w.db.gates {
		g := &l.k.w.db.gates[i]
		v := engine.Gate{Provider: g.provider, Reason: g.reason, Closed: g.until > now, Probe: g.probe <= now, Since: epoch.Add(g.since), Open: -1}
		if g.until != forever {
			v.Until = epoch.Add(g.until)
			v.Open, v.Held = now-max(g.opened, g.until), max(g.opened, g.until)-g.since
		}
		list = append(list, v)
	}
	return list, l.end(callGates, f)
}

// CloseGate closes a gate or keeps it closed for longer.
func (l *link) CloseGate(_ context.Context, h engine.Hold) error {
	return l.gateCall(func() { l.k.w.db.closeGate(h) })
}

// ProbeGate takes the next probe of a closed gate.
func (l *link) ProbeGate(_ context.Context, provider string, _ int, every, most time.Duration) (ok bool, err error) {
	err = l.gateCall(func() { ok = l.k.w.db.probeGate(provider, every, most) })
	return ok, err
}

// PassGate counts a probe that passed.
func (l *link) PassGate(_ context.Context, provider string, _, need int, next time.Duration) error {
	return l.gateCall(func() { l.k.w.db.passGate(provider, need, next) })
}

func (l *link) gateCall(do func()) error {
	f, err := l.begin(callGates)
	if err != nil {
		return err
	}
	do()
	return l.end(callGates, f)
}

// pause holds a provider by hand, for a while.
func (w *world) pause() {
	v := pick(w, w.vendors...)
	if !w.gates || w.calm {
		return
	}
	w.db.closeGate(engine.Hold{Provider: v.name, Reason: engine.GatePaused, For: -1})
	w.tell("     a person pauses " + v.name)
	w.after(pick(w, time.Second, time.Minute, 10*time.Minute), func() {
		w.db.openGate(v.name)
		w.tell("     a person resumes " + v.name)
		for _, k := range w.workers {
			k.ring("")
		}
	})
}
