package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// cost is what has been used so far: by this process and the server together.
type cost struct {
	cpu time.Duration // negative where it can't be known
	wal int64         // bytes written to the log
}

// since is the cost per message between two readings: microseconds of CPU and
// bytes of log. The CPU is not a number where it can't be known.
func (c cost) since(before cost, messages int) (cpu, wal float64) {
	cpu = math.NaN()
	if c.cpu >= 0 && before.cpu >= 0 {
		cpu = float64(c.cpu-before.cpu) / float64(time.Microsecond) / float64(messages)
	}
	return cpu, float64(c.wal-before.wal) / float64(messages)
}

// spent reads the costs. The server's CPU is that of every process below its
// first one, and of those that have ended.
func spent(ctx context.Context, pool *pgxpool.Pool) (cost, error) {
	c := cost{cpu: -1}
	var backend int64
	err := pool.QueryRow(ctx, "select pg_backend_pid()::bigint, (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").Scan(&backend, &c.wal)
	if err != nil {
		return c, err
	}
	server, err := serverCPU("/proc", int(backend))
	if errors.Is(err, os.ErrNotExist) {
		return c, nil // no /proc: not Linux
	}
	if err != nil {
		return c, err
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return c, err
	}
	c.cpu = server + time.Duration(u.Utime.Nano()+u.Stime.Nano())
	return c, nil
}

// tick is the unit of /proc: USER_HZ is 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// process is what /proc says about one.
type process struct {
	parent int
	own    int64 // ticks, user and system
	ended  int64 // ticks of its children that have ended
}

// parseStat reads /proc/PID/stat. The name may hold blanks and parentheses.
func parseStat(b []byte) (p process, err error) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return p, errors.New("stat of a process has no name")
	}
	f := bytes.Fields(b[end+1:])
	if len(f) < 15 {
		return p, fmt.Errorf("stat of a process has %d fields after its name, want 15", len(f))
	}
	var n [5]int64
	for i, at := range [...]int{1, 11, 12, 13, 14} { // ppid, utime, stime, cutime, cstime
		if n[i], err = strconv.ParseInt(string(f[at]), 10, 64); err != nil {
			return p, fmt.Errorf("stat of a process: %w", err)
		}
	}
	return process{parent: int(n[0]), own: n[1] + n[2], ended: n[3] + n[4]}, nil
}

// serverCPU adds up the server that the backend belongs to. A process that
// ends between the reading of its parent and its own would be missed, so it is
// read again until none has.
func serverCPU(proc string, backend int) (time.Duration, error) {
	p, err := readStat(proc, strconv.Itoa(backend))
	if err != nil {
		return 0, err
	}
	parent := strconv.Itoa(p.parent)
	first, err := readStat(proc, parent)
	if err != nil {
		return 0, err
	}
	for range 50 {
		sum, err := childrenCPU(proc, p.parent)
		if err != nil {
			return 0, err
		}
		again, err := readStat(proc, parent)
		if err != nil {
			return 0, err
		}
		if again.ended == first.ended {
			return time.Duration(sum+again.own+again.ended) * tick, nil
		}
		first = again
	}
	return 0, errors.New("the server's processes end too often to be counted")
}

func childrenCPU(proc string, parent int) (sum int64, err error) {
	paths, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		child, err := readStat(proc, filepath.Base(path))
		if err == nil && child.parent == parent {
			sum += child.own
		} // an error: it has ended since, which its parent tells
	}
	return sum, nil
}

func readStat(proc, pid string) (process, error) {
	b, err := os.ReadFile(filepath.Join(proc, pid, "stat")) // #nosec G304 -- of a process
	if err != nil {
		return process{}, err
	}
	return parseStat(b)
}
