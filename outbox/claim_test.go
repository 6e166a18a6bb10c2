package outbox

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
	"github.com/seed-8098fbb7/dispatch/internal/form"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
)

var anyLane = decide.Lane{Route: "sms", Priority: dispatch.Normal}

// table is a store on a schema of its own, and the pool to look into it with.
type table struct {
	*store
	t      *testing.T
	pool   *pgxpool.Pool
	schema string
}

func newTable(t *testing.T) table {
	t.Helper()
	pool, schema := pgtest.Pool(t)
	box, err := New(pool, Config{Schema: schema, Routes: []dispatch.Route{{Name: "sms", Providers: []string{"test"}}}})
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	return table{store: box.store, t: t, pool: pool, schema: schema}
}

// through is the same store on sessions with these settings.
func (tb table) through(settings map[string]string) table {
	cfg := tb.pool.Config()
	if settings != nil {
		pgtest.Direct(tb.t, cfg.ConnConfig) // they are the session's
	}
	for k, v := range settings {
		cfg.ConnConfig.RuntimeParams[k] = v
	}
	pool, err := pgxpool.NewWithConfig(tb.t.Context(), cfg)
	require.NoError(tb.t, err)
	tb.t.Cleanup(pool.Close)
	tb.store = &store{pool: pool, sql: tb.sql}
	return tb
}

func (tb table) exec(sql string, args ...any) int {
	tb.t.Helper()
	tag, err := tb.pool.Exec(context.WithoutCancel(tb.t.Context()), strings.ReplaceAll(sql, "{schema}", tb.schema), args...)
	require.NoError(tb.t, err, sql)
	return int(tag.RowsAffected())
}

func query[T any](tb table, sql string, args ...any) T {
	tb.t.Helper()
	rows, err := tb.pool.Query(context.WithoutCancel(tb.t.Context()), strings.ReplaceAll(sql, "{schema}", tb.schema), args...)
	require.NoError(tb.t, err, sql)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(tb.t, err, sql)
	return v
}

// seed writes n messages whose rows in the queue have these values beyond the
// defaults: pending, due an hour ago, one after the other. g counts them.
func (tb table) seed(n int, values map[string]string) []dispatch.Key {
	tb.t.Helper()
	keys := make([]string, n)
	out := make([]dispatch.Key, n)
	for i := range keys {
		out[i] = dispatch.NewKey()
		keys[i] = out[i].String()
	}
	row := map[string]string{"lane": "'sms/2/'", "due": "clock_timestamp() - interval '1 hour' + g * interval '1 millisecond'", "budget": "8"}
	for k, v := range values {
		row[k] = v
	}
	var names, exprs []string
	for k, v := range row {
		names, exprs = append(names, k), append(exprs, v)
	}
	tb.exec(`insert into {schema}.message (id, form, channel, priority, budget, on_unknown, route, digest, content)
		select id::uuid, 1, 1, 2, 8, 1, 'sms', sha256('x'), $2 from unnest($1::text[]) id`,
		keys, form.Encode(dispatch.SMS{To: "+15555550123", Body: "hello"}))
	tb.exec("insert into {schema}.queue (id, "+strings.Join(names, ", ")+") select id::uuid, "+strings.Join(exprs, ", ")+
		" from unnest($1::text[]) with ordinality x(id, g)", keys)
	return out
}

// sending and unknown are the values of rows in those states.
func sending(more ...string) map[string]string {
	return with(map[string]string{
		"state": "2", "fence": "1", "spent": "1", "provider": "'test'", "account": "'account'", "encoding": "0",
		"claimed": "clock_timestamp()", "lease": "clock_timestamp() + interval '1 minute'", "claim": "gen_random_uuid()",
	}, more...)
}

func unknown(more ...string) map[string]string {
	return with(map[string]string{
		"state": "3", "fence": "1", "spent": "1", "provider": "'test'", "account": "'account'", "encoding": "0",
		"claimed": "clock_timestamp()", "open": "1", "first_sent": "clock_timestamp() - interval '10 minutes'",
		"resolve_until": "clock_timestamp() + interval '1 hour'", "ledger": `'[{"p": "test", "a": "account", "m": 1, "f": "2026-01-02T03:04:05Z"}]'`,
	}, more...)
}

func with(m map[string]string, more ...string) map[string]string {
	for n := 0; n < len(more); n += 2 {
		m[more[n]] = more[n+1]
	}
	return m
}

func request(limit int) engine.Claim {
	return engine.Claim{
		ID: claimID(), Lane: anyLane, Provider: "test", Account: "account", Lease: time.Minute, Window: time.Hour, Limit: limit,
	}
}

func (tb table) claim(c engine.Claim) []engine.Task {
	tb.t.Helper()
	tasks, err := tb.Claim(context.WithoutCancel(tb.t.Context()), c)
	require.NoError(tb.t, err)
	return tasks
}

func keysOf(tasks []engine.Task) []dispatch.Key {
	out := make([]dispatch.Key, len(tasks))
	for n, t := range tasks {
		out[n] = t.Key
	}
	slices.SortFunc(out, dispatch.Key.Compare)
	return out
}

var switches = []string{
	"enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan", "enable_tidscan", "enable_seqscan", "enable_sort",
	"enable_nestloop", "enable_hashjoin", "enable_mergejoin", "enable_material", "enable_hashagg",
}

