package outbox_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
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

func twoRoutes() []dispatch.Route {
	a, b := route("test", "other"), route("test")
	a.Senders = dispatch.Senders{
		"otp":  {"test": "+15555550100", "other": "Shop"},
		"bulk": {"test": "+15555550101"},
	}
	a.Priority = dispatch.High
	b.Name = "news"
	return []dispatch.Route{a, b}
}

// One key, one message: content, recipient, sender and route.
func TestConflictLeavesTheTransactionUsable(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t, twoRoutes()...)
	add, rows := business(t, pool, schema)
	first := dispatch.Intent{Key: dispatch.NewKey(), Route: "sms", Content: dispatch.SMS{To: "+15555550123", Sender: "otp", Body: "secret 482901"}}
	enqueue(t, box, first)
	before := stored(t, pool, schema, first.Key)
	for n, other := range []dispatch.Intent{
		{Route: "sms", Content: dispatch.SMS{To: "+15555550123", Sender: "otp", Body: "secret 482902"}},
		{Route: "sms", Content: dispatch.SMS{To: "+15555550124", Sender: "otp", Body: "secret 482901"}},
		{Route: "sms", Content: dispatch.SMS{To: "+15555550123", Sender: "bulk", Body: "secret 482901"}},
		{Route: "sms", Content: dispatch.SMS{To: "+15555550123", Body: "secret 482901"}},
		{Route: "news", Content: dispatch.SMS{To: "+15555550123", Body: "secret 482901"}},
		{Route: "sms", Content: dispatch.Email{Sender: "otp", To: []dispatch.Address{{Email: "a@example.com"}}, Text: "secret 482901"}},
	} {
		other.Key = first.Key
		require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
			added, err := box.Enqueue(t.Context(), tx, other)
			require.False(t, added)
			var conflict *dispatch.ConflictError
			require.ErrorAs(t, err, &conflict)
			require.Equal(t, first.Key, conflict.Key)
			require.NotContains(t, err.Error(), "4829")
			require.NotContains(t, err.Error(), "555")
			return add(tx)
		}))
		require.Equal(t, n+1, rows())
		require.Equal(t, before, stored(t, pool, schema, first.Key))
	}
}

// blocked waits until the backend of tx waits for another's lock.
func blocked(t *testing.T, pool *pgxpool.Pool, pid uint32) {
	t.Helper()
	require.Eventually(t, func() bool {
		return ask[bool](t, pool, "select coalesce(wait_event_type = 'Lock', false) from pg_stat_activity where pid = $1", pid)
	}, 20*time.Second, 2*time.Millisecond)
}

func TestTwinOfAConcurrentTransaction(t *testing.T) { //nolint:tparallel // each part counts what those before it left
	t.Parallel()
	box, pool, schema := newBox(t)
	add, rows := business(t, pool, schema)
	same := func(i dispatch.Intent) dispatch.Intent { return i }
	changed := func(i dispatch.Intent) dispatch.Intent {
		i.Content = dispatch.SMS{To: "+15555550123", Body: "another"}
		return i
	}
	expected := 0
	for name, c := range map[string]struct {
		twin     func(dispatch.Intent) dispatch.Intent
		commit   bool
		iso      pgx.TxIsoLevel
		added    bool
		conflict bool
		code     string
	}{
		"waits and is there already":       {twin: same, commit: true},
		"waits and conflicts":              {twin: changed, commit: true, conflict: true},
		"waits and is new":                 {twin: same, added: true},
		"waits and is new, though changed": {twin: changed, added: true},
		"repeatable read":                  {twin: same, commit: true, iso: pgx.RepeatableRead, code: "40001"},
		"serializable":                     {twin: same, commit: true, iso: pgx.Serializable, code: "40001"},
		"repeatable read, rolled back":     {twin: same, iso: pgx.RepeatableRead, added: true},
	} {
		t.Run(name, func(t *testing.T) {
			i := sms("hello")
			a, b := begin(t, pool), begin(t, pool, pgx.TxOptions{IsoLevel: c.iso})
			_ = ask[int](t, b, "select 1") // its snapshot, where it has one, is older than A's commit
			_, err := box.Enqueue(t.Context(), a, i)
			require.NoError(t, err)
			type result struct {
				added bool
				err   error
			}
			done := make(chan result, 1)
			go func() {
				added, err := box.Enqueue(t.Context(), b, c.twin(i))
				done <- result{added, err}
			}()
			blocked(t, pool, b.Conn().PgConn().PID())
			if c.commit {
				require.NoError(t, a.Commit(t.Context()))
			} else {
				require.NoError(t, a.Rollback(t.Context()))
			}
			r := <-done
			require.Equal(t, c.added, r.added)
			switch {
			case c.code != "": // passed on: only the caller can repeat its transaction
				var pe *pgconn.PgError
				require.ErrorAs(t, r.err, &pe)
				require.Equal(t, c.code, pe.Code)
				require.NoError(t, b.Rollback(t.Context()))
			case c.conflict:
				var conflict *dispatch.ConflictError
				require.ErrorAs(t, r.err, &conflict)
				require.NoError(t, add(b))
				require.NoError(t, b.Commit(t.Context()))
				expected++
			default:
				require.NoError(t, r.err)
				require.NoError(t, add(b))
				require.NoError(t, b.Commit(t.Context()))
				expected++
			}
			require.Equal(t, expected, rows())
			require.Equal(t, 1, ask[int](t, pool, "select count(*) from "+schema+".message where id = $1", i.Key.String()))
			require.Equal(t, 1, ask[int](t, pool, "select count(*) from "+schema+".queue where id = $1", i.Key.String()))
		})
	}
}

