// Chaos runs the whole path with real faults, and checks what came of it: real
// processes that are killed and frozen, a real Postgres that crashes, the real
// Toxiproxy on every connection, and fakes of each kind of vendor whose
// counters are outside of what is tested.
//
//	go run . -messages 20000 -seconds 150 -seed 1
//	go run . -soak 30
//
// Its last line is the result:
//
//	RESULT messages=20000 lost=0 duplicates=0 held=1187 kills=24 pg_crashes=4 residue=3
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if r, ok, err := childRole(); ok || err != nil {
		os.Exit(child(r, err))
	}
	var o options
	seconds := flag.Int("seconds", 150, "how long messages and faults come")
	soak := flag.Int("soak", 0, "minutes of steady load, with samples of memory and sizes; messages and seconds follow from it")
	flag.IntVar(&o.messages, "messages", 20000, "how many messages are enqueued")
	flag.Uint64Var(&o.seed, "seed", 1, "what messages, faults and chances are drawn from")
	flag.StringVar(&o.dir, "dir", "", "a folder that keeps the ledger; empty keeps it where the check fails")
	flag.StringVar(&o.plant, "plant", "", "a bug to plant, which must make the check fail: doubt, loss or evidence")
	flag.Parse()
	o.length = time.Duration(*seconds) * time.Second
	if *soak > 0 {
		o.soak, o.length = true, time.Duration(*soak)*time.Minute
		o.messages = int(o.length.Seconds() * soakRate)
	}
	if _, ok := plants[o.plant]; o.messages < 1 || o.length < time.Second || o.plant != "" && !ok || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// child is the life of a worker or an enqueuer.
func child(r role, err error) int {
	go leashed()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch {
	case err != nil:
	case r.Worker > 0:
		err = work(ctx, r)
	case r.Enqueuer > 0:
		err = enqueueAll(ctx, r)
	default:
		err = errors.New("a child without a role")
	}
	if err != nil {
		slog.ErrorContext(ctx, "ended", slog.Any("error", err))
		return 1
	}
	return 0
}
