package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

func newOperated(t *testing.T) (table, *Box) {
	t.Helper()
	tb := newTable(t)
	box, err := New(tb.pool, Config{Schema: tb.schema, Routes: []dispatch.Route{
		{Name: "sms", Providers: []string{"test"}}, {Name: "news", Providers: []string{"test"}},
	}})
	require.NoError(t, err)
	return tb, box
}

// park moves seeded messages from the queue to what is parked.
func (tb table) park(keys []dispatch.Key, values map[string]string) {
	tb.t.Helper()
	row := map[string]string{
		"fence": "1", "state": "5", "reason": "1", "spent": "1", "budget": "8", "open": "0", "waived": "0", "ended": "0",
		"lane": "'sms/2/'", "provider": "'test'", "account": "'account'",
	}
	for k, v := range values {
		row[k] = v
	}
	names, exprs := "", ""
	for k, v := range row {
		names, exprs = names+", "+k, exprs+", "+v
	}
	tb.exec("delete from {schema}.queue where id = any($1::text[]::uuid[])", texted(keys))
	tb.exec("insert into {schema}.parked (id"+names+") select id::uuid"+exprs+" from unnest($1::text[]) with ordinality x(id, g)", texted(keys))
	tb.exec(`insert into {schema}.history (id, at, fence, kind, move, state, reason, outcome, provider, account, detail, status, code)
		select p.id, p.parked_at, 1, 1, 9, p.state, p.reason, 2, p.provider, p.account, 'refused', 400, '21211'
		from {schema}.parked p where p.id = any($1::text[]::uuid[])`, texted(keys))
}

// finish makes seeded messages sent, or in another final state, so long ago.
func (tb table) finish(keys []dispatch.Key, state int, ago time.Duration) {
	tb.t.Helper()
	tb.exec("delete from {schema}.queue where id = any($1::text[]::uuid[])", texted(keys))
	tb.exec(`insert into {schema}.history (id, at, fence, kind, move, state, outcome, provider, account, provider_id, words)
		select id::uuid, clock_timestamp() - $3::bigint * interval '1 microsecond', 1, 1, 6, $2::bigint, 1, 'test', 'account', 'id-' || id, 'zebra'
		from unnest($1::text[]) id`, texted(keys), int64(state), ago.Microseconds())
}

func texted(keys []dispatch.Key) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = k.String()
	}
	return out
}

func near(t *testing.T, want, got time.Duration) {
	t.Helper()
	require.InDelta(t, want.Seconds(), got.Seconds(), 30)
}

