package pgtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// poolerEnv names the exec mode of pgx in which tests talk to a PgBouncer in front of the test program's server. Empty:
// they talk to the server.
const poolerEnv = "DISPATCH_TEST_POOLER"

// pooledModes are pgx's exec modes that leave nothing in the session between two transactions. cache_statement needs
// prepared statements that the pooler carries along (PgBouncer 1.21 with max_prepared_statements), and describe_exec asks
// about a statement in one trip what it relies on in the next.
var pooledModes = []string{"cache_describe", "exec", "simple_protocol"}

// pooler is a PgBouncer in transaction mode in front of a cluster, in whose folder it lives and with which it goes.
type pooler struct {
	port   int
	cmd    *exec.Cmd
	exited chan struct{}
}

func poolerMode(m machine) (string, error) {
	mode := m.getenv(poolerEnv)
	if mode != "" && !slices.Contains(pooledModes, mode) {
		return "", fmt.Errorf("pgtest: %s is %q, not one of %s", poolerEnv, mode, strings.Join(pooledModes, ", "))
	}
	return mode, nil
}

func (m machine) findPooler(ctx context.Context) (string, error) {
	// Debian's folder isn't on everybody's PATH.
	return m.program(ctx, "pgbouncer", "pgbouncer", "/usr/sbin/pgbouncer")
}

func newPooler(ctx context.Context, m machine, c *cluster) (_ *pooler, err error) {
	path, err := m.findPooler(ctx)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		p := &pooler{}
		if p.port, err = freePort(ctx); err != nil {
			return nil, err
		}
		if err = p.start(ctx, path, c); err == nil {
			return p, nil
		}
		if try == 2 || ctx.Err() != nil {
			return nil, err
		}
	}
}

// poolerConfig is as hostile to state in a session as transaction mode gets: each transaction is given the connection that
// has rested longest, so that two in a row see two sessions. Passwords are the cluster's own, which PgBouncer looks up and,
// not knowing them, proves to the server by what the client proved to it; the one that it does know is the superuser's.
const poolerConfig = `[databases]
* = host=127.0.0.1 port=%d connect_query='select set_config(''search_path'', '''', false)'

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
pidfile = %s
pool_mode = transaction
server_round_robin = 1
min_pool_size = 4
default_pool_size = 60
max_db_connections = 200
max_client_conn = 1000
server_login_retry = 1
auth_type = scram-sha-256
auth_file = %s
auth_user = postgres
ignore_startup_parameters = search_path, extra_float_digits
`

func (p *pooler) start(ctx context.Context, path string, c *cluster) error {
	users, config := filepath.Join(c.dir, "pooler.users"), filepath.Join(c.dir, "pooler.ini")
	for name, text := range map[string]string{
		users:  fmt.Sprintf("%q %q\n", "postgres", c.password),
		config: fmt.Sprintf(poolerConfig, c.port, p.port, c.poolerPidfile(), users),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
		if err := c.as.own(name); err != nil {
			return err
		}
	}
	logfile, err := os.Create(filepath.Join(c.dir, "pooler.log"))
	if err != nil {
		return err
	}
	defer func() { _ = logfile.Close() }() // the pooler has its own
	//nolint:gosec // the program is findPooler's
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), path, config) // as the server, it outlives ctx
	p.cmd.Dir = c.dir
	p.cmd.Env = environ()
	p.cmd.Stdout, p.cmd.Stderr = logfile, logfile
	c.as.run(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.exited = make(chan struct{})
	go func() {
		_ = p.cmd.Wait() // it may give up with an exit status of 0: what counts is whether it answers
		close(p.exited)
	}()

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := serverVersion(ctx, p.url(c.url(), "exec"))
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("pgtest: the pooler ended at its start: %s", logTail(logfile.Name()))
		case <-ctx.Done():
			p.close()
			return fmt.Errorf("pgtest: waiting for the pooler: %w: %w: %s", ctx.Err(), err, logTail(logfile.Name()))
		case <-tick.C:
		}
	}
}

// close kills it; its clients are gone.
func (p *pooler) close() {
	_ = p.cmd.Process.Kill() // an error is that it has ended
	<-p.exited
}

// url is the server's connection string, through the pooler and in an exec mode.
func (p *pooler) url(direct, mode string) string {
	u, err := url.Parse(direct)
	if err != nil {
		panic("pgtest: the cluster's own URL can't be parsed") // with the error goes the password
	}
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port))
	q := u.Query()
	q.Set("default_query_exec_mode", mode) // of pgx, which doesn't send it
	u.RawQuery = q.Encode()
	return u.String()
}
