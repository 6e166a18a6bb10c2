// Package pgtest finds or starts the PostgreSQL that tests, examples and benchmarks run on, so that nobody has to prepare
// one. It takes, in this order:
//
//  1. the server that DATABASE_URL names, used as it is and never stopped. It must be the server itself, not a pooler in
//     front of it, and the role a superuser;
//  2. the server programs on this machine (PATH, Debian's and Red Hat's versioned folders, Homebrew), started as a throwaway
//     cluster in a temporary folder;
//  3. the same after installing them with apt-get, where that needs no password.
//
// Where none of these works, the error is one line that says what to do.
//
// With DISPATCH_TEST_POOLER set to one of pgx's exec modes cache_describe, exec and simple_protocol, [URL], [Pool] and [Role]
// lead through a PgBouncer in transaction mode in front of a throwaway cluster, found or installed like the server.
//
// A test calls [Pool] for a schema of its own and lets its TestMain call [Main]; a program calls [Start]. A cluster goes
// away with the process that started it, however that process ends.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Options say what kind of server Start starts. The zero value is right for tests. Settings and Fsync do not apply to a
// server that DATABASE_URL names.
type Options struct {
	// Settings are postgresql.conf values, such as {"wal_level": "logical"}. They win over pgtest's own, but for the
	// address, the port and the socket folder.
	Settings map[string]string

	// Fsync makes commits durable, as in production: for benchmarks. The default, false, is what makes tests quick: a
	// commit survives a crash of the server (see Stop) but not one of the machine.
	Fsync bool

	// Bin is the folder with the server programs. Empty means the first that is found. A set Bin implies Own.
	Bin string

	// Installed takes only server programs that are on this machine and installs none.
	Installed bool

	// Own asks for a throwaway server also where DATABASE_URL is set: for tests that stop it.
	Own bool
}

// StopMode is how a server is stopped, in PostgreSQL's own words.
type StopMode string

const (
	// Smart waits until the last client has gone.
	Smart StopMode = "smart"
	// Fast breaks the clients' connections and shuts down in good order.
	Fast StopMode = "fast"
	// Immediate is a crash: everything dies at once, and the next start recovers from the log.
	Immediate StopMode = "immediate"
)

// ErrNotOwned is returned by Stop and Restart for a server that DATABASE_URL names. Options.Own avoids it.
var ErrNotOwned = errors.New("pgtest: the server of DATABASE_URL is not ours to stop")

// Server is a running PostgreSQL. It is safe for concurrent use.
type Server struct {
	url     string
	version string
	cluster *cluster // nil: DATABASE_URL's
}

// Start returns a server that accepts connections. ctx bounds the start only. Close it at the end; if the process dies
// first, by whatever signal, the server is stopped and its folder removed all the same.
func Start(ctx context.Context, opts Options) (*Server, error) {
	return start(ctx, thisMachine(), opts)
}

func start(ctx context.Context, m machine, opts Options) (*Server, error) {
	if url := m.getenv("DATABASE_URL"); url != "" && !opts.Own && opts.Bin == "" {
		version, err := serverVersion(ctx, url)
		if err != nil {
			return nil, fmt.Errorf("pgtest: DATABASE_URL: %w", err)
		}
		return &Server{url: url, version: version}, nil
	}
	if _, ok := m.look(); opts.Installed && opts.Bin == "" && !ok {
		return nil, errNone
	}
	bin, err := m.find(ctx, opts.Bin)
	if err != nil {
		return nil, err
	}
	c, err := newCluster(ctx, bin, opts)
	if err != nil {
		return nil, err
	}
	version, err := serverVersion(ctx, c.url())
	if err != nil {
		return nil, errors.Join(err, c.remove())
	}
	return &Server{url: c.url(), version: version, cluster: c}, nil
}

// URL is the connection string of a superuser. It stays the same across Restart.
func (s *Server) URL() string { return s.url }

// Version is the server's version, such as "18.1".
func (s *Server) Version() string { return s.version }

// Stop stops the server and keeps its data for Restart. It returns when the server's process has gone, or with an error
// after half a minute. Stopping a stopped server does nothing.
func (s *Server) Stop(mode StopMode) error {
	if s.cluster == nil {
		return ErrNotOwned
	}
	return s.cluster.stop(mode, stopTimeout)
}

// Restart starts the server again on the same port and data, stopping it in good order first if it still runs. It returns
// when the server accepts connections, after its recovery if there is one.
func (s *Server) Restart(ctx context.Context) error {
	if s.cluster == nil {
		return ErrNotOwned
	}
	if err := s.cluster.stop(Fast, stopTimeout); err != nil {
		return err
	}
	return s.cluster.start(ctx)
}

// Close stops the server and removes all that it wrote. It leaves a server of DATABASE_URL alone. A second call does
// nothing.
func (s *Server) Close() error {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.remove()
}

// serverVersion asks the server at url for its version, and so proves that it answers.
func serverVersion(ctx context.Context, url string) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if err := conn.QueryRow(ctx, "show server_version").Scan(&version); err != nil {
		return "", err
	}
	version, _, _ = strings.Cut(version, " ") // "15.18 (Debian 15.18-0+deb12u1)"
	return version, nil
}

// environ is what the server's programs get: ours without the PG variables, which would redirect them.
func environ() []string {
	env := []string{}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PG") && !strings.HasPrefix(kv, "LC_") {
			env = append(env, kv)
		}
	}
	return append(env, "LC_ALL=C")
}
