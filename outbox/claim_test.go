package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
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
	_, err = tb.Claim(t.Context(), request(5))
	require.ErrorContains(t, err, "no such rung")
	for _, n := range claimSizes {
		_, err := tb.Claim(t.Context(), request(n))
		require.NoError(t, err)
	}
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
	res, err := tx.Query(t.Context(), tb.sql.claim[64], c.Lane.String(), "test", "account", int64(0), uuidText(c.ID), int64(60e6), int64(0), nil, int64(0))
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

// stopped runs do, whose statement waits at its first look at the clock, with
// its snapshot taken, while meanwhile runs.
func (tb table) stopped(texts *statements, do func(s *store), meanwhile func()) {
	tb.t.Helper()
	const lock = 4801235
	changed := *texts
	hold := func(sql string) string {
		at := "(select clock_timestamp())"
		if !strings.Contains(sql, at) {
			at = "clock_timestamp() as now from i"
		}
		require.Contains(tb.t, sql, at)
		return strings.Replace(sql, at, strings.Replace(at, "clock_timestamp()", fmt.Sprintf("(select clock_timestamp() from (select pg_advisory_xact_lock_shared(%d, %d)) l)", lock, tb.pool.Config().ConnConfig.Port), 1), 1)
	}
	changed.claim = map[int]string{}
	for n, sql := range texts.claim {
		changed.claim[n] = hold(sql)
	}
	conn, err := tb.pool.Acquire(tb.t.Context())
	require.NoError(tb.t, err)
	defer conn.Release()
	key := []any{lock, int(tb.pool.Config().ConnConfig.Port)}
	_, err = conn.Exec(tb.t.Context(), "select pg_advisory_lock($1::int, $2::int)", key...)
	require.NoError(tb.t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(&store{pool: tb.pool, sql: &changed})
	}()
	require.Eventually(tb.t, func() bool {
		return query[bool](tb, "select exists (select from pg_locks where locktype = 'advisory' and classid = $1 and not granted)", lock)
	}, 20*time.Second, 2*time.Millisecond)
	meanwhile()
	_, err = conn.Exec(tb.t.Context(), "select pg_advisory_unlock($1::int, $2::int)", key...)
	require.NoError(tb.t, err)
	<-done
}

// What has changed since the claim's snapshot is not taken on its strength: a
// row that was claimed, cancelled or finished meanwhile, nor one that was
// claimed and came back.
func TestClaimDecidesOnTheRowAsItIs(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	for name, meanwhile := range map[string]string{
		"claimed":            "update {schema}.queue set state = 2, fence = 1, spent = 1, provider = 'x', account = 'x', encoding = 0, claim = id, claimed = due, lease = clock_timestamp() + interval '1 hour'",
		"cancelled":          "update {schema}.queue set ended = 1",
		"finished":           "delete from {schema}.queue",
		"put off":            "update {schema}.queue set due = clock_timestamp() + interval '1 hour'",
		"moved to a lane":    "update {schema}.queue set lane = 'sms/2/other'",
		"claimed and back":   "update {schema}.queue set fence = 1, claimed = due",
		"budget spent since": "update {schema}.queue set fence = 8, spent = 8",
	} {
		tb.exec("delete from {schema}.queue")
		tb.seed(3, nil)
		var tasks []engine.Task
		var err error
		before := ""
		tb.stopped(tb.sql, func(s *store) { tasks, err = s.Claim(t.Context(), request(8)) }, func() {
			tb.exec(meanwhile)
			before = query[string](tb, "select coalesce(string_agg(q::text, ';' order by id), '') from {schema}.queue q")
		})
		require.NoError(t, err, name)
		require.Empty(t, tasks, name)
		require.Equal(t, before, query[string](tb, "select coalesce(string_agg(q::text, ';' order by id), '') from {schema}.queue q"), name)
	}
}

