package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-8098fbb7/dispatch/internal/leaks"
)

// stopTimeout is how long a server may take to stop.
const stopTimeout = 30 * time.Second

// cluster is a server in a temporary folder of its own.
type cluster struct {
	bin, dir string
	as       *account
	port     int
	password string
	leash    *leash

	mu      sync.Mutex
	running *exec.Cmd
	exited  chan struct{} // closed when running has ended; nil if it was never started or has been stopped
	removed bool
}

func newCluster(ctx context.Context, bin string, opts Options) (_ *cluster, err error) {
	as, err := serverAccount()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(as.tempBase(), "pgtest-")
	if err != nil {
		return nil, err
	}
	c := &cluster{bin: bin, dir: dir, as: as, password: rand.Text()}
	leaks.Suite.Forbid(c.password)
	if c.leash, err = newLeash(ctx, dir, as); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.remove())
		}
	}()
	if err := as.own(dir); err != nil {
		return nil, err
	}
	if err := c.initdb(ctx); err != nil {
		return nil, err
	}
	// Between the look for a free port and the server's own bind another process may take the port.
	for try := 0; ; try++ {
		if c.port, err = freePort(ctx); err != nil {
			return nil, err
		}
		if err = c.configure(opts); err != nil {
			return nil, err
		}
		if err = c.start(ctx); err == nil {
			return c, nil
		}
		if try == 2 || ctx.Err() != nil {
			return nil, err
		}
	}
}

func (c *cluster) data() string { return filepath.Join(c.dir, "data") }

// poolerPidfile is where the leash looks for a pooler.
func (c *cluster) poolerPidfile() string { return filepath.Join(c.dir, "pooler.pid") }

func (c *cluster) url() string {
	return fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", c.password, c.port)
}

// initdb makes the data folder. Its superuser has a password, since on a shared machine the port is everybody's.
func (c *cluster) initdb(ctx context.Context) error {
	pwfile := filepath.Join(c.dir, "password")
	if err := os.WriteFile(pwfile, []byte(c.password), 0o600); err != nil {
		return err
	}
	if err := c.as.own(pwfile); err != nil {
		return err
	}
	//nolint:gosec // the folder is find's
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "initdb"), "--pgdata="+c.data(), "--username=postgres",
		"--pwfile="+pwfile, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync")
	cmd.Dir = c.dir
	cmd.Env = environ()
	cmd.WaitDelay = time.Second
	c.as.run(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: initdb: %w: %s", err, lastLine(out))
	}
	return nil
}

var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

// configure writes our settings to the file that the server reads last.
func (c *cluster) configure(opts Options) error {
	settings := map[string]string{
		"max_connections":  "300",
		"fsync":            strconv.FormatBool(opts.Fsync),
		"full_page_writes": strconv.FormatBool(opts.Fsync),
		"timezone":         "UTC",
		"log_timezone":     "UTC",
	}
	maps.Copy(settings, opts.Settings)
	maps.Copy(settings, map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(c.port),
		"unix_socket_directories": c.dir,
	})
	quote := strings.NewReplacer(`\`, `\\`, `'`, `''`, "\n", `\n`)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if !settingName.MatchString(name) {
			return fmt.Errorf("pgtest: %q is no name of a setting", name)
		}
		fmt.Fprintf(&b, "%s = '%s'\n", name, quote.Replace(settings[name]))
	}
	auto := filepath.Join(c.data(), "postgresql.auto.conf")
	if err := os.WriteFile(auto, []byte(b.String()), 0o600); err != nil {
		return err
	}
	return c.as.own(auto)
}

// start starts the server and waits until it accepts connections.
func (c *cluster) start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removed {
		return errors.New("pgtest: the server is closed")
	}
	logfile, err := os.Create(filepath.Join(c.dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = logfile.Close() }() // the server has its own
	// The server must outlive ctx, which bounds the start only; stop and the leash end it.
	//nolint:gosec // the folder is find's
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(c.bin, "postgres"), "-D", c.data())
	cmd.Dir = c.dir
	cmd.Env = environ()
	cmd.Stdout, cmd.Stderr = logfile, logfile
	c.as.run(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(exited)
	}()
	c.running, c.exited = cmd, exited

	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		// If another server has our port, it refuses our password, and ours is about to exit.
		_, err := serverVersion(ctx, c.url())
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			c.exited = nil
			return fmt.Errorf("pgtest: the server ended at its start: %s", logTail(logfile.Name()))
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("pgtest: waiting for the server: %w: %w", ctx.Err(), err), c.halt(Immediate, stopTimeout))
		case <-tick.C:
		}
	}
}

func (c *cluster) stop(mode StopMode, timeout time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.halt(mode, timeout)
}

// halt is stop for those who hold the lock.
func (c *cluster) halt(mode StopMode, timeout time.Duration) error {
	var sig syscall.Signal
	switch mode {
	case Smart:
		sig = syscall.SIGTERM
	case Fast:
		sig = syscall.SIGINT
	case Immediate:
		sig = syscall.SIGQUIT
	default:
		return fmt.Errorf("pgtest: %q is no way to stop a server", mode)
	}
	if c.exited == nil {
		return nil
	}
	if err := c.running.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-c.exited:
		c.exited = nil
		return nil
	case <-timer.C:
		return fmt.Errorf("pgtest: the server still runs %v after a %s stop", timeout, mode)
	}
}

// remove ends the server and removes the folder. The leash would do both; ending our own child here is quicker, and leaves
// no zombie.
func (c *cluster) remove() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removed {
		return nil
	}
	c.removed = true
	return errors.Join(c.halt(Immediate, stopTimeout), c.leash.let(), os.RemoveAll(c.dir))
}

// logTail is the end of a log, on one line.
func logTail(file string) string {
	text, err := os.ReadFile(file) //nolint:gosec // a file of our own
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "; ")
}

// freePort finds a port that nobody listens on, below those that systems give to outgoing connections: there one of the
// program's own connections could take it while the server is down between Stop and Restart.
func freePort(ctx context.Context) (int, error) {
	var err error
	for range 100 {
		port := 20000 + mathrand.IntN(12000)
		var l net.Listener
		l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("pgtest: no free port: %w", err)
}
