package pgtest

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

func TestEachTestHasASchemaOfItsOwn(t *testing.T) {
	t.Parallel()
	a, schemaA := Pool(t)
	b, schemaB := Pool(t)
	require.NotEqual(t, schemaA, schemaB)
	require.Equal(t, `"`+schemaA+`"`, pgx.Identifier{schemaA}.Sanitize())
	require.Regexp(t, "^[a-z0-9_]{1,30}$", schemaA)

	for pool, schema := range map[*pgxpool.Pool]string{a: schemaA, b: schemaB} {
		// The same table name in both.
		_, err := pool.Exec(t.Context(), "create table "+schema+".message (schema) as select $1::text", schema)
		require.NoError(t, err)
	}
	var got string
	require.NoError(t, a.QueryRow(t.Context(), "select schema from "+schemaA+".message").Scan(&got))
	require.Equal(t, schemaA, got)
}

func TestASchemaGoesAfterItsTest(t *testing.T) {
	var schema, role string
	t.Run("its test", func(t *testing.T) {
		var pool *pgxpool.Pool
		pool, schema = Pool(t)
		_, err := pool.Exec(t.Context(), "create table "+schema+".message ()")
		require.NoError(t, err)

		conn, err := pgx.Connect(t.Context(), Role(t, pool))
		require.NoError(t, err)
		role = conn.Config().User
		_, err = conn.Exec(t.Context(), "create schema "+role+"_own create table left_behind ()")
		require.NoError(t, err)
		require.NoError(t, conn.Close(t.Context()))
	})
	require.Equal(t, "0", scan(t, URL(t), "select count(*)::text from pg_catalog.pg_namespace where nspname in ('"+
		schema+"', '"+role+"_own')"))
	require.Equal(t, "0", scan(t, URL(t), "select count(*)::text from pg_catalog.pg_roles where rolname = '"+role+"'"))
}

func TestTheSearchPathIsEmpty(t *testing.T) {
	t.Parallel()
	pool, schema := Pool(t)
	_, err := pool.Exec(t.Context(), "create table "+schema+".message ()")
	require.NoError(t, err)
	inPublic := uniqueName("public")
	_, err = pool.Exec(t.Context(), "create table public."+inPublic+" ()")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, admin(t, "drop table public."+inPublic))
	})

	for name, url := range map[string]string{"pool": pool.Config().ConnString(), "URL": URL(t), "Role": Role(t, pool)} {
		require.Empty(t, scan(t, url, "show search_path"), name)
		require.Equal(t, "{pg_catalog}", scan(t, url, "select current_schemas(true)::text"), name)
	}
	for _, table := range []string{"message", inPublic} {
		_, err = pool.Exec(t.Context(), "select from "+table)
		requireSQLState(t, "42P01", err)
	}
}

func TestARoleMayMakeSchemasAndNothingElse(t *testing.T) {
	t.Parallel()
	pool, schema := Pool(t)
	_, err := pool.Exec(t.Context(), "create table "+schema+".message ()")
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), Role(t, pool))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()

	var super string
	require.NoError(t, conn.QueryRow(t.Context(), "show is_superuser").Scan(&super))
	require.Equal(t, "off", super)
	_, err = conn.Exec(t.Context(), "select from "+schema+".message")
	requireSQLState(t, "42501", err)
	_, err = conn.Exec(t.Context(), "create role another")
	requireSQLState(t, "42501", err)
	_, err = conn.Exec(t.Context(), "create schema "+schema+"_own")
	require.NoError(t, err)
}

func TestDatabaseURLInItsOtherForm(t *testing.T) {
	t.Parallel()
	const keywords = "host=127.0.0.1 port=5432 user=ada password=a dbname=shop sslmode=disable"
	config, err := pgx.ParseConfig(withParam(t, withUser(t, keywords, "bob", "b"), "search_path", ""))
	require.NoError(t, err)
	require.Equal(t, "bob", config.User)
	require.Equal(t, "b", config.Password)
	require.Equal(t, "shop", config.Database)
	path, ok := config.RuntimeParams["search_path"]
	require.True(t, ok)
	require.Empty(t, path)
}

func TestAPoolThatIsNeverReleasedIsReported(t *testing.T) {
	t.Parallel()
	pool, _ := Pool(t)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	err = closePool(pool, 1)
	require.ErrorContains(t, err, "1 connections")
	conn.Release()
}

func requireSQLState(t *testing.T, state string, err error) {
	t.Helper()
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, state, pgErr.Code, strings.TrimSpace(pgErr.Message))
}
