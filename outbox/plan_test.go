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
	sight, err := tb.Peek(t.Context(), []engine.Probe{{Lane: "sms/2/"}})
	require.NoError(t, err)
	require.Equal(t, []engine.Cursor{{}}, sight.First)
	require.Negative(t, sight.Next)
	require.WithinDuration(t, query[time.Time](tb, "select clock_timestamp()"), sight.Now, time.Minute)

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
	probes := []engine.Probe{
		{Lane: "sms/1/"},
		{Lane: "sms/2/"},
		{Lane: "sms/2/", From: engine.Cursor{Due: sight.Now}},
		{Lane: "sms/3/"},
		{Lane: "sms/2/p"},
		{Lane: "none/2/"},
		{Lane: "ümlaut/2/"},
	}
	sight, err = tb.Peek(t.Context(), probes)
	require.NoError(t, err)
	var seen []string
	for i, p := range probes {
		if first := sight.First[i]; !first.Due.IsZero() {
			seen = append(seen, p.Lane)
			require.True(t, first.Due.Equal(query[time.Time](tb, "select min(due) from {schema}.queue where lane = '"+p.Lane+"'")))
		}
	}
	require.Equal(t, []string{"sms/2/", "ümlaut/2/"}, seen)
	require.Greater(t, sight.Next, 59*time.Minute)
	require.LessOrEqual(t, sight.Next, time.Hour)
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
			if name == "applySent" && n == 0 || name == "applySentKnown" && n == 0 {
				require.Equal(t, "_uuid", typ.Name) // only pgx sends it
				continue
			}
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

func (recorder) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (r recorder) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	r.args[d.SQL] = slices.Clone(d.Args)
}

func (recorder) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

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
	_, err = tb.Peek(tb.t.Context(), []engine.Probe{{Lane: "none/1/"}, {Lane: "none/2/"}, {Lane: "none/3/"}, {Lane: "none/2/test", From: engine.Cursor{Due: time.Now()}}})
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

// seedQuickly adds rows that are due, and finished ones.
func (tb table) seedQuickly(rows int) {
	tb.t.Helper()
	tb.exec(`insert into {schema}.message (id, form, channel, priority, budget, on_unknown, route, digest, content)
		select md5(g::text)::uuid, 1, 1, 2, 8, 1, 'sms', sha256('x'), $2 from generate_series(1, $1) g`,
		rows, form.Encode(dispatch.SMS{To: "+15555550123", Body: "hello"}))
	tb.exec(`insert into {schema}.queue (id, lane, due, budget) select md5(g::text)::uuid, 'sms/2/', now() - g * interval '1 ms', 8 from generate_series(1, $1) g`, rows)
	tb.exec(`insert into {schema}.history (id, fence, kind, move, state, provider, provider_id) select md5(g::text)::uuid, 1, 1, 6, 6, 'test', g::text from generate_series(1, $1) g`, rows)
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
	tb.seedQuickly(rows)

	args := tb.arguments(500)
	large := []string{"queue", "message", "history", "parked"}
	rare := []string{
		"unclaim", // it follows a claim whose answer was lost, and walks the backlog
		"delete",  // it takes a thousand at once, and a table of as many is read whole
	}
	check := func(moment string) {
		t.Helper()
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			cfg := pgtest.Direct(t, tb.pool.Config().ConnConfig.Copy())
			cfg.RuntimeParams["plan_cache_mode"] = mode
			cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
			conn, err := pgx.ConnectConfig(t.Context(), cfg)
			require.NoError(t, err)
			for name, text := range texts(t, *tb.sql) {
				short, _, _ := strings.Cut(name, " ")
				a, known := args[text]
				if slices.Contains(rare, short) || strings.HasPrefix(text, "copy ") || !known && mode == "force_custom_plan" {
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
						require.Regexp(t, `due (<=|>) (\$|\(InitPlan )|due\) > `, strings.ReplaceAll(cond, "ROW(due, id)", "due)"), name)
					}
				}
				_, err = conn.Exec(t.Context(), "deallocate p")
				require.NoError(t, err)
			}
			require.NoError(t, conn.Close(t.Context()))
		}
	}
	for _, text := range []string{tb.sql.claim, tb.sql.peek, tb.sql.page, tb.sql.load, tb.sql.apply, tb.sql.applySent} {
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
