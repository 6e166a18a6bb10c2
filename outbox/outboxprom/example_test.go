package outboxprom_test

import (
	"net/http"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxprom"
)

// A worker whose numbers Prometheus reads, together with what the box holds.
func ExampleNew() {
	work := func(box *outbox.Box, providers []dispatch.Provider, mux *http.ServeMux) (*outbox.Worker, error) {
		metrics := outboxprom.New(outboxprom.Config{Box: box})
		mux.Handle("GET /metrics", metrics.Handler())
		return outbox.NewWorker(box, outbox.WorkerConfig{Providers: providers, Observer: metrics})
	}
	_ = work
	// Output:
}
