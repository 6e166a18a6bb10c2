package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/pprof"
)

// noop: a worker whose sends cost nothing.
func noop(ctx context.Context, b *bench) error {
	const slots = 1000
	var s [2]workedSeries
	err := b.each(ctx, func(ctx context.Context, p peer) error {
		stop, err := b.startProfile(p)
		if err != nil {
			return err
		}
		m, err := measureWorked(ctx, p, workload{messages: b.noop, slots: slots, limit: patience})
		stop()
		s[b.index(p)].add(m)
		return err
	})
	if err != nil {
		return fmt.Errorf("worked, no-op: %w", err)
	}
	compare(fmt.Sprintf("worked, no-op, %d slots", slots), "/s", s[0].rate, s[1].rate)
	compare("  CPU per message, client and server", "µs", s[0].cpu, s[1].cpu)
	compare("  log per message", "bytes", s[0].wal, s[1].wal)
	b.result.put("worked_noop_ratio", ratio(s[0].rate, s[1].rate))
	b.result.put("cpu_ratio", ratio(s[0].cpu, s[1].cpu))
	b.result.put("wal_ratio", ratio(s[0].wal, s[1].wal))
	return nil
}

func (b *bench) index(p peer) int {
	if p == peer(b.ours) {
		return 0
	}
	return 1
}

// startProfile profiles this library's worker where the flag asks for it.
func (b *bench) startProfile(p peer) (stop func(), err error) {
	if b.profile == "" || p != peer(b.ours) {
		return func() {}, nil
	}
	f, err := os.Create(b.profile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}, nil
}

// enqueue: a business row and a message in one transaction.
func enqueue(ctx context.Context, b *bench) error {
	for _, g := range b.goroutines {
		if err := b.enqueueWith(ctx, g); err != nil {
			return fmt.Errorf("enqueue, %d goroutines: %w", g, err)
		}
	}
	return nil
}

func (b *bench) enqueueWith(ctx context.Context, goroutines int) error {
	var plain, piped, river, alone enqueuedSeries
	measure := func(ctx context.Context, p peer, s *enqueuedSeries, tx transaction, messages bool) error {
		m, err := measureEnqueue(ctx, p, b.urls[p.name()], goroutines, b.mode.enqueue, tx, messages)
		s.add(m)
		return err
	}
	err := b.each(ctx, func(ctx context.Context, p peer) error {
		if b.index(p) != 0 {
			return measure(ctx, p, &river, p.transact, true)
		}
		if err := measure(ctx, p, &plain, p.transact, true); err != nil {
			return err
		}
		if err := measure(ctx, p, &piped, b.ours.pipeline, true); err != nil {
			return err
		}
		return measure(ctx, p, &alone, transactAlone, false)
	})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("enqueue, %d goroutines", goroutines)
	compare(name, "/s", plain.rate, river.rate)
	compare(name+", pipelined", "/s", piped.rate, river.rate)
	compare("  p50", "µs", plain.p50, river.p50)
	compare("  p50, pipelined", "µs", piped.p50, river.p50)
	compare("  CPU per commit", "µs", plain.cpu, river.cpu)
	compare("  CPU per commit, pipelined", "µs", piped.cpu, river.cpu)
	compare("  log per commit", "bytes", plain.wal, river.wal)
	fmt.Printf("  the business row alone: %s /s, p50 %s µs, CPU %s µs\n", alone.rate, alone.p50, alone.cpu)
	if goroutines == 8 {
		b.result.put("enqueue_ratio", ratio(plain.rate, river.rate))
		b.result.put("enqueue_pipelined_ratio", ratio(piped.rate, river.rate))
	}
	return nil
}

// riverVersion is what go.mod says.
func riverVersion() string {
	info, _ := debug.ReadBuildInfo()
	if info != nil {
		for _, d := range info.Deps {
			if d.Path == "github.com/riverqueue/river" {
				return d.Version
			}
		}
	}
	return "of unknown version"
}