// What may be claimed, and what may not: rules 2 and 19.
func TestClaimable(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	future, past := "clock_timestamp() + interval '1 hour'", "clock_timestamp() - interval '1 second'"
	for name, c := range map[string]struct {
		values map[string]string
		change func(c *engine.Claim)
		ok     bool
	}{
		"pending":                  {values: with(nil2(), "deadline", future), ok: true},
		"pending, never ends":      {values: nil2(), ok: true},
		"pending, last of budget":  {values: with(nil2(), "spent", "7"), ok: true},
		"pending, waived":          {values: with(nil2(), "waived", "1", "ledger", "'[]'"), ok: true},
		"not due":                  {values: with(nil2(), "due", "clock_timestamp() + interval '1 second'")},
		"past its deadline":        {values: with(nil2(), "deadline", past)},
		"budget spent":             {values: with(nil2(), "spent", "8")},
		"cancelled":                {values: with(nil2(), "ended", "1")},
		"superseded":               {values: with(nil2(), "ended", "2")},
		"in another lane":          {values: with(nil2(), "lane", "'sms/2/test'")},
		"of another priority":      {values: with(nil2(), "lane", "'sms/1/'")},
		"of a longer lane":         {values: with(nil2(), "lane", "'sms/2/x'")},
		"sending":                  {values: sending()},
		"sending, lease expired":   {values: sending("lease", past)}, // the sweeper's: it may have left
		"unknown":                  {values: unknown(), ok: true},
		"unknown, never ends":      {values: unknown("deadline", "null", "resolve_until", "null"), ok: true},
		"unknown, lease expired":   {values: unknown("lease", past), ok: true},
		"unknown, leased":          {values: unknown("lease", future)},
		"unknown, not due":         {values: unknown("due", future)},
		"unknown, past deadline":   {values: unknown("deadline", past)},
		"unknown, budget spent":    {values: unknown("spent", "8")},
		"unknown, cancelled":       {values: unknown("ended", "1")},
		"unknown, two open":        {values: unknown("open", "2")},
		"unknown, waived too":      {values: unknown("waived", "1"), ok: true},
		"unknown, lapsed":          {values: unknown("resolve_until", past)},
		"unknown, just in window":  {values: unknown("first_sent", "clock_timestamp() - interval '59 minutes'"), ok: true},
		"unknown, out of window":   {values: unknown("first_sent", "clock_timestamp() - interval '60 minutes'")},
		"unknown, no window":       {values: unknown("first_sent", "clock_timestamp()"), change: func(c *engine.Claim) { c.Window = 0 }},
		"unknown, other account":   {values: unknown("account", "'another'")}, // B144
		"unknown, other provider":  {values: unknown("provider", "'another'")},
		"unknown, other encoding":  {values: unknown("encoding", "1")},
		"unknown, newer encoding":  {values: unknown(), change: func(c *engine.Claim) { c.Encoding = 1 }},
		"unknown, account changed": {values: unknown(), change: func(c *engine.Claim) { c.Account = "another" }},
		"below the watermark":      {values: nil2(), change: func(c *engine.Claim) { c.From = time.Now().Add(-time.Minute) }},
		"above the watermark":      {values: nil2(), change: func(c *engine.Claim) { c.From = time.Now().Add(-2 * time.Hour) }, ok: true},
	} {
		tb.exec("delete from {schema}.queue")
		tb.seed(1, c.values)
		before := query[string](tb, "select q::text from {schema}.queue q")
		r := request(4)
		if c.change != nil {
			c.change(&r)
		}
		tasks := tb.claim(r)
		if c.ok {
			require.Len(t, tasks, 1, name)
			require.Equal(t, "2 "+uuidText(r.ID), query[string](tb, "select state || ' ' || claim from {schema}.queue"), name)
		} else {
			require.Empty(t, tasks, name)
			require.Equal(t, before, query[string](tb, "select q::text from {schema}.queue q"), name)
		}
	}
}