// B112: the enqueue doesn't hide that the transaction has failed before it.
func TestEnqueueInAFailedTransaction(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	tx := begin(t, pool)
	_, err := tx.Exec(t.Context(), "select 1/0")
	require.Error(t, err)
	var pe *pgconn.PgError
	_, err = box.Enqueue(t.Context(), tx, sms("hello"))
	require.ErrorAs(t, err, &pe)
	require.Equal(t, "25P02", pe.Code)
	_, err = box.EnqueueMany(t.Context(), tx, []dispatch.Intent{sms("hello")})
	require.ErrorAs(t, err, &pe)
	require.Equal(t, "25P02", pe.Code)
	require.ErrorIs(t, tx.Commit(t.Context()), pgx.ErrTxCommitRollback)
	require.Zero(t, count(t, pool, schema, "message"))
}

// bent is a connection that gives the first request with this text to do: what
// pgx believes to have happened, and what has, part there.
type bent struct {
	net.Conn
	at   string
	once *atomic.Bool
	do   func(c net.Conn, b []byte) (int, error)
	lost atomic.Bool // from here on the connection is do's
}

func (c *bent) Write(b []byte) (int, error) {
	switch {
	case c.lost.Load():
		return 0, net.ErrClosed
	case bytes.Contains(b, []byte(c.at)) && c.once.CompareAndSwap(false, true):
		c.lost.Store(true)
		return c.do(c.Conn, b)
	}
	return c.Conn.Write(b)
}

func (c *bent) Read(b []byte) (int, error) {
	if c.lost.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Read(b)
}

func (c *bent) Close() error {
	if c.lost.Load() {
		return nil
	}
	return c.Conn.Close()
}

// bend returns a pool like the given one whose first request with that text
// goes to do. Its statements travel as text.
func bend(t *testing.T, pool *pgxpool.Pool, at string, do func(c net.Conn, b []byte) (int, error)) *pgxpool.Pool {
	t.Helper()
	cfg := pool.Config()
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	dial, once := cfg.ConnConfig.DialFunc, new(atomic.Bool)
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &bent{Conn: c, at: at, once: once, do: do}, nil
	}
	other, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(other.Close)
	return other
}

