package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// Thirty loses 30 % of the calls, spread so that no run of them looks like a
// vendor that is down.
func Thirty(n int) bool { return n%10 == 2 || n%10 == 5 || n%10 == 8 }

// Moving is how many messages are in motion.
func (w *World) Moving(t *testing.T) int {
	t.Helper()
	return w.queued(t, "true")
}

// Unknown waits until nothing is sent any more, and returns how many messages
// wait for word of what became of them.
func (w *World) Unknown(t *testing.T) int {
	t.Helper()
	require.Eventually(t, func() bool { return w.queued(t, "state <> 3") == 0 }, 30*time.Second, 20*time.Millisecond)
	return w.Moving(t)
}

func (w *World) queued(t *testing.T, where string) (n int) {
	t.Helper()
	require.NoError(t, w.pool.QueryRow(context.WithoutCancel(t.Context()), `select count(*) from "`+w.schema+`".queue where `+where).Scan(&n))
	return n
}

// Settled waits until nothing is left to do.
func (w *World) Settled(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return w.Moving(t) == 0 }, 2*time.Minute, 50*time.Millisecond)
}

// History is what happened to a message.
func (w *World) History(t *testing.T, key dispatch.Key) outbox.History {
	t.Helper()
	h, err := w.Box.History(context.WithoutCancel(t.Context()), key)
	require.NoError(t, err)
	return h
}

// Becomes waits until a message is in one of the states.
func (w *World) Becomes(t *testing.T, key dispatch.Key, states ...dispatch.State) {
	t.Helper()
	require.Eventually(t, func() bool { return slices.Contains(states, w.History(t, key).State) }, time.Minute, 20*time.Millisecond)
}

// Once checks that each message was taken once, is known to be, and under the
// id that the vendor gave it, and counts the sends, and the messages that took
// more than one. taken are the ids of what the vendor took under a key; "" is
// an id that can't be known.
func (w *World) Once(t *testing.T, taken func(key string) []string) (sends, again int) {
	t.Helper()
	for _, key := range w.Keys {
		h := w.History(t, key)
		require.Equal(t, dispatch.Sent, h.State, "%s", h)
		ids := taken(key.String())
		require.Len(t, ids, 1, "%s", h)
		if ids[0] != "" {
			require.Equal(t, ids[0], h.Reference, "%s", h)
		}
		for _, e := range h.Events {
			require.NotEqual(t, 39, e.Rule, "no second message\n%s", h)
		}
		if sends += h.Attempts; h.Attempts > 1 {
			again++
		}
	}
	return sends, again
}

// Receipts counts the receipts in a message's history, by what they say.
func (w *World) Receipts(t *testing.T, key dispatch.Key) map[string]int {
	t.Helper()
	kinds := map[string]int{}
	for _, e := range w.History(t, key).Events {
		if e.Kind == "receipt" {
			kinds[e.Detail]++
		}
	}
	return kinds
}

// Lost is how many attempts ended without word.
func (w *World) Lost(t *testing.T) (n int) {
	t.Helper()
	for _, key := range w.Keys {
		for _, e := range w.History(t, key).Events {
			if e.Kind == "attempt" && e.Outcome == dispatch.Unknown {
				n++
			}
		}
	}
	return n
}

// ToldTwice checks that each message has the receipts that the vendor sent
// twice and out of order, once (B145, B150).
func (w *World) ToldTwice(t *testing.T, kinds ...string) {
	t.Helper()
	want := map[string]int{}
	for _, kind := range kinds {
		want[kind] = 1
	}
	for _, key := range w.Keys {
		require.Equal(t, want, w.Receipts(t, key), "%s", w.History(t, key))
	}
}
