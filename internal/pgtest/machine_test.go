package pgtest

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeMachine has the programs named by their full paths, apt-get and sudo among them or not.
type fakeMachine struct {
	env      map[string]string
	onPath   map[string]string // name → full path
	programs map[string]bool   // full paths
	sudo     bool              // sudo -n works
	apt      map[string]error  // what apt-get's update and install end in
	brings   []string          // programs that apt-get install brings
	ran      []string
	locked   func() // runs when the lock is taken
}

func (f *fakeMachine) machine() machine {
	return machine{
		getenv: func(name string) string { return f.env[name] },
		lookPath: func(file string) (string, error) {
			if path, ok := f.onPath[file]; ok {
				return path, nil
			}
			if f.programs[file] {
				return file, nil
			}
			return "", exec.ErrNotFound
		},
		glob: func(pattern string) ([]string, error) {
			dirs := map[string]bool{}
			for program := range f.programs {
				dir := filepath.Dir(program)
				if ok, err := filepath.Match(pattern, dir); err != nil {
					return nil, err
				} else if ok {
					dirs[dir] = true
				}
			}
			return slices.Sorted(maps.Keys(dirs)), nil
		},
		run: func(_ context.Context, name string, args ...string) ([]byte, error) {
			command := strings.Join(append([]string{name}, args...), " ")
			f.ran = append(f.ran, command)
			if command == "sudo -n true" {
				if f.sudo {
					return nil, nil
				}
				return nil, errors.New("exit status 1")
			}
			for verb, err := range f.apt {
				if strings.Contains(command, " "+verb) && err != nil {
					return []byte("Reading...\nE: no network\n"), err
				}
			}
			if strings.Contains(command, " install ") {
				f.add(f.brings...)
			}
			return nil, nil
		},
		lock: func(context.Context) (func(), error) {
			if f.locked != nil {
				f.locked()
			}
			return func() {}, nil
		},
		log: slog.New(slog.DiscardHandler),
	}
}

func (f *fakeMachine) add(dirs ...string) *fakeMachine {
	if f.programs == nil {
		f.programs = map[string]bool{}
	}
	for _, dir := range dirs {
		f.programs[dir+"/postgres"] = true
		f.programs[dir+"/initdb"] = true
	}
	return f
}

func TestFindTakesPathThenTheNewest(t *testing.T) {
	t.Parallel()
	f := (&fakeMachine{}).add("/usr/lib/postgresql/9.6/bin", "/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/16/bin",
		"/opt/homebrew/opt/postgresql@18/bin")
	delete(f.programs, "/usr/lib/postgresql/16/bin/initdb") // half a server is none
	dir, err := f.machine().find(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, "/usr/lib/postgresql/15/bin", dir)

	f.add("/custom/bin").onPath = map[string]string{"postgres": "/custom/bin/postgres"}
	dir, err = f.machine().find(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, "/custom/bin", dir)

	dir, err = f.machine().find(t.Context(), "/usr/lib/postgresql/9.6/bin")
	require.NoError(t, err)
	require.Equal(t, "/usr/lib/postgresql/9.6/bin", dir)

	_, err = f.machine().find(t.Context(), "/nowhere")
	require.ErrorContains(t, err, "/nowhere")
	require.Empty(t, f.ran)
}

func TestNoServerIsOneLine(t *testing.T) {
	t.Parallel()
	broken := errors.New("exit status 100")
	apt := map[string]string{"apt-get": "/usr/bin/apt-get"}
	for name, f := range map[string]*fakeMachine{
		"no apt-get":        {},
		"no sudo":           {onPath: apt},
		"update fails":      {onPath: apt, sudo: true, apt: map[string]error{"update": broken}},
		"install fails":     {onPath: apt, sudo: true, apt: map[string]error{"install": broken}},
		"install is hollow": {onPath: apt, sudo: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := start(t.Context(), f.machine(), Options{})
			require.ErrorIs(t, err, errNone)
			require.Contains(t, err.Error(), "DATABASE_URL")
			require.Contains(t, err.Error(), "apt-get install postgresql")
			require.NotContains(t, err.Error(), "\n")
			if f.apt != nil {
				require.ErrorIs(t, err, broken)
				require.Contains(t, err.Error(), "E: no network")
			}
		})
	}
}

// The real look-ups on an emptied PATH, with no folder of a package.
func TestNoServerWithAnEmptyPath(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("DATABASE_URL", "")
	m := thisMachine()
	m.glob = func(string) ([]string, error) { return nil, nil }
	_, err := start(t.Context(), m, Options{})
	require.Equal(t, errNone, err)
}

func TestInstall(t *testing.T) {
	t.Parallel()
	const apt = "env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "
	for name, root := range map[string]bool{"root": true, "sudo": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fakeMachine{
				onPath: map[string]string{"apt-get": "/usr/bin/apt-get"},
				sudo:   true,
				brings: []string{"/usr/lib/postgresql/17/bin"},
			}
			m := f.machine()
			m.root = root
			dir, err := m.find(t.Context(), "")
			require.NoError(t, err)
			require.Equal(t, "/usr/lib/postgresql/17/bin", dir)
			if root {
				require.Equal(t, []string{apt + "update", apt + "install -y --no-install-recommends postgresql"}, f.ran)
			} else {
				require.Equal(t, []string{
					"sudo -n true", "sudo -n " + apt + "update",
					"sudo -n " + apt + "install -y --no-install-recommends postgresql",
				}, f.ran)
			}
		})
	}
}

func TestInstallOnlyOnceForSeveralProcesses(t *testing.T) {
	t.Parallel()
	f := &fakeMachine{onPath: map[string]string{"apt-get": "/usr/bin/apt-get"}}
	f.locked = func() { f.add("/usr/lib/postgresql/17/bin") } // another process, while we waited for the lock
	m := f.machine()
	m.root = true
	dir, err := m.find(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, "/usr/lib/postgresql/17/bin", dir)
	require.Empty(t, f.ran)
}

func TestDatabaseURLIsUsedAndNeverStopped(t *testing.T) {
	t.Parallel()
	theirs := own(t, Options{})
	// Nothing but DATABASE_URL: were it ignored, there would be no server.
	f := &fakeMachine{env: map[string]string{"DATABASE_URL": theirs.URL()}}
	s, err := start(t.Context(), f.machine(), Options{})
	require.NoError(t, err)
	require.Equal(t, theirs.URL(), s.URL())
	require.Equal(t, theirs.Version(), s.Version())

	require.ErrorIs(t, s.Stop(Fast), ErrNotOwned)
	require.ErrorIs(t, s.Restart(t.Context()), ErrNotOwned)
	require.NoError(t, s.Close())
	require.Equal(t, "1", scan(t, theirs.URL(), "select '1'"))

	_, err = start(t.Context(), f.machine(), Options{Own: true})
	require.ErrorIs(t, err, errNone)
}

func TestADatabaseURLThatDoesNotAnswerIsAnError(t *testing.T) {
	t.Parallel()
	gone := own(t, Options{})
	require.NoError(t, gone.Close())
	f := (&fakeMachine{env: map[string]string{"DATABASE_URL": gone.URL()}}).add("/usr/lib/postgresql/17/bin")
	_, err := start(t.Context(), f.machine(), Options{})
	require.ErrorContains(t, err, "DATABASE_URL")
	require.NotContains(t, err.Error(), gone.cluster.password)
}
