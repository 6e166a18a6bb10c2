package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// fault is one entry of the schedule.
type fault struct {
	at     time.Duration // from the beginning
	kind   string
	target string // a vendor, a process, a path
	last   time.Duration
	n      int // what else the kind needs
}

func (f fault) String() string {
	return fmt.Sprintf("%6.1fs %s %s for %v", f.at.Seconds(), f.kind, f.target, f.last)
}

// The kinds of faults.
const (
	kill      = "kill"      // SIGKILL of a worker or an enqueuer
	freeze    = "freeze"    // SIGSTOP, and SIGCONT after the lease
	crash     = "crash"     // pg_ctl stop -m immediate, and start
	terminate = "terminate" // pg_terminate_backend on all
	snapshot  = "snapshot"  // a transaction that holds xmin back
	crowd     = "crowd"     // every connection of the server is taken
	rowlocks  = "rowlocks"  // another transaction holds rows of the queue
	tablelock = "tablelock" // and the table
	deploy    = "deploy"    // a newer schema under older workers, then newer workers

	silence   = "silence"   // timeout=0 on the way back
	reset     = "reset"     // reset_peer
	latency   = "latency"   // on the way back
	late      = "late"      // on the way there: bytes beyond the lag
	slicer    = "slicer"    // small pieces
	bandwidth = "bandwidth" // a trickle
	limit     = "limit"     // limit_data: the connection ends after so many bytes
	refuse    = "refuse"    // no connection at all
	storm     = "storm"     // 429 with a Retry-After
	outage    = "outage"    // 503, of what was taken and of what wasn't
)

// deck is what happens in each stretch of a run, in an order and with targets
// that the seed draws: whatever the seed, each kind of fault comes.
var deck = []struct {
	kind  string
	times int
}{
	{kill, 6},
	{freeze, 2},
	{crash, 1},
	{terminate, 1},
	{snapshot, 1},
	{crowd, 1},
	{rowlocks, 1},
	{tablelock, 1},
	{silence, 4},
	{reset, 3},
	{latency, 3},
	{late, 1},
	{slicer, 1},
	{bandwidth, 1},
	{limit, 2},
	{refuse, 1},
	{storm, 2},
	{outage, 2},
}

// deckTime is how long one deck lasts.
const deckTime = 40 * time.Second

// workers and enqueuers are the processes of a run.
const (
	workers   = 3
	enqueuers = 2
)

// schedule draws the faults of a run: a pure function of seed and length. The
// steady worker, where it isn't 0, is spared the kills.
func schedule(seed uint64, length time.Duration, steady int) []fault {
	r := rand.New(rand.NewPCG(seed, 0xfa017))
	decks := max(1, int((length+deckTime/2)/deckTime))
	span := length / time.Duration(decks)
	var all []fault
	for d := range decks {
		var cards []fault
		for _, c := range deck {
			for range c.times {
				cards = append(cards, draw(r, c.kind, steady))
			}
		}
		r.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
		step := span / time.Duration(len(cards))
		for i := range cards {
			cards[i].at = time.Duration(d)*span + time.Duration(i)*step + between(r, 0, step)
		}
		all = append(all, cards...)
	}
	all = append(all, fault{at: length * 2 / 5, kind: deploy})
	slices.SortStableFunc(all, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	return all
}

func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}

// draw gives a fault its target and its length.
func draw(r *rand.Rand, kind string, steady int) fault {
	f := fault{kind: kind}
	switch kind {
	case kill:
		// One in six hits an enqueuer; the rest workers.
		if r.IntN(6) == 0 {
			f.target = enqueuerName(r.IntN(enqueuers))
		} else if f.target = workerName(r.IntN(workers)); steady > 0 && f.target == workerName(steady-1) {
			f.target = workerName(steady % workers)
		}
		f.last = between(r, 100*time.Millisecond, 1500*time.Millisecond)
	case freeze:
		f.target = workerName(r.IntN(workers))
		f.last = leaseTime + between(r, 400*time.Millisecond, 2*time.Second)
	case crash:
		f.last = between(r, 100*time.Millisecond, time.Second)
	case snapshot:
		f.last = between(r, 5*time.Second, 10*time.Second)
	case crowd, rowlocks:
		f.last = between(r, 1*time.Second, 2500*time.Millisecond)
	case tablelock:
		f.last = between(r, 500*time.Millisecond, 1500*time.Millisecond)
	case storm:
		f.target = kinds[r.IntN(len(kinds))].name
		f.n = 2 + r.IntN(3)
		f.last = between(r, 500*time.Millisecond, 2*time.Second)
	case outage, refuse, slicer, bandwidth, limit:
		f.target = kinds[r.IntN(len(kinds))].name
		f.n = r.IntN(300)
		f.last = between(r, 1*time.Second, 3*time.Second)
	case late:
		f.target = kinds[r.IntN(len(kinds))].name
		// Later than a look-up is asked first, 5 s after the attempt; and until they
		// have come, since the bytes on their way end with the fault.
		hold := attemptTime + 5*time.Second + between(r, 100*time.Millisecond, time.Second)
		f.n, f.last = int(hold.Milliseconds()), hold+time.Second
	case silence, reset, latency:
		f.target = path(r)
		f.n = 50 + r.IntN(700)
		f.last = between(r, 800*time.Millisecond, 2500*time.Millisecond)
	}
	return f
}

// path is a proxy: in two of three draws a vendor's, else a process's way to
// the database, where a COMMIT is lost then.
func path(r *rand.Rand) string {
	switch r.IntN(6) {
	case 0:
		return databasePath(workerName(r.IntN(workers)))
	case 1:
		return databasePath(enqueuerName(r.IntN(enqueuers)))
	default:
		return kinds[r.IntN(len(kinds))].name
	}
}

func workerName(i int) string            { return fmt.Sprint("worker ", i+1) }
func enqueuerName(i int) string          { return fmt.Sprint("enqueuer ", i+1) }
func databasePath(process string) string { return process + " to postgres" }
