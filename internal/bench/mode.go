package main

import (
	"context"
	"time"
)

// mode is how much is measured.
type mode struct {
	name    string
	rounds  int
	steps   []func(context.Context, *bench) error
	profile string

	noop       int           // messages of the no-op figure
	enqueue    time.Duration // of each measurement of enqueue
	goroutines []int         // that enqueue at once
}

var smokeMode = mode{
	name: "smoke", rounds: 3,
	noop: 30_000, enqueue: 1500 * time.Millisecond, goroutines: []int{8},
	steps: []func(context.Context, *bench) error{noop, enqueue},
}

var quickMode = mode{
	name: "quick", rounds: 3,
	noop: 40_000, enqueue: time.Second, goroutines: []int{1, 8, 32},
	steps: []func(context.Context, *bench) error{noop, enqueue},
}

var full = mode{
	name: "full", rounds: 5,
	noop: 100_000, enqueue: 4 * time.Second, goroutines: []int{1, 8, 32},
	steps: []func(context.Context, *bench) error{noop, enqueue},
}