// A transaction whose COMMIT got no answer is repeated with the same key,
// whatever became of it. B110: it is done while the repeat already waits.
// B111: it never arrived; that is an error to the caller, and nothing is
// repeated behind its back.
func TestTransactionRepeatedAfterALostConnection(t *testing.T) { //nolint:tparallel // as above
	t.Parallel()
	_, pool, schema := newBox(t)
	add, rows := business(t, pool, schema)
	for name, lands := range map[string]bool{"the commit lands late": true, "the commit never arrives": false} {
		t.Run(name, func(t *testing.T) {
			end := make(chan func(), 1)
			through := bend(t, pool, "commit\x00", func(c net.Conn, b []byte) (int, error) {
				late := bytes.Clone(b)
				end <- func() {
					if lands {
						_, _ = c.Write(late)
						_, _ = c.Read(make([]byte, 1)) // its answer
					}
					_ = c.Close()
				}
				return 0, net.ErrClosed
			})
			box, err := outbox.New(through, outbox.Config{Schema: schema, Routes: routes()})
			require.NoError(t, err)
			i, before := sms("hello"), rows()
			write := func(added *bool, pid chan<- uint32) func(tx pgx.Tx) error {
				return func(tx pgx.Tx) (err error) {
					pid <- tx.Conn().PgConn().PID()
					if err := add(tx); err != nil {
						return err
					}
					*added, err = box.Enqueue(t.Context(), tx, i)
					return err
				}
			}
			var added bool
			pid := make(chan uint32, 2)
			require.ErrorIs(t, box.InTx(t.Context(), write(&added, pid)), net.ErrClosed)
			<-pid
			require.Equal(t, before, rows())
			done := make(chan error, 1)
			go func() { done <- box.InTx(t.Context(), write(&added, pid)) }()
			blocked(t, pool, <-pid)
			(<-end)()
			require.NoError(t, <-done)
			require.Equal(t, !lands, added)
			require.Equal(t, 1, ask[int](t, pool, "select count(*) from "+schema+".message where id = $1", i.Key.String()))
			require.Equal(t, 1, ask[int](t, pool, "select count(*) from "+schema+".queue where id = $1", i.Key.String()))
		})
	}
}

func TestEnqueueMany(t *testing.T) { //nolint:tparallel // as above
	t.Parallel()
	box, pool, schema := newBox(t)
	add, rows := business(t, pool, schema)
	try := func(t *testing.T, intents ...dispatch.Intent) (added []bool, err error) {
		t.Helper()
		require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
			added, err = box.EnqueueMany(t.Context(), tx, intents)
			return add(tx) // usable, whatever became of it
		}))
		return added, err
	}
	old := sms("old")
	enqueue(t, box, old)
	before := stored(t, pool, schema, old.Key)
	state := func() [3]int {
		return [3]int{count(t, pool, schema, "message"), count(t, pool, schema, "queue"), rows()}
	}

	t.Run("tells for each whether it is new", func(t *testing.T) {
		a, b := sms("a"), sms("b")
		added, err := try(t, b, old, a, b, a, old)
		require.NoError(t, err)
		require.Equal(t, []bool{true, false, true, false, false, false}, added)
		require.Equal(t, [3]int{3, 3, 1}, state())
	})
	t.Run("nothing", func(t *testing.T) {
		added, err := try(t)
		require.NoError(t, err)
		require.Empty(t, added)
	})
	t.Run("one bad intent refuses them all", func(t *testing.T) {
		bad := sms("x")
		bad.Content = dispatch.SMS{To: "5555550123", Body: "x"}
		_, err := try(t, sms("a"), sms("b"), bad)
		var field *dispatch.FieldError
		require.ErrorAs(t, err, &field)
		require.Contains(t, err.Error(), "intent 2")
		require.Equal(t, [3]int{3, 3, 3}, state())
	})
	t.Run("a conflict inside the call refuses them all", func(t *testing.T) {
		a := sms("a")
		twin := a
		twin.Content = dispatch.SMS{To: "+15555550123", Body: "b"}
		_, err := try(t, sms("x"), a, twin)
		var conflict *dispatch.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Contains(t, err.Error(), "intent 2")
		require.Equal(t, a.Key, conflict.Key)
		require.Equal(t, [3]int{3, 3, 4}, state())
	})
	t.Run("a conflict with what is there refuses them all", func(t *testing.T) {
		twin := old
		twin.Content = dispatch.SMS{To: "+15555550123", Body: "b"}
		earlier, a := sms("enqueued before in the same transaction"), sms("a")
		require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
			_, err := box.Enqueue(t.Context(), tx, earlier)
			require.NoError(t, err)
			added, err := box.EnqueueMany(t.Context(), tx, []dispatch.Intent{a, earlier, twin, sms("b")})
			require.Nil(t, added)
			var conflict *dispatch.ConflictError
			require.ErrorAs(t, err, &conflict)
			require.Contains(t, err.Error(), "intent 2")
			require.Equal(t, old.Key, conflict.Key)
			added, err = box.EnqueueMany(t.Context(), tx, []dispatch.Intent{a})
			require.NoError(t, err)
			require.Equal(t, []bool{true}, added, "it was not left behind")
			return add(tx)
		}))
		require.Equal(t, [3]int{5, 5, 5}, state())
	})
	require.Equal(t, before, stored(t, pool, schema, old.Key))
}

