package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

// refused checks that the database refuses the statement by that constraint.
func refused(t *testing.T, pool *pgxpool.Pool, constraint, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql, args...)
	var pe *pgconn.PgError
	require.ErrorAs(t, err, &pe, sql)
	require.Equal(t, "23514", pe.Code, "%s: %v", sql, err)
	require.Equal(t, constraint, pe.ConstraintName, sql)
}

// another is an expression for a value of a column that differs from what it
// holds, whatever that is.
func another(t *testing.T, column, kind string) string {
	t.Helper()
	switch kind {
	case "uuid":
		return "gen_random_uuid()"
	case "smallint", "integer", "bigint":
		return "coalesce(" + column + ", 0) + 1"
	case "timestamp with time zone":
		return "coalesce(" + column + ", clock_timestamp()) + interval '1 microsecond'"
	case "text":
		return "coalesce(" + column + ", '') || ' '"
	case "bytea":
		return "coalesce(" + column + ", '') || '\\x00'::bytea"
	case "jsonb":
		return `'{"another": "value"}'::jsonb`
	}
	t.Fatalf("column %s has type %s: say here what another value is", column, kind)
	return ""
}

// One key, one message: the database itself refuses a change of any column,
// those that a later migration adds too.
func TestMessageIsFrozen(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t, twoRoutes()...)
	full, bare := sms(""), sms("bare")
	full.Content = dispatch.SMS{To: "+15555550123", Sender: "otp", Body: strings.Repeat("0123456789", 100)}
	full.NotBefore, full.Provider, full.Linked = time.Now(), "test", dispatch.NewKey()
	full.Template, full.Metadata, full.TraceParent = dispatch.Template{Name: "a", Revision: "b"}, map[string]string{"a": "b"}, "c"
	full.Route, bare.Route = "sms", "news"
	bare.ValidFor = dispatch.Never
	enqueue(t, box, full, bare)
	before := stored(t, pool, schema, full.Key, bare.Key)

	rows, err := pool.Query(t.Context(), "select column_name::text, data_type::text from information_schema.columns where table_schema = $1 and table_name = 'message'", schema)
	require.NoError(t, err)
	type column struct{ Name, Type string }
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	require.NoError(t, err)
	require.Greater(t, len(columns), 25)
	update := "update " + schema + ".message set "
	for _, c := range columns {
		for _, key := range []dispatch.Key{full.Key, bare.Key} {
			where := " where id = '" + key.String() + "'"
			refused(t, pool, "message_frozen", update+c.Name+" = "+another(t, c.Name, c.Type)+where)
			if ask[bool](t, pool, "select "+c.Name+" is not null from "+schema+".message"+where) {
				refused(t, pool, "message_frozen", update+c.Name+" = null"+where)
			}
			if c.Name != "content" && c.Name != "scrubbed_at" { // not under cover of the scrub either
				refused(t, pool, "message_frozen", update+"content = null, scrubbed_at = clock_timestamp(), "+c.Name+" = "+another(t, c.Name, c.Type)+where)
			}
		}
	}
	_, err = pool.Exec(t.Context(), update+"id = id, content = content")
	require.NoError(t, err, "an update that changes nothing is how an enqueue reads its twin")
	require.Equal(t, before, stored(t, pool, schema, full.Key, bare.Key))
}