// Every figure of a small box is exact.
func TestStats(t *testing.T) {
	t.Parallel()
	tb, box := newOperated(t)
	s, err := box.Stats(t.Context())
	require.NoError(t, err)
	require.Empty(t, s.Depths)
	require.Empty(t, s.Over(Alarms{}))
	require.WithinDuration(t, time.Now(), s.At, time.Minute)

	tb.seed(3, nil)                                                               // due for an hour
	tb.seed(2, map[string]string{"due": "clock_timestamp() - interval '10 s'"})   // due, not overdue
	tb.seed(4, map[string]string{"due": "clock_timestamp() + interval '1 hour'"}) // not due
	tb.seed(5, map[string]string{"lane": "'sms/1/'"})                             // another lane of the route
	tb.seed(1, sending("claimed", "clock_timestamp() - interval '20 minutes'"))   // sending
	tb.seed(2, unknown())                                                         // since ten minutes
	tb.seed(1, unknown("due", "clock_timestamp() + interval '1 hour'"))           // the same, asked later
	tb.seed(1, with(unknown(), "lane", "'news/2/test'"))                          // of another route
	tb.seed(1, map[string]string{"lane": "'left over'"})                          // not ours to understand
	hour, old := "clock_timestamp() - interval '30 minutes'", "clock_timestamp() - interval '3 hours'"
	tb.park(tb.seed(3, nil), map[string]string{"parked_at": hour})
	tb.park(tb.seed(2, nil), map[string]string{"parked_at": old})
	tb.park(tb.seed(2, nil), map[string]string{"parked_at": hour, "reason": "2", "lane": "'sms/3/test'"})
	tb.park(tb.seed(1, nil), map[string]string{"parked_at": old, "state": "4", "reason": "4", "open": "1"})
	tb.finish(tb.seed(7, nil), 6, time.Hour)
	tb.exec("insert into {schema}.receipt (provider, account, event_key, provider_id, kind, permanent) values ('p', 'a', '1', 'x', 1, false), ('p', 'a', '2', 'y', 1, false)")
	tb.exec("insert into {schema}.receipt (provider, account, event_key, provider_id, kind, permanent, due) values ('p', 'a', '3', 'z', 1, false, null)")
	tb.exec("insert into {schema}.notice (id, event) values (gen_random_uuid(), 1)")
	require.NoError(t, box.store.AddHealth(t.Context(), []engine.Tally{{Provider: "test", Country: 1, Calls: 9, Failed: 2, Accepted: 7}}))
	require.NoError(t, box.Pause(t.Context(), "test", Audit{By: "ada", Why: "drill"}))
	require.NoError(t, box.PauseRoute(t.Context(), "news", Audit{By: "ada", Why: "wrong text"}))

	s, err = box.Stats(t.Context())
	require.NoError(t, err)
	ages := map[string]time.Duration{
		"sms pending": time.Hour, "sms sending": 20 * time.Minute, "sms unknown": 10 * time.Minute, "news unknown": 10 * time.Minute,
		"left over pending": time.Hour, "sms held": 3 * time.Hour, "sms dead": 3 * time.Hour,
	}
	for i, d := range s.Depths {
		if d.Reason == dispatch.ReasonBudget {
			near(t, 30*time.Minute, d.Oldest)
		} else {
			near(t, ages[d.Route+" "+d.State.String()], d.Oldest)
		}
		s.Depths[i].Oldest = 0
	}
	require.Equal(t, []Depth{
		{Route: "left over", State: dispatch.Pending, Count: 1, Due: 1, Overdue: 1},
		{Route: "news", State: dispatch.InDoubt, Count: 1},
		{Route: "sms", State: dispatch.Pending, Count: 14, Due: 10, Overdue: 8},
		{Route: "sms", State: dispatch.Sending, Count: 1},
		{Route: "sms", State: dispatch.InDoubt, Count: 3},
		{Route: "sms", State: dispatch.Held, Reason: dispatch.ReasonUnresolved, Count: 1},
		{Route: "sms", State: dispatch.Dead, Reason: dispatch.ReasonRejected, Count: 5, LastHour: 3},
		{Route: "sms", State: dispatch.Dead, Reason: dispatch.ReasonBudget, Count: 2, LastHour: 2},
	}, s.Depths)
	require.Equal(t, Depth{State: dispatch.Dead, Count: 7, LastHour: 5}, s.Total(dispatch.Dead))
	require.Equal(t, []int64{2, 1, 1}, []int64{s.ReceiptsWaiting, s.ReceiptsUnmatched, s.NoticesWaiting})
	require.Equal(t, []ProviderHealth{{Provider: "test", Country: 1, Calls: 9, Failed: 2, Accepted: 7}}, s.Providers)
	gates := map[string]Gate{}
	for _, g := range s.Gates {
		gates[g.Provider+"/"+g.Route] = g
	}
	require.Len(t, gates, 2)
	require.True(t, gates["test/"].Closed)
	require.True(t, gates["/news"].Closed)
	require.Equal(t, []string{"paused", "ada", "wrong text"}, []string{gates["/news"].Reason, gates["/news"].By, gates["/news"].Why})
}

// A lane that is deeper than what is counted is estimated, and says so; what is
// near its front stays exact.
func TestStatsOfADeepLane(t *testing.T) {
	t.Parallel()
	tb, box := newOperated(t)
	tb.exec("alter table {schema}.queue set (autovacuum_enabled = off)")
	deep := func(lane, due string, rows int) {
		tb.exec("insert into {schema}.queue (id, lane, due, budget) select gen_random_uuid(), $1, "+due+", 8 from generate_series(1, $2::bigint) g", lane, int64(rows))
	}
	deep("news/3/", "clock_timestamp() - interval '2 hours' + g * interval '1 ms'", 3*statsBound)
	deep("sms/2/", "clock_timestamp() + interval '1 hour' + g * interval '1 ms'", 2*statsBound)
	deep("sms/1/", "clock_timestamp() - interval '2 minutes'", 7)
	deep("sms/2/", "clock_timestamp() - interval '5 minutes'", 11)
	tb.seed(4, with(unknown("due", "clock_timestamp() + interval '10 hours'"), "lane", "'news/3/'"))
	var s Stats
	require.Eventually(t, func() bool { // a session's inserts that are told after the analyze are counted twice, until the next
		tb.exec("analyze {schema}.queue")
		var err error
		s, err = box.Stats(t.Context())
		require.NoError(t, err)
		sum := s.Total(dispatch.Pending).Count
		return sum > 4.9*statsBound && sum < 5.1*statsBound
	}, 90*time.Second, 100*time.Millisecond)
	require.Len(t, s.Depths, 3)
	news, doubt, sms := s.Depths[0], s.Depths[1], s.Depths[2]
	require.True(t, news.Approximate)
	require.InEpsilon(t, 3*statsBound, news.Count, 0.1)
	require.InEpsilon(t, 3*statsBound, news.Due, 0.1)
	require.InEpsilon(t, 3*statsBound, news.Overdue, 0.1)
	near(t, 2*time.Hour, news.Oldest)
	doubt.Oldest = 0
	require.Equal(t, Depth{Route: "news", State: dispatch.InDoubt, Count: 4}, doubt, "exact, though beyond the lane's counted front")
	require.True(t, sms.Approximate)
	require.InEpsilon(t, 2*statsBound, sms.Count, 0.1)
	require.Equal(t, []int64{18, 18}, []int64{sms.Due, sms.Overdue}, "exact")
	near(t, 5*time.Minute, sms.Oldest)
}

