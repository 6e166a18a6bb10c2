package outbox_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

func twoRoutes() []dispatch.Route {
	a, b := route("test", "other"), route("test")
	a.Senders = dispatch.Senders{
		"otp":  {"test": "+15555550100", "other": "Shop"},
		"bulk": {"test": "+15555550101"},
	}
	a.Checks = dispatch.Checks{"test": noUnicorns, "other": noUnicorns}
	a.Priority = dispatch.High
	b.Name = "news"
	return []dispatch.Route{a, b}
}

// noUnicorns is a provider's limit.
func noUnicorns(c dispatch.Content) error {
	if m, ok := c.(dispatch.SMS); ok && strings.Contains(m.Body, "unicorn") {
		return &dispatch.FieldError{Field: "Content.Body", Reason: "can't be carried"}
	}
	return nil
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
func blocked(t *testing.T, pool *pgxpool.Pool, pid int) {
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
			pid := ask[int](t, b, "select pg_backend_pid()") // its snapshot, where it has one, is older than A's commit
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
			blocked(t, pool, pid)
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
			write := func(added *bool, pid chan<- int) func(tx pgx.Tx) error {
				return func(tx pgx.Tx) (err error) {
					pid <- ask[int](t, tx, "select pg_backend_pid()")
					if err := add(tx); err != nil {
						return err
					}
					*added, err = box.Enqueue(t.Context(), tx, i)
					return err
				}
			}
			var added bool
			pid := make(chan int, 2)
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