func TestEnqueueManyTakesTenThousand(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	intents := many(outbox.MaxMany, func(n int, i *dispatch.Intent) {
		i.Content = dispatch.SMS{To: "+15555550123", Body: fmt.Sprint("number ", n)}
		if n%2 == 0 {
			i.Metadata = map[string]string{"n": fmt.Sprint(n)}
		}
	})
	rand := slices.Clone(intents)
	slices.SortFunc(rand, func(a, b dispatch.Intent) int { return strings.Compare(a.Key.String()[30:], b.Key.String()[30:]) })
	for n, want := range []bool{true, false} {
		require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
			added, err := box.EnqueueMany(t.Context(), tx, rand)
			require.NoError(t, err)
			require.Len(t, added, outbox.MaxMany)
			require.NotContains(t, added, !want, n)
			return nil
		}))
	}
	require.Equal(t, outbox.MaxMany, count(t, pool, schema, "message"))
	require.Equal(t, outbox.MaxMany, count(t, pool, schema, "queue"))
	require.Equal(t, outbox.MaxMany/2, ask[int](t, pool, "select count(*) from "+schema+".message where metadata is not null and convert_from(content, 'sql_ascii') like '%number ' || (metadata ->> 'n')"))
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := box.EnqueueMany(t.Context(), tx, append(rand, sms("one too many")))
		require.ErrorContains(t, err, "at most 10000")
		return nil
	}))
}

// B114: two producers with the same keys in opposite orders.
func TestEnqueueManyInOppositeOrders(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	const rounds, size = 10, 2000
	for range rounds {
		up := many(size, nil)
		down := slices.Clone(up)
		slices.Reverse(down)
		gate := make(chan struct{})
		type result struct {
			added []bool
			err   error
		}
		results := make(chan result, 2)
		for _, list := range [][]dispatch.Intent{up, down} {
			go func() {
				var r result
				r.err = box.InTx(t.Context(), func(tx pgx.Tx) (err error) {
					<-gate
					r.added, err = box.EnqueueMany(t.Context(), tx, list)
					return err
				})
				results <- r
			}()
		}
		close(gate)
		fresh := 0
		for range 2 {
			r := <-results
			require.NoError(t, r.err) // no 40P01
			for _, a := range r.added {
				if a {
					fresh++
				}
			}
		}
		require.Equal(t, size, fresh)
	}
	require.Equal(t, rounds*size, count(t, pool, schema, "queue"))
}

func TestQueueInABatch(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	_, rows := business(t, pool, schema)
	insert := "insert into " + schema + ".business default values"
	first, second := sms("first"), sms("second")

	var batch pgx.Batch
	batch.Queue(insert)
	require.NoError(t, box.Queue(&batch, first))
	require.NoError(t, box.Queue(&batch, second))
	require.NoError(t, box.Queue(&batch, first), "a repeat is no error")
	bad := sms("x")
	bad.Key = dispatch.Key{}
	var field *dispatch.FieldError
	require.ErrorAs(t, box.Queue(&batch, bad), &field)
	require.Equal(t, 4, batch.Len(), "a bad intent adds nothing")
	batch.Queue(insert)
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error { return tx.SendBatch(t.Context(), &batch).Close() }))
	require.Equal(t, 2, rows())
	require.Equal(t, 2, count(t, pool, schema, "queue"))

	var clash pgx.Batch
	twin := first
	twin.Content = dispatch.SMS{To: "+15555550123", Body: "changed"}
	clash.Queue("begin")
	clash.Queue(insert)
	require.NoError(t, box.Queue(&clash, sms("beside it")))
	require.NoError(t, box.Queue(&clash, twin))
	clash.Queue("commit") // in the same round trip: nobody could stop it
	err := pool.SendBatch(t.Context(), &clash).Close()
	var conflict *dispatch.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, first.Key, conflict.Key)
	require.Equal(t, 2, rows(), "the conflict ended the transaction on the server")

	p := &outboxtest.Provider{}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	for _, i := range []dispatch.Intent{first, second} {
		reaches(t, box, i.Key, dispatch.Sent)
		require.Equal(t, 1, p.Deliveries(i.Key))
	}
}

