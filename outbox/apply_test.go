package outbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// Unclaim gives back exactly what its claim took and nobody has settled since.
func TestUnclaim(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	tb.seed(6, nil)
	tb.seed(2, unknown("spent", "3", "fence", "5", "due", "clock_timestamp() - interval '2 hours'"))
	before := query[string](tb, "select string_agg(concat_ws(' ', id, lane, due, state, spent, open, first_sent, ledger, ended), ';' order by id) from {schema}.queue")
	mine, other := request(4), request(4)
	lost := tb.claim(mine)
	require.Len(t, lost, 4)
	theirs := tb.claim(other)
	require.Len(t, theirs, 4)

	n, err := tb.Unclaim(t.Context(), claimID())
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = tb.Unclaim(t.Context(), mine.ID)
	require.NoError(t, err)
	require.Equal(t, 4, n)
	require.Equal(t, 4, query[int](tb, "select count(*) from {schema}.queue where state = 2 and claim = $1", uuidText(other.ID)))
	n, err = tb.Unclaim(t.Context(), mine.ID)
	require.NoError(t, err)
	require.Zero(t, n, "once")
	_, err = tb.Unclaim(t.Context(), other.ID)
	require.NoError(t, err)
	require.Equal(t, before, query[string](tb, "select string_agg(concat_ws(' ', id, lane, due, state, spent, open, first_sent, ledger, ended), ';' order by id) from {schema}.queue"))
	require.Equal(t, 8, query[int](tb, "select count(*) from {schema}.queue where lease is null and claim is null"))
	require.Equal(t, 2*6+2, query[int](tb, "select sum(fence + (state = 1)::int - case state when 3 then 5 else 0 end)::int from {schema}.queue"), "fences stay raised")

	// What was claimed again since, or settled, isn't the lost claim's any more.
	again := request(8)
	require.Len(t, tb.claim(again), 8)
	n, err = tb.Unclaim(t.Context(), mine.ID)
	require.NoError(t, err)
	require.Zero(t, n)
	// What was cancelled meanwhile goes back too, for the sweeper to end.
	tb.exec("update {schema}.queue set ended = 1")
	n, err = tb.Unclaim(t.Context(), again.ID)
	require.NoError(t, err)
	require.Equal(t, 8, n)
	require.Empty(t, tb.claim(request(8)))
}

func sent(t engine.Task) engine.Change {
	return engine.Change{
		Key: t.Key, Fence: t.Fence, From: dispatch.Sending, Move: decide.Move{Rule: decide.RuleOK, To: dispatch.Sent, Spent: t.Spent, Lane: t.Lane},
		Record: engine.Record{Kind: engine.KindAttempt, Provider: t.Provider, Account: t.Account, ProviderID: "id", Verdict: dispatch.Verdict{Outcome: dispatch.OK}},
	}
}

func refusal(t engine.Task) engine.Change {
	return engine.Change{
		Key: t.Key, Fence: t.Fence, From: dispatch.Sending,
		Move:   decide.Move{Rule: decide.RuleRefused, To: dispatch.Pending, Spent: t.Spent, Lane: t.Lane, Wait: time.Hour},
		Record: engine.Record{Kind: engine.KindAttempt, Provider: t.Provider, Account: t.Account, Verdict: dispatch.Verdict{Outcome: dispatch.Rejected, Reason: "no"}},
	}
}

func (tb table) apply(changes ...engine.Change) []engine.Status {
	tb.t.Helper()
	results, err := tb.Apply(context.WithoutCancel(tb.t.Context()), changes)
	require.NoError(tb.t, err)
	require.Len(tb.t, results, len(changes))
	out := make([]engine.Status, len(results))
	for n, r := range results {
		out[n] = r.Status
	}
	return out
}

// A change is made only to the row that it was decided on.
func TestApplyIsFenced(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	for name, kind := range map[string]func(engine.Task) engine.Change{"sent": sent, "refused": refusal} {
		tb.exec("delete from {schema}.queue")
		tb.exec("delete from {schema}.history")
		tb.seed(8, nil)
		tasks := tb.claim(request(8))
		require.Len(t, tasks, 8)
		older, newer, gone, given, swept, twice, fine := kind(tasks[0]), kind(tasks[1]), kind(tasks[2]), kind(tasks[3]), kind(tasks[4]), kind(tasks[5]), kind(tasks[6])
		older.Fence--
		newer.Fence++
		tb.exec("delete from {schema}.queue where id = $1", gone.Key.String())
		tb.exec("update {schema}.queue set state = 1, claim = null, lease = null where id = $1", given.Key.String())
		tb.exec("update {schema}.queue set state = 3, claim = null, open = 1, first_sent = claimed, ledger = '[]' where id = $1", swept.Key.String())
		others := "select string_agg(q::text, ';' order by id) from {schema}.queue q where id <> all($1::text[]::uuid[])"
		mine := []string{twice.Key.String(), fine.Key.String()}
		before := query[string](tb, others, mine)
		require.Equal(t, []engine.Status{engine.Fenced, engine.Fenced, engine.Applied, engine.Fenced, engine.Fenced, engine.Fenced, engine.Applied},
			tb.apply(older, newer, twice, gone, given, swept, fine), name)
		require.Equal(t, []engine.Status{engine.Fenced, engine.Fenced}, tb.apply(twice, fine), "%s: not twice", name)
		require.Equal(t, before, query[string](tb, others, mine), name)
		require.Equal(t, 2, query[int](tb, "select count(*) from {schema}.history"), name)
	}
}

