package outboxtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
)

// server is the throwaway server of the test program.
var server = sync.OnceValues(func() (*pgtest.Server, error) {
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	return pgtest.Start(ctx, pgtest.Options{Own: true, Installed: true})
})

// Postgres returns a pool on a throwaway server that is started once for all
// tests of a program and goes away with it. It uses the PostgreSQL programs of
// this machine, from PATH or where Debian, Red Hat and Homebrew put them, and
// installs nothing; without them the test fails and says so. It never looks at
// DATABASE_URL. An application that has a database for its tests uses that one.
func Postgres(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	s, err := server()
	if err != nil {
		tb.Fatal(err)
	}
	pool, err := pgxpool.New(context.WithoutCancel(tb.Context()), s.URL())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}
