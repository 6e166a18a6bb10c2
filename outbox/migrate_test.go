package outbox_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

func boxOn(t *testing.T, pool *pgxpool.Pool, schema string) *outbox.Box {
	t.Helper()
	box, err := outbox.New(pool, outbox.Config{Schema: schema, Routes: routes()})
	require.NoError(t, err)
	return box
}

// catalog describes everything that is in a schema, with its name left out, as
// pg_dump would.
func catalog(t *testing.T, pool *pgxpool.Pool, schema string) []string {
	t.Helper()
	rows, err := pool.Query(context.WithoutCancel(t.Context()), `
		with n as (select oid from pg_namespace where nspname = $1),
		c as (select c.* from pg_class c join n on n.oid = c.relnamespace)
		select 'relation ' || c.relname || ' ' || c.relkind::text || ' ' || coalesce(c.reloptions::text, '') from c
		union all select 'column ' || c.relname || '.' || a.attnum || ' ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
			|| ' ' || a.attnotnull || ' ' || a.attcompression::text || ' ' || coalesce(pg_get_expr(d.adbin, d.adrelid), '') || ' '
			|| coalesce((select collname from pg_collation l where l.oid = a.attcollation), '')
			from c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 left join pg_attrdef d on (d.adrelid, d.adnum) = (c.oid, a.attnum)
			where c.relkind in ('r', 'v')
		union all select 'constraint ' || c.relname || ' ' || k.conname || ' ' || pg_get_constraintdef(k.oid) from c join pg_constraint k on k.conrelid = c.oid
		union all select 'index ' || pg_get_indexdef(c.oid) from c where c.relkind = 'i'
		union all select 'view ' || c.relname || ' ' || pg_get_viewdef(c.oid) from c where c.relkind = 'v'
		union all select 'sequence ' || c.relname || ' ' || row(s.*)::text from c join pg_sequence s on s.seqrelid = c.oid and c.relkind = 'S'
		union all select 'trigger ' || pg_get_triggerdef(g.oid) from c join pg_trigger g on g.tgrelid = c.oid and not g.tgisinternal
		union all select 'function ' || pg_get_functiondef(f.oid) from pg_proc f join n on n.oid = f.pronamespace
		order by 1`, schema)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for n := range list {
		list[n] = strings.ReplaceAll(list[n], schema, "S")
		if strings.HasPrefix(list[n], "sequence ") { // its first number is its oid
			head, tail, _ := strings.Cut(list[n], "(")
			_, tail, _ = strings.Cut(tail, ",")
			list[n] = head + tail
		}
	}
	return list
}

func versions(t *testing.T) int {
	t.Helper()
	files, err := outbox.Migrations("x")
	require.NoError(t, err)
	list, err := fs.Glob(files, "*.sql")
	require.NoError(t, err)
	return len(list)
}

func TestMigrateConcurrently(t *testing.T) {
	t.Parallel()
	pool, schema := pgtest.Pool(t)
	errs := make(chan error)
	for range 8 {
		box := boxOn(t, pool, schema)
		go func() { errs <- box.Migrate(t.Context()) }()
	}
	for range 8 {
		require.NoError(t, <-errs)
	}
	require.NoError(t, boxOn(t, pool, schema).Validate(t.Context()))
	require.Equal(t, versions(t), count(t, pool, schema, "migration"))

	before := catalog(t, pool, schema)
	require.Greater(t, len(before), 50)
	require.NoError(t, boxOn(t, pool, schema).Migrate(t.Context()))
	require.Equal(t, before, catalog(t, pool, schema))
	require.Equal(t, versions(t), count(t, pool, schema, "migration"))
}

// The files, run by hand by another tool, come to the same as Migrate.
func TestMigrationsByHand(t *testing.T) {
	t.Parallel()
	_, pool, schema := newBox(t)
	other, byHand := pgtest.Pool(t)
	files, err := outbox.Migrations(byHand)
	require.NoError(t, err)
	names, err := fs.Glob(files, "*")
	require.NoError(t, err)
	box := boxOn(t, other, byHand)
	for _, name := range names {
		require.Regexp(t, `^\d{4}_[a-z_]+\.sql$`, name)
		require.ErrorIs(t, box.Validate(t.Context()), outbox.ErrNotMigrated)
		text, err := fs.ReadFile(files, name)
		require.NoError(t, err)
		require.NotContains(t, string(text), "{schema}")
		require.NoError(t, pgx.BeginFunc(t.Context(), other, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), string(text))
			return err
		}))
	}
	require.NoError(t, box.Validate(t.Context()))
	want := catalog(t, pool, schema)
	require.Equal(t, want, catalog(t, other, byHand))
	require.NoError(t, box.Migrate(t.Context()), "and Migrate agrees that it is done")
	require.Equal(t, want, catalog(t, other, byHand))
}