// A claim takes what it may and not a row more, whatever the planner makes of
// it: with any of its switches off, and with statistics from a moment when the
// table was empty, when every row was ready, and when none was.
func TestClaimKeepsItsLimitWhateverThePlan(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	tb.exec("alter table {schema}.queue set (autovacuum_enabled = off)")
	settings := []map[string]string{{}, {"plan_cache_mode": "force_generic_plan"}, {"enable_indexscan": "off", "enable_bitmapscan": "off", "enable_indexonlyscan": "off"}}
	naive := map[string]string{} // nothing but nested loops, which run a subquery anew for each row
	for _, s := range switches {
		if s != "enable_nestloop" && s != "enable_seqscan" {
			naive[s] = "off"
		}
	}
	settings = append(settings, naive)
	for _, s := range switches {
		settings = append(settings, map[string]string{s: "off"}, map[string]string{s: "off", "plan_cache_mode": "force_generic_plan"})
	}
	const rows, limit = 40, 12
	tb.exec("analyze {schema}.queue")
	tb.seed(rows, nil)
	tb.seed(20, unknown("encoding", "7")) // in the lane, and not to be had
	for _, moment := range []string{"empty", "ready", "none ready"} {
		switch moment {
		case "ready":
			tb.exec("analyze {schema}.queue")
		case "none ready":
			tb.exec("update {schema}.queue set claim = gen_random_uuid(), state = 2, spent = 1, provider = 'test', account = 'account', encoding = 0, claimed = due, lease = due where state = 1")
			tb.exec("analyze {schema}.queue")
			tb.exec("update {schema}.queue set claim = null, state = 1, lease = null, spent = 0 where state = 2")
		}
		for _, s := range settings {
			other := tb.through(s)
			seen := map[dispatch.Key]bool{}
			for _, want := range []int{limit, limit, limit, rows - 3*limit, 0} {
				tasks := other.claim(request(limit))
				require.Len(t, tasks, want, "%s %v", moment, s)
				for _, task := range tasks {
					require.False(t, seen[task.Key])
					seen[task.Key] = true
				}
				require.Equal(t, len(seen), query[int](tb, "select count(*) from {schema}.queue where state = 2"))
			}
			tb.exec("update {schema}.queue set claim = null, state = 1, lease = null, spent = 0 where state = 2")
			other.store.pool.Close()
		}
	}
}

// B105, B122: by the time when they are due, not by key.
func TestClaimGoesByDueTime(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	keys := tb.seed(50, map[string]string{"due": "clock_timestamp() - interval '1 hour' - g * interval '1 minute'"})
	slices.Reverse(keys)
	for n := 0; n < 48; n += 6 {
		want := slices.Clone(keys[n : n+6])
		slices.SortFunc(want, dispatch.Key.Compare)
		require.Equal(t, want, keysOf(tb.claim(request(6))))
	}
}

func TestClaimReturnsTheRow(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	_ = tb.seed(1, map[string]string{"deadline": "'2100-01-01 00:00:00+00'", "fence": "6", "spent": "3", "lookups": "2"})
	c := request(1)
	c.Encoding = 5
	task := tb.claim(c)[0]
	require.Equal(t, dispatch.Sending, task.State)
	require.EqualValues(t, 7, task.Fence)
	require.Equal(t, []int{4, 8, 2}, []int{task.Spent, task.Budget, task.Lookups})
	require.Equal(t, time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), task.Deadline.UTC())
	require.Equal(t, []any{anyLane, "test", "account", int16(5)}, []any{task.Lane, task.Provider, task.Account, task.Encoding})
	require.WithinDuration(t, task.Claimed.Add(time.Minute), task.Lease, time.Millisecond)
	require.Equal(t, task.Claimed, task.Now)
	content, err := form.Decode(task.Form)
	require.NoError(t, err)
	require.Equal(t, dispatch.SMS{To: "+15555550123", Body: "hello"}, content)
	require.Equal(t, uuidText(c.ID), query[string](tb, "select claim::text from {schema}.queue"))
	require.True(t, query[bool](tb, "select lease > clock_timestamp() + interval '50 seconds' and claimed <= clock_timestamp() from {schema}.queue"))
}

func TestConcurrentClaimsShareNothing(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	const rows = 2000
	tb.seed(rows, nil)

	// One that isn't committed: nobody waits for it, nobody takes its rows.
	tx, err := tb.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	c := request(64)
	res, err := tx.Query(t.Context(), tb.sql.claim, c.Lane.String(), "test", "account", int64(0), uuidText(c.ID), int64(60e6), int64(0), nil, int64(0), uuidText([16]byte{}), int64(64))
	require.NoError(t, err)
	held := map[dispatch.Key]bool{}
	for res.Next() {
		v, err := res.Values()
		require.NoError(t, err)
		held[dispatch.Key(v[0].([16]byte))] = true
	}
	require.NoError(t, res.Err())
	require.Len(t, held, 64)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // they wait for nobody
	defer cancel()
	found := make(chan []engine.Task)
	for range 4 {
		go func() {
			for {
				tasks, err := tb.Claim(ctx, request(24))
				if err != nil || len(tasks) == 0 {
					found <- nil
					return
				}
				found <- tasks
			}
		}()
	}
	seen := map[dispatch.Key]bool{}
	for done := 0; done < 4; {
		tasks := <-found
		if tasks == nil {
			done++
		}
		for _, task := range tasks {
			require.False(t, seen[task.Key] || held[task.Key])
			require.EqualValues(t, 1, task.Fence)
			seen[task.Key] = true
		}
	}
	require.Len(t, seen, rows-64)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Len(t, tb.claim(request(96)), 64)
}
