package drivers

import (
	"context"
	"database/sql"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/tern/v2/migrate"
	"github.com/pressly/goose/v3"

	"github.com/seed-8098fbb7/dispatch/outbox"
)

// withGoose applies the outbox's migrations by goose, which keeps their
// versions in a table of their own, beside the application's.
func withGoose(ctx context.Context, db *sql.DB, schema string) error {
	files, err := outbox.Migrations(schema)
	if err != nil {
		return err
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return err
	}
	var list []*goose.Migration
	for n, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		up := func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, string(text)) // several statements, no arguments
			return err
		}
		list = append(list, goose.NewGoMigration(int64(n+1), &goose.GoFunc{RunTx: up}, nil))
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, nil, goose.WithGoMigrations(list...),
		goose.WithDisableGlobalRegistry(true), goose.WithTableName("public.dispatch_goose"))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

// withTern does the same by tern.
func withTern(ctx context.Context, conn *pgx.Conn, schema string) error {
	files, err := outbox.Migrations(schema)
	if err != nil {
		return err
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return err
	}
	migrator, err := migrate.NewMigrator(ctx, conn, "public.dispatch_tern")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		migrator.AppendMigration(name, string(text), "")
	}
	return migrator.Migrate(ctx)
}
