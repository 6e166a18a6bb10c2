package drivers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // "pgx"
	_ "github.com/lib/pq"              // "postgres"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// app is an application that enqueues through database/sql, and a worker's view
// of the same schema. Its schema's name is one that needs its quotes.
type app struct {
	t      *testing.T
	db     *sql.DB
	pool   *pgxpool.Pool
	schema string
	box    *outbox.Box
}

// each runs test with both drivers; pq is tried with what it does when it is
// told to send its arguments in binary, too.
func each(t *testing.T, test func(a app)) {
	t.Helper()
	for name, c := range map[string]struct {
		driver string
		params map[string]string
	}{
		"pgx": {"pgx", nil}, "pgx, simple protocol": {"pgx", map[string]string{"default_query_exec_mode": "simple_protocol"}},
		"pgx, exec":  {"pgx", map[string]string{"default_query_exec_mode": "exec"}},
		"pq":         {"postgres", map[string]string{"sslmode": "disable"}},
		"pq, binary": {"postgres", map[string]string{"sslmode": "disable", "binary_parameters": "yes"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, base := pgtest.Pool(t)
			u, err := url.Parse(pgtest.URL(t))
			require.NoError(t, err)
			query := u.Query()
			if c.driver != "pgx" {
				query.Del("default_query_exec_mode") // through a pooler pgtest's URL has one
			}
			for k, v := range c.params {
				query.Set(k, v)
			}
			u.RawQuery = query.Encode()
			db, err := sql.Open(c.driver, u.String())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			a := app{t: t, db: db, pool: pool, schema: `"` + base + ` it's"`}
			name := base + " it's"
			_, err = pool.Exec(t.Context(), "create schema "+a.schema)
			require.NoError(t, err)
			t.Cleanup(func() { _, err := db.Exec("drop schema " + a.schema + " cascade"); require.NoError(t, err) })
			routes := []dispatch.Route{{
				Name: "sms", Providers: []string{"test"}, Senders: dispatch.Senders{"otp": {"test": "Shop"}},
				Policy: dispatch.Policy{Backoff: dispatch.Backoff{Base: 5 * time.Millisecond, Cap: 50 * time.Millisecond}},
			}}
			a.box, err = outbox.New(pool, outbox.Config{Schema: name, Routes: routes})
			require.NoError(t, err)
			require.NoError(t, a.box.Migrate(t.Context()))
			_, err = db.ExecContext(t.Context(), "create table "+a.schema+".business (id uuid primary key default gen_random_uuid())")
			require.NoError(t, err)
			test(a)
		})
	}
}

func (a app) begin() *sql.Tx {
	a.t.Helper()
	tx, err := a.db.BeginTx(a.t.Context(), nil)
	require.NoError(a.t, err)
	a.t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (a app) business(tx *sql.Tx) {
	a.t.Helper()
	_, err := tx.ExecContext(a.t.Context(), "insert into "+a.schema+".business default values")
	require.NoError(a.t, err)
}

func (a app) count(table string) (n int) {
	a.t.Helper()
	require.NoError(a.t, a.pool.QueryRow(context.WithoutCancel(a.t.Context()), "select count(*) from "+a.schema+"."+table).Scan(&n))
	return n
}

// works runs a worker until the messages are sent, and returns what it sent.
func (a app) works(intents ...dispatch.Intent) map[dispatch.Key]dispatch.Envelope {
	a.t.Helper()
	p := &outboxtest.Provider{}
	w, err := outbox.NewWorker(a.box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{p}, PollInterval: 20 * time.Millisecond,
	})
	require.NoError(a.t, err)
	ctx, cancel := context.WithCancel(a.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(a.t, <-done)
	}()
	for _, i := range intents {
		require.Eventually(a.t, func() bool {
			h, err := a.box.History(a.t.Context(), i.Key)
			return err == nil && h.State == dispatch.Sent
		}, 20*time.Second, 5*time.Millisecond)
	}
	out := map[dispatch.Key]dispatch.Envelope{}
	for _, e := range p.Accepted() {
		out[e.Key] = e
	}
	require.Len(a.t, p.Accepted(), len(out))
	return out
}

func sms(body string) dispatch.Intent {
	return dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.SMS{To: "+15555550123", Body: body}}
}

// B121: whatever the transaction decides happens to the message too.
func TestEnqueueSharesTheTransactionsFate(t *testing.T) {
	t.Parallel()
	each(t, func(a app) {
		gone, saved, kept := sms("rolled back"), sms("savepoint rolled back"), sms("committed")
		tx := a.begin()
		a.business(tx)
		added, err := a.box.EnqueueSQL(a.t.Context(), tx, gone)
		require.NoError(a.t, err)
		require.True(a.t, added)
		require.NoError(a.t, tx.Rollback())
		require.Equal(a.t, []int{0, 0, 0}, []int{a.count("business"), a.count("message"), a.count("queue")})

		tx = a.begin()
		a.business(tx)
		for _, step := range []func() error{
			func() error { _, err := a.box.EnqueueSQL(a.t.Context(), tx, kept); return err },
			func() error { _, err := tx.Exec("savepoint s"); return err },
			func() error { _, err := a.box.EnqueueSQL(a.t.Context(), tx, saved); return err },
			func() error { _, err := tx.Exec("rollback to savepoint s"); return err },
			tx.Commit,
		} {
			require.NoError(a.t, step())
		}
		require.Equal(a.t, []int{1, 1, 1}, []int{a.count("business"), a.count("message"), a.count("queue")})
		require.Contains(a.t, a.works(kept), kept.Key)
		_, err = a.box.EnqueueSQL(a.t.Context(), tx, kept)
		require.ErrorIs(a.t, err, sql.ErrTxDone)
	})
}