// B109: instants are the same in every session, and spans are no calendar
// days. The clock is the database's, at the moment of the enqueue.
func TestTimesOfAnIntent(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	spring := time.Date(2027, 3, 14, 2, 30, 0, 123456000, time.UTC) // the clocks of New York skip this
	autumn := time.Date(2026, 11, 1, 5, 30, 0, 0, time.UTC)         // and have this hour twice
	epoch := func(q pgx.Tx, key dispatch.Key, column, table string) *int64 {
		return ask[*int64](t, q, "select (extract(epoch from "+column+") * 1000000)::bigint from "+schema+"."+table+" where id = $1", key.String())
	}
	for _, zone := range []string{"UTC", "America/New_York", "Asia/Kathmandu"} {
		for name, c := range map[string]struct {
			set      func(i *dispatch.Intent)
			valid    time.Duration // 0 is never
			deadline time.Time
		}{
			"the policy's validity": {set: func(*dispatch.Intent) {}, valid: 4 * time.Hour},
			"ValidFor":              {set: func(i *dispatch.Intent) { i.ValidFor = 24 * time.Hour }, valid: 24 * time.Hour},
			"ValidFor a year":       {set: func(i *dispatch.Intent) { i.ValidFor = 366 * 24 * time.Hour }, valid: 366 * 24 * time.Hour},
			"Never":                 {set: func(i *dispatch.Intent) { i.ValidFor = dispatch.Never }},
			"Never and NotBefore":   {set: func(i *dispatch.Intent) { i.ValidFor, i.NotBefore = dispatch.Never, spring }},
			"Deadline":              {set: func(i *dispatch.Intent) { i.Deadline = spring.In(time.FixedZone("", 5*3600+45*60)) }, deadline: spring},
			"NotBefore and Deadline": {
				set:      func(i *dispatch.Intent) { i.NotBefore, i.Deadline = autumn.Local(), spring },
				deadline: spring,
			},
			"in the past": {
				set:      func(i *dispatch.Intent) { i.NotBefore, i.Deadline = spring.AddDate(-4, 0, 0), spring.AddDate(-3, 0, 0) },
				deadline: spring.AddDate(-3, 0, 0),
			},
		} {
			t.Run(zone+" "+name, func(t *testing.T) {
				t.Parallel()
				cfg := pool.Config().ConnConfig.Copy()
				cfg.RuntimeParams["timezone"] = zone
				conn, err := pgx.ConnectConfig(t.Context(), cfg)
				require.NoError(t, err)
				defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
				i, twin := sms("hello"), sms("hello")
				c.set(&i)
				c.set(&twin)
				require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
					began := ask[int64](t, tx, "select (extract(epoch from clock_timestamp()) * 1000000)::bigint")
					require.Greater(t, began, ask[int64](t, tx, "select (extract(epoch from now()) * 1000000)::bigint"))
					_, err := box.Enqueue(t.Context(), tx, i)
					require.NoError(t, err)
					_, err = box.EnqueueMany(t.Context(), tx, []dispatch.Intent{twin})
					require.NoError(t, err)
					done := ask[int64](t, tx, "select (extract(epoch from clock_timestamp()) * 1000000)::bigint")
					for _, k := range []dispatch.Key{i.Key, twin.Key} {
						created, due := epoch(tx, k, "created_at", "message"), epoch(tx, k, "due", "queue")
						require.Less(t, began, *created, "not the transaction's start")
						require.Less(t, *created, done)
						deadline := epoch(tx, k, "deadline", "message")
						require.Equal(t, deadline, epoch(tx, k, "deadline", "queue"))
						switch {
						case !c.deadline.IsZero():
							require.Equal(t, c.deadline.UnixMicro(), *deadline)
						case c.valid == 0:
							require.Nil(t, deadline)
						default:
							require.Equal(t, c.valid.Microseconds(), *deadline-*created)
						}
						notBefore := epoch(tx, k, "not_before", "message")
						if i.NotBefore.IsZero() {
							require.Nil(t, notBefore)
						} else {
							require.Equal(t, i.NotBefore.UnixMicro(), *notBefore)
						}
						switch {
						case name == "in the past":
							require.Equal(t, *deadline, *due, "it is due at its deadline, to be ended")
						case i.NotBefore.UnixMicro() > began:
							require.Equal(t, *notBefore, *due)
						default:
							require.GreaterOrEqual(t, *due, *created)
							require.Less(t, *due, done)
						}
					}
					return nil
				}))
			})
		}
	}
}