// In one batch each result belongs to its own change.
func TestApplyAMixedBatch(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	tb.seed(300, nil)
	tasks := append(tb.claim(request(256)), tb.claim(request(32))...)
	changes := make([]engine.Change, len(tasks))
	want := make([]engine.Status, len(tasks))
	for n, task := range tasks {
		changes[n], want[n] = sent(task), engine.Applied
		switch n % 4 {
		case 1:
			changes[n] = refusal(task)
		case 2:
			changes[n].Fence += 5
			want[n] = engine.Fenced
		case 3:
			changes[n] = refusal(task)
			changes[n].From, want[n] = dispatch.InDoubt, engine.Fenced
		}
	}
	require.Equal(t, want, tb.apply(changes...))
	require.Equal(t, 12+3*72, query[int](tb, "select count(*) from {schema}.queue"))
	require.Equal(t, 72, query[int](tb, "select count(*) from {schema}.history where state = 6 and outcome = 1 and provider_id = 'id'"))
	require.Equal(t, 72, query[int](tb, "select count(*) from {schema}.history where state = 1 and outcome = 2"))
}

// The sweeper's moves wait for leases, and only for those that hold.
func TestApplyWhileIdle(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	past, future := "clock_timestamp() - interval '1 ms'", "clock_timestamp() + interval '1 minute'"
	var changes []engine.Change
	var want []engine.Status
	for _, lease := range []string{past, future} {
		for _, idle := range []bool{true, false} {
			for state, values := range map[dispatch.State]map[string]string{dispatch.Sending: sending("lease", lease), dispatch.InDoubt: unknown("lease", lease)} {
				key := tb.seed(1, values)[0]
				ledger := decide.Ledger{{Provider: "test", Account: "account", Mark: decide.Open}}
				changes = append(changes, engine.Change{
					Key: key, Fence: 1, From: state, Idle: idle,
					Move: decide.Move{
						Rule: decide.RuleLater, To: dispatch.InDoubt, Spent: 1, Lane: anyLane, Ledger: ledger, Provider: "test", Account: "account",
						First: time.Now(), ResolveUntil: time.Now().Add(time.Hour),
					},
				})
				status := engine.Applied
				if idle && lease == future {
					status = engine.Fenced
				}
				want = append(want, status)
			}
		}
	}
	require.Equal(t, want, tb.apply(changes...))
}