func TestRepeatsAndConflicts(t *testing.T) {
	t.Parallel()
	each(t, func(a app) {
		i := sms("first")
		changed := i
		changed.Content = dispatch.SMS{To: "+15555550123", Body: "second"}
		for n := range 3 {
			tx := a.begin()
			added, err := a.box.EnqueueSQL(a.t.Context(), tx, i)
			require.NoError(a.t, err)
			require.Equal(a.t, n == 0, added)
			added, err = a.box.EnqueueSQL(a.t.Context(), tx, changed)
			require.False(a.t, added)
			var conflict *dispatch.ConflictError
			require.ErrorAs(a.t, err, &conflict)
			require.Equal(a.t, i.Key, conflict.Key)
			a.business(tx) // usable
			require.NoError(a.t, tx.Commit())
		}
		require.Equal(a.t, []int{3, 1, 1}, []int{a.count("business"), a.count("message"), a.count("queue")})
		require.Equal(a.t, i.Content, a.works(i)[i.Key].Content)

		tx := a.begin() // B065: sent since
		added, err := a.box.EnqueueSQL(a.t.Context(), tx, i)
		require.NoError(a.t, err)
		require.False(a.t, added)
		require.NoError(a.t, tx.Commit())
		require.Zero(a.t, a.count("queue"))
	})
}

// The twin of a transaction that is not over yet is waited for.
func TestConcurrentTwin(t *testing.T) {
	t.Parallel()
	each(t, func(a app) {
		for _, commit := range []bool{true, false} {
			i := sms("hello")
			first, second := a.begin(), a.begin()
			_, err := a.box.EnqueueSQL(a.t.Context(), first, i)
			require.NoError(a.t, err)
			var pid int
			require.NoError(a.t, second.QueryRow("select pg_backend_pid()").Scan(&pid))
			type result struct {
				added bool
				err   error
			}
			done := make(chan result, 1)
			go func() {
				added, err := a.box.EnqueueSQL(a.t.Context(), second, i)
				done <- result{added, err}
			}()
			require.Eventually(a.t, func() bool {
				var waits bool
				err := a.pool.QueryRow(a.t.Context(), "select coalesce(wait_event_type = 'Lock', false) from pg_stat_activity where pid = $1", pid).Scan(&waits)
				return err == nil && waits
			}, 20*time.Second, 2*time.Millisecond)
			if commit {
				require.NoError(a.t, first.Commit())
			} else {
				require.NoError(a.t, first.Rollback())
			}
			r := <-done
			require.NoError(a.t, r.err)
			require.Equal(a.t, !commit, r.added)
			require.NoError(a.t, second.Commit())
		}
		require.Equal(a.t, []int{2, 2}, []int{a.count("message"), a.count("queue")})
	})
}

// B116: what is refused never reaches the driver.
func TestBadInputLeavesTheTransactionUsable(t *testing.T) {
	t.Parallel()
	each(t, func(a app) {
		tx := a.begin()
		now := time.Now()
		for field, change := range map[string]func(i *dispatch.Intent){
			"Key":            func(i *dispatch.Intent) { i.Key = dispatch.Key{} },
			"Route":          func(i *dispatch.Intent) { i.Route = "gone" },
			"Provider":       func(i *dispatch.Intent) { i.Provider = "gone" },
			"Content":        func(i *dispatch.Intent) { i.Content = nil },
			"Content.To":     func(i *dispatch.Intent) { i.Content = dispatch.SMS{To: "5550123", Body: "a"} },
			"Content.Body":   func(i *dispatch.Intent) { i.Content = dispatch.SMS{To: "+15555550123", Body: "a\x00b"} },
			"Content.Sender": func(i *dispatch.Intent) { i.Content = dispatch.SMS{To: "+15555550123", Body: "a", Sender: "none"} },
			"Metadata":       func(i *dispatch.Intent) { i.Metadata = map[string]string{"a": "\xff"} },
			"Deadline":       func(i *dispatch.Intent) { i.NotBefore, i.Deadline = now.Add(time.Hour), now },
			"ValidFor":       func(i *dispatch.Intent) { i.NotBefore = now.Add(5 * time.Hour) }, // the policy's ends before
		} {
			i := sms("hello")
			change(&i)
			added, err := a.box.EnqueueSQL(a.t.Context(), tx, i)
			require.False(a.t, added)
			var bad *dispatch.FieldError
			require.ErrorAs(a.t, err, &bad)
			require.Equal(a.t, field, bad.Field)
		}
		a.business(tx)
		good := sms("good")
		_, err := a.box.EnqueueSQL(a.t.Context(), tx, good)
		require.NoError(a.t, err)
		require.NoError(a.t, tx.Commit())
		require.Equal(a.t, []int{1, 1, 1}, []int{a.count("business"), a.count("message"), a.count("queue")})
		a.works(good)
	})
}

