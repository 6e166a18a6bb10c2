// Bench measures this library and River on the same work, interleaved in one
// run on one throwaway Postgres whose commits are durable, and checks that the
// work was done: every message once.
//
//	go run . -smoke    two figures
//	go run . -quick    all of them, in minutes
//	go run .           all of them at full size
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	smoke := flag.Bool("smoke", false, "two figures, in a minute or two")
	quick := flag.Bool("quick", false, "all figures, on less work")
	profile := flag.String("profile", "", "write a CPU profile of dispatch's worked no-op to this file")
	only := flag.String("only", "", "only this step: noop, httpFast, httpSlow, enqueue, bulk, latency, half, held, backlog, newsletter or console")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	m := full
	switch {
	case *smoke && *quick:
		fmt.Fprintln(os.Stderr, "bench: -smoke or -quick, not both")
		os.Exit(2)
	case *smoke:
		m = smokeMode
	case *quick:
		m = quickMode
	}
	m.profile = *profile
	if *only != "" {
		m.steps = []string{*only}
	}
	if err := run(ctx, m); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures everything that the mode asks for.
func run(ctx context.Context, m mode) (err error) {
	b, err := open(ctx, m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, name := range m.steps {
		step, ok := steps[name]
		if !ok {
			return fmt.Errorf("there is no step %q", name)
		}
		if err := step(ctx, b); err != nil {
			return err
		}
	}
	fmt.Println(b.result.line())
	return nil
}