// The one change that is allowed, once.
func TestScrub(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	i := sms("secret")
	enqueue(t, box, i)
	update := "update " + schema + ".message set "
	row := func() string {
		return ask[string](t, pool, "select (to_jsonb(m) - '{content,scrubbed_at}'::text[])::text from "+schema+".message m")
	}
	before := row()
	refused(t, pool, "message_frozen", update+"content = null")
	refused(t, pool, "message_frozen", update+"scrubbed_at = clock_timestamp()")
	refused(t, pool, "message_frozen", update+"content = '\\x00', scrubbed_at = clock_timestamp()")
	_, err := pool.Exec(t.Context(), update+"content = null, scrubbed_at = clock_timestamp()")
	require.NoError(t, err)
	require.True(t, ask[bool](t, pool, "select content is null and scrubbed_at is not null from "+schema+".message"))
	require.Equal(t, before, row())
	refused(t, pool, "message_frozen", update+"content = '\\x00', scrubbed_at = null")
	refused(t, pool, "message_frozen", update+"content = '\\x00'")
	refused(t, pool, "message_frozen", update+"scrubbed_at = clock_timestamp()")
	refused(t, pool, "message_frozen", update+"scrubbed_at = null")

	// The key stands for what it stood for, though its text is gone.
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		added, err := box.Enqueue(t.Context(), tx, i)
		require.NoError(t, err)
		require.False(t, added)
		i.Content = dispatch.SMS{To: "+15555550123", Body: "another"}
		var conflict *dispatch.ConflictError
		_, err = box.Enqueue(t.Context(), tx, i)
		require.ErrorAs(t, err, &conflict)
		return nil
	}))
}

// legal are rows of queue and parked as the library writes them, by what they
// are, as values beyond the defaults.
var legal = map[string]map[string]map[string]string{
	"queue": {
		"pending":        {},
		"pending, tried": {"fence": "1", "spent": "1", "provider": "'p'", "account": "'a'", "encoding": "0", "claimed": "now()"},
		"pending, waived": {
			"fence": "1", "spent": "1", "provider": "'p'", "account": "'a'", "encoding": "0", "claimed": "now()",
			"waived": "1", "ledger": "'[]'",
		},
		"pending, ended": {"ended": "1"},
		"sending": {
			"state": "2", "fence": "1", "spent": "1", "provider": "'p'", "account": "'a'", "encoding": "0", "claimed": "now()",
			"lease": "now()", "claim": "gen_random_uuid()",
		},
		"unknown": {
			"state": "3", "fence": "1", "spent": "1", "provider": "'p'", "account": "'a'", "encoding": "0", "claimed": "now()",
			"open": "1", "first_sent": "now()", "ledger": "'[]'",
		},
		"unknown, looked up": {
			"state": "3", "fence": "2", "spent": "1", "provider": "'p'", "account": "'a'", "encoding": "0", "claimed": "now()",
			"open": "1", "waived": "1", "first_sent": "now()", "ledger": "'[]'", "lease": "now()", "resolve_until": "now()", "lookups": "1",
		},
	},
	"parked": {
		"held":               {"state": "4", "reason": "4", "open": "1", "fence": "1", "spent": "1", "ledger": "'[]'"},
		"held, changed":      {"state": "4", "reason": "7", "open": "1", "fence": "1", "spent": "1", "ledger": "'[]'"},
		"rejected":           {"state": "5", "reason": "1", "open": "0", "fence": "1", "spent": "1"},
		"budget":             {"state": "5", "reason": "2", "open": "0", "fence": "8", "spent": "8"},
		"deadline, no tries": {"state": "5", "reason": "3", "open": "0", "fence": "0", "spent": "0"},
		"unresolved, waived": {"state": "5", "reason": "4", "open": "0", "waived": "1", "fence": "2", "spent": "1", "ledger": "'[]'"},
		"superseded":         {"state": "5", "reason": "5", "open": "1", "ended": "2", "fence": "1", "spent": "1", "ledger": "'[]'"},
		"dropped":            {"state": "5", "reason": "6", "open": "0", "fence": "1", "spent": "0"},
	},
}

// insert is a statement for a legal row with changes.
func insert(schema, table, what string, changes ...string) string {
	values := map[string]string{"id": "gen_random_uuid()", "lane": "'sms/2/'", "budget": "8"}
	if table == "queue" {
		values["due"] = "now()"
	} else {
		values["waived"], values["ended"] = "0", "0"
	}
	for k, v := range legal[table][what] {
		values[k] = v
	}
	for n := 0; n < len(changes); n += 2 {
		values[changes[n]] = changes[n+1]
	}
	var names, exprs []string
	for k, v := range values {
		names, exprs = append(names, k), append(exprs, v)
	}
	return fmt.Sprintf("insert into %s.%s (%s) values (%s)", schema, table, strings.Join(names, ", "), strings.Join(exprs, ", "))
}

