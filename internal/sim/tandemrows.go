package sim

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
)

// TandemRow is a row of the tables queue and parked, as text and numbers that
// can be compared. A column that a table doesn't have is zero.
type TandemRow struct {
	Table                                              string
	Key                                                dispatch.Key
	Lane                                               string
	State, Reason, Fence, Spent, Budget, Lookups       int64
	Open, Waived, Ended, Encoding                      int64
	Provider, Account                                  string
	Ledger                                             string
	Due, Claimed, Lease, Deadline, ResolveUntil, First time.Time
	Claim                                              [16]byte
}

// TandemEntry is a row of the history.
type TandemEntry struct {
	Key                   dispatch.Key
	At                    time.Time
	Fence                 int64
	Evidence              bool // sub is 0
	Kind, Rule            int64
	State, Reason         int64
	Outcome               int64 // -1 for none
	Provider, Account, ID string
}

// TandemGate is a row of the gates.
type TandemGate struct {
	Provider             string
	Reason, Step, Passed int64
	Until, Since, Probe  time.Time
	Opened               time.Time
}

// Rows dumps queue and parked by table and key.
func (t *Tandem) Rows() []TandemRow {
	var list []TandemRow
	for i := range t.w.db.rows {
		r := &t.w.db.rows[i]
		if r.in == nowhere {
			continue
		}
		v := TandemRow{
			Table: "queue", Key: r.Key, Lane: r.Lane.String(), State: int64(r.State), Fence: r.Fence, Spent: int64(r.Spent), Budget: int64(r.Budget),
			Open: int64(r.Ledger.Count(decide.Open)), Waived: int64(r.Ledger.Count(decide.Waived)), Ended: int64(r.Ended), Encoding: int64(r.Encoding),
			Provider: r.Provider, Account: r.Account, Ledger: TandemLedger(r.Ledger), Deadline: r.Deadline,
		}
		if r.in == inParked {
			v.Table, v.Reason = "parked", int64(r.Reason)
		} else {
			v.Lookups, v.Claim, v.First = int64(r.Lookups), r.claim, r.first
			v.Due, v.Claimed, v.Lease, v.ResolveUntil = r.Due, r.Claimed, r.Lease, r.ResolveUntil
		}
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b TandemRow) int {
		if a.Table != b.Table {
			return -bytes.Compare([]byte(a.Table), []byte(b.Table)) // queue, parked
		}
		return a.Key.Compare(b.Key)
	})
	return list
}

// TandemLedger writes a ledger so that equal ones are equal texts.
func TandemLedger(l decide.Ledger) string {
	if len(l) == 0 {
		return ""
	}
	l = slices.Clone(l)
	for i := range l {
		for _, at := range [...]*time.Time{&l[i].First, &l[i].Since, &l[i].Reach, &l[i].Until} {
			*at = at.UTC()
		}
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// History dumps the history from a moment on, by key, time, fence and number,
// and tells how long it is in all.
func (t *Tandem) History(from time.Time) (list []TandemEntry, all int) {
	d := &t.w.db
	keys := [maxMessages]dispatch.Key{}
	for i := range d.rows {
		keys[d.rows[i].m.n] = d.rows[i].Key
	}
	recent := slices.DeleteFunc(slices.Clone(d.history), func(e entry) bool { return e.at.Before(from) })
	slices.SortFunc(recent, func(a, b entry) int {
		switch {
		case a.n != b.n:
			return keys[a.n].Compare(keys[b.n])
		case before(&a, &b):
			return -1
		}
		return 1
	})
	for i := range recent {
		e := &recent[i]
		v := TandemEntry{
			Key: keys[e.n], At: e.at, Fence: e.fence, Evidence: e.sub == 0, Kind: int64(e.kind), Rule: int64(e.rule), State: int64(e.state),
			Reason: int64(e.reason), Outcome: -1, Provider: e.provider, Account: e.account, ID: e.id,
		}
		if e.judged {
			v.Outcome = int64(e.outcome)
		}
		list = append(list, v)
	}
	return list, len(d.history)
}

// GateRows dumps the gates by provider.
func (t *Tandem) GateRows() []TandemGate {
	var list []TandemGate
	for i := range t.w.db.gates {
		g := &t.w.db.gates[i]
		v := TandemGate{
			Provider: g.provider, Reason: int64(g.reason), Step: int64(g.step), Passed: int64(g.passed),
			Since: epoch.Add(g.since), Probe: epoch.Add(g.probe),
		}
		if g.until != forever {
			v.Until = epoch.Add(g.until)
		}
		if g.opens {
			v.Opened = epoch.Add(g.opened)
		}
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b TandemGate) int { return bytes.Compare([]byte(a.Provider), []byte(b.Provider)) })
	return list
}
