package outbox

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/internal/engine"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
)

// A newsletter on a new system: what was planned while the tables were small
// and is still in use when they are large, before anyone has analyzed them,
// reads no more of them than a plan of now would.
func TestPlansFromWhenTheTablesWereSmall(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	for _, table := range []string{"queue", "message", "history"} {
		tb.exec("alter table {schema}." + table + " set (autovacuum_enabled = off)")
	}
	tb.exec("vacuum analyze {schema}.queue, {schema}.message, {schema}.history")
	cfg := pgtest.Direct(t, tb.pool.Config().ConnConfig.Copy()) // the plans are the session's
	cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	pool := tb.pool.Config()
	pool.ConnConfig, pool.MaxConns = cfg, 1
	one, err := pgxpool.NewWithConfig(t.Context(), pool)
	require.NoError(t, err)
	defer one.Close()
	tb.store = &store{pool: one, sql: tb.sql}
	work := func(size int) {
		t.Helper()
		tasks := tb.claim(request(size))
		changes := make([]engine.Change, len(tasks))
		for i, task := range tasks {
			changes[i] = sent(task)
			if i%2 == 1 {
				changes[i] = refusal(task)
			}
		}
		tb.apply(changes...)
		_, err := tb.Peek(t.Context(), []engine.Probe{{Lane: "sms/2/"}})
		require.NoError(t, err)
		_, err = tb.Lanes(t.Context())
		require.NoError(t, err)
		_, _, _, err = tb.Page(t.Context(), "sms/2/", engine.Cursor{}, pageRows)
		require.NoError(t, err)
		for _, task := range tasks {
			_, err = tb.Load(t.Context(), task)
			require.NoError(t, err)
			require.NoError(t, tb.Edit(t.Context(), task.Key, 1, func(engine.View) (engine.Edit, error) { return engine.Edit{}, nil }))
		}
	}
	for range 12 { // the sixth execution may keep its plan
		tb.seed(2, nil)
		work(2)
	}
	const rows = 50_000
	tb.seedQuickly(rows)
	work(2)

	var names []string
	list, err := one.Query(t.Context(), `select name from pg_prepared_statements where generic_plans > 0 and statement ~ $1`, tb.schema)
	require.NoError(t, err)
	names, err = pgx.CollectRows(list, pgx.RowTo[string])
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(names), 9, "the plans that are kept")
	for _, name := range names {
		var text, out string
		var n int
		require.NoError(t, one.QueryRow(t.Context(), "select statement, cardinality(parameter_types) from pg_prepared_statements where name = $1", name).Scan(&text, &n))
		call := "execute " + name
		if n > 0 {
			call += "(" + strings.Repeat("null, ", n-1) + "null)"
		}
		require.NoError(t, one.QueryRow(t.Context(), "explain (format json) "+call).Scan(&out))
		var plans []struct {
			Plan plan `json:"Plan"`
		}
		require.NoError(t, json.Unmarshal([]byte(out), &plans))
		for _, whole := range plans[0].Plan.wholes() {
			require.NotContains(t, []string{"queue", "message", "history", "parked"}, whole, "%s\n%s", text, out)
		}
	}
}

// wholes are the tables of which all, or all of a lane, is read: without an
// index, or by a bitmap, which is made whole before its first row.
func (p plan) wholes() (tables []string) {
	if p.Node == "Bitmap Heap Scan" || p.Node == "Seq Scan" {
		tables = append(tables, p.Relation)
	}
	for _, child := range p.Plans {
		tables = append(tables, child.wholes()...)
	}
	return tables
}
