package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch/internal/leaks"
)

// poolConns is small enough for a dozen tests at once under the server's 300 connections. A test that needs more makes a
// pool of its own from URL.
const poolConns = 16

// cleanUpTimeout is how long a test's clean-up may wait, for a connection or a lock that the test never let go of.
const cleanUpTimeout = 20 * time.Second

// shared is the one server of a test program, with the pooler in front of it if there is to be one.
var shared struct {
	sync.Mutex
	server *Server
	pooler *pooler
	url    string // the pooler's, if there is one
	err    error
}

// Main runs the tests of a package and ends the process. Call it from TestMain in a package whose tests use [Pool], [URL]
// or [Role]: it closes the server that the first of them started. What the tests write to slog.Default is not shown but
// searched: a recipient, a text or a credential in it, or in what the library put into the tables of [Pool]'s schema in
// words of its own, lets the program fail.
func Main(m *testing.M) { os.Exit(run(m.Run)) }

func run(tests func() int) int {
	slog.SetDefault(leaks.Suite.Logger())
	code := tests()
	if found := leaks.Suite.Found(); len(found) > 0 {
		fmt.Fprintf(os.Stderr, "LEAK, %d lines:\n%s\n", len(found), strings.Join(found[:min(len(found), 20)], "\n"))
		code = max(code, 1)
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.pooler != nil {
		shared.pooler.close()
	}
	if shared.server != nil {
		if err := shared.server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

// sharedServer starts the test program's server on its first call. Failing is for good, so that each test says so at once.
func sharedServer(tb testing.TB) *Server {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		// Not the test's own context: the server is for all of them. Minutes, because it may have to be installed.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), 8*time.Minute)
		defer cancel()
		shared.err = startShared(ctx, thisMachine())
	}
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return shared.server
}

func startShared(ctx context.Context, m machine) error {
	mode, err := poolerMode(m)
	if err != nil {
		return err
	}
	if shared.server, err = start(ctx, m, Options{Own: mode != ""}); err != nil {
		return err
	}
	shared.url = shared.server.URL()
	if mode == "" {
		return nil
	}
	if shared.pooler, err = newPooler(ctx, m, shared.server.cluster); err != nil {
		return err
	}
	shared.url = shared.pooler.url(shared.url, mode)
	return nil
}

// URL is the connection string of a superuser of the test program's server, with an empty search_path: for database/sql
// and for pools of one's own. It leads through the pooler if DISPATCH_TEST_POOLER asks for one.
func URL(tb testing.TB) string {
	tb.Helper()
	sharedServer(tb)
	return withParam(tb, shared.url, "search_path", "")
}

// DirectURL is [URL], never through the pooler: for what needs a session.
func DirectURL(tb testing.TB) string {
	tb.Helper()
	return withParam(tb, sharedServer(tb).URL(), "search_path", "")
}

// Direct leads config, of a connection to the test program's server as whatever role, past the pooler if there is one, and
// returns it. For what needs a session: its settings, its locks, its prepared statements, its process.
func Direct(tb testing.TB, config *pgx.ConnConfig) *pgx.ConnConfig {
	tb.Helper()
	server := sharedServer(tb)
	if shared.pooler == nil {
		return config
	}
	direct, err := pgx.ParseConfig(server.URL())
	if err != nil {
		tb.Fatal("pgtest: the server's URL can't be parsed") // the error would show its password
	}
	config.Host, config.Port = direct.Host, direct.Port
	return config
}

// Pool returns a pool of connections for this test and the name of a fresh, empty schema, which needs no quotes. The
// connections' search_path is empty, so that a statement that forgets to name its schema fails. Both go away after the
// test; a connection that it never released is an error.
func Pool(tb testing.TB) (*pgxpool.Pool, string) {
	tb.Helper()
	config, err := pgxpool.ParseConfig(URL(tb))
	if err != nil {
		tb.Fatal(err)
	}
	config.MaxConns = poolConns
	config.ConnConfig.RuntimeParams["application_name"] = tb.Name()
	config.ConnConfig.Tracer = tracer{}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(tb.Context()), config)
	if err != nil {
		tb.Fatal(err)
	}
	schema := uniqueName("t")
	tb.Cleanup(func() {
		if err := closePool(pool, cleanUpTimeout); err != nil {
			tb.Error(err)
		}
		if _, large := tb.(*testing.B); !large {
			if err := search(tb, schema, &leaks.Suite); err != nil {
				tb.Errorf("searching the test's schema: %v", err)
			}
		}
		if err := admin(tb, "drop schema if exists "+schema+" cascade"); err != nil {
			tb.Errorf("dropping the test's schema: %v", err)
		}
	})
	if _, err := pool.Exec(tb.Context(), "create schema "+schema); err != nil {
		tb.Fatal(err)
	}
	return pool, schema
}

// Role makes a login role that is no superuser, owns nothing and may create schemas in pool's database, and returns its
// connection string, with an empty search_path. The role and whatever it made go away after the test.
func Role(tb testing.TB, pool *pgxpool.Pool) string {
	tb.Helper()
	config := pool.Config().ConnConfig
	role, password := uniqueName("r"), rand.Text()
	leaks.Suite.Forbid(password)
	tb.Cleanup(func() {
		err := admin(tb, oneAtATime, "drop owned by "+role+" cascade", "drop role "+role)
		if err != nil {
			tb.Errorf("dropping the test's role: %v", err)
		}
	})
	database := pgx.Identifier{config.Database}.Sanitize()
	err := admin(tb, oneAtATime,
		"create role "+role+" login nosuperuser nocreatedb nocreaterole password '"+password+"'",
		"grant connect, create on database "+database+" to "+role)
	if err != nil {
		tb.Fatal(err)
	}
	return withParam(tb, withUser(tb, config.ConnString(), role, password), "search_path", "")
}

// oneAtATime waits for other tests' changes to the rights on the database, of which the server refuses two at once with
// "tuple concurrently updated". It ends with its connection.
const oneAtATime = "select pg_advisory_lock(4801234)"

// admin runs statements outside the pool that the test may have closed or used up.
func admin(tb testing.TB, statements ...string) error {
	tb.Helper()
	return aside(tb, func(ctx context.Context, conn *pgx.Conn) error {
		for _, sql := range statements {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

// aside calls f with a connection of its own, past the pooler if there is one.
func aside(tb testing.TB, f func(ctx context.Context, conn *pgx.Conn) error) (err error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), cleanUpTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, DirectURL(tb))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	return f(ctx, conn)
}

// closePool is pool.Close, which waits for every connection, but not forever.
func closePool(pool *pgxpool.Pool, patience time.Duration) error {
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-closed:
		return nil
	case <-timeout.C:
		return fmt.Errorf("pgtest: %d connections were never released", pool.Stat().AcquiredConns())
	}
}

// uniqueName is a name that no other test has, in this process or another, and that is the same with and without quotes.
func uniqueName(prefix string) string {
	return prefix + "_" + strings.ToLower(rand.Text()[:16])
}

// withParam sets a parameter of a connection string in either of its two forms.
func withParam(tb testing.TB, connString, key, value string) string {
	tb.Helper()
	if !isURL(connString) {
		return connString + " " + key + "='" + value + "'"
	}
	u, err := url.Parse(connString)
	if err != nil {
		tb.Fatal("pgtest: the server's URL can't be parsed") // the error would show its password
	}
	q := u.Query()
	q.Set(key, value)
	u.RawQuery = q.Encode()
	return u.String()
}

func withUser(tb testing.TB, connString, user, password string) string {
	tb.Helper()
	if !isURL(connString) {
		return withParam(tb, withParam(tb, connString, "user", user), "password", password)
	}
	u, err := url.Parse(connString)
	if err != nil {
		tb.Fatal("pgtest: the server's URL can't be parsed")
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

func isURL(connString string) bool {
	return strings.HasPrefix(connString, "postgres://") || strings.HasPrefix(connString, "postgresql://")
}
