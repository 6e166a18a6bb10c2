//go:build unix

package pgtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// account is the unprivileged user that a server started by root runs as, since PostgreSQL refuses to run as root. Nil
// is ourselves.
type account struct{ uid, gid uint32 }

func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil is ourselves
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &account{uid: uint32(uid), gid: uint32(gid)}, nil
}

// run makes cmd run as the account, in a session of its own: a Ctrl-C in the terminal is for us alone, and what it means
// for the server is the leash's business.
func (a *account) run(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if a != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
}

func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// tempBase is the folder in which clusters get theirs: the system's, unless its name is too long for a socket (104 bytes
// on macOS) or the account could not get there or remove its folder at the end.
func (a *account) tempBase() string {
	base := os.TempDir()
	if len(base) > 60 || a != nil && !openToAll(base) {
		return "/tmp"
	}
	return base
}

func openToAll(dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	need := os.FileMode(0o003) // write and search; above it search alone
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&need != need {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
		dir, need = filepath.Dir(dir), 0o001
	}
}

// lockPackages takes a lock on the folder of Debian's package database. apt-get's own locks are on files inside it; they
// make a second apt-get update fail rather than wait.
func lockPackages(ctx context.Context) (unlock func(), err error) {
	dir, err := os.Open("/var/lib/dpkg")
	if err != nil {
		return nil, err
	}
	unlock = func() { _ = dir.Close() } // the lock goes with the descriptor
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return unlock, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			unlock()
			return nil, err
		}
		select {
		case <-ctx.Done():
			unlock()
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}
