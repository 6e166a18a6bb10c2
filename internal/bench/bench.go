package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
)

// bench is one run: a server, the peers on a database each, the figures.
type bench struct {
	mode
	server *pgtest.Server
	ours   *ours
	river  *riverPeer
	urls   map[string]string // of each peer's database
	result result
	worked [2]float64 // messages a second, once measured
}

func open(ctx context.Context, m mode) (b *bench, err error) {
	b = &bench{mode: m, urls: map[string]string{}, result: result{}}
	if b.server, err = startServer(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	for _, name := range []string{"dispatch", "river"} {
		if b.urls[name], err = makeDatabase(ctx, b.server.URL(), "bench_"+name); err != nil {
			return nil, err
		}
	}
	if b.ours, err = newOurs(ctx, b.urls["dispatch"], nil); err != nil {
		return nil, err
	}
	if b.river, err = newRiver(ctx, b.urls["river"]); err != nil {
		return nil, err
	}
	if err := warm(ctx, b.ours.db); err != nil {
		return nil, err
	}
	fmt.Printf("PostgreSQL %s, fsync on, synchronous_commit on; River %s; Go %s, %d CPUs; %d-byte texts; mode %s, %d rounds\n",
		b.server.Version(), riverVersion(), strings.TrimPrefix(runtime.Version(), "go"), runtime.NumCPU(), payload, m.name, m.rounds)
	return b, nil
}

func (b *bench) close() error {
	if b.ours != nil {
		b.ours.close()
	}
	if b.river != nil {
		b.river.close()
	}
	return b.server.Close()
}

func makeDatabase(ctx context.Context, server, name string) (string, error) {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "create database "+name); err != nil {
		return "", err
	}
	u, err := url.Parse(server)
	if err != nil {
		return "", errors.New("the server's URL can't be parsed")
	}
	u.Path = "/" + name
	return u.String(), nil
}

// each runs f for both peers in every round, in turns first, so that neither
// always gets the server as the other left it.
func (b *bench) each(ctx context.Context, f func(ctx context.Context, p peer) error) error {
	for round := range b.rounds {
		peers := []peer{b.ours, b.river}
		if round%2 == 1 {
			peers[0], peers[1] = peers[1], peers[0]
		}
		for _, p := range peers {
			runtime.GC()
			if err := f(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// index is 0 for this library and 1 for River.
func (b *bench) index(p peer) int {
	if p == peer(b.ours) {
		return 0
	}
	return 1
}

// compare prints one figure of both and its ratio.
func compare(what, unit string, ours, river series) {
	fmt.Printf("%-46s dispatch %s, river %s %s: %sx\n", what, ours, river, unit, short(ratio(ours, river)))
}

// patience is how long anything may take before it is called stuck.
const patience = 5 * time.Minute