// A migration and its version row are one transaction: whatever ends it in the
// middle leaves what was there before.
func TestMigrateHalfway(t *testing.T) {
	t.Parallel()
	drop := func(c net.Conn, _ []byte) (int, error) {
		return 0, errors.Join(c.Close(), net.ErrClosed)
	}
	t.Run("the connection breaks before the commit", func(t *testing.T) {
		t.Parallel()
		pool, schema := pgtest.Pool(t)
		box := boxOn(t, bend(t, pool, "commit\x00", drop), schema)
		require.ErrorIs(t, box.Migrate(t.Context()), net.ErrClosed)
		require.Empty(t, catalog(t, pool, schema))
		require.ErrorIs(t, box.Validate(t.Context()), outbox.ErrNotMigrated)
		require.NoError(t, box.Migrate(t.Context()))
		require.NoError(t, box.Validate(t.Context()))
	})
	t.Run("the commit's answer is lost", func(t *testing.T) {
		t.Parallel()
		pool, schema := pgtest.Pool(t)
		box := boxOn(t, bend(t, pool, "commit\x00", func(c net.Conn, b []byte) (int, error) {
			defer func() { _ = c.Close() }()
			_, err := c.Write(b)
			_, _ = c.Read(make([]byte, 1))
			return 0, errors.Join(err, net.ErrClosed)
		}), schema)
		require.ErrorIs(t, box.Migrate(t.Context()), net.ErrClosed)
		require.Equal(t, 1, count(t, pool, schema, "migration"))
		require.NoError(t, box.Migrate(t.Context()))
		require.NoError(t, box.Validate(t.Context()))
	})
	t.Run("the schema is not left behind", func(t *testing.T) {
		t.Parallel()
		pool, _ := pgtest.Pool(t)
		const schema = "never_there"
		box := boxOn(t, bend(t, pool, "commit\x00", drop), schema)
		require.ErrorIs(t, box.Migrate(t.Context()), net.ErrClosed)
		require.False(t, ask[bool](t, pool, "select to_regnamespace($1) is not null", schema))
	})
	t.Run("a statement fails", func(t *testing.T) {
		t.Parallel()
		pool, schema := pgtest.Pool(t)
		_, err := pool.Exec(t.Context(), "create view "+schema+".status as select 1 as mine") // in the way of the last object
		require.NoError(t, err)
		before := catalog(t, pool, schema)
		box := boxOn(t, pool, schema)
		var pe *pgconn.PgError
		err = box.Migrate(t.Context())
		require.ErrorAs(t, err, &pe)
		require.Equal(t, "42P07", pe.Code)
		require.ErrorContains(t, err, "0001_base.sql")
		require.Equal(t, before, catalog(t, pool, schema))
		_, err = pool.Exec(t.Context(), "drop view "+schema+".status")
		require.NoError(t, err)
		require.NoError(t, box.Migrate(t.Context()))
	})
	t.Run("a migration is missing before this one", func(t *testing.T) {
		t.Parallel()
		box, pool, schema := newBox(t)
		_, err := pool.Exec(t.Context(), "delete from "+schema+".migration")
		require.NoError(t, err)
		require.Error(t, box.Migrate(t.Context()), "nothing is created twice over")
		require.ErrorIs(t, box.Validate(t.Context()), outbox.ErrNotMigrated)
	})
}

