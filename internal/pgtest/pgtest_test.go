package pgtest

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestStartGivesASuperuserOnTCPAndOnASocket(t *testing.T) {
	t.Parallel()
	s := own(t, Options{})
	require.Regexp(t, `^\d+(\.\d+)*`, s.Version())

	socket := withParam(t, s.URL(), "host", s.cluster.dir)
	for _, url := range []string{s.URL(), socket} {
		require.Equal(t, "on", scan(t, url, "show is_superuser"))
		require.Equal(t, "off", scan(t, url, "show fsync"))
		require.Equal(t, "on", scan(t, url, "show synchronous_commit"))
		require.Equal(t, "300", scan(t, url, "show max_connections"))
	}
	require.Equal(t, "t", scan(t, s.URL(), "select (inet_server_addr() is not null)::text::char"))
	require.Equal(t, "t", scan(t, socket, "select (inet_server_addr() is null)::text::char"))
}

func TestStartWithoutThePasswordIsRefused(t *testing.T) {
	t.Parallel()
	s := own(t, Options{})
	_, err := serverVersion(t.Context(), withUser(t, s.URL(), "postgres", "wrong"))
	require.ErrorContains(t, err, "28P01")
}

func TestSettingsWinOverOurOwn(t *testing.T) {
	t.Parallel()
	s := own(t, Options{Fsync: true, Settings: map[string]string{
		"max_connections": "222",
		"cluster_name":    `it's a \ test`,
		"port":            "1",
	}})
	require.Equal(t, "on", scan(t, s.URL(), "show fsync"))
	require.Equal(t, "on", scan(t, s.URL(), "show full_page_writes"))
	require.Equal(t, "222", scan(t, s.URL(), "show max_connections"))
	require.Equal(t, `it's a \ test`, scan(t, s.URL(), "show cluster_name"))
}

func TestBadSettingsAreAnErrorAndLeaveNothing(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]map[string]string{
		"unknown":  {"no_such_setting": "1"},
		"not name": {"work_mem = 1\nx": "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Start(t.Context(), Options{Own: true, Settings: settings})
			require.Nil(t, s)
			require.ErrorContains(t, err, "setting")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestStartStopsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Start(ctx, Options{Own: true})
	require.ErrorIs(t, err, context.Canceled)
}

func TestCloseRemovesTheServerAndItsFolder(t *testing.T) {
	t.Parallel()
	s := own(t, Options{})
	require.DirExists(t, s.cluster.data())
	require.NoError(t, s.Close())
	require.NoDirExists(t, s.cluster.dir)
	requireNoServer(t, s.URL())
	require.NoError(t, s.Close(), "a second Close does nothing")
	require.Error(t, s.Restart(t.Context()), "there is nothing to start")
}

func TestRestartKeepsPortAndData(t *testing.T) {
	t.Parallel()
	for _, mode := range []StopMode{Smart, Fast, Immediate, "none"} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := own(t, Options{})
			conn, err := pgx.Connect(t.Context(), s.URL())
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), "create table kept as select 1 as n")
			require.NoError(t, err)
			require.NoError(t, conn.Close(t.Context()))
			if mode != "none" {
				require.NoError(t, s.Stop(mode))
				requireNoServer(t, s.URL())
				require.NoError(t, s.Stop(mode), "stopping a stopped server does nothing")
			}
			require.NoError(t, s.Restart(t.Context()))
			require.Equal(t, "1", scan(t, s.URL(), "select n::text from kept"))
		})
	}
}

func TestStopRefusesAModeThatIsNone(t *testing.T) {
	t.Parallel()
	s := own(t, Options{})
	require.Error(t, s.Stop("gently"))
	require.Equal(t, "1", scan(t, s.URL(), "select '1'"))
}

func TestASmartStopWaitsForClients(t *testing.T) {
	t.Parallel()
	s := own(t, Options{})
	conn, err := pgx.Connect(t.Context(), s.URL())
	require.NoError(t, err)
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(Smart) }()
	requireSoon(t, "the server takes no new clients", func() bool {
		_, err := serverVersion(t.Context(), s.URL())
		return err != nil
	})
	require.NoError(t, conn.Ping(t.Context()))
	require.NoError(t, conn.Close(t.Context()))
	require.NoError(t, <-stopped)
}

func TestServersDoNotCollide(t *testing.T) {
	t.Parallel()
	a, b := own(t, Options{}), own(t, Options{})
	require.NotEqual(t, a.URL(), b.URL())
	require.NotEqual(t, a.cluster.dir, b.cluster.dir)
	require.NoError(t, a.Close())
	require.Equal(t, "1", scan(t, b.URL(), "select '1'"))
}

// own starts a server for one test.
func own(t *testing.T, opts Options) *Server {
	t.Helper()
	opts.Own = true
	s, err := Start(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// scan runs one statement on a connection of its own and returns its text.
func scan(t *testing.T, url, sql string) (text string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&text))
	return text
}

func requireNoServer(t *testing.T, url string) {
	t.Helper()
	_, err := serverVersion(t.Context(), url)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func requireSoon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			require.FailNow(t, "not in time: "+what)
		}
	}
}