// Everything that an intent says is frozen with it.
func TestEverythingIsStored(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t, twoRoutes()...)
	linked := dispatch.NewKey()
	text := dispatch.Intent{
		Key: dispatch.NewKey(), Route: "sms", Content: dispatch.SMS{To: "+44 20 7946 0000", Sender: "otp", Body: "hällo \U0001f600"},
		Priority: dispatch.Low, Provider: "other", OnUnknown: dispatch.OnUnknown{Action: dispatch.UnknownFailover, After: time.Minute},
		Notify: dispatch.NotifySent | dispatch.NotifyHeld, Template: dispatch.Template{Name: "login", Revision: "r7"},
		Metadata:    map[string]string{"tenant": "7", `quote"`: "line\nbreak \\ 'x' \u2028", "empty": ""},
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Linked: linked,
	}
	mail := dispatch.Intent{Key: dispatch.NewKey(), Route: "sms", Content: dispatch.Email{
		To: []dispatch.Address{{Name: "Smith, John", Email: "a@example.com"}}, Subject: "Grüße", Text: "hi",
		Attachments: []dispatch.Attachment{{Name: "a.bin", Type: "application/octet-stream", Data: []byte{0, 1, 0xff, '\''}}},
	}}
	plain := dispatch.Intent{Key: dispatch.NewKey(), Route: "news", Content: dispatch.SMS{To: "+15555550123", Body: "hi"}}
	for _, enqueueAll := range []func(tx pgx.Tx, list ...dispatch.Intent) error{
		func(tx pgx.Tx, list ...dispatch.Intent) error {
			for _, i := range list {
				if _, err := box.Enqueue(t.Context(), tx, i); err != nil {
					return err
				}
			}
			return nil
		},
		func(tx pgx.Tx, list ...dispatch.Intent) error {
			_, err := box.EnqueueMany(t.Context(), tx, list)
			return err
		},
	} {
		tx := begin(t, pool)
		require.NoError(t, enqueueAll(tx, text, mail, plain))
		row := func(key dispatch.Key) map[string]any {
			rows, err := tx.Query(t.Context(), "select m.*, q.lane, q.state, q.fence, q.spent, q.budget as q_budget from "+schema+".message m join "+schema+".queue q using (id) where id = $1", key.String())
			require.NoError(t, err)
			r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToMap)
			require.NoError(t, err)
			require.Len(t, r["digest"], 32)
			require.NotEmpty(t, r["content"])
			require.EqualValues(t, 1, r["form"])
			require.EqualValues(t, 1, r["state"])
			require.EqualValues(t, 0, r["fence"])
			require.EqualValues(t, 0, r["spent"])
			require.EqualValues(t, 8, r["budget"])
			require.EqualValues(t, 8, r["q_budget"])
			for _, c := range []string{"id", "created_at", "deadline", "digest", "content", "form", "state", "fence", "spent", "budget", "q_budget"} {
				delete(r, c)
			}
			maps.DeleteFunc(r, func(_ string, v any) bool { return v == nil })
			return r
		}
		require.Equal(t, map[string]any{
			"channel": int16(1), "priority": int16(3), "on_unknown": int16(3), "on_unknown_after": int64(60_000_000), "notify": int16(5),
			"country": int16(44), "route": "sms", "recipient": "+442079460000", "sender": "otp",
			"senders": map[string]any{"test": "+15555550100", "other": "Shop"}, "pinned": "other", "template": "login",
			"template_revision": "r7", "trace": text.TraceParent, "linked": [16]byte(linked), "lane": "sms/3/other",
			"metadata": map[string]any{"tenant": "7", `quote"`: "line\nbreak \\ 'x' \u2028", "empty": ""},
		}, row(text.Key))
		require.Equal(t, map[string]any{
			"channel": int16(2), "priority": int16(1), "on_unknown": int16(1), "on_unknown_after": int64(0), "notify": int16(0),
			"country": int16(0), "route": "sms", "recipient": "a@example.com", "lane": "sms/1/",
		}, row(mail.Key))
		require.Equal(t, map[string]any{
			"channel": int16(1), "priority": int16(2), "on_unknown": int16(1), "on_unknown_after": int64(0), "notify": int16(0),
			"country": int16(1), "route": "news", "recipient": "+15555550123", "lane": "news/2/",
		}, row(plain.Key))
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