// A row that no legal move leads to is refused by the database itself.
func TestImpossibleRows(t *testing.T) {
	t.Parallel()
	_, pool, schema := newBox(t)
	for table, rows := range legal {
		for what := range rows {
			_, err := pool.Exec(t.Context(), insert(schema, table, what))
			require.NoError(t, err, "%s is legal", what)
		}
	}
	for _, bad := range []struct{ table, what, column, value, constraint string }{
		{"queue", "pending, waived", "open", "1", "queue_state"}, // O = ∅: it would be sent anew
		{"queue", "pending", "lease", "now()", "queue_state"},
		{"queue", "pending", "claim", "gen_random_uuid()", "queue_state"},
		{"queue", "pending", "state", "0", "queue_state"},
		{"queue", "pending", "state", "2", "queue_state"},
		{"queue", "pending", "state", "3", "queue_state"},
		{"queue", "pending", "state", "4", "queue_state"}, // parked, sent and cancelled are not in motion
		{"queue", "pending", "state", "6", "queue_state"},
		{"queue", "pending", "state", "7", "queue_state"},
		{"queue", "pending", "fence", "-1", "queue_counts"},
		{"queue", "pending", "spent", "-1", "queue_counts"},
		{"queue", "pending", "spent", "9", "queue_counts"}, // above its budget
		{"queue", "pending", "waived", "-1", "queue_counts"},
		{"queue", "pending", "lookups", "-1", "queue_counts"},
		{"queue", "pending", "ended", "3", "queue_counts"},
		{"queue", "pending", "ended", "-1", "queue_counts"},
		{"queue", "pending", "waived", "1", "queue_ledger"},
		{"queue", "sending", "lease", "null", "queue_state"}, // nobody could ever sweep it
		{"queue", "sending", "claim", "null", "queue_state"},
		{"queue", "sending", "claimed", "null", "queue_state"},
		{"queue", "sending", "provider", "null", "queue_state"},
		{"queue", "sending", "account", "null", "queue_state"},
		{"queue", "sending", "encoding", "null", "queue_state"},
		{"queue", "sending", "spent", "0", "queue_state"},
		{"queue", "sending", "open", "1", "queue_ledger"},
		{"queue", "unknown", "open", "0", "queue_state"},
		{"queue", "unknown", "claim", "gen_random_uuid()", "queue_state"},
		{"queue", "unknown", "first_sent", "null", "queue_state"},
		{"queue", "unknown", "provider", "null", "queue_state"},
		{"queue", "unknown", "account", "null", "queue_state"},
		{"queue", "unknown", "ledger", "null", "queue_ledger"},
		{"parked", "held", "open", "0", "parked_held"}, // nothing open: it could go on
		{"parked", "held", "state", "3", "parked_state"},
		{"parked", "held", "state", "6", "parked_state"},
		{"parked", "dropped", "reason", "0", "parked_state"},
		{"parked", "dropped", "reason", "8", "parked_state"},
		{"parked", "held", "reason", "1", "parked_reason"}, // certainly not accepted, and open
		{"parked", "budget", "open", "1", "parked_reason"},
		{"parked", "deadline, no tries", "waived", "1", "parked_reason"},
		{"parked", "rejected", "fence", "-1", "parked_counts"},
		{"parked", "rejected", "spent", "9", "parked_counts"},
		{"parked", "rejected", "waived", "-1", "parked_counts"},
	} {
		refused(t, pool, bad.constraint, insert(schema, bad.table, bad.what, bad.column, bad.value))
	}
	for table, rows := range map[string]int{"queue": len(legal["queue"]), "parked": len(legal["parked"])} {
		require.Equal(t, rows, count(t, pool, schema, table))
	}
	_, err := pool.Exec(t.Context(), "insert into "+schema+".queue select * from "+schema+".queue limit 1")
	var pe *pgconn.PgError
	require.ErrorAs(t, err, &pe)
	require.Equal(t, "23505", pe.Code, "a message is in motion once")
}

