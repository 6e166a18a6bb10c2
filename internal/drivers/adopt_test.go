package drivers

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

func boxOn(t *testing.T, pool *pgxpool.Pool, schema string) *outbox.Box {
	t.Helper()
	box, err := outbox.New(pool, outbox.Config{Schema: schema, Routes: []dispatch.Route{{Name: "sms", Providers: []string{"test"}}}})
	require.NoError(t, err)
	return box
}

// What a migration tool has applied is what Box.Migrate would have: the box
// takes it as migrated, and a second run has nothing to do. The schema is made
// beforehand, and has a name that needs its quotes. The tools hold locks of
// their session: none goes through a pooler.
func TestMigrationTools(t *testing.T) {
	for name, up := range map[string]func(ctx context.Context, pool *pgxpool.Pool, schema string) error{
		"goose": func(ctx context.Context, _ *pgxpool.Pool, schema string) error {
			db, err := sql.Open("pgx", pgtest.DirectURL(t))
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Close()) }()
			return withGoose(ctx, db, schema)
		},
		"goose over pq": func(ctx context.Context, _ *pgxpool.Pool, schema string) error {
			db, err := sql.Open("postgres", pgtest.DirectURL(t)+"&sslmode=disable")
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Close()) }()
			return withGoose(ctx, db, schema)
		},
		"tern": func(ctx context.Context, pool *pgxpool.Pool, schema string) error {
			conn, err := pgx.ConnectConfig(ctx, pgtest.Direct(t, pool.Config().ConnConfig.Copy()))
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close(context.WithoutCancel(ctx))) }()
			return withTern(ctx, conn, schema)
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool, base := pgtest.Pool(t)
			schema := base + " it's"
			quoted := pgx.Identifier{schema}.Sanitize()
			_, err := pool.Exec(t.Context(), "create schema "+quoted+"; drop table if exists public.dispatch_goose, public.dispatch_tern")
			require.NoError(t, err)
			t.Cleanup(func() {
				_, err := pool.Exec(context.WithoutCancel(t.Context()), "drop schema "+quoted+" cascade; drop table if exists public.dispatch_goose, public.dispatch_tern")
				require.NoError(t, err)
			})
			box := boxOn(t, pool, schema)
			require.ErrorIs(t, box.Validate(t.Context()), outbox.ErrNotMigrated)
			require.NoError(t, up(t.Context(), pool, schema))
			require.NoError(t, box.Validate(t.Context()))
			require.NoError(t, up(t.Context(), pool, schema))
			require.NoError(t, box.Migrate(t.Context()))
			i := sms("hello")
			require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
				_, err := box.Enqueue(t.Context(), tx, i)
				return err
			}))
			h, err := box.History(t.Context(), i.Key)
			require.NoError(t, err)
			require.Equal(t, dispatch.Pending, h.State)
		})
	}
}

// GORM's transaction carries the message: both are there, or neither, and a
// second try of the same order is the same message.
func TestGORM(t *testing.T) {
	pool, schema := pgtest.Pool(t)
	url := pgtest.URL(t)
	db, err := gorm.Open(postgres.Open(url), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	closer, err := db.DB()
	require.NoError(t, err)
	defer func() { require.NoError(t, closer.Close()) }()
	db = db.Table(schema + ".orders").Session(&gorm.Session{})
	require.NoError(t, db.AutoMigrate(&order{}))
	box := outboxtest.New(t, pool, outbox.Config{Routes: []dispatch.Route{{Name: "sms", Providers: []string{"test"}}}})

	o := order{ID: "7", Phone: "+15555550123"}
	require.NoError(t, placeOrder(t.Context(), db, box.Box, o))
	require.ErrorIs(t, db.Transaction(func(tx *gorm.DB) error {
		return errors.Join(placeOrder(t.Context(), tx, box.Box, order{ID: "8", Phone: "+15555550123"}), errUndone)
	}), errUndone)
	require.Error(t, placeOrder(t.Context(), db, box.Box, order{ID: "9", Phone: "no number"}), "the order goes back with its message")

	var orders int64
	require.NoError(t, db.Count(&orders).Error)
	require.EqualValues(t, 1, orders)
	vendor := &outboxtest.Provider{}
	box.Work(outbox.WorkerConfig{Providers: []dispatch.Provider{vendor}})
	require.Len(t, vendor.Accepted(), 1)
	require.Equal(t, dispatch.SMS{To: "+15555550123", Body: "We have your order 7"}, vendor.Accepted()[0].Content)
}

var errUndone = errors.New("undone")