func nil2() map[string]string { return map[string]string{} }

// A row at the watermark's own microsecond is not hidden by it.
func TestWatermarkIsExact(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	tb.seed(4, map[string]string{"due": "'2026-01-02 03:04:05.000001+00'::timestamptz"})
	c := request(2)
	first := tb.claim(c)
	require.Len(t, first, 2)
	c = request(2)
	c.From = first[0].Due
	require.Len(t, tb.claim(c), 2)
}

// A transaction may commit a row below the watermark. It is hidden until the
// lane's next claim that comes back short, and for resetEvery claims at most
// (B122).
func TestWatermarkHidesNothingForLong(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	e, err := engine.New(tb.store, engine.Config{
		Routes: []dispatch.Route{{Name: "sms", Providers: []string{"p"}}}, Providers: []dispatch.Provider{silent{}},
		Random: func(int64) int64 { return 0 },
	})
	require.NoError(t, err)
	const resetEvery = 64
	late := func() dispatch.Key {
		return tb.seed(1, map[string]string{"due": "clock_timestamp() - interval '2 hours'"})[0]
	}
	next := func() []engine.Task {
		e.Hint(anyLane.String())
		tasks, _, err := e.Claim(t.Context(), 2, claimID())
		require.NoError(t, err)
		return tasks
	}
	tb.seed(4*resetEvery, nil)
	require.Len(t, next(), 2)
	key := late()
	n := 0
	for found := false; !found; n++ {
		require.Less(t, n, resetEvery)
		for _, task := range next() {
			found = found || task.Key == key
		}
	}
	require.Greater(t, n, 1, "else there is no watermark to test")

	for len(next()) == 2 { // to the end of the lane, and below it
	}
	tb.seed(4, nil)
	require.Len(t, next(), 2)
	key = late()
	require.Len(t, next(), 2)
	require.Empty(t, next())
	require.Equal(t, []dispatch.Key{key}, keysOf(next()))
}

type silent struct{ dispatch.NoLookup }

func (silent) Contract() dispatch.Contract { return dispatch.Contract{Name: "p", Account: "a"} }

func (silent) Send(context.Context, dispatch.Envelope) (dispatch.Accepted, error) {
	return dispatch.Accepted{}, context.Canceled
}

// The claim changes no indexed column, so that most of its updates stay on
// their page and leave the indexes alone (B129).
func TestClaimsAreHOT(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	tb.exec("alter table {schema}.queue set (autovacuum_enabled = off)")
	tb.seed(6000, nil)
	other := tb.through(nil)
	next := func() []engine.Task {
		c := request(512) // the largest: most rows of a page at once
		c.Provider, c.Account = "twilio", "AC00000000000000000000000000000000"
		return other.claim(c)
	}
	for tasks := next(); len(tasks) > 0; tasks = next() {
		changes := make([]engine.Change, len(tasks))
		for n := range tasks {
			changes[n] = sent(tasks[n])
		}
		other.apply(changes...)
	}
	other.store.pool.Close() // a session reports when it ends
	var hot, all int
	require.Eventually(t, func() bool {
		all = query[int](tb, "select n_tup_upd::int from pg_stat_user_tables where schemaname = '{schema}' and relname = 'queue'")
		hot = query[int](tb, "select n_tup_hot_upd::int from pg_stat_user_tables where schemaname = '{schema}' and relname = 'queue'")
		return all == 6000
	}, 20*time.Second, 10*time.Millisecond)
	t.Logf("%d of %d updates were HOT", hot, all)
	require.Greater(t, hot, all*9/10)
}

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