// B131: an operator's sentinel would never come due, or could not be read by
// Go. The database refuses it, and what it allows is read, shown and claimed in
// every exec mode.
func TestTimesThatCannotBe(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	ends := []string{"'infinity'", "'-infinity'", "'10000-01-01 00:00:00+00'", "'0044-03-15 12:00:00+00 BC'"}
	for table, columns := range map[string][]string{
		"queue":  {"due", "lease", "claimed", "deadline", "resolve_until", "first_sent"},
		"parked": {"parked_at", "deadline", "first_sent"},
	} {
		what := map[string]string{"queue": "unknown, looked up", "parked": "held"}[table]
		for _, column := range columns {
			for _, end := range ends {
				refused(t, pool, table+"_finite", insert(schema, table, what, column, end))
			}
		}
	}
	for _, column := range []string{"until", "since", "probe_at", "opened_at"} { // a hold without an end is null
		for _, end := range ends {
			refused(t, pool, "gate_finite", "insert into "+schema+".gate (provider, reason, "+column+") values ('p', 5, "+end+")")
		}
	}
	old, far := sms("old"), sms("far")
	old.ValidFor, far.ValidFor = dispatch.Never, dispatch.Never
	enqueue(t, box, old, far)
	for _, end := range ends {
		refused(t, pool, "queue_finite", "update "+schema+".queue set due = "+end)
	}
	for key, due := range map[dispatch.Key]string{old.Key: "1970-01-01 00:00:00+00", far.Key: "9998-12-31 23:59:59.999999+00"} {
		_, err := pool.Exec(t.Context(), "update "+schema+".queue set due = $1::text::timestamptz where id = $2", due, key.String())
		require.NoError(t, err)
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		cfg := pool.Config()
		cfg.ConnConfig.DefaultQueryExecMode = mode
		other, err := pgxpool.NewWithConfig(t.Context(), cfg)
		require.NoError(t, err)
		h, err := boxOn(t, other, schema).History(t.Context(), far.Key)
		require.NoError(t, err)
		require.Equal(t, 9998, h.Next.UTC().Year())
		other.Close()
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{&outboxtest.Provider{}}})
	reaches(t, box, old.Key, dispatch.Sent)
	require.Equal(t, dispatch.Pending, reaches(t, box, far.Key, dispatch.Pending).State)
}

// Every column that holds a moment knows its zone (B109), and no default
// depends on the session's search_path.
func TestTypesOfColumns(t *testing.T) {
	t.Parallel()
	_, pool, schema := newBox(t)
	require.Zero(t, ask[int](t, pool, `select count(*) from information_schema.columns
		where table_schema = $1 and data_type in ('timestamp without time zone', 'date', 'interval', 'character varying', 'USER-DEFINED')`, schema))
	require.Zero(t, ask[int](t, pool, `select count(*) from pg_proc p join pg_namespace n on n.oid = p.pronamespace
		where n.nspname = $1 and p.proname not like 'check\_%' and coalesce(not p.proconfig @> array['search_path=""'], true)`, schema),
		"functions pin their search_path, but for the two that run for every row and name nothing outside pg_catalog")
	require.Zero(t, ask[int](t, pool, `select count(*) from pg_proc p join pg_namespace n on n.oid = p.pronamespace
		where n.nspname = $1 and p.prosecdef`, schema))
}

// However much has happened to a key, it is one row.
func TestStatusHasOneRowForEachKey(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	intents := many(2, nil)
	enqueueMany(t, box, intents)
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{&outboxtest.Provider{Respond: func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		if e.Attempt < 3 {
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.Answered, Status: 429, OwnBody: true})
		}
		return accept(), nil
	}}}})
	for _, i := range intents {
		require.Equal(t, 3, reaches(t, box, i.Key, dispatch.Sent).Attempts)
	}
	require.Equal(t, 2, count(t, pool, schema, "status"))
	require.Equal(t, 2, ask[int](t, pool, "select count(*) from "+schema+".status where state = 'sent' and attempts = 3"))
}