// While another session migrates, Migrate waits for it, 3 seconds at a time.
func TestMigrateWaitsForAnother(t *testing.T) {
	t.Parallel()
	pool, schema := pgtest.Pool(t)
	held, gate := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(release)
	slow := boxOn(t, bend(t, pool, "commit\x00", func(c net.Conn, b []byte) (int, error) {
		close(held)
		<-gate
		defer func() { _ = c.Close() }()
		_, err := c.Write(b)
		_, _ = c.Read(make([]byte, 1))
		return 0, errors.Join(err, net.ErrClosed) // its answer is lost, too
	}), schema)
	first := make(chan error, 1)
	go func() { first <- slow.Migrate(t.Context()) }()
	<-held

	cfg := pool.Config()
	cfg.ConnConfig.RuntimeParams["application_name"] = schema
	waiting, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(waiting.Close)
	begun := func() string { // of the transaction that waits
		return ask[string](t, pool, "select coalesce(max(xact_start)::text, '') from pg_stat_activity where application_name = $1 and wait_event = 'advisory'", schema)
	}
	box := boxOn(t, waiting, schema)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- box.Migrate(ctx) }()
	require.Eventually(t, func() bool { return begun() != "" }, 20*time.Second, 5*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Empty(t, catalog(t, pool, schema))

	go func() { done <- box.Migrate(t.Context()) }()
	require.Eventually(t, func() bool { return begun() != "" }, 20*time.Second, 5*time.Millisecond)
	one := begun()
	require.Eventually(t, func() bool { two := begun(); return two != "" && two != one }, 20*time.Second, 10*time.Millisecond, "it has given up once and waits anew")
	release()
	require.ErrorIs(t, <-first, net.ErrClosed)
	require.NoError(t, <-done)
	require.Equal(t, versions(t), count(t, pool, schema, "migration"))
}

func TestNotMigrated(t *testing.T) {
	t.Parallel()
	pool, schema := pgtest.Pool(t)
	for _, name := range []string{schema, "no_such_schema"} {
		box := boxOn(t, pool, name)
		require.ErrorIs(t, box.Validate(t.Context()), outbox.ErrNotMigrated)
		_, err := box.History(t.Context(), dispatch.NewKey())
		require.ErrorIs(t, err, outbox.ErrNotMigrated)
		for _, enqueue := range []func(tx pgx.Tx) error{
			func(tx pgx.Tx) error { _, err := box.Enqueue(t.Context(), tx, sms("hello")); return err },
			func(tx pgx.Tx) error {
				_, err := box.EnqueueMany(t.Context(), tx, []dispatch.Intent{sms("hello")})
				return err
			},
		} {
			err := box.InTx(t.Context(), enqueue)
			require.ErrorIs(t, err, outbox.ErrNotMigrated)
			require.ErrorContains(t, err, "Box.Migrate")
		}
		w, err := outbox.NewWorker(box, outbox.WorkerConfig{Providers: []dispatch.Provider{&outboxtest.Provider{}}})
		require.NoError(t, err)
		require.ErrorIs(t, w.Run(t.Context()), outbox.ErrNotMigrated)
	}
}

// Migrations only add, so a schema of a newer release is fine for an older one.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	_, err := pool.Exec(t.Context(), "insert into "+schema+".migration (version) values (999)")
	require.NoError(t, err)
	require.NoError(t, box.Validate(t.Context()))
	require.NoError(t, box.Migrate(t.Context()))
	require.Equal(t, versions(t)+1, count(t, pool, schema, "migration"))
}

// A role that owns its schema needs no right to create one.
func TestMigrateWithoutTheRightToCreateSchemas(t *testing.T) {
	t.Parallel()
	super, schema := pgtest.Pool(t)
	pool, err := pgxpool.New(t.Context(), pgtest.Role(t, super))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	role := pool.Config().ConnConfig.User
	for _, sql := range []string{
		"alter schema " + schema + " owner to " + role,
		"revoke create on database " + pgx.Identifier{super.Config().ConnConfig.Database}.Sanitize() + " from " + role,
	} {
		require.EventuallyWithT(t, func(c *assert.CollectT) { // two at once are refused: "tuple concurrently updated"
			_, err := super.Exec(t.Context(), sql)
			assert.NoError(c, err)
		}, 20*time.Second, 5*time.Millisecond)
	}
	box := boxOn(t, pool, schema)
	require.NoError(t, box.Migrate(t.Context()))
	i := sms("hello")
	enqueue(t, box, i)
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{&outboxtest.Provider{}}})
	reaches(t, box, i.Key, dispatch.Sent)

	err = boxOn(t, pool, "not_allowed").Migrate(t.Context())
	var pe *pgconn.PgError
	require.ErrorAs(t, err, &pe)
	require.Equal(t, "42501", pe.Code)
}
