// Console serves the console of an outbox with demonstration data: a few hundred
// messages in every state, on a Postgres that is found, started or installed by
// itself.
//
//	go run ./examples/console
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch/internal/demo"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox/console"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8025", "where to listen")
	readOnly := flag.Bool("readonly", false, "refuse all actions")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, *readOnly); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "console:", err)
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context, addr string, readOnly bool) (err error) {
	server, err := pgtest.Start(ctx, pgtest.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	pool, err := pgxpool.New(ctx, server.URL())
	if err != nil {
		return err
	}
	defer pool.Close()
	d, err := demo.New(ctx, pool, "dispatch_console")
	if err != nil {
		return err
	}
	c, err := console.New(d.Box, console.Config{
		// A demonstration on this machine alone. An application asks its own
		// log-in here.
		Authorize: func(*http.Request) console.Actor { return console.Actor{Name: "you", Act: true} },
		ReadOnly:  readOnly,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()

	mux := http.NewServeMux()
	mux.Handle("/outbox/", http.StripPrefix("/outbox", c))
	mux.Handle("/{$}", http.RedirectHandler("/outbox/", http.StatusSeeOther))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- web.Serve(listener) }()
	go func() { ended <- d.Run(running) }()
	fmt.Printf("The console is at http://%s/outbox/ and ends with Ctrl-C.\n", listener.Addr())
	fmt.Printf("Find out why this message was sent twice: %s\n", d.Twice)

	left := 2
	select {
	case err = <-ended:
		left--
	case <-ctx.Done():
	}
	cancel()
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer done()
	err = errors.Join(err, web.Shutdown(closing))
	for range left {
		if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}
