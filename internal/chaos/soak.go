package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// soakRate is how many messages come in a second of a soak.
const soakRate = 60.0

// sampleEvery is the pause between two samples.
const sampleEvery = 10 * time.Second

// sample is what is measured at one moment. The first worker is spared the kills,
// so that its memory is that of one long life; it is frozen, cut off and
// redeployed once like the others.
type sample struct {
	at         time.Duration
	rss, heap  int64 // of the first worker, bytes
	goroutines int64
	conns      int64 // of the application's role
	work       int64 // bytes of queue, parked rows, notices, gates, rates and health, with their indexes
	kept       int64 // bytes of what is kept of each message: itself, history, receipts, with their indexes
	messages   int64
}

// watch takes samples until ctx ends. A moment at which something can't be
// asked, since a fault is on, is left out.
func (c *conductor) watch(ctx context.Context) (all []sample) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return all
		case <-tick.C:
		}
		limit, done := context.WithTimeout(ctx, sampleEvery/2)
		s, err := c.sample(limit)
		done()
		if err == nil {
			all = append(all, s)
			fmt.Println(s)
		}
	}
}

func (c *conductor) sample(ctx context.Context) (s sample, err error) {
	s.at = time.Since(c.start)
	p := c.process(workerName(0))
	v, err := askVitals(ctx, p.role.Hook)
	if err != nil {
		return s, err
	}
	s.heap, s.goroutines = int64(v.Heap), int64(v.Goroutines) // #nosec G115 -- bytes of a small process
	p.mu.Lock()
	pid := p.cmd.Process.Pid
	p.mu.Unlock()
	if s.rss, err = residentBytes(pid); err != nil {
		return s, err
	}
	err = c.db.admin.QueryRow(ctx, `select
		(select count(*) from pg_stat_activity where usename = 'app'),
		(select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint from pg_class c where c.relnamespace = '"chaos box"'::regnamespace
			and c.relkind = 'r' and c.relname not in ('message', 'history', 'receipt')),
		(select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint from pg_class c where c.relnamespace = '"chaos box"'::regnamespace
			and c.relkind = 'r' and c.relname in ('message', 'history', 'receipt')),
		(select count(*) from shop.orders)`).Scan(&s.conns, &s.work, &s.kept, &s.messages)
	return s, err
}

func askVitals(ctx context.Context, address string) (v vitals, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/vitals", nil)
	if err != nil {
		return v, err
	}
	client := http.Client{Timeout: sampleEvery / 2}
	res, err := client.Do(req)
	if err != nil {
		return v, err
	}
	defer res.Body.Close()
	err = json.NewDecoder(res.Body).Decode(&v)
	return v, err
}

// residentBytes is what the kernel says that a process holds; 0 where it has no
// /proc.
func residentBytes(pid int) (int64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("statm has %d fields", len(fields))
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

func (s sample) String() string {
	const mib = 1 << 20
	return fmt.Sprintf("%6.0fs  rss %5.1f MiB  heap %5.1f MiB  goroutines %4d  connections %3d  work tables %6.1f MiB  kept %6.1f MiB, %4d bytes each of %d",
		s.at.Seconds(), float64(s.rss)/mib, float64(s.heap)/mib, s.goroutines, s.conns, float64(s.work)/mib, float64(s.kept)/mib,
		s.kept/max(1, s.messages), s.messages)
}

// tellSamples prints the samples in three parts of the run, each by its median,
// and says what has grown from the second to the third.
func tellSamples(all []sample) (problems []error) {
	if len(all) < 9 {
		return []error{fmt.Errorf("%d samples are too few to tell growth", len(all))}
	}
	fmt.Printf("\n%-22s %12s %12s %12s\n", "medians", "first third", "second", "last")
	for _, m := range measures {
		var thirds [3]float64
		for i := range thirds {
			thirds[i] = median(all[len(all)*i/3:len(all)*(i+1)/3], m.of)
		}
		fmt.Printf("%-22s %12.1f %12.1f %12.1f\n", m.name, thirds[0], thirds[1], thirds[2])
		if thirds[2] > thirds[1]*m.most+m.slack {
			problems = append(problems, fmt.Errorf("%s has grown from %.1f to %.1f", m.name, thirds[1], thirds[2]))
		}
	}
	return problems
}

// measures are what must stay flat: at most so many times the value of the
// middle of the run, and some slack for what is small.
var measures = []struct {
	name        string
	of          func(sample) float64
	most, slack float64
}{
	{"rss, MiB", func(s sample) float64 { return float64(s.rss) / (1 << 20) }, 1.15, 8},
	{"heap, MiB", func(s sample) float64 { return float64(s.heap) / (1 << 20) }, 1.15, 4},
	{"goroutines", func(s sample) float64 { return float64(s.goroutines) }, 1.15, 20},
	{"connections", func(s sample) float64 { return float64(s.conns) }, 1.15, 5},
	{"work tables, MiB", func(s sample) float64 { return float64(s.work) / (1 << 20) }, 1.25, 8},
	{"kept bytes a message", func(s sample) float64 { return float64(s.kept) / float64(max(1, s.messages)) }, 1.15, 100},
}

func median(list []sample, of func(sample) float64) float64 {
	values := make([]float64, 0, len(list))
	for _, s := range list {
		values = append(values, of(s))
	}
	slices.Sort(values)
	return values[len(values)/2]
}
