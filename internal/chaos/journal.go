package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// journal is an append-only file of JSON lines. Each line is one write, so that
// what was noted before a SIGKILL stays. It is safe for concurrent use.
type journal struct {
	mu  sync.Mutex
	out *os.File
	err error
}

// openJournal opens a file to append to. What a killed process left of a line
// is cut off.
func openJournal(path string) (*journal, error) {
	old, err := os.ReadFile(path) // #nosec G304 -- a file of our own
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) // #nosec G304 -- as above
	if err != nil {
		return nil, err
	}
	if whole := bytes.LastIndexByte(old, '\n') + 1; whole < len(old) {
		if err := f.Truncate(int64(whole)); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return &journal{out: f}, nil
}

// note appends a line. Its first error is kept for close: a run whose ledger
// has holes proves nothing.
func (j *journal) note(line any) {
	text, err := json.Marshal(line)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil {
		_, err = j.out.Write(append(text, '\n'))
	}
	if j.err == nil {
		j.err = err
	}
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return errors.Join(j.err, j.out.Close())
}

// readJournal reads the lines of a file. A last line without its end is that
// of a process that was killed while it wrote, and is left out.
func readJournal[T any](path string) (lines []T, err error) {
	f, err := os.Open(path) // #nosec G304 -- a file of our own
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	for r := bufio.NewReaderSize(f, 1<<16); ; {
		text, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		var line T
		if err := json.Unmarshal(text, &line); err != nil {
			return lines, err
		}
		lines = append(lines, line)
	}
}

// call is a line of the fakes' ledger: one request to a vendor.
type call struct {
	Vendor  string    `json:"vendor"`
	Key     string    `json:"key"`
	Attempt int64     `json:"attempt,omitempty"` // 0 for a look-up
	Begin   time.Time `json:"begin"`             // when its header was read
	At      time.Time `json:"at"`                // when it was decided
	Verdict string    `json:"verdict"`
}

// What a fake did with a call.
const (
	delivered = "delivered" // a message went out
	replayed  = "replayed"  // it knew the key: nothing went out
	refused   = "refused"
	throttled = "throttled" // refused, with a Retry-After
	present   = "present"   // look-ups
	absent    = "absent"
	silent    = "silent" // of a look-up: an error that says nothing
)

// attempt is a line of a worker's adapter: a send that began, or that ended.
type attempt struct {
	Vendor  string    `json:"vendor"`
	Key     string    `json:"key"`
	Attempt int64     `json:"attempt"`
	Worker  int       `json:"worker"`
	Begin   time.Time `json:"begin,omitzero"`
	End     time.Time `json:"end,omitzero"`
}

// enqueued is a line of an enqueuer. "tried" comes before the transaction,
// "confirmed" after the answer to its COMMIT.
type enqueued struct {
	N     int       `json:"n"`
	What  string    `json:"what"` // tried, confirmed, there, ghost
	At    time.Time `json:"at"`
	Error string    `json:"error,omitempty"`
}

// struck is a line of the conductor: a fault that was carried out.
type struck struct {
	Fault  string    `json:"fault"`
	Target string    `json:"target,omitempty"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Error  string    `json:"error,omitempty"`
}

// told is a line of a worker: a notice that it was given.
type told struct {
	Key   string `json:"key"`
	Event int    `json:"event"`
}
