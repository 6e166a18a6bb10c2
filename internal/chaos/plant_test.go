package main

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The oldest bug, no word of a send taken for a failure, put into the running
// system: the run fails and says why. A checker that passed this would pass
// anything.
func TestAPlantedBugIsFound(t *testing.T) {
	program := filepath.Join(t.TempDir(), "chaos")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	out, err = exec.CommandContext(ctx, program, "-plant", "doubt", "-messages", "1200", "-seconds", "20", "-seed", "3", "-dir", t.TempDir()).Output()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "%v\n%s", err, out)
	require.Equal(t, 1, exit.ExitCode(), "%s\n%s", out, exit.Stderr)
	require.Regexp(t, `violation: \S+ \((searched|echoing|mute|brief|pair)\): delivered \d times`, string(out), "%s", exit.Stderr)
	// What is dead and was delivered all the same counts as lost.
	found := regexp.MustCompile(`RESULT messages=1200 lost=\d+ duplicates=(\d+) `).FindStringSubmatch(string(out))
	require.NotNil(t, found, "%s", out)
	require.NotEqual(t, "0", found[1])
}
