package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stat is a line of /proc/PID/stat with the figures that are read.
func stat(name, parent, utime, stime, cutime, cstime string) []byte {
	return []byte("42 (" + name + ") S " + parent + " 42 42 0 -1 4194624 1 2 3 4 " + utime + " " + stime + " " + cutime + " " + cstime +
		" 20 0 1 0 1234 5678 90 18446744073709551615\n")
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	p, err := parseStat(stat("postgres: a) S 1 (b", "7", "100", "20", "3", "4"))
	require.NoError(t, err)
	require.Equal(t, process{parent: 7, own: 120, ended: 7}, p)
	for _, bad := range []string{"", "42", "42 (x", "42 (x) S 1 2", "42 (x) S x 42 42 0 -1 4194624 1 2 3 4 1 1 1 1 20"} {
		_, err := parseStat([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestServerCPUHasEveryProcessOnce(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	for pid, b := range map[string][]byte{
		"10": stat("postgres", "1", "5", "5", "1000", "500"), // the first one, and what has ended below it
		"11": stat("postgres: backend", "10", "100", "0", "0", "0"),
		"12": stat("postgres: walwriter", "10", "0", "20", "0", "0"),
		"13": stat("another server", "1", "7777", "0", "0", "0"),
		"14": stat("its backend", "13", "7777", "0", "0", "0"),
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(proc, pid), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(proc, pid, "stat"), b, 0o600))
	}
	cpu, err := serverCPU(proc, 11)
	require.NoError(t, err)
	require.Equal(t, 1630*tick, cpu)
	_, err = serverCPU(proc, 99)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestCostPerMessage(t *testing.T) {
	t.Parallel()
	cpu, wal := cost{cpu: 3 * time.Second, wal: 1500}.since(cost{cpu: time.Second, wal: 500}, 100)
	require.InDelta(t, 20_000, cpu, 0)
	require.InDelta(t, 10, wal, 0)
	cpu, _ = cost{cpu: time.Second}.since(cost{cpu: -1}, 1)
	require.True(t, math.IsNaN(cpu))
}
