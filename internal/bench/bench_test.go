package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tiny has every step, on next to nothing.
var tiny = mode{
	name: "tiny", rounds: 1, noop: 300, http: 100, slow: 100, held: time.Second, bulk: fillBatch, latency: 3,
	enqueue: 20 * time.Millisecond, goroutines: []int{8}, pending: fillBatch, steps: full.steps,
}

func TestEveryFigureIsMeasured(t *testing.T) {
	b, err := open(t.Context(), tiny)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.close()) }()
	require.Len(t, b.steps, len(steps))
	for _, name := range b.steps {
		require.NoError(t, steps[name](t.Context(), b), name)
	}
	for _, key := range resultKeys {
		require.Contains(t, b.result, key)
		require.Positive(t, b.result[key], key)
	}

	t.Run("a message that fails is an error", func(t *testing.T) {
		for _, p := range []peer{b.ours, b.river} {
			require.NoError(t, p.clear(t.Context()))
			require.NoError(t, fill(t.Context(), p, 0, 5))
			a := newAnswers(workload{messages: 3}) // knows nothing of the last two
			_, err := drain(t.Context(), p, workload{messages: 5, slots: 5, limit: time.Minute}, a)
			if err == nil {
				err = errors.Join(p.finished(t.Context(), 5), p.left(t.Context(), 0))
			}
			require.Error(t, err, p.name())
		}
	})
	t.Run("an enqueue that writes nothing is an error", func(t *testing.T) {
		for _, p := range []peer{b.ours, b.river} {
			_, err := measureEnqueue(t.Context(), p, b.urls[p.name()], 2, 10*time.Millisecond, transactAlone, true)
			require.Error(t, err, p.name())
		}
	})
	t.Run("an end is an error", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, steps[b.steps[0]](ctx, b))
	})
}