// Whatever stands in a message comes out as it went in, and what isn't there
// is null.
func TestEverythingComesOutAsItWentIn(t *testing.T) {
	t.Parallel()
	each(t, func(a app) {
		var all strings.Builder
		for n := range 256 {
			all.WriteByte(byte(n))
		}
		bare := dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.SMS{To: "+15555550123", Body: `it's "$1" \ \x00 and 数据 ` + "\U0001f600\r\n\t\x01"}, ValidFor: dispatch.Never}
		full := dispatch.Intent{
			Key: dispatch.NewKey(), Priority: dispatch.High, Provider: "test", Notify: dispatch.NotifySent,
			Content: dispatch.Email{
				Sender: "otp", To: []dispatch.Address{{Name: "Smith, John", Email: "a@example.com"}}, Subject: "Grüße", HTML: "<p>\\",
				Attachments: []dispatch.Attachment{{Name: "a.bin", Type: "application/octet-stream", Data: []byte(all.String())}},
			},
			NotBefore: time.Now().Add(-time.Hour), Deadline: time.Now().Add(time.Hour),
			Metadata:    map[string]string{`quote"`: "line\nbreak \\ 'x' \u2028", "empty": ""},
			TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Linked: bare.Key,
			Template: dispatch.Template{Name: "login", Revision: "r7"},
		}
		tx := a.begin()
		for _, i := range []dispatch.Intent{bare, full} {
			added, err := a.box.EnqueueSQL(a.t.Context(), tx, i)
			require.NoError(a.t, err)
			require.True(a.t, added)
		}
		require.NoError(a.t, tx.Commit())
		var nulls int
		require.NoError(a.t, a.pool.QueryRow(a.t.Context(), `select num_nulls(not_before, deadline, scrubbed_at, digest_key, seal_key, recipient_hash, sender, senders,
			pinned, template, template_revision, trace, metadata, supersedes, linked) from `+a.schema+".message where id = $1", bare.Key.String()).Scan(&nulls))
		require.Equal(a.t, 15, nulls)
		var lane string
		var notBefore, deadline time.Time
		require.NoError(a.t, a.pool.QueryRow(a.t.Context(), `select q.lane, m.not_before, m.deadline from `+a.schema+".queue q join "+a.schema+".message m using (id) where id = $1",
			full.Key.String()).Scan(&lane, &notBefore, &deadline))
		require.Equal(a.t, "sms/1/test", lane)
		require.WithinDuration(a.t, full.NotBefore, notBefore, time.Microsecond)
		require.WithinDuration(a.t, full.Deadline, deadline, time.Microsecond)

		sent := a.works(bare, full)
		require.Equal(a.t, bare.Content, sent[bare.Key].Content)
		require.Nil(a.t, sent[bare.Key].Metadata)
		require.Equal(a.t, full.Content, sent[full.Key].Content)
		require.Equal(a.t, full.Metadata, sent[full.Key].Metadata)
		require.Equal(a.t, full.TraceParent, sent[full.Key].TraceParent)
		require.Equal(a.t, "Shop", sent[full.Key].From)
	})
}

// The drivers' errors are passed on, and the most likely one is explained.
func TestErrorsOfTheDatabase(t *testing.T) {
	t.Parallel()
	each(t, func(a app) {
		code := func(err error) string {
			var e interface{ SQLState() string }
			require.True(a.t, errors.As(err, &e), fmt.Sprint(err))
			return e.SQLState()
		}
		other, err := outbox.New(nil, outbox.Config{Schema: "no_such_schema", Routes: []dispatch.Route{{Name: "sms", Providers: []string{"p"}}}})
		require.NoError(a.t, err)
		tx := a.begin()
		_, err = other.EnqueueSQL(a.t.Context(), tx, sms("hello"))
		require.ErrorIs(a.t, err, outbox.ErrNotMigrated)
		require.Contains(a.t, []string{"42P01", "3F000"}, code(err))

		_, err = a.box.EnqueueSQL(a.t.Context(), tx, sms("hello")) // B112
		require.Equal(a.t, "25P02", code(err))
		require.NoError(a.t, tx.Rollback())

		i := sms("hello")
		late, err := a.db.BeginTx(a.t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		require.NoError(a.t, err)
		defer func() { _ = late.Rollback() }()
		_, err = late.Exec("select 1")
		require.NoError(a.t, err)
		tx = a.begin()
		_, err = a.box.EnqueueSQL(a.t.Context(), tx, i)
		require.NoError(a.t, err)
		require.NoError(a.t, tx.Commit())
		_, err = a.box.EnqueueSQL(a.t.Context(), late, i)
		require.Equal(a.t, "40001", code(err))
	})
}