// What holds vacuum back is found while it does.
func TestStatsShowsWhatHoldsVacuumBack(t *testing.T) {
	t.Parallel()
	tb, box := newOperated(t)
	tx, err := tb.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	var pid string
	require.NoError(t, tx.QueryRow(t.Context(), "select pg_backend_pid()::text from txid_current()").Scan(&pid))
	require.Eventually(t, func() bool { // other tests' transactions are older at first
		s, err := box.Stats(t.Context())
		require.NoError(t, err)
		return s.Holdback != nil && s.Holdback.Kind == "session" && s.Holdback.Name == pid && s.Holdback.For >= 0
	}, 60*time.Second, 10*time.Millisecond)
}

// Each limit is named when it is passed, is off when negative, and nothing else
// is named.
func TestOver(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := Stats{At: now, ReceiptsUnmatched: 1000, Holdback: &Holdback{Kind: "session", Name: "12", For: time.Hour}, Depths: []Depth{
		{Route: "sms", State: dispatch.Pending, Count: 9, Overdue: 3, Oldest: 6 * time.Minute},
		{Route: "news", State: dispatch.InDoubt, Count: 2, Oldest: 2 * time.Hour},
		{Route: "sms", State: dispatch.Dead, Count: 500, LastHour: 20},
		{Route: "sms", State: dispatch.Held, Count: 100},
	}, Gates: []Gate{
		{Provider: "p", Reason: "account", Closed: true, Since: now.Add(-2 * time.Minute)},
		{Provider: "q", Reason: "account", Since: now.Add(-2 * time.Minute)},
		{Provider: "r", Reason: "paused", Closed: true, Since: now.Add(-2 * time.Minute)},
	}}
	require.Equal(t, []string{
		"route sms: a message is due since 6m0s, over 5m0s (3 overdue)",
		"route news: a message is unknown since 2h0m0s, over 1h0m0s (2 unknown)",
		"20 messages died in the last hour, the limit is 20",
		"100 messages are held, the limit is 100",
		"1000 receipts are without a message, the limit is 1000",
		"session 12 holds vacuum back since 1h0m0s, over 30m0s",
		"provider p refuses the account since 2m0s, over 1m0s",
	}, s.Over(Alarms{}))
	require.Empty(t, s.Over(Alarms{Late: -1, Unknown: -1, DeadLastHour: -1, Held: -1, Holdback: -1, Unmatched: -1, Account: -1}))
	require.Empty(t, s.Over(Alarms{
		Late: 6 * time.Minute, Unknown: 2 * time.Hour, DeadLastHour: 21, Held: 101, Holdback: time.Hour, Unmatched: 1001, Account: 2 * time.Minute,
	}))
}

func TestCheck(t *testing.T) {
	t.Parallel()
	tb, box := newOperated(t)
	require.NoError(t, box.Check(t.Context(), Alarms{Holdback: -1}))
	tb.seed(1, nil)
	err := box.Check(t.Context(), Alarms{Holdback: -1})
	require.ErrorIs(t, err, ErrUnready)
	require.ErrorContains(t, err, "route sms: a message is due since 1h0m")
	tb.exec("drop schema {schema} cascade")
	require.ErrorIs(t, box.Check(t.Context(), Alarms{}), ErrNotMigrated)
	require.NotErrorIs(t, box.Check(t.Context(), Alarms{}), ErrUnready)
	none, err := New(nil, Config{Routes: box.list})
	require.NoError(t, err)
	require.ErrorIs(t, none.Check(t.Context(), Alarms{}), ErrNoPool)
	_, err = none.Stats(t.Context())
	require.ErrorIs(t, err, ErrNoPool)
}