// Again: the row has changed since the statement's snapshot and is still the
// change's to make. It isn't made on the old version, and can be made next.
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
			got := []engine.Status{results[0].Status, results[1].Status, results[2].Status}
			require.Equal(t, []engine.Status{engine.Applied, c.want, engine.Applied}, got, "%s, %s", name, what)
			told := query[int](tb, "select count(*) from {schema}.history where id = $1", changes[1].Key.String())
			if c.want != engine.Again {
				continue
			}
			require.Zero(t, told, "%s, %s", name, what)
			require.Equal(t, []engine.Status{engine.Applied}, tb.apply(changes[1]))
			state := query[int](tb, "select state::int from {schema}.history where id = $1", changes[1].Key.String())
			if name == "sent" {
				require.Equal(t, int(dispatch.Sent), state)
			} else {
				require.Equal(t, int(dispatch.Cancelled), state, "it reads that it was cancelled")
			}
		}
	}
}

// Page shows what is due, not leased and not the claim's, page by page.
func TestPage(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	past, future := "clock_timestamp() - interval '1 second'", "clock_timestamp() + interval '1 hour'"
	shown := map[dispatch.Key]string{}
	for name, values := range map[string]map[string]string{
		"cancelled": {"ended": "1"}, "budget spent": {"spent": "8"}, "past its deadline": {"deadline": past},
		"lease expired": sending("lease", past), "unknown": unknown(), "unknown, look-up lost": unknown("lease", past),
	} {
		shown[tb.seed(1, values)[0]] = name
	}
	for _, values := range []map[string]string{
		{}, {"deadline": future}, sending(), unknown("lease", future), {"due": future, "ended": "1"}, {"lane": "'sms/1/'", "ended": "1"},
	} {
		tb.seed(1, values)
	}
	rows, _, more, err := tb.Page(t.Context(), "sms/2/", engine.Cursor{}, pageRows)
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, rows, len(shown))
	for _, r := range rows {
		require.NotEmpty(t, shown[r.Key])
		require.Equal(t, anyLane, r.Lane)
		require.False(t, r.Now.IsZero())
		if shown[r.Key] == "unknown" {
			require.Equal(t, dispatch.InDoubt, r.State)
			require.Equal(t, []any{"test", "account", int64(1), 1, 8}, []any{r.Provider, r.Account, r.Fence, r.Spent, r.Budget})
			require.Equal(t, 1, r.Ledger.Count(decide.Open))
			require.Equal(t, dispatch.UnknownHold, r.OnUnknown.Action)
		}
	}

	// A backlog that has nothing to show is walked page by page, to its end,
	// though all of it is due at one moment.
	tb.exec("delete from {schema}.queue")
	due := map[string]string{"due": "'2026-01-02 03:04:05.000001+00'::timestamptz"}
	tb.seed(2*pageRows, due)
	last := tb.seed(100, with(due, "ended", "1"))
	var cursor engine.Cursor
	var all []dispatch.Key
	pages := 0
	for more = true; more; pages++ {
		require.Less(t, pages, 5)
		rows, cursor, more, err = tb.Page(t.Context(), "sms/2/", cursor, pageRows)
		require.NoError(t, err)
		all = append(all, keysOf(rows)...)
	}
	require.Equal(t, 3, pages)
	slices.SortFunc(last, dispatch.Key.Compare)
	require.Equal(t, last, all)
}

func TestLanesAndPeek(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	lanes, err := tb.Lanes(t.Context())
	require.NoError(t, err)
	require.Empty(t, lanes)
	ready, next, err := tb.Peek(t.Context(), []string{"sms/2/"})
	require.NoError(t, err)
	require.Empty(t, ready)
	require.Negative(t, next)

	tb.seed(50, nil)
	tb.seed(50, map[string]string{"lane": "'gone/9/x'"})
	tb.seed(50, with(sending(), "lane", "'sms/1/'"))
	tb.seed(1, with(sending(), "lane", "'sms/3/'"))
	tb.seed(1, map[string]string{"lane": "'sms/3/'", "due": "clock_timestamp() + interval '2 hours'"})
	tb.seed(1, map[string]string{"lane": "'sms/2/p'", "due": "clock_timestamp() + interval '1 hour'"})
	tb.seed(1, with(sending("lease", "clock_timestamp() - interval '1 second'"), "lane", "'ümlaut/2/'"))
	lanes, err = tb.Lanes(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"sms/2/", "gone/9/x", "sms/1/", "sms/3/", "sms/2/p", "ümlaut/2/"}, lanes)
	ready, next, err = tb.Peek(t.Context(), []string{"sms/1/", "sms/2/", "sms/3/", "sms/2/p", "none/2/", "ümlaut/2/"})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"sms/2/", "ümlaut/2/"}, ready)
	require.Greater(t, next, 59*time.Minute)
	require.LessOrEqual(t, next, time.Hour)
}

