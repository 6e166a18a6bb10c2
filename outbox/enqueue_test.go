package outbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

// ask returns the one value of a query.
func ask[T any](t *testing.T, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, sql string, args ...any,
) T {
	t.Helper()
	rows, err := db.Query(context.WithoutCancel(t.Context()), sql, args...)
	require.NoError(t, err)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(t, err, sql)
	return v
}

// stored returns every row that the outbox has of the keys, and how many, as
// text: what must not change is compared whole.
func stored(t *testing.T, pool *pgxpool.Pool, schema string, keys ...dispatch.Key) string {
	t.Helper()
	var all []string
	for _, table := range []string{"message", "queue", "parked", "history"} {
		for _, k := range keys {
			all = append(all, table+": "+ask[string](t, pool, "select coalesce(string_agg(r::text, '; ' order by r::text), '') from "+
				schema+"."+table+" r where id = $1", k.String()))
		}
	}
	return strings.Join(all, "\n")
}

// business makes the table that the caller's own change goes to, and returns
// how to add to it and how many it holds.
func business(t *testing.T, pool *pgxpool.Pool, schema string) (add func(tx pgx.Tx) error, rows func() int) {
	t.Helper()
	_, err := pool.Exec(t.Context(), "create table "+schema+".business (id uuid primary key default gen_random_uuid())")
	require.NoError(t, err)
	add = func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "insert into "+schema+".business default values")
		return err
	}
	return add, func() int { return ask[int](t, pool, "select count(*) from "+schema+".business") }
}

func begin(t *testing.T, pool *pgxpool.Pool, opts ...pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), append(opts, pgx.TxOptions{})[0])
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	return tx
}

// B121: whatever the transaction decides happens to the message too.
func TestEnqueueSharesTheTransactionsFate(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	add, rows := business(t, pool, schema)
	p := &outboxtest.Provider{}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	write := func(tx pgx.Tx, i dispatch.Intent) {
		require.NoError(t, add(tx))
		added, err := box.Enqueue(t.Context(), tx, i)
		require.NoError(t, err)
		require.True(t, added)
	}
	gone, saved, kept, late := sms("rolled back"), sms("savepoint rolled back"), sms("committed"), sms("committed late")

	tx := begin(t, pool)
	write(tx, gone)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Zero(t, rows())

	tx = begin(t, pool)
	write(tx, kept)
	savepoint, err := tx.Begin(t.Context())
	require.NoError(t, err)
	write(savepoint, saved)
	require.NoError(t, savepoint.Rollback(t.Context()))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 1, rows())

	// Its commit is held back while the worker is awake and sends another.
	tx = begin(t, pool)
	write(tx, late)
	box.Wake()
	reaches(t, box, kept.Key, dispatch.Sent)
	other := sms("enqueued later, committed earlier")
	enqueue(t, box, other)
	reaches(t, box, other.Key, dispatch.Sent)
	require.Zero(t, p.Deliveries(late.Key))
	require.NoError(t, tx.Commit(t.Context()))
	reaches(t, box, late.Key, dispatch.Sent) // B122: though younger rows went before it

	for _, i := range []dispatch.Intent{gone, saved} {
		require.Zero(t, p.Deliveries(i.Key))
		_, err := box.History(t.Context(), i.Key)
		require.ErrorIs(t, err, outbox.ErrNotFound)
	}
	require.Len(t, p.Sends(), 3)
}

func TestInTx(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	add, rows := business(t, pool, schema)
	i := sms("hello")
	err := box.InTx(t.Context(), func(tx pgx.Tx) error {
		require.NoError(t, add(tx))
		_, err := box.Enqueue(t.Context(), tx, i)
		require.NoError(t, err)
		return context.Canceled
	})
	require.ErrorIs(t, err, context.Canceled, "the caller's own error comes back")
	require.Zero(t, rows())
	require.Equal(t, "message: \nqueue: \nparked: \nhistory: ", stored(t, pool, schema, i.Key))
}

// The same key with the same message is the same intent, whatever else was
// said with it: what was said first stands.
func TestRepeatedEnqueueChangesNothing(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	p := &outboxtest.Provider{}
	p.Respond = func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		switch e.Content.(dispatch.SMS).Body {
		case "refused":
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.Answered, Status: 400, OwnBody: true})
		case "held":
			return dispatch.Accepted{}, context.DeadlineExceeded
		}
		return accept(), nil
	}
	waiting, sent, refused, held := sms("waiting"), sms("sent"), sms("refused"), sms("held")
	waiting.NotBefore = time.Now().Add(time.Hour)
	enqueue(t, box, waiting, sent, refused, held)
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	reaches(t, box, sent.Key, dispatch.Sent)
	reaches(t, box, refused.Key, dispatch.Dead)
	reaches(t, box, held.Key, dispatch.Held)
	reaches(t, box, waiting.Key, dispatch.Pending)

	for _, i := range []dispatch.Intent{waiting, sent, refused, held} { // B065
		before := stored(t, pool, schema, i.Key)
		again := i
		again.NotBefore, again.ValidFor, again.Priority = time.Time{}, time.Minute, dispatch.High
		again.OnUnknown.Action, again.Metadata = dispatch.UnknownResend, map[string]string{"a": "b"}
		again.Content = dispatch.SMS{To: "+1 (555) 555-0123", Body: i.Content.(dispatch.SMS).Body} // B094: one number, two spellings
		for _, repeat := range []dispatch.Intent{i, again} {
			require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
				for range 2 { // and twice in one transaction
					added, err := box.Enqueue(t.Context(), tx, repeat)
					require.NoError(t, err)
					require.False(t, added)
					many, err := box.EnqueueMany(t.Context(), tx, []dispatch.Intent{repeat, repeat})
					require.NoError(t, err)
					require.Equal(t, []bool{false, false}, many)
				}
				return nil
			}))
		}
		require.Equal(t, before, stored(t, pool, schema, i.Key))
	}
	// Another message that goes through shows that the worker has looked since.
	last := sms("last")
	enqueue(t, box, last)
	reaches(t, box, last.Key, dispatch.Sent)
	for _, i := range []dispatch.Intent{sent, refused, held} {
		require.Len(t, p.SendsOf(i.Key), 1)
	}
}

// A key that was enqueued in this very transaction, by its savepoints too, is
// known as what it is.
func TestEnqueueTwiceInOneTransaction(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	i := sms("hello")
	tx := begin(t, pool)
	try := func(tx pgx.Tx, want bool) {
		added, err := box.Enqueue(t.Context(), tx, i)
		require.NoError(t, err)
		require.Equal(t, want, added)
	}
	savepoint := func() pgx.Tx {
		sp, err := tx.Begin(t.Context())
		require.NoError(t, err)
		return sp
	}
	sp := savepoint()
	try(sp, true)
	try(sp, false)
	require.NoError(t, sp.Rollback(t.Context()))
	try(tx, true)
	sp = savepoint()
	try(sp, false)
	require.NoError(t, sp.Rollback(t.Context()))
	sp = savepoint()
	try(sp, false)
	require.NoError(t, sp.Commit(t.Context()))
	try(tx, false)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 1, count(t, pool, schema, "message"))
	require.Equal(t, 1, count(t, pool, schema, "queue"))
}
