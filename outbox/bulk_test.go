package outbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

// A verb for everything that a filter means: carried out, recorded, refusals
// counted with their reasons.
func TestBulk(t *testing.T) {
	t.Parallel()
	tb, box := newOperated(t)
	dead := tb.seed(2*bulkPage+50, nil)
	tb.park(dead, nil)
	expired := tb.seed(3, nil)
	tb.exec("set session_replication_role = replica; update {schema}.message set content = null, scrubbed_at = now() where id = any('{" + strings.Join(texted(expired), ",") + "}'); set session_replication_role = default")
	tb.park(expired, map[string]string{"deadline": "clock_timestamp() - interval '1 hour'"})
	elsewhere := tb.seed(2, nil)
	tb.park(elsewhere, map[string]string{"reason": "2"})

	var seen []int
	f := Filter{States: []dispatch.State{dispatch.Dead}, Reason: dispatch.ReasonRejected}
	p, err := box.Bulk(t.Context(), f, box.Retry, ada, func(p Progress) {
		seen = append(seen, p.Matched)
		p.Done[dispatch.Sent] = 1 // its own copy
	})
	require.NoError(t, err)
	require.Equal(t, Progress{
		Matched: len(dead) + 3, Done: map[dispatch.State]int{dispatch.Pending: len(dead)}, Refused: map[error]int{ErrExpired: 3},
	}, p)
	require.True(t, slices.IsSorted(seen))
	require.Greater(t, len(seen), len(dead)/bulkAtOnce)
	require.Equal(t, p.Matched, seen[len(seen)-1])
	require.Equal(t, len(dead), query[int](tb, "select count(*) from {schema}.queue"))
	require.Equal(t, len(dead), query[int](tb, "select count(*) from {schema}.history where kind = 6 and actor = 'ada' and why = 'asked by support' and move = 36"))
	require.Equal(t, 5, query[int](tb, "select count(*) from {schema}.parked"))

	// Again: nothing is left but what is refused.
	p, err = box.Bulk(t.Context(), f, box.Retry, ada, nil)
	require.NoError(t, err)
	require.Equal(t, Progress{Matched: 3, Done: map[dispatch.State]int{}, Refused: map[error]int{ErrExpired: 3}}, p)

	for _, f := range []Filter{{}, {Since: time.Now()}, {Before: time.Now(), States: []dispatch.State{}}} {
		_, err = box.Bulk(t.Context(), f, box.Cancel, ada, nil)
		require.ErrorIs(t, err, ErrEmptyFilter)
	}
	_, err = box.Bulk(t.Context(), f, box.Retry, Audit{By: "ada"}, nil)
	require.ErrorIs(t, err, ErrAudit)
	_, err = box.Bulk(t.Context(), f, nil, ada, nil)
	require.ErrorContains(t, err, "without a verb")
}

// Held messages are resolved by the provider's list of what it took.
func TestBulkResolves(t *testing.T) {
	t.Parallel()
	tb, box := newOperated(t)
	held := tb.seed(10, nil)
	tb.park(held, map[string]string{"state": "4", "reason": "4", "open": "1", "ledger": `'[{"p": "test", "a": "account", "m": 1, "f": "2026-01-02T03:04:05Z"}]'`})
	took := map[dispatch.Key]string{held[0]: "SM0", held[1]: "SM1", held[2]: ""}
	p, err := box.Bulk(t.Context(), Filter{States: []dispatch.State{dispatch.Held}}, func(ctx context.Context, key dispatch.Key, a Audit) (dispatch.State, error) {
		if id, ok := took[key]; ok {
			return box.ResolveAccepted(ctx, key, id, a)
		}
		return box.ResolveNotAccepted(ctx, key, a)
	}, ada, nil)
	require.NoError(t, err)
	require.Equal(t, Progress{Matched: 10, Done: map[dispatch.State]int{dispatch.Sent: 3, dispatch.Pending: 7}, Refused: map[error]int{}}, p)
	for n, key := range held {
		h, err := box.History(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, took[key], h.Reference)
		require.Equal(t, n < 3, h.State == dispatch.Sent)
		require.Equal(t, "asked by support", h.Events[len(h.Events)-1].Why)
	}
}