// texts are all statements of the package, by the field that holds them: a new
// one can't be forgotten.
func texts(t *testing.T, st statements) map[string]string {
	t.Helper()
	out := map[string]string{}
	v := reflect.ValueOf(st)
	for n := range v.NumField() {
		name := v.Type().Field(n).Name
		switch f := v.Field(n); {
		case f.Kind() == reflect.String:
			out[name] = f.String()
		case f.Kind() == reflect.Map:
			for _, k := range f.MapKeys() {
				out[fmt.Sprint(name, " ", k)] = f.MapIndex(k).String()
			}
		default:
			t.Fatalf("statement %s is a %s", name, f.Kind())
		}
	}
	require.Greater(t, len(out), 40)
	for name, text := range out {
		require.NotEmpty(t, text, "%s is not rendered", name)
		require.NotRegexp(t, `\{[a-z_]+\}`, text, name)
	}
	return out
}

// Every statement names the schema of whatever it uses, and says of every
// argument what it is.
func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	conn, err := tb.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	var path string
	require.NoError(t, conn.QueryRow(t.Context(), "show search_path").Scan(&path))
	require.Empty(t, path)
	for name, text := range texts(t, *tb.sql) {
		sd, err := conn.Conn().Prepare(t.Context(), name, text)
		require.NoError(t, err, name)
		for n, oid := range sd.ParamOIDs {
			typ, ok := conn.Conn().TypeMap().TypeForOID(oid)
			require.True(t, ok)
			require.Contains(t, []string{"text", "bytea", "int8", "_text", "_bytea", "_int8"}, typ.Name, "%s: $%d", name, n+1)
		}
	}
}

// claimScans are the conditions by which the claim's index is read.
func (p plan) claimScans() (conds []string) {
	if p.Index == "queue_claim" {
		conds = append(conds, p.Cond)
	}
	for _, child := range p.Plans {
		conds = append(conds, child.claimScans()...)
	}
	return conds
}

// recorder remembers the arguments of the last call of each statement.
type recorder struct{ args map[string][]any }

func (r recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	r.args[d.SQL] = slices.Clone(d.Args)
	return ctx
}

