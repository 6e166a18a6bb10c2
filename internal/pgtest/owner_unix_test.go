//go:build unix

package pgtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The owner cleans up nothing, whatever kills it. The signals go to its whole process group, as a terminal's Ctrl-C does.
func TestTheServerGoesWithItsOwner(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{
		"kill":   syscall.SIGKILL,
		"term":   syscall.SIGTERM,
		"ctrl-c": syscall.SIGINT,
		"hangup": syscall.SIGHUP,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			self, err := os.Executable()
			require.NoError(t, err)
			child := exec.Command(self)
			child.Env = append(os.Environ(), childEnv+"=1")
			child.Stderr = os.Stderr
			child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			stdin, err := child.StdinPipe()
			require.NoError(t, err)
			defer stdin.Close()
			stdout, err := child.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, child.Start())

			var server owned
			require.NoError(t, json.NewDecoder(stdout).Decode(&server))
			require.DirExists(t, filepath.Join(server.Dir, "data"))
			require.Equal(t, "1", scan(t, server.URL, "select '1'"))

			require.NoError(t, syscall.Kill(-child.Process.Pid, sig))
			require.Error(t, child.Wait())
			requireSoon(t, "the folder is gone", func() bool {
				_, err := os.Stat(server.Dir)
				return os.IsNotExist(err)
			})
			requireNoServer(t, server.URL)
		})
	}
}
