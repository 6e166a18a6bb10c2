package console

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// Bounds of what runs in the background.
const (
	maxRunning = 2         // jobs at once: each takes a few connections of the pool
	maxKept    = 50        // that are shown, finished ones included
	jobTime    = time.Hour // that a job may take; starting it again goes on
)

// jobs are the bulk actions of this process. The zero value is ready. Each runs
// in a goroutine of its own, which ends with the job: when it is done, when
// somebody stops it, after jobTime, or in close.
type jobs struct {
	mu     sync.Mutex
	list   []*job // the newest first
	closed bool
	wg     sync.WaitGroup
}

// job is a bulk action. Its fields are jobs' to guard.
type job struct {
	id     string
	spec   jobSpec
	began  time.Time
	ended  time.Time // zero while it runs
	stopBy string
	got    outbox.Progress
	err    error
	cancel context.CancelFunc
}

// jobSpec is what was asked for.
type jobSpec struct {
	Verb   verb
	Filter filterForm
	Audit  outbox.Audit
	Total  int64 // how many there are, as far as is known; 0 where it isn't
	About  bool  // that this is an estimate
}

// Why no job is started.
var (
	errClosed  = errors.New("console is closed")
	errTooMany = errors.New("too many jobs run")
)

// start runs a job and returns its id.
func (j *jobs) start(ctx context.Context, spec jobSpec, now func() time.Time,
	run func(ctx context.Context, progress func(outbox.Progress)) (outbox.Progress, error),
) (id string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	running := 0
	for _, k := range j.list {
		if k.ended.IsZero() {
			running++
		}
	}
	switch {
	case j.closed:
		return "", errClosed
	case running >= maxRunning:
		return "", errTooMany
	}
	// It outlives the request that started it, but not for ever.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), jobTime)
	k := &job{id: rand.Text()[:12], spec: spec, began: now(), cancel: cancel}
	j.list = slices.Insert(j.list, 0, k)
	for i := len(j.list) - 1; len(j.list) > maxKept && i >= 0; i-- {
		if !j.list[i].ended.IsZero() {
			j.list = slices.Delete(j.list, i, i+1)
		}
	}
	j.wg.Go(func() {
		defer cancel()
		got, err := run(ctx, func(p outbox.Progress) {
			j.mu.Lock()
			defer j.mu.Unlock()
			k.got = p
		})
		j.mu.Lock()
		defer j.mu.Unlock()
		k.got, k.err, k.ended = got, err, now()
	})
	return k.id, nil
}

// stop asks a job to stop after the messages that it is at.
func (j *jobs) stop(id, by string) (ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, k := range j.list {
		if k.id == id {
			if k.ended.IsZero() && k.stopBy == "" {
				k.stopBy = by
			}
			k.cancel()
			return true
		}
	}
	return false
}

// close stops all jobs and waits for them.
func (j *jobs) close() {
	j.mu.Lock()
	j.closed = true
	for _, k := range j.list {
		k.cancel()
	}
	j.mu.Unlock()
	j.wg.Wait()
}

// tally is a count with its name.
type tally struct {
	Name  string
	Count int
}

// jobView is a job as a page shows it.
type jobView struct {
	ID, Verb, Words, By, Why string
	Began, Ended             time.Time
	Running                  bool
	Outcome                  string // in words
	StopBy                   string
	Matched                  int
	Total                    int64
	About                    bool
	Done, Refused            []tally
	Query                    string // of the filter
}

// views are the jobs, or the one with the id.
func (j *jobs) views(id string) (out []jobView) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, k := range j.list {
		if id == "" || k.id == id {
			out = append(out, k.view())
		}
	}
	return out
}

func (k *job) view() jobView {
	v := jobView{
		ID: k.id, Verb: k.spec.Verb.Label, Words: k.spec.Filter.Words(), By: k.spec.Audit.By, Why: k.spec.Audit.Why, Query: k.spec.Filter.Query(),
		Began: k.began, Ended: k.ended, Running: k.ended.IsZero(), StopBy: k.stopBy, Matched: k.got.Matched, Total: k.spec.Total, About: k.spec.About,
	}
	switch {
	case v.Running && k.stopBy != "":
		v.Outcome = "stopping"
	case v.Running:
		v.Outcome = "running"
	case k.err == nil:
		v.Outcome = "done"
	case k.stopBy != "":
		v.Outcome = "stopped by " + k.stopBy
	case errors.Is(k.err, context.DeadlineExceeded):
		v.Outcome = "stopped: it took longer than " + long(jobTime) + ". Start it again to go on"
	case errors.Is(k.err, context.Canceled):
		v.Outcome = "stopped: the process is shutting down"
	default:
		v.Outcome = "stopped by an error, which is in the application's log. Start it again to go on"
	}
	for state := dispatch.Pending; state <= dispatch.Cancelled; state++ {
		if n := k.got.Done[state]; n > 0 {
			v.Done = append(v.Done, tally{state.String(), n})
		}
	}
	for _, r := range refusals {
		if n := k.got.Refused[r.err]; n > 0 {
			v.Refused = append(v.Refused, tally{r.words, n})
		}
	}
	return v
}