func (recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// arguments are those that the store gives to its statements for batches of n,
// of messages that aren't there.
func (tb table) arguments(n int) map[string][]any {
	tb.t.Helper()
	r := recorder{args: map[string][]any{}}
	cfg := tb.pool.Config()
	cfg.ConnConfig.Tracer = r
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(tb.t.Context(), cfg)
	require.NoError(tb.t, err)
	defer pool.Close()
	tb.store = &store{pool: pool, sql: tb.sql}
	c := request(1)
	c.Lane.Route = "none"
	require.Empty(tb.t, tb.claim(c))
	for _, size := range claimSizes {
		r.args[tb.sql.claim[size]] = r.args[tb.sql.claim[1]]
	}
	_, _, err = tb.Peek(tb.t.Context(), []string{"none/1/", "none/2/", "none/3/", "none/2/test"})
	require.NoError(tb.t, err)
	_, _, _, err = tb.Page(tb.t.Context(), "none/2/", engine.Cursor{}, pageRows)
	require.NoError(tb.t, err)
	_, err = tb.Load(tb.t.Context(), engine.Task{Row: decide.Row{Key: dispatch.NewKey()}})
	require.Error(tb.t, err)
	for _, kind := range []func(engine.Task) engine.Change{sent, refusal} {
		changes := make([]engine.Change, n)
		for i := range changes {
			changes[i] = kind(engine.Task{Row: decide.Row{Key: dispatch.NewKey(), Fence: 1, Lane: anyLane}})
		}
		tb.apply(changes...)
	}
	return r.args
}

// plan is the part of EXPLAIN's answer that tells how tables are read.
type plan struct {
	Node     string `json:"Node Type"`
	Relation string `json:"Relation Name"`
	Index    string `json:"Index Name"`
	Cond     string `json:"Index Cond"`
	Plans    []plan `json:"Plans"`
}

func (p plan) seqScans() (tables []string) {
	if p.Node == "Seq Scan" {
		tables = append(tables, p.Relation)
	}
	for _, child := range p.Plans {
		tables = append(tables, child.seqScans()...)
	}
	return tables
}

// Whatever the statistics say at the moment, no statement of a worker reads a
// large table from end to end (B129).
func TestPlansWithStaleStatistics(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	const rows = 100_000
	for _, table := range []string{"queue", "message", "history"} {
		tb.exec("alter table {schema}." + table + " set (autovacuum_enabled = off)")
	}
	tb.exec("insert into {schema}.parked select gen_random_uuid(), now(), null, null, 1, 5, 1, 1, 8, 0, 0, 0, 0, 'sms/2/', 'p', 'a', null from generate_series(1, 1000)")
	analyze := func() { tb.exec("analyze {schema}.queue, {schema}.message, {schema}.history, {schema}.parked") }
	analyze() // when they are empty
	tb.exec(`insert into {schema}.message (id, form, channel, priority, budget, on_unknown, route, digest, content)
		select md5(g::text)::uuid, 1, 1, 2, 8, 1, 'sms', sha256('x'), '\x01' from generate_series(1, $1) g`, rows)
	tb.exec(`insert into {schema}.queue (id, lane, due, budget) select md5(g::text)::uuid, 'sms/2/', now() - g * interval '1 ms', 8 from generate_series(1, $1) g`, rows)
	tb.exec(`insert into {schema}.history (id, fence, kind, move, state, provider, provider_id) select md5(g::text)::uuid, 1, 1, 6, 6, 'test', g::text from generate_series(1, $1) g`, rows)

	args := tb.arguments(500)
	large := []string{"queue", "message", "history", "parked"}
	rare := []string{"unclaim"} // it follows a claim whose answer was lost, and walks the backlog
	check := func(moment string) {
		t.Helper()
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			cfg := tb.pool.Config().ConnConfig.Copy()
			cfg.RuntimeParams["plan_cache_mode"] = mode
			cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
			conn, err := pgx.ConnectConfig(t.Context(), cfg)
			require.NoError(t, err)
			for name, text := range texts(t, *tb.sql) {
				short, _, _ := strings.Cut(name, " ")
				a, known := args[text]
				if slices.Contains(rare, short) || !known && mode == "force_custom_plan" {
					continue
				}
				_, err := conn.Exec(t.Context(), "prepare p as "+text)
				require.NoError(t, err, name)
				count := 0
				require.NoError(t, conn.QueryRow(t.Context(), "select cardinality(parameter_types) from pg_prepared_statements where name = 'p'").Scan(&count))
				holes := make([]string, count)
				for i := range holes {
					holes[i] = "null"
					if known {
						holes[i] = fmt.Sprintf("$%d", i+1)
					}
				}
				call := "execute p"
				if count > 0 {
					call += "(" + strings.Join(holes, ", ") + ")"
				}
				var out string
				require.NoError(t, conn.QueryRow(t.Context(), "explain (format json) "+call, a...).Scan(&out), name)
				var plans []struct {
					Plan plan `json:"Plan"`
				}
				require.NoError(t, json.Unmarshal([]byte(out), &plans))
				for _, scanned := range plans[0].Plan.seqScans() {
					require.NotContains(t, large, scanned, "%s, %s, %s: %s", moment, mode, name, out)
				}
				if slices.Contains([]string{"claim", "peek", "page"}, short) {
					conds := plans[0].Plan.claimScans()
					require.NotEmpty(t, conds, "%s, %s, %s: %s", moment, mode, name, out)
					for _, cond := range conds { // else it walks the lane from its begin
						require.Contains(t, cond, "lane = ", name)
						require.Regexp(t, `due (<=|>) \$|due\) > `, strings.ReplaceAll(cond, "ROW(due, id)", "due)"), name)
					}
				}
				_, err = conn.Exec(t.Context(), "deallocate p")
				require.NoError(t, err)
			}
			require.NoError(t, conn.Close(t.Context()))
		}
	}
	for _, text := range []string{tb.sql.claim[512], tb.sql.peek, tb.sql.page, tb.sql.load, tb.sql.apply, tb.sql.applySent} {
		require.NotEmpty(t, args[text], "each is planned with real arguments too")
	}
	check("analyzed when empty")
	analyze()
	check("analyzed as it is")
	tb.exec("update {schema}.queue set state = 2, claim = id, claimed = due, lease = now() + interval '1 hour', spent = 1, provider = 'test', account = 'account', encoding = 0, due = now() + interval '1 hour', lane = 'sms/2/test'")
	analyze()
	tb.exec("update {schema}.queue set state = 1, claim = null, lease = null, due = now() - interval '1 hour', lane = 'sms/2/'")
	check("analyzed when no row was ready, and all were in another lane")
}

