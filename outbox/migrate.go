package outbox

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"strings"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns the numbered migrations for a schema, as files of plain
// SQL for a migration tool of the application's. Each sets its own row in the
// schema's migration table, so that Box.Migrate and the tool agree, and is
// meant to run in one transaction. The first expects that the schema exists.
func Migrations(schema string) (fs.FS, error) {
	quoted, err := quoteSchema(schema)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	out := fstest.MapFS{}
	for _, m := range migrations() {
		out[m.name] = &fstest.MapFile{Data: bytes.ReplaceAll(m.text, []byte("{schema}"), []byte(quoted)), Mode: 0o444}
	}
	return out, nil
}

type migration struct {
	version int
	name    string
	text    []byte
}

// migrations are the embedded files in their order; their names begin with
// four digits.
func migrations() []migration {
	entries, err := migrationFiles.ReadDir("migrations")
	if err != nil {
		panic("outbox: embedded migrations are missing: " + err.Error()) // a broken build
	}
	var out []migration
	for i, e := range entries {
		text, err := migrationFiles.ReadFile("migrations/" + e.Name())
		if err != nil {
			panic("outbox: embedded migration can't be read: " + err.Error())
		}
		out = append(out, migration{version: i + 1, name: e.Name(), text: text})
	}
	return out
}

// Migrate brings the schema up to this release, creating it where it is
// missing. Each migration and its version row are one transaction under an
// advisory lock, so that any number of processes may call it at once. A lock
// that another session holds is waited for 3 seconds at a time, five times.
func (b *Box) Migrate(ctx context.Context) error {
	if b.pool == nil {
		return ErrNoPool
	}
	for _, m := range migrations() {
		if err := b.migrate(ctx, m); err != nil {
			return fmt.Errorf("outbox: migration %s: %w", m.name, err)
		}
	}
	return nil
}

func (b *Box) migrate(ctx context.Context, m migration) error {
	for try := 1; ; try++ {
		err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return b.apply(ctx, tx, m) })
		var pe *pgconn.PgError
		if try >= 5 || !errors.As(err, &pe) || pe.Code != "55P03" { // lock_not_available
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func (b *Box) apply(ctx context.Context, tx pgx.Tx, m migration) error {
	h := fnv.New64a()
	_, _ = h.Write([]byte("dispatch migrations of " + b.name)) // never fails
	if _, err := tx.Exec(ctx, "set local lock_timeout = '3s'"); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1::bigint)", int64(h.Sum64()&(1<<63-1))); err != nil { // #nosec G115 -- masked
		return err
	}
	done, err := b.version(ctx, tx)
	if err != nil || done >= m.version {
		return err
	}
	if done != m.version-1 {
		return fmt.Errorf("schema is at version %d, want %d before this one", done, m.version-1)
	}
	if m.version == 1 {
		var there bool
		if err := tx.QueryRow(ctx, "select to_regnamespace($1::text) is not null", b.schema).Scan(&there); err != nil {
			return err
		}
		if !there { // a role may own a schema without the right to create one
			if _, err := tx.Exec(ctx, strings.ReplaceAll("create schema {schema}", "{schema}", b.schema)); err != nil {
				return err
			}
		}
	}
	// Several statements need the simple protocol, which takes no arguments.
	text := strings.ReplaceAll(string(m.text), "{schema}", b.schema)
	_, err = tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
	return err
}

// version is the newest migration that was applied, 0 for none.
func (b *Box) version(ctx context.Context, tx pgx.Tx) (int, error) {
	var there bool
	if err := tx.QueryRow(ctx, "select to_regclass($1::text) is not null", b.schema+".migration").Scan(&there); err != nil || !there {
		return 0, err
	}
	var v int64
	err := tx.QueryRow(ctx, strings.ReplaceAll("select coalesce(max(version), 0)::bigint from {schema}.migration", "{schema}", b.schema)).Scan(&v)
	return int(v), err
}

// Validate checks that the schema has every migration of this release. A newer
// schema is fine: migrations only add. The error wraps ErrNotMigrated.
func (b *Box) Validate(ctx context.Context) error {
	if b.pool == nil {
		return ErrNoPool
	}
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		v, err := b.version(ctx, tx)
		if err != nil {
			return err
		}
		if want := len(migrations()); v < want {
			return fmt.Errorf("%w: schema %s is at version %d, this release needs %d: call Box.Migrate", ErrNotMigrated, b.schema, v, want)
		}
		return nil
	})
}
