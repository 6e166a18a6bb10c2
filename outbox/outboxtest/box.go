package outboxtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/form"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// Box is a box for one test: the code under test gets the *outbox.Box in it.
// Whatever goes wrong in a method fails the test at once.
type Box struct {
	*outbox.Box
	// Schema is the name of its schema, which needs no quotes.
	Schema string

	tb   testing.TB
	pool *pgxpool.Pool
	seal outbox.Sealer
	// limit bounds Work: what isn't done by then waits for something that the
	// test doesn't give it.
	limit time.Duration
}

// New returns a box with the application's own configuration in a new schema
// of the pool's database, which goes away with the test, so that tests may run
// in parallel. cfg.Schema is ignored, and back-offs last a millisecond: no test
// waits for one. Pools and transactions of the application's own tables are
// the test's business.
func New(tb testing.TB, pool *pgxpool.Pool, cfg outbox.Config) *Box {
	tb.Helper()
	b := &Box{Schema: "dispatch_test_" + strings.ToLower(rand.Text()[:16]), tb: tb, pool: pool, seal: cfg.Seal, limit: 30 * time.Second}
	cfg.Schema = b.Schema
	routes := make([]dispatch.Route, len(cfg.Routes))
	for i, r := range cfg.Routes {
		r.Policy.Backoff = dispatch.Backoff{Base: time.Millisecond, Cap: time.Millisecond}
		routes[i] = r
	}
	cfg.Routes = routes
	var err error
	if b.Box, err = outbox.New(pool, cfg); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, done := context.WithTimeout(context.WithoutCancel(tb.Context()), 20*time.Second)
		defer done()
		if _, err := pool.Exec(ctx, "drop schema if exists "+b.Schema+" cascade"); err != nil {
			tb.Errorf("dropping the test's schema: %v", err)
		}
	})
	if err := b.Migrate(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return b
}

// Enqueued returns what a transaction has enqueued so far, oldest first, as it
// was frozen: with its route, and with a Deadline in place of ValidFor. It sees
// only the transaction's own messages, those of its savepoints too.
func (b *Box) Enqueued(tx pgx.Tx) (list []dispatch.Intent) {
	b.tb.Helper()
	rows, err := tx.Query(b.tb.Context(), strings.ReplaceAll(enqueuedSQL, "{schema}", b.Schema))
	if err == nil {
		defer rows.Close()
		list, err = b.read(rows)
		err = errors.Join(err, rows.Err())
	}
	if err != nil {
		b.tb.Fatal(err)
	}
	return list
}

// EnqueuedSQL is Enqueued for database/sql.
func (b *Box) EnqueuedSQL(tx *sql.Tx) (list []dispatch.Intent) {
	b.tb.Helper()
	rows, err := tx.QueryContext(b.tb.Context(), strings.ReplaceAll(enqueuedSQL, "{schema}", b.Schema))
	if err == nil {
		defer func() { _ = rows.Close() }()
		list, err = b.read(rows)
		err = errors.Join(err, rows.Err())
	}
	if err != nil {
		b.tb.Fatal(err)
	}
	return list
}

// enqueuedSQL tells the transaction's own rows by this: a row that is visible
// and whose transaction, or savepoint, is still in progress is nobody else's.
// xmin lacks its epoch: it is the one that lies nearest.
const enqueuedSQL = `with own as (
    select m.*, m.xmin::text::bigint as x, pg_current_xact_id()::text::bigint as now from {schema}.message m
)
select o.id::text, o.route, o.priority::bigint, coalesce(o.pinned, ''), o.notify::bigint,
    coalesce((extract(epoch from o.not_before) * 1000000)::bigint, 0), coalesce((extract(epoch from o.deadline) * 1000000)::bigint, 0),
    coalesce(o.template, ''), coalesce(o.template_revision, ''), coalesce(o.trace, ''), coalesce(o.metadata::text, ''),
    coalesce(o.linked::text, ''), coalesce(o.seal_key, ''), o.digest, o.content
from own o
where pg_xact_status((o.now - 2147483648 + (o.x - o.now + 2147483648 & 4294967295))::text::xid8) = 'in progress'
order by o.created_at, o.id`

func (b *Box) read(rows interface {
	Next() bool
	Scan(dest ...any) error
},
) (list []dispatch.Intent, err error) {
	for rows.Next() {
		i, err := b.scan(rows.Scan)
		if err != nil {
			return nil, err
		}
		list = append(list, i)
	}
	return list, nil
}

func (b *Box) scan(scan func(dest ...any) error) (i dispatch.Intent, err error) {
	var key, metadata, linked, sealKey string
	var notBefore, deadline int64
	var digest, content []byte
	if err := scan(&key, &i.Route, &i.Priority, &i.Provider, &i.Notify, &notBefore, &deadline, &i.Template.Name, &i.Template.Revision,
		&i.TraceParent, &metadata, &linked, &sealKey, &digest, &content); err != nil {
		return i, err
	}
	i.NotBefore, i.Deadline = instant(notBefore), instant(deadline)
	if i.Key, err = dispatch.ParseKey(key); err != nil {
		return i, err
	}
	if linked != "" {
		if i.Linked, err = dispatch.ParseKey(linked); err != nil {
			return i, err
		}
	}
	if metadata != "" {
		if err := json.Unmarshal([]byte(metadata), &i.Metadata); err != nil {
			return i, err
		}
	}
	if sealKey != "" {
		if content, err = b.seal.Open(sealKey, content, form.Binding(form.Sealed, i.Key, digest)); err != nil {
			return i, err
		}
	}
	i.Content, err = form.Decode(content)
	return i, err
}

func instant(micro int64) time.Time {
	if micro == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micro).UTC()
}
