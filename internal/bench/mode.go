package main

import (
	"context"
	"time"
)

// mode is how much is measured.
type mode struct {
	name    string
	rounds  int
	steps   []string
	profile string

	noop       int // messages of each measurement
	http       int
	slow       int
	bulk       int
	held       time.Duration // a snapshot is, in each measurement of that
	latency    int           // messages of each measurement of latency
	enqueue    time.Duration // of each measurement of enqueue
	goroutines []int         // that enqueue at once
	pending    int           // the large backlog, and as many finished rows
}

var steps = map[string]func(ctx context.Context, b *bench) error{
	"noop": noop, "httpFast": httpFast, "httpSlow": httpSlow, "enqueue": enqueue, "bulk": bulk, "latency": latency, "half": half,
	"held": held, "backlog": backlog, "newsletter": newsletter, "console": overview,
}

var smokeMode = mode{
	name: "smoke", rounds: 3,
	noop: 60_000, enqueue: 1500 * time.Millisecond, goroutines: []int{8},
	steps: []string{"noop", "enqueue"},
}

var quickMode = mode{
	name: "quick", rounds: 3,
	noop: 60_000, http: 20_000, held: 10 * time.Second, bulk: 50_000, latency: 150,
	enqueue: time.Second, goroutines: []int{8}, pending: 200_000,
	steps: []string{"noop", "httpFast", "enqueue", "bulk", "latency", "half", "held", "backlog", "newsletter"},
}

var full = mode{
	name: "full", rounds: 5,
	noop: 200_000, http: 50_000, slow: 50_000, held: time.Minute, bulk: 100_000, latency: 500,
	enqueue: 4 * time.Second, goroutines: []int{1, 8, 32}, pending: 1_000_000,
	steps: []string{"noop", "httpFast", "httpSlow", "enqueue", "bulk", "latency", "half", "held", "backlog", "newsletter", "console"},
}
