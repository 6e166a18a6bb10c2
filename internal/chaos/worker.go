package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// schema is the box's; its name needs quotes.
const schema = "chaos box"

func openBox(ctx context.Context, dsn string, conns int32) (*pgxpool.Pool, *outbox.Box, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	cfg.MaxConns = conns
	cfg.ConnConfig.ConnectTimeout = 2 * time.Second
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	box, err := outbox.New(pool, outbox.Config{Schema: schema, Routes: routes(), Notify: true})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return pool, box, nil
}

// work is a worker process: what an application would run, its webhook
// included. It returns nil once it has drained.
func work(ctx context.Context, r role) (err error) {
	pool, box, err := openBox(ctx, r.DSN, 12)
	if err != nil {
		return err
	}
	defer pool.Close()
	attempts, err := openJournal(filepath.Join(r.Dir, fmt.Sprintf("attempts-%d.jsonl", r.Worker)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, attempts.close()) }()
	notices, err := openJournal(filepath.Join(r.Dir, fmt.Sprintf("notices-%d.jsonl", r.Worker)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, notices.close()) }()

	var bound []dispatch.Provider
	for _, k := range kinds {
		a, err := newAdapter(k, r.Vendors[k.name], r.Worker, attempts)
		if err != nil {
			return err
		}
		defer a.client.Close()
		bound = append(bound, a)
	}
	cfg := outbox.WorkerConfig{
		Providers: bound, Slots: 60, PollInterval: 100 * time.Millisecond, SweepInterval: 200 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Notices: func(_ context.Context, n outbox.Notice) error {
			notices.note(told{Key: n.Key.String(), Event: int(n.Event)})
			return nil
		},
	}
	if r.Worker == 1 {
		cfg.Listen = pool.Config().ConnConfig
	}
	w, err := outbox.NewWorker(box, cfg)
	if err != nil {
		return err
	}
	stop, err := serve(ctx, r.Hook, box)
	if err != nil {
		return err
	}
	defer stop()
	for {
		// Run returns at once where it can't look at the schema. An application
		// would end and be started again.
		err := w.Run(ctx)
		if err == nil || errors.Is(err, outbox.ErrNotMigrated) {
			return err
		}
		slog.WarnContext(ctx, "worker could not start", slog.Any("error", err))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// vitals are what the soak asks a worker for.
type vitals struct {
	Heap       uint64 `json:"heap"` // bytes in use after a collection
	Goroutines int    `json:"goroutines"`
}

// serve answers the fakes' receipts and the soak's questions.
func serve(ctx context.Context, address string, box *outbox.Box) (stop func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /receipts", func(w http.ResponseWriter, r *http.Request) {
		var list []receipt
		if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
			http.Error(w, "no receipts", http.StatusBadRequest)
			return
		}
		receipts := make([]dispatch.Receipt, len(list))
		for i, one := range list {
			key, err := dispatch.ParseKey(one.Key)
			if err != nil {
				http.Error(w, "no key", http.StatusBadRequest)
				return
			}
			receipts[i] = dispatch.Receipt{
				Provider: "echoing", Account: "chaos", EventKey: one.Event, Key: key, ProviderID: one.ID, Kind: one.Kind,
			}
		}
		limit, done := context.WithTimeout(r.Context(), 2*time.Second)
		defer done()
		if err := box.Receive(limit, receipts); err != nil {
			http.Error(w, "not stored", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /vitals", func(w http.ResponseWriter, _ *http.Request) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		_ = json.NewEncoder(w).Encode(vitals{Heap: m.HeapAlloc, Goroutines: runtime.NumGoroutine()}) // the asker left: nobody to tell
	})
	s := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(l) // until stop closes it
	}()
	return func() {
		_ = s.Close() // the fakes repeat what they get no answer to
		<-served
	}, nil
}
