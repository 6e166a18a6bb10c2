package pgtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// errNone is the one line for whoever has no server.
var errNone = errors.New("pgtest: no PostgreSQL server programs found: install them (apt-get install postgresql, " +
	"brew install postgresql) or set DATABASE_URL")

// serverFolders are where packages put the server programs without putting them on PATH.
var serverFolders = []string{
	"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
	"/usr/pgsql-*/bin",          // Red Hat
	"/usr/libexec/postgresql*",  // Alpine
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/opt/homebrew/bin",
}

// machine is what finding a server asks of the machine.
type machine struct {
	getenv   func(string) string
	lookPath func(string) (string, error)
	glob     func(string) ([]string, error)
	// run runs a command and returns what it printed.
	run func(ctx context.Context, name string, args ...string) ([]byte, error)
	// lock holds off the other processes that are about to install the same.
	lock func(context.Context) (unlock func(), err error)
	root bool
	log  *slog.Logger
}

func thisMachine() machine {
	return machine{
		getenv:   os.Getenv,
		lookPath: exec.LookPath,
		glob:     filepath.Glob,
		run: func(ctx context.Context, name string, args ...string) ([]byte, error) {
			//nolint:gosec // the commands are install's
			return exec.CommandContext(ctx, name, args...).CombinedOutput()
		},
		lock: lockPackages,
		root: os.Geteuid() == 0,
		log:  slog.New(slog.NewTextHandler(os.Stderr, nil)), // Main takes the default
	}
}

// find returns the folder with the server programs: bin if it is set, else the first one found, else what it can install.
func (m machine) find(ctx context.Context, bin string) (string, error) {
	if bin != "" {
		if !m.complete(bin) {
			return "", fmt.Errorf("pgtest: postgres and initdb are not in %s", bin)
		}
		return bin, nil
	}
	if dir, ok := m.look(); ok {
		return dir, nil
	}
	return m.install(ctx, "postgresql", errNone, m.look)
}

func (m machine) look() (dir string, ok bool) {
	var dirs []string
	if path, err := m.lookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
		// A link on PATH stands alone; initdb is beside what it points to.
		if real, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
	}
	for _, pattern := range serverFolders {
		found, err := m.glob(pattern)
		if err != nil {
			continue // only a bad pattern
		}
		slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(folderVersion(b), folderVersion(a)) })
		dirs = append(dirs, found...)
	}
	i := slices.IndexFunc(dirs, m.complete)
	if i < 0 {
		return "", false
	}
	return dirs[i], true
}

// complete reports whether dir has the programs that a cluster needs; a client package brings only some.
func (m machine) complete(dir string) bool {
	for _, name := range []string{"postgres", "initdb"} {
		if _, err := m.lookPath(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

var versionInPath = regexp.MustCompile(`\d+(\.\d+)?`)

// folderVersion is the number in a folder's name, so that 16 comes before 9.6.
func folderVersion(dir string) float64 {
	v, err := strconv.ParseFloat(versionInPath.FindString(dir), 64)
	if err != nil {
		return 0
	}
	return v
}

// Program returns the full name of the first of the programs, looked up as [exec.LookPath] does, that is on this machine.
// Where there is none it installs Debian's package with apt-get first, if that needs no password.
func Program(ctx context.Context, pkg string, names ...string) (string, error) {
	return thisMachine().program(ctx, pkg, names...)
}

func (m machine) program(ctx context.Context, pkg string, names ...string) (string, error) {
	look := func() (string, bool) {
		for _, name := range names {
			if path, err := m.lookPath(name); err == nil {
				return path, true
			}
		}
		return "", false
	}
	if path, ok := look(); ok {
		return path, nil
	}
	return m.install(ctx, pkg, fmt.Errorf("pgtest: no %s found: install it (apt-get install %[1]s)", pkg), look)
}

// install brings a package by apt-get, if there is one and it needs no password, and returns what look then finds. none is
// the error of whoever has to do it by hand.
func (m machine) install(ctx context.Context, name string, none error, look func() (string, bool)) (string, error) {
	if _, err := m.lookPath("apt-get"); err != nil {
		return "", none
	}
	var command []string
	if !m.root {
		if _, err := m.run(ctx, "sudo", "-n", "true"); err != nil {
			return "", none
		}
		command = []string{"sudo", "-n"}
	}
	command = append(command, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=300")

	// go test runs the test programs of several packages at once: one installs, the others wait for it and then find it.
	unlock, err := m.lock(ctx)
	if err != nil {
		return "", fmt.Errorf("pgtest: waiting to install %s: %w", name, err)
	}
	defer unlock()
	if found, ok := look(); ok {
		return found, nil
	}
	m.log.InfoContext(ctx, "pgtest: installing with apt-get", "package", name)
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", name}} {
		args = append(slices.Clone(command), args...)
		if out, err := m.run(ctx, args[0], args[1:]...); err != nil {
			return "", fmt.Errorf("%w (%s: %w: %s)", none, strings.Join(args, " "), err, lastLine(out))
		}
	}
	found, ok := look()
	if !ok {
		return "", none
	}
	return found, nil
}

func lastLine(out []byte) string {
	text := strings.TrimSpace(string(out))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