// The map of senders is frozen: what the route says later is for later
// messages.
func TestSendersAreFrozen(t *testing.T) {
	t.Parallel()
	r := route("test")
	r.Senders = dispatch.Senders{"otp": {"test": "+15555550100"}}
	old, pool, schema := newBox(t, r)
	i := sms("hello")
	i.Content = dispatch.SMS{To: "+15555550123", Sender: "otp", Body: "hello"}
	enqueue(t, old, i)
	r.Senders = dispatch.Senders{"otp": {"test": "+15555550199"}}
	changed, err := outbox.New(pool, outbox.Config{Schema: schema, Routes: []dispatch.Route{r}})
	require.NoError(t, err)
	added := false
	require.NoError(t, changed.InTx(t.Context(), func(tx pgx.Tx) (err error) {
		added, err = changed.Enqueue(t.Context(), tx, i)
		return err
	}))
	require.False(t, added, "a repeat after a deploy is the same intent")
	p := &outboxtest.Provider{}
	start(t, changed, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	reaches(t, changed, i.Key, dispatch.Sent)
	require.Equal(t, "+15555550100", p.Accepted()[0].From)
}

// A program that only enqueues needs no pool.
func TestBoxWithoutAPool(t *testing.T) {
	t.Parallel()
	whole, pool, schema := newBox(t)
	box, err := outbox.New(nil, outbox.Config{Schema: schema, Routes: routes(), Notify: true})
	require.NoError(t, err)
	i, other := sms("hello"), sms("other")
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		added, err := box.Enqueue(t.Context(), tx, i)
		require.True(t, added)
		if err != nil {
			return err
		}
		_, err = box.EnqueueMany(t.Context(), tx, []dispatch.Intent{other})
		return err
	}))
	box.Wake()
	require.Equal(t, dispatch.Pending, reaches(t, whole, i.Key, dispatch.Pending).State)

	require.ErrorIs(t, box.InTx(t.Context(), func(pgx.Tx) error { return nil }), outbox.ErrNoPool)
	require.ErrorIs(t, box.Migrate(t.Context()), outbox.ErrNoPool)
	require.ErrorIs(t, box.Validate(t.Context()), outbox.ErrNoPool)
	_, err = box.History(t.Context(), i.Key)
	require.ErrorIs(t, err, outbox.ErrNoPool)
	_, err = outbox.NewWorker(box, outbox.WorkerConfig{Providers: []dispatch.Provider{&outboxtest.Provider{}}})
	require.ErrorIs(t, err, outbox.ErrNoPool)
}

func TestEnqueueWithoutATransaction(t *testing.T) {
	t.Parallel()
	box, err := outbox.New(nil, outbox.Config{Routes: routes()})
	require.NoError(t, err)
	_, err = box.Enqueue(t.Context(), nil, sms("hello"))
	require.ErrorContains(t, err, "transaction is nil")
	_, err = box.EnqueueSQL(t.Context(), nil, sms("hello"))
	require.ErrorContains(t, err, "transaction is nil")
	_, err = box.EnqueueMany(t.Context(), nil, []dispatch.Intent{sms("hello")})
	require.ErrorContains(t, err, "transaction is nil")
}

// B119: a body of any size, with notifications on, in a schema of any name: a
// channel's name is as short as a schema's, and ends at a rune.
func TestNotifyCarriesNothing(t *testing.T) {
	t.Parallel()
	pool, plain := pgtest.Pool(t)
	unicode := "x" + strings.Repeat("ü", 31)
	for schema, channel := range map[string]string{plain: "dispatch " + plain, unicode: "dispatch x" + strings.Repeat("ü", 26)} {
		box, err := outbox.New(pool, outbox.Config{Schema: schema, Routes: routes(), Notify: true})
		require.NoError(t, err)
		require.NoError(t, box.Migrate(t.Context()))
		listener, err := pgx.Connect(t.Context(), pgtest.URL(t))
		require.NoError(t, err)
		defer func() { _ = listener.Close(context.WithoutCancel(t.Context())) }()
		_, err = listener.Exec(t.Context(), "listen "+ident(channel))
		require.NoError(t, err)
		enqueue(t, box, dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.Email{
			To: []dispatch.Address{{Email: "a@example.com"}}, Text: strings.Repeat("0123456789", 2000),
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		n, err := listener.WaitForNotification(ctx)
		require.NoError(t, err, schema)
		require.Empty(t, n.Payload)
	}
	_, err := pool.Exec(t.Context(), "drop schema "+ident(unicode)+" cascade")
	require.NoError(t, err)
}
