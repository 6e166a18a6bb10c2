package pgtest

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// pooled starts a server with a pooler for one test, and returns both their URLs.
func pooled(t *testing.T) (p *pooler, direct, through string) {
	t.Helper()
	s := own(t, Options{})
	p, err := newPooler(t.Context(), thisMachine(), s.cluster)
	require.NoError(t, err)
	t.Cleanup(p.close)
	return p, s.URL(), p.url(s.URL(), "exec")
}

func TestThePoolerGivesEachTransactionAnotherSession(t *testing.T) {
	t.Parallel()
	_, direct, through := pooled(t)
	conn, err := pgx.Connect(t.Context(), through)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	seen := map[string]bool{}
	requireSoon(t, "another session", func() bool {
		var pid, path string
		require.NoError(t, conn.QueryRow(t.Context(), "select pg_backend_pid()::text, current_setting('search_path')").Scan(&pid, &path))
		require.Empty(t, path)
		seen[pid] = true
		return len(seen) > 2
	})
	require.Equal(t, "on", scan(t, through, "show is_superuser"))

	// A role that the pooler never heard of, by its password and by no other.
	scanNothing(t, direct, "create role ada login password 'a'")
	require.Equal(t, "ada", scan(t, withUser(t, through, "ada", "a"), "select current_user::text"))
	_, err = serverVersion(t.Context(), withUser(t, through, "ada", "b"))
	require.ErrorContains(t, err, "08P01")

	// What a transaction cannot have is refused, not lost.
	_, err = serverVersion(t.Context(), withParam(t, through, "timezone_abbreviations", "Default"))
	require.ErrorContains(t, err, "unsupported startup parameter")
}

func TestThePoolerGoesWithItsServer(t *testing.T) {
	t.Parallel()
	s := own(t, Options{})
	p, err := newPooler(t.Context(), thisMachine(), s.cluster)
	require.NoError(t, err)
	through := p.url(s.URL(), "exec")
	require.NoError(t, s.Close()) // as when the process dies: the leash is let go, and close is never called
	requireNoServer(t, through)
	<-p.exited
}

func TestAPoolerThatGivesUpIsAnError(t *testing.T) {
	t.Parallel()
	s := own(t, Options{})
	quitter, err := exec.LookPath("true")
	require.NoError(t, err)
	require.ErrorContains(t, (&pooler{port: 1}).start(t.Context(), quitter, s.cluster), "the pooler ended at its start")
}

func TestPoolerModes(t *testing.T) {
	t.Parallel()
	for mode, ok := range map[string]bool{"": true, "exec": true, "cache_describe": true, "simple_protocol": true, "cache_statement": false, "describe_exec": false, "1": false} {
		got, err := poolerMode((&fakeMachine{env: map[string]string{poolerEnv: mode}}).machine())
		if !ok {
			require.ErrorContains(t, err, "cache_describe, exec, simple_protocol")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, mode, got)
	}
}

func TestInstallOfAPooler(t *testing.T) {
	t.Parallel()
	f := &fakeMachine{onPath: map[string]string{"apt-get": "/usr/bin/apt-get"}}
	m := f.machine()
	m.root = true
	_, err := m.findPooler(t.Context())
	require.EqualError(t, err, "pgtest: no pgbouncer found: install it (apt-get install pgbouncer)")
	require.Equal(t, "env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends pgbouncer", f.ran[1])
	f.programs = map[string]bool{"/usr/sbin/pgbouncer": true}
	path, err := m.findPooler(t.Context())
	require.NoError(t, err)
	require.Equal(t, "/usr/sbin/pgbouncer", path)
}

// URL and Direct of this test program itself, whichever way it goes.
func TestDirectIsPastThePooler(t *testing.T) {
	t.Parallel()
	pool, _ := Pool(t)
	config := Direct(t, pool.Config().ConnConfig)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	direct, err := pgx.ParseConfig(DirectURL(t))
	require.NoError(t, err)
	require.Equal(t, direct.Port, config.Port)
	through, err := pgx.ParseConfig(URL(t))
	require.NoError(t, err)
	require.Equal(t, os.Getenv(poolerEnv) != "", direct.Port != through.Port)
}

func scanNothing(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}
