package outbox

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
	"github.com/seed-8098fbb7/dispatch/internal/sim"
)

// put makes a message's row another one, on both sides: most of what a row can
// be is many steps away from an enqueue. It is a row that the schema allows.
func (tm *tandem) put() {
	if len(tm.messages) == 0 {
		return
	}
	m := oneOf(tm, tm.messages...)
	ago := func(most time.Duration) time.Time {
		return tm.now.Add(-time.Duration(tm.rnd.Int64N(int64(most/time.Microsecond))) * time.Microsecond)
	}
	r := decide.Row{
		Key: m.Key, Lane: decide.Lane{Route: "sms", Priority: dispatch.Normal, Provider: m.Pinned}, Pinned: m.Pinned != "",
		Budget: m.Budget, Deadline: oneOf(tm, time.Time{}, time.Time{}, tm.now.Add(10*time.Minute), tm.now.Add(2*time.Hour), m.Deadline), OnUnknown: m.OnUnknown, State: oneOf(tm, dispatch.Pending, dispatch.Sending, dispatch.InDoubt, dispatch.InDoubt),
		Fence: 20 + int64(tm.rnd.IntN(20)), Due: ago(time.Minute), Ended: oneOf(tm, 0, 0, 0, 0, 0, 0, 0, decide.EndedCancelled, decide.EndedSuperseded),
	}
	r.Spent = max(1, tm.rnd.IntN(m.Budget+1))
	mark := decide.Waived // a pending row has nothing open
	if r.State != dispatch.Pending {
		mark = decide.Open
	}
	for _, leg := range []decide.Leg{{Provider: "alpha", Account: "a1"}, {Provider: "beta", Account: "b1"}, {Provider: "alpha", Account: "a2"}} {
		if leg.Mark = oneOf(tm, decide.Closed, decide.Waived, mark); !tm.chance(50) {
			continue
		}
		leg.Encoding, leg.First = 1, ago(15*time.Minute)
		leg.Since, leg.Reach = leg.First, leg.First.Add(10*time.Second)
		r.Ledger = append(r.Ledger, leg)
	}
	var first time.Time
	var claim [16]byte
	switch r.State { //nolint:exhaustive // the three states of the queue
	case dispatch.Sending:
		r.Provider, r.Account, r.Encoding = "alpha", "a1", 1
		r.Claimed = ago(time.Minute)
		r.Lease = r.Claimed.Add(oneOf(tm, 20*time.Second, time.Minute))
		claim = [16]byte{2, byte(tm.rnd.IntN(256))} // #nosec G115 -- a byte
		tm.claims = append(tm.claims, claim)
		if leg, ok := openLeg(r.Ledger); ok {
			r.Provider, r.Account, first = leg.Provider, leg.Account, leg.First
		}
	case dispatch.InDoubt:
		leg, ok := openLeg(r.Ledger)
		if !ok {
			return
		}
		r.Provider, r.Account, r.Encoding, first = leg.Provider, leg.Account, 1, leg.First
		r.ResolveUntil = oneOf(tm, time.Time{}, tm.now.Add(time.Hour), tm.now.Add(time.Hour), tm.now.Add(10*time.Minute), ago(time.Minute))
		if tm.chance(30) { // a look-up asks
			r.Lease = ago(time.Minute).Add(30 * time.Second)
		}
	}
	if r.State != dispatch.Pending && !r.Pinned {
		r.Lane.Provider = oneOf(tm, r.Provider, r.Provider, "")
	}
	tm.tell("put", "%s %s fence %d spent %d/%d ended %d at %s/%s %s", r.Key, r.State, r.Fence, r.Spent, r.Budget, r.Ended, r.Provider, r.Account, sim.TandemLedger(r.Ledger))
	if !tm.same("put", true, true, tm.model.Put(r, claim, first), tm.insert(r, claim, first)) {
		return
	}
	switch r.Now = ago(time.Minute); {
	case r.State == dispatch.Sending:
		tm.tasks = append(tm.tasks, engine.Task{Row: r})
	case !r.Lease.IsZero():
		tm.asks = append(tm.asks, asking{engine.Task{Row: r}, r.Now})
	}
	for _, row := range tm.model.Rows() {
		if row.Key == r.Key && r.State != dispatch.Sending && tm.chance(60) {
			tm.claimRow(row, true)
		}
	}
}

func openLeg(l decide.Ledger) (decide.Leg, bool) {
	for _, leg := range l {
		if leg.Mark == decide.Open {
			return leg, true
		}
	}
	return decide.Leg{}, false
}

// insert is put on the real side.
func (tm *tandem) insert(r decide.Row, claim [16]byte, first time.Time) error {
	ctx := context.WithoutCancel(tm.t.Context())
	for _, table := range []string{"queue", "parked"} {
		if _, err := tm.pool.Exec(ctx, "delete from "+tm.schema+"."+table+" where id = $1::text::uuid", r.Key.String()); err != nil {
			return err
		}
	}
	var id *string
	if claim != [16]byte{} {
		text := uuidText(claim)
		id = &text
	}
	_, err := tm.pool.Exec(ctx, strings.ReplaceAll(`insert into {schema}.queue (id, lane, due, claimed, lease, deadline, resolve_until, first_sent, claim,
		fence, state, spent, budget, encoding, open, waived, ended, provider, account, ledger)
		values ($1::text::uuid, $2, $3::text::timestamptz, $4::text::timestamptz, $5::text::timestamptz, $6::text::timestamptz, $7::text::timestamptz,
		$8::text::timestamptz, $9::text::uuid, $10, $11, $12, $13, $14, $15, $16, $17, nullif($18::text, ''), nullif($19::text, ''), nullif($20::text, '')::jsonb)`,
		"{schema}", tm.schema), r.Key.String(), r.Lane.String(), nullTime(r.Due), nullTime(r.Claimed), nullTime(r.Lease), nullTime(r.Deadline),
		nullTime(r.ResolveUntil), nullTime(first), id, r.Fence, int64(r.State), r.Spent, r.Budget, r.Encoding,
		r.Ledger.Count(decide.Open), r.Ledger.Count(decide.Waived), int64(r.Ended), r.Provider, r.Account, sim.TandemLedger(r.Ledger))
	return err
}

// An account may be empty: a provider that has only one needs no name for it.
// A row that a verb puts back must keep it so, and not lose it.
func TestVerbsKeepAnEmptyAccount(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	key := tb.seed(1, unknown("account", "''", "ledger", `'[{"p": "test", "a": "", "m": 1, "f": "2026-01-02T03:04:05Z"}]'`))[0]
	require.NoError(t, tb.Edit(t.Context(), key, 0, func(v engine.View) (engine.Edit, error) {
		row, _, err := decide.Cancel(decide.EndedCancelled)(v.Row)
		return engine.Edit{Row: row, Write: true}, err
	}))
	require.Equal(t, "3 test  1", query[string](tb, "select concat_ws(' ', state, provider, account, ended) from {schema}.queue"))
}