// It stops with its context, tells how far it got, and goes on when it is
// called again; an error that isn't about one message ends it.
func TestBulkStops(t *testing.T) {
	t.Parallel()
	tb, box := newOperated(t)
	tb.park(tb.seed(50, nil), nil)
	f := Filter{States: []dispatch.State{dispatch.Dead}}
	ctx, stop := context.WithCancel(t.Context())
	p, err := box.Bulk(ctx, f, box.Cancel, ada, func(p Progress) {
		if p.Matched >= 8 {
			stop()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 8, p.Done[dispatch.Cancelled])
	require.Equal(t, 42, query[int](tb, "select count(*) from {schema}.parked"))

	broken := errors.New("connection lost")
	var calls atomic.Int64
	p, err = box.Bulk(t.Context(), f, func(ctx context.Context, key dispatch.Key, a Audit) (dispatch.State, error) {
		if calls.Add(1) > 10 {
			return 0, broken
		}
		return box.Cancel(ctx, key, a)
	}, ada, nil)
	require.ErrorIs(t, err, broken)
	require.Equal(t, 10, p.Matched)
	p, err = box.Bulk(t.Context(), f, box.Cancel, ada, nil)
	require.NoError(t, err)
	require.Equal(t, 32, p.Done[dispatch.Cancelled])
}

// What comes back while a Bulk goes on isn't meant by it: it ends, though each
// message that it touches is parked anew at once.
func TestBulkEnds(t *testing.T) {
	t.Parallel()
	tb, box := newOperated(t)
	tb.park(tb.seed(30, nil), map[string]string{"state": "4", "reason": "4", "open": "1", "ledger": `'[{"p": "test", "a": "account", "m": 1, "f": "2026-01-02T03:04:05Z"}]'`})
	var calls atomic.Int64
	_, err := box.Bulk(t.Context(), Filter{States: []dispatch.State{dispatch.Held}}, func(ctx context.Context, key dispatch.Key, a Audit) (dispatch.State, error) {
		require.Less(t, calls.Add(1), int64(100))
		s, err := box.Retry(ctx, key, a)
		tb.exec("with q as (delete from {schema}.queue where id = $1 returning *) insert into {schema}.parked (id, fence, state, reason, spent, budget, open, waived, ended, lane, ledger) select id, fence, 4, 4, spent, budget, 1, 0, 0, lane, ledger from q", key.String())
		return s, err
	}, ada, nil)
	require.NoError(t, err)
	require.EqualValues(t, 30, calls.Load())
}

// What is enqueued while it goes on isn't meant either.
func TestBulkLeavesWhatComesMeanwhile(t *testing.T) {
	t.Parallel()
	tb, box := newOperated(t)
	tb.seed(6, nil)
	var calls atomic.Int64
	p, err := box.Bulk(t.Context(), Filter{States: []dispatch.State{dispatch.Pending}}, func(ctx context.Context, key dispatch.Key, a Audit) (dispatch.State, error) {
		calls.Add(1)
		tb.seed(bulkPage, map[string]string{"due": "clock_timestamp() + interval '1 minute'"})
		return box.Cancel(ctx, key, a)
	}, ada, func(p Progress) { require.LessOrEqual(t, p.Matched, 6) })
	require.NoError(t, err)
	require.Equal(t, map[dispatch.State]int{dispatch.Cancelled: 6}, p.Done)
	tb.seed(bulkPage, nil) // behind the first page
	p, err = box.Bulk(t.Context(), Filter{States: []dispatch.State{dispatch.Pending}}, func(ctx context.Context, key dispatch.Key, a Audit) (dispatch.State, error) {
		if calls.Add(1) < 100 {
			tb.seed(1, map[string]string{"due": "clock_timestamp() + interval '1 hour'"})
		}
		return box.Cancel(ctx, key, a)
	}, ada, nil)
	require.NoError(t, err)
	require.Equal(t, 7*bulkPage, p.Matched)
}
