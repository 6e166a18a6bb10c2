package outbox

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
)

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
	changed.claim = hold(texts.claim)
	conn, err := pgx.ConnectConfig(tb.t.Context(), pgtest.Direct(tb.t, tb.pool.Config().ConnConfig)) // a session's lock
	require.NoError(tb.t, err)
	defer func() { require.NoError(tb.t, conn.Close(context.WithoutCancel(tb.t.Context()))) }()
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
		"below the watermark":      {values: nil2(), change: func(c *engine.Claim) { c.From.Due = time.Now().Add(-time.Minute) }},
		"above the watermark":      {values: nil2(), change: func(c *engine.Claim) { c.From.Due = time.Now().Add(-2 * time.Hour) }, ok: true},
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
	c.From.Due = first[0].Due
	require.Len(t, tb.claim(c), 2)
}

// A transaction may commit a row below the watermark. A claim sees it where few
// rows were claimed since, a look where it was enqueued a second before, and a look
// from the begin always (B122).
func TestWatermarkHidesNothingForLong(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	e := claimsFrom(t, tb)
	late := func(before string) dispatch.Key {
		due := "(select max(due) from {schema}.queue where state = 2) - interval '" + before + "'"
		return tb.seed(1, map[string]string{"due": due})[0]
	}
	next := func() []dispatch.Key {
		tasks, _, err := e.Claim(t.Context(), 96, claimID())
		require.NoError(t, err)
		return keysOf(tasks)
	}
	look := func(before time.Duration) {
		_, err := e.Look(t.Context(), before)
		require.NoError(t, err)
	}
	tb.seed(2000, nil) // a millisecond from one to the next
	for range 6 {
		require.Len(t, next(), 96)
	}
	look(0) // sees the next row, and not the one that is about to commit
	key := late("50 milliseconds")
	require.Contains(t, next(), key)

	key = late("600 milliseconds")
	require.NotContains(t, next(), key)
	look(0)
	require.NotContains(t, next(), key)
	look(engine.Near)
	require.Contains(t, next(), key)

	for range 6 {
		require.Len(t, next(), 96)
	}
	key = late("1 minute")
	look(engine.Near)
	require.NotContains(t, next(), key)
	look(engine.Far)
	require.Contains(t, next(), key)

	// At the end of the lane, the looks keep up with the clock.
	for len(next()) > 0 {
	}
	look(0)
	key = late("1 minute")
	e.Hint(anyLane.String())
	require.Empty(t, next())
	look(engine.Near)
	require.Empty(t, next())
	look(engine.Far)
	require.Equal(t, []dispatch.Key{key}, next())
}

// claimsFrom is an engine that claims from anyLane.
func claimsFrom(t *testing.T, tb table) *engine.Engine {
	t.Helper()
	e, err := engine.New(tb.store, engine.Config{
		Routes: []dispatch.Route{{Name: "sms", Providers: []string{"p"}}}, Providers: []dispatch.Provider{silent{}},
		Random: func(int64) int64 { return 0 },
	})
	require.NoError(t, err)
	e.Hint(anyLane.String())
	return e
}

// While a snapshot is held, index entries of what is done stay. Claims and looks
// don't read them again and again, also where all rows are due at the same time.
func TestHeldSnapshotKeepsClaimsShort(t *testing.T) {
	t.Parallel()
	t.Run("one after the other", func(t *testing.T) { t.Parallel(); testHeldSnapshot(t, nil) })
	t.Run("all at once", func(t *testing.T) {
		t.Parallel()
		testHeldSnapshot(t, map[string]string{"due": "'2026-01-02 03:04:05.000001+00'::timestamptz"})
	})
}

func testHeldSnapshot(t *testing.T, values map[string]string) {
	t.Helper()
	tb := newTable(t)
	const rows, size = 6000, 64
	tb.seed(rows, values)
	held, err := tb.store.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = held.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = held.Exec(t.Context(), "select txid_current_snapshot()")
	require.NoError(t, err)

	other := tb.through(nil)
	e := claimsFrom(t, other)
	done := 0
	for n := 0; done < rows; n++ {
		tasks, _, err := e.Claim(t.Context(), size, claimID())
		require.NoError(t, err)
		require.NotEmpty(t, tasks)
		changes := make([]engine.Change, len(tasks))
		for i := range tasks {
			changes[i] = sent(tasks[i])
		}
		other.apply(changes...)
		done += len(tasks)
		if n%10 == 0 {
			_, err = e.Look(t.Context(), 0)
			require.NoError(t, err)
		}
	}
	other.store.pool.Close() // a session reports when it ends
	read := func() int {
		return query[int](tb, `select idx_tup_read::int from pg_stat_user_indexes
			where schemaname = '{schema}' and indexrelname = 'queue_claim'`)
	}
	require.Eventually(t, func() bool { return read() >= rows }, 20*time.Second, 10*time.Millisecond)
	t.Logf("%d index entries read for %d rows", read(), rows)
	require.Less(t, read(), 10*rows)
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
