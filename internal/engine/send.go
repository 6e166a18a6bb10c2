package engine

import (
	"context"
	"encoding/json"
	"slices"
	"sort"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// Attempt is a send that may begin now.
type Attempt struct {
	Provider dispatch.Provider
	Envelope dispatch.Envelope
	Timeout  time.Duration
}

// Begin checks a claimed task right before its send. elapsed is the time since
// before its claim was asked for, so that Row.Now + elapsed is not before the
// database's clock. Where there is a change, it hands the task back, and the
// task must never be sent under this fence.
func (e *Engine) Begin(t *Task, elapsed time.Duration) (a Attempt, back *Change) {
	now := t.Now.Add(elapsed)
	s := e.setup(t)
	b, known := e.providers[t.Provider]
	if !s.Passable(t.Row) {
		return Attempt{}, handBack(t, s.Unstarted(t.Row, now, e.gates.wait(t.Lane.Provider, now)))
	}
	if !known || !slices.Contains(s.Candidates, t.Provider) || s.Blocked(t.Row) {
		return Attempt{}, handBack(t, e.elsewhere(t, s, now))
	}
	if m, held := e.held(t, s, now); held {
		return Attempt{}, handBack(t, m)
	}
	if !s.Startable(t.Row, b.contract, now) {
		return Attempt{}, handBack(t, s.Unstarted(t.Row, now, 0))
	}
	env, err := e.envelope(t)
	if err != nil {
		return Attempt{}, unreadable(t, s, now, err)
	}
	return Attempt{Provider: b.provider, Envelope: env, Timeout: b.contract.AttemptTimeout()}, nil
}

// Unstarted hands a claimed task back that was never given to a sender.
func (e *Engine) Unstarted(t *Task, elapsed time.Duration) Change {
	return *handBack(t, e.setup(t).Unstarted(t.Row, t.Now.Add(elapsed), 0))
}

func handBack(t *Task, m decide.Move) *Change {
	return &Change{Key: t.Key, Fence: t.Fence, From: dispatch.Sending, Move: m}
}

func (e *Engine) envelope(t *Task) (dispatch.Envelope, error) {
	content, err := e.content(t)
	if err != nil {
		return dispatch.Envelope{}, err
	}
	env := dispatch.Envelope{
		Key: t.Key, Route: t.Lane.Route, Content: content, From: t.From, Attempt: int(t.Fence),
		Deadline: t.Deadline, Created: t.Created, TraceParent: t.Trace,
	}
	if t.Metadata != nil {
		if err := json.Unmarshal(t.Metadata, &env.Metadata); err != nil {
			return dispatch.Envelope{}, err
		}
	}
	if leg, ok := t.Ledger.Leg(t.Provider, t.Account); ok && leg.Mark == decide.Open {
		env.Replay, err = e.openRequest(t, leg.Request)
	}
	return env, err
}

// Send makes the attempt. A panic of the adapter is an attempt whose outcome
// isn't known; its value isn't kept, since it may quote the message. Neither
// is a code that does.
func (a Attempt) Send(ctx context.Context) (acc dispatch.Accepted, err error) {
	defer func() {
		if recover() != nil {
			acc, err = dispatch.Accepted{}, &dispatch.Fault{
				Evidence: dispatch.Evidence{Cause: dispatch.CausePanic},
				Verdict:  dispatch.Verdict{Outcome: dispatch.Unknown, Reason: "adapter panicked"},
			}
		}
	}()
	acc, err = a.Provider.Send(ctx, a.Envelope)
	return acc, a.shown(err)
}

// Finish turns what Send returned into the change to settle. elapsed is as for
// Begin, taken after Send has returned; took is how long Send ran.
func (e *Engine) Finish(t *Task, acc dispatch.Accepted, err error, elapsed, took time.Duration) Change {
	ev, v := e.routes[t.Lane.Route].Judge(acc, err)
	ev = e.covered(t, ev)
	c := Change{
		Key: t.Key, Fence: t.Fence, From: dispatch.Sending,
		Record: Record{
			Kind: KindAttempt, Provider: t.Provider, Account: t.Account, Evidence: ev, Verdict: v, Took: took,
		},
	}
	if e.cfg.Health != nil {
		e.counts.count(t, ev, v, took)
	}
	passing := false
	if e.cfg.Gates != nil {
		c.Hold, passing = e.gates.observe(t, ev, v, t.Now.Add(elapsed))
		c.Pass = t.Probe && (v.Outcome == dispatch.OK || v.Outcome == dispatch.Rejected && v.Scope == dispatch.Message)
	}
	if v.Outcome == dispatch.OK {
		c.Record.ProviderID = acc.ID
		c.Move = decide.Move{Rule: decide.RuleOK, To: dispatch.Sent, Spent: t.Spent, Lane: t.Lane}
		return c
	}
	s := e.setup(t)
	s.Passing = passing
	c.Move = spare(t, v, s.AfterSend(t.Row, ev, v, t.Now.Add(elapsed)))
	return c
}

// Settle writes changes down. again are those to settle once more: their rows
// changed meanwhile without being taken. What was fenced out is recorded as
// late. On an error it can't be known which of the changes took effect; all of
// them may be settled again.
func (e *Engine) Settle(ctx context.Context, changes []Change) (results []Result, again []Change, err error) {
	if err := e.settleGates(ctx, changes); err != nil {
		return nil, nil, err
	}
	prepare(changes)
	results, err = e.store.Apply(ctx, changes)
	if err != nil {
		return nil, nil, err
	}
	for i, r := range results {
		switch r.Status {
		case Applied:
		case Again:
			again = append(again, changes[i])
		case Fenced:
			if k := changes[i].Record.Kind; k != KindAttempt && k != KindLookup {
				continue // a hand-back that came too late: the sweeper has it
			}
			if results[i], err = e.late(ctx, changes[i]); err != nil {
				return nil, nil, err
			}
		}
	}
	return results, again, nil
}

// prepare puts each row into the lane of what it has spent, and all into the
// order in which rows are locked.
func prepare(changes []Change) {
	for i := range changes {
		m := &changes[i].Move
		m.Lane = m.Lane.Spent(m.Spent)
	}
	sort.Sort(byKey(changes))
}

// byKey sorts without a copy of each for each comparison: they are large.
type byKey []Change

func (c byKey) Len() int           { return len(c) }
func (c byKey) Less(i, j int) bool { return c[i].Key.Compare(c[j].Key) < 0 }
func (c byKey) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