// The application's clock may be ahead of the database's: what it let pass is
// refused in words, and the transaction goes on.
func TestValidityIsOverByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	box, err := New(tb.pool, Config{Schema: tb.schema, Routes: []dispatch.Route{{Name: "sms", Providers: []string{"p"}}}})
	require.NoError(t, err)
	i := dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.SMS{To: "+15555550123", Body: "hi"}, ValidFor: time.Hour, NotBefore: time.Now().Add(59 * time.Minute)}
	m, err := box.freeze(i)
	require.NoError(t, err)
	good := m
	good.key = dispatch.NewKey()
	m.intent.ValidFor = 58 * time.Minute // as much as the clocks differ
	require.NoError(t, pgx.BeginFunc(t.Context(), tb.pool, func(tx pgx.Tx) error {
		added, err := m.answer(tx.QueryRow(t.Context(), tb.sql.enqueue, m.args()...))
		require.False(t, added)
		var field *dispatch.FieldError
		require.ErrorAs(t, err, &field)
		require.Equal(t, "ValidFor", field.Field)
		rows, err := tx.Query(t.Context(), tb.sql.enqueueMany, manyArgs([]message{m, good}, []int{0, 1})...)
		require.NoError(t, err)
		n := 0
		for rows.Next() {
			n++
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 1, n)
		return nil
	}))
	require.Equal(t, 1, query[int](tb, "select count(*) from {schema}.message"))
	require.Equal(t, 1, query[int](tb, "select count(*) from {schema}.queue"))
}

// Wake never blocks, rings each worker once, and tells the lanes that were
// enqueued to.
func TestWake(t *testing.T) {
	t.Parallel()
	var w wake
	w.ring() // nobody listens
	w.hint(anyLane)
	require.Empty(t, w.lanes(), "nobody to tell")
	a, leave := w.join()
	b, stay := w.join()
	defer stay()
	for range 3 {
		w.hint(anyLane)
		w.ring()
	}
	require.Equal(t, []string{"sms/2/"}, w.lanes())
	<-a
	<-b
	require.Empty(t, a)
	require.Empty(t, b)
	leave()
	w.ring()
	require.Empty(t, a)
	require.Len(t, b, 1)
}