// end() in SQL says what decide.End says, of every combination that a row can
// be in, from each state that leads there. Ended, deadline and budget are read
// from the row, not from what the change remembers.
func TestEndInSQLIsDecideEnd(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	type want struct {
		state  dispatch.State
		reason dispatch.Reason
		name   string
	}
	var changes []engine.Change
	wants := map[dispatch.Key]want{}
	now := query[time.Time](tb, "select clock_timestamp()")
	const far = time.Hour // so that no moment of this test is on the wrong side
	for _, from := range []dispatch.State{dispatch.Pending, dispatch.Sending, dispatch.InDoubt} {
		for _, ended := range []decide.Ended{decide.NotEnded, decide.EndedCancelled, decide.EndedSuperseded} {
			for _, waived := range []int{0, 1, 2} {
				for name, deadline := range map[string]time.Time{"never": {}, "past": now.Add(-far), "future": now.Add(far)} {
					for _, spent := range []int{0, 1, 7, 8} {
						values := map[dispatch.State]map[string]string{dispatch.Pending: {}, dispatch.Sending: sending(), dispatch.InDoubt: unknown()}[from]
						values["ended"] = fmt.Sprint(int(ended))
						values["spent"] = "8" // the change's is the one that counts: it may spare the budget
						if name != "never" {
							values["deadline"] = "'" + stamp(deadline) + "'"
						}
						key := tb.seed(1, values)[0]
						var ledger decide.Ledger
						for n := range waived {
							ledger = append(ledger, decide.Leg{Provider: fmt.Sprint("p", n), Account: "a", Mark: decide.Waived})
						}
						state, reason := decide.End(ended, deadline, spent, 8, waived, now)
						wants[key] = want{state, reason, fmt.Sprint(from, " ended ", ended, " waived ", waived, " deadline ", name, " spent ", spent)}
						fence := int64(1)
						if from == dispatch.Pending {
							fence = 0
						}
						changes = append(changes, engine.Change{
							Key: key, Fence: fence, From: from,
							Move:   decide.Move{Rule: decide.RuleRefused, To: dispatch.Pending, Spent: spent, Lane: anyLane, Ledger: ledger, Wait: time.Minute},
							Record: engine.Record{Kind: engine.KindAttempt, Provider: "test", Account: "account", Verdict: dispatch.Verdict{Outcome: dispatch.Rejected}},
						})
					}
				}
			}
		}
	}
	require.Len(t, changes, 3*3*3*3*4)
	results, err := tb.Apply(t.Context(), changes)
	require.NoError(t, err)
	seen := map[dispatch.State]int{}
	for n, r := range results {
		w := wants[changes[n].Key]
		id := changes[n].Key.String()
		require.Equal(t, engine.Applied, r.Status, w.name)
		require.Equal(t, w.state, r.State, w.name)
		require.Equal(t, w.reason, r.Reason, w.name)
		seen[w.state]++
		require.Equal(t, fmt.Sprint(int(w.state), " ", int(w.reason)), query[string](tb, "select state || ' ' || reason from {schema}.history where id = $1", id), w.name)
		where := query[string](tb, "select concat_ws(' ', (select 'queue ' || state || ' ' || waived from {schema}.queue where id = $1), (select 'parked ' || state || ' ' || reason || ' ' || waived from {schema}.parked where id = $1))", id)
		waived := changes[n].Move.Ledger.Count(decide.Waived)
		wantWhere := ""
		if w.state == dispatch.Pending {
			wantWhere = fmt.Sprint("queue 1 ", waived)
		}
		if w.state == dispatch.Dead {
			wantWhere = fmt.Sprint("parked 5 ", int(w.reason), " ", waived)
		}
		require.Equal(t, wantWhere, where, w.name)
	}
	require.Len(t, seen, 3)
}

// Rule 9: a message that was refused for good is cancelled where it was
// cancelled meanwhile.
func TestRefusedForGood(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	tb.seed(2, nil)
	tasks := tb.claim(request(2))
	tb.exec("update {schema}.queue set ended = 1 where id = $1", tasks[1].Key.String())
	var changes []engine.Change
	for _, task := range tasks {
		c := refusal(task)
		c.Move.Rule, c.Move.To, c.Move.Reason = decide.RuleMessageRefused, dispatch.Dead, dispatch.ReasonRejected
		changes = append(changes, c)
	}
	results, err := tb.Apply(t.Context(), changes)
	require.NoError(t, err)
	require.Equal(t, []dispatch.State{dispatch.Dead, dispatch.Cancelled}, []dispatch.State{results[0].State, results[1].State})
	require.Equal(t, dispatch.ReasonRejected, results[0].Reason)
	require.Equal(t, 1, query[int](tb, "select count(*) from {schema}.parked"))
	require.Zero(t, query[int](tb, "select count(*) from {schema}.queue"))
}

// Due is never after the deadline of a pending row, nor after resolve_until of
// an unknown one, and never before a floor else. Waits beyond any calendar are
// no error (B041).
func TestDueAfterAMove(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	now := query[time.Time](tb, "select clock_timestamp()").Truncate(time.Microsecond)
	for name, c := range map[string]struct {
		deadline, notBefore time.Time
		wait                time.Duration
		want                time.Time
	}{
		"wait":                       {wait: time.Hour, want: now.Add(time.Hour)},
		"floor above the wait":       {wait: time.Hour, notBefore: now.Add(2 * time.Hour), want: now.Add(2 * time.Hour)},
		"floor below the wait":       {wait: time.Hour, notBefore: now.Add(time.Minute), want: now.Add(time.Hour)},
		"deadline before the wait":   {wait: time.Hour, deadline: now.Add(time.Minute), want: now.Add(time.Minute)},
		"deadline before the floor":  {notBefore: now.Add(time.Hour), deadline: now.Add(time.Minute), want: now.Add(time.Minute)},
		"the longest wait there is":  {wait: 1<<63 - 1, want: now.Add(1<<63 - 1)},
		"the longest, with deadline": {wait: 1<<63 - 1, deadline: now.Add(time.Minute), want: now.Add(time.Minute)},
	} {
		tb.exec("delete from {schema}.queue")
		values := map[string]string{}
		if !c.deadline.IsZero() {
			values["deadline"] = "'" + stamp(c.deadline) + "'"
		}
		tb.seed(1, values)
		change := refusal(tb.claim(request(1))[0])
		change.Move.Wait, change.Move.NotBefore = c.wait, c.notBefore
		require.Equal(t, []engine.Status{engine.Applied}, tb.apply(change), name)
		require.WithinDuration(t, c.want, query[time.Time](tb, "select due from {schema}.queue"), 5*time.Second, name)
	}
}

