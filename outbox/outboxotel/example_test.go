package outboxotel_test

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxotel"
)

// A worker whose calls are spans, and whose numbers are metrics.
func ExampleNew() {
	work := func(ctx context.Context, box *outbox.Box, providers []dispatch.Provider) error {
		traces, err := outboxotel.New(outboxotel.Config{Box: box})
		if err != nil {
			return err
		}
		defer func() { _ = traces.Close() }()
		worker, err := outbox.NewWorker(box, outbox.WorkerConfig{Providers: providers, Observer: traces})
		if err != nil {
			return err
		}
		return worker.Run(ctx)
	}
	_ = work
	// Output:
}

// The trace of a request goes on with the message that it enqueues.
func ExampleTraceParent() {
	login := func(ctx context.Context, tx pgx.Tx, box *outbox.Box, i dispatch.Intent) error {
		i.TraceParent = outboxotel.TraceParent(ctx)
		_, err := box.Enqueue(ctx, tx, i)
		return err
	}
	_ = login
	// Output:
}