// The row has changed since the statement's snapshot. An acceptance is looked
// at again in the same statement; anything else, which depends on what the row
// says, isn't made on the old version and, where it still may be, is Again.
func TestApplyAgain(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	for name, kind := range map[string]func(engine.Task) engine.Change{"sent": sent, "refused": refusal} {
		for what, c := range map[string]struct {
			sql  string
			want engine.Status
		}{
			"cancelled":       {"update {schema}.queue set ended = 1 where id = $1", engine.Again},
			"swept":           {"update {schema}.queue set state = 3, claim = null, open = 1, first_sent = claimed, ledger = '[]' where id = $1", engine.Fenced},
			"claimed anew":    {"update {schema}.queue set fence = fence + 1 where id = $1", engine.Fenced},
			"gone":            {"delete from {schema}.queue where id = $1", engine.Fenced},
			"rolled back":     {"", engine.Applied},
			"locked, no more": {"select from {schema}.queue where id = $1 for update", engine.Applied},
		} {
			tb.exec("delete from {schema}.queue")
			tb.seed(3, nil)
			tasks := tb.claim(request(3))
			changes := []engine.Change{kind(tasks[0]), kind(tasks[1]), kind(tasks[2])}
			slices.SortFunc(changes, func(a, b engine.Change) int { return a.Key.Compare(b.Key) })
			tx, err := tb.pool.Begin(t.Context())
			require.NoError(t, err)
			sql := c.sql
			if sql == "" {
				sql = "update {schema}.queue set ended = 1 where id = $1"
			}
			_, err = tx.Exec(t.Context(), strings.ReplaceAll(sql, "{schema}", tb.schema), changes[1].Key.String())
			require.NoError(t, err)
			var results []engine.Result
			done := make(chan error, 1)
			go func() {
				var err error
				results, err = tb.Apply(t.Context(), changes)
				done <- err
			}()
			require.Eventually(t, func() bool {
				return query[bool](tb, "select exists (select from pg_stat_activity where application_name = current_setting('application_name') and wait_event_type = 'Lock')")
			}, 20*time.Second, 2*time.Millisecond)
			if c.sql == "" {
				require.NoError(t, tx.Rollback(t.Context()))
			} else {
				require.NoError(t, tx.Commit(t.Context()))
			}
			require.NoError(t, <-done)
			if name == "sent" && c.want == engine.Again {
				c.want = engine.Applied
			}
			got := []engine.Status{results[0].Status, results[1].Status, results[2].Status}
			require.Equal(t, []engine.Status{engine.Applied, c.want, engine.Applied}, got, "%s, %s", name, what)
			told := query[int](tb, "select count(*) from {schema}.history where id = $1", changes[1].Key.String())
			if c.want != engine.Again {
				require.Equal(t, c.want == engine.Applied, told == 1, "%s, %s", name, what)
				continue
			}
			require.Zero(t, told, "%s, %s", name, what)
			require.Equal(t, []engine.Status{engine.Applied}, tb.apply(changes[1]))
			state := query[int](tb, "select state::int from {schema}.history where id = $1", changes[1].Key.String())
			require.Equal(t, int(dispatch.Cancelled), state, "it reads that it was cancelled")
		}
	}
}

// Evidence that is there already, which nothing of ours writes for a row that
// is being sent, keeps no acceptance from being settled.
func TestAcceptanceBesideEvidence(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	tb.seed(3, nil)
	tasks := tb.claim(request(3))
	tb.exec("insert into {schema}.history (id, fence, kind, move, state, detail) values ($1, $2, 2, 9, 3, 'there')", tasks[1].Key.String(), tasks[1].Fence)
	require.Equal(t, []engine.Status{engine.Applied, engine.Applied, engine.Applied}, tb.apply(sent(tasks[0]), sent(tasks[1]), sent(tasks[2])))
	require.Zero(t, query[int](tb, "select count(*) from {schema}.queue"))
	require.Equal(t, 3, query[int](tb, "select count(*) from {schema}.history"))
	require.Equal(t, "there", query[string](tb, "select detail from {schema}.history where id = $1", tasks[1].Key.String()))
}
