package outbox

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

// aged are seeded messages that were enqueued long ago.
func (tb table) aged(n int, values map[string]string) []dispatch.Key {
	tb.t.Helper()
	keys := tb.seed(n, values)
	tb.exec("set session_replication_role = replica; update {schema}.message set created_at = now() - interval '60 days' where created_at > now() - interval '1 day'; set session_replication_role = default")
	return keys
}

func (tb table) frozen(sql string) {
	tb.exec("set session_replication_role = replica; " + sql + "; set session_replication_role = default")
}

const day = 24 * time.Hour

// What is over by its state and its time loses its text, and goes; nothing else
// does.
func TestPrune(t *testing.T) {
	t.Parallel()
	tb, box := newOperated(t)
	sentOld, sentNew := tb.aged(3, nil), tb.aged(2, nil)
	tb.finish(sentOld, 6, 20*day)
	tb.finish(sentNew, 6, 2*day)
	cancelled := tb.aged(1, nil)
	tb.finish(cancelled, 7, 20*day)
	received := tb.aged(1, nil) // a receipt came since
	tb.finish(received, 6, 20*day)
	tb.exec("insert into {schema}.history (id, at, fence, sub, kind, move, state) select id::uuid, clock_timestamp() - interval '1 day', 1, 7, 5, 0, 6 from unnest($1::text[]) id", texted(received))
	valid := tb.aged(1, nil) // its deadline is yet to come
	tb.finish(valid, 6, 20*day)
	tb.frozen("update {schema}.message set deadline = now() + interval '1 day' where id = '" + valid[0].String() + "'")
	live := tb.aged(1, nil)
	flying, doubt := tb.aged(1, sending()), tb.aged(1, unknown())
	parkedLong := "clock_timestamp() - interval '20 days'"
	held, dead, requeueable := tb.aged(1, nil), tb.aged(2, nil), tb.aged(1, nil)
	tb.park(held, map[string]string{"state": "4", "reason": "4", "open": "1", "parked_at": parkedLong})
	tb.park(dead, map[string]string{"parked_at": parkedLong})
	tb.park(requeueable, map[string]string{"parked_at": parkedLong})
	tb.frozen("update {schema}.message set deadline = now() + interval '1 hour' where id = '" + requeueable[0].String() + "'")
	strange := tb.aged(1, nil) // of a newer release
	tb.finish(strange, 9, 20*day)
	reopened := tb.aged(1, nil) // whatever its history says, it is in motion
	tb.exec(`insert into {schema}.history (id, at, fence, kind, move, state) select id::uuid, clock_timestamp() - interval '20 days', 1, 6, 4, 7
		from unnest($1::text[]) id`, texted(reopened))
	orphan := tb.aged(1, nil)
	tb.exec("delete from {schema}.queue where id = $1", orphan[0].String())
	scrubbed := func() []string {
		return query[[]string](tb, "select coalesce(array_agg(id::text order by id), '{}') from {schema}.message where content is null")
	}
	there := func() int { return query[int](tb, "select count(*) from {schema}.message") }
	sorted := func(lists ...[]dispatch.Key) []string {
		return query[[]string](tb, "select array_agg(x order by x::uuid) from unnest($1::text[]) x", texted(concat(lists...)))
	}
	n := there()

	p, err := box.Prune(t.Context(), Retention{})
	require.NoError(t, err)
	require.Zero(t, p)
	p, err = box.Prune(t.Context(), Retention{Scrub: 10 * day, Route: "news"})
	require.NoError(t, err)
	require.Zero(t, p, "another route")
	p, err = box.Prune(t.Context(), Retention{Scrub: 10 * day})
	require.NoError(t, err)
	require.Equal(t, Pruned{Scrubbed: 5}, p)
	require.Equal(t, sorted(sentOld, cancelled, valid), scrubbed())
	require.Equal(t, 4, query[int](tb, "select count(*) from {schema}.history where words is not null"), "the vendor's words go with it")
	p, err = box.Prune(t.Context(), Retention{ScrubDead: 10 * day})
	require.NoError(t, err)
	require.Equal(t, Pruned{Scrubbed: 2}, p)
	p, err = box.Prune(t.Context(), Retention{Scrub: time.Nanosecond})
	require.NoError(t, err)
	require.Equal(t, Pruned{Scrubbed: 3}, p, "at once")
	require.Equal(t, sorted(sentOld, sentNew, cancelled, received, valid, dead), scrubbed())
	require.Equal(t, n, there())

	// A scrubbed key is still known, and can't be sent again.
	_, err = box.Retry(t.Context(), dead[0], ada)
	require.ErrorIs(t, err, ErrExpired)

	tb.exec("insert into {schema}.receipt (provider, account, event_key, provider_id, kind, permanent, received_at, due) values ('p', 'a', 'old', 'x', 1, false, now() - interval '20 days', null), ('p', 'a', 'new', 'x', 1, false, now(), null), ('p', 'a', 'waits', 'x', 1, false, now() - interval '20 days', now() + interval '1 hour')")
	p, err = box.Prune(t.Context(), Retention{Delete: 10 * day})
	require.NoError(t, err)
	require.Equal(t, Pruned{Deleted: 4, Receipts: 1}, p)
	p, err = box.Prune(t.Context(), Retention{DeleteDead: 10 * day})
	require.NoError(t, err)
	require.Equal(t, Pruned{Deleted: 2}, p)
	require.Equal(t, sorted(sentNew, received, valid, live, flying, doubt, held, requeueable, strange, reopened, orphan),
		query[[]string](tb, "select array_agg(id::text order by id) from {schema}.message"))
	require.Zero(t, query[int](tb, "select count(*) from {schema}.history h where not exists (select from {schema}.message m where m.id = h.id)"))
	require.Zero(t, query[int](tb, "select count(*) from {schema}.parked p where not exists (select from {schema}.message m where m.id = p.id)"))
}

func concat(lists ...[]dispatch.Key) (out []dispatch.Key) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// Pages behind each other, though none of the first is over.
func TestPruneWalksPages(t *testing.T) {
	t.Parallel()
	tb, box := newOperated(t)
	tb.aged(prunePage+10, nil)
	tb.finish(tb.seed(prunePage+5, nil), 6, 20*day)
	p, err := box.Prune(t.Context(), Retention{Scrub: time.Hour})
	require.NoError(t, err)
	require.Zero(t, p, "enqueued within the hour")
	p, err = box.Prune(t.Context(), Retention{Scrub: time.Nanosecond})
	require.NoError(t, err)
	require.Equal(t, Pruned{Scrubbed: prunePage + 5}, p)
	require.Equal(t, prunePage+10, query[int](tb, "select count(*) from {schema}.message where content is not null"))
}

func TestRetentionRefusesWhatBreaksThePromise(t *testing.T) {
	t.Parallel()
	_, box := newOperated(t)
	need := box.routes["sms"].Policy.ValidFor + day
	for want, r := range map[string]Retention{
		"Scrub is":                        {Scrub: -1},
		"ScrubDead is":                    {ScrubDead: 1 << 62},
		"Delete is 1h0m0s, want at least": {Delete: time.Hour},
		"DeleteDead is":                   {DeleteDead: need - 1},
		"not a route":                     {Route: "none", Scrub: 1},
	} {
		_, err := box.Prune(t.Context(), r)
		require.ErrorContains(t, err, want)
	}
	_, err := box.Prune(t.Context(), Retention{Delete: need, DeleteDead: need})
	require.NoError(t, err)
}

// The moves that take the message's lock, against a prune that has found its
// messages before they did.
func TestPruneAgainstAMove(t *testing.T) {
	tb, box := newOperated(t)
	for name, r := range map[string]Retention{"scrub": {ScrubDead: time.Nanosecond}, "delete": {DeleteDead: 10 * day}} {
		t.Run(name, func(t *testing.T) {
			keys := tb.aged(1, nil)
			tb.park(keys, map[string]string{"parked_at": "clock_timestamp() - interval '20 days'"})
			require.NoError(t, pgx.BeginFunc(t.Context(), tb.pool, func(tx pgx.Tx) error {
				state, err := box.verbTx(t.Context(), tx, keys[0], ada, "", retryVerb)
				require.NoError(t, err)
				require.Equal(t, dispatch.Pending, state)
				p, err := box.Prune(t.Context(), r) // while it holds the lock: passed over, not waited for
				require.NoError(t, err)
				require.Zero(t, p)
				return nil
			}))
			p, err := box.Prune(t.Context(), r) // it is in motion now
			require.NoError(t, err)
			require.Zero(t, p)
			require.True(t, query[bool](tb, "select content is not null from {schema}.message where id = $1", keys[0].String()))
		})
	}

	// A requeue that commits between what the first statement saw and its lock:
	// the second one's word counts.
	keys := tb.aged(1, nil)
	tb.park(keys, map[string]string{"parked_at": "clock_timestamp() - interval '20 days'"})
	_, err := box.Retry(t.Context(), keys[0], ada)
	require.NoError(t, err)
	for _, text := range []string{tb.sql.scrub, tb.sql.delete} {
		var n int64
		require.NoError(t, tb.pool.QueryRow(t.Context(), text, int64(1), int64(1), int64(0), "", texted(keys)).Scan(&n))
		require.Zero(t, n)
	}
}

// Late truth about a message that is gone is ignored and counted, and blocks
// nobody; its key is new.
func TestLateTruthAboutADeletedMessage(t *testing.T) {
	t.Parallel()
	tb, box := newOperated(t)
	gone := tb.aged(1, nil)
	tb.finish(gone, 6, 20*day)
	_, err := box.Prune(t.Context(), Retention{Delete: 10 * day})
	require.NoError(t, err)
	_, err = box.History(t.Context(), gone[0])
	require.ErrorIs(t, err, ErrNotFound)
	receipt := dispatch.Receipt{Provider: "test", Account: "account", EventKey: "1", Key: gone[0], ProviderID: "id-" + gone[0].String(), Kind: dispatch.Delivered}
	require.NoError(t, box.Receive(t.Context(), []dispatch.Receipt{receipt}))
	require.NoError(t, box.store.applyReceipt(t.Context(), dueReceipt{provider: "test", account: "account", event: "1", message: gone[0].String()}),
		"found before it was deleted")
	tb.exec("update {schema}.receipt set received_at = now() - interval '2 days', due = now()")
	require.NoError(t, box.store.applyReceipts(t.Context()))
	s, err := box.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, s.ReceiptsUnmatched)
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		added, err := box.Enqueue(t.Context(), tx, dispatch.Intent{Key: gone[0], Route: "sms", Content: dispatch.SMS{To: "+15555550123", Body: "another"}})
		require.True(t, added)
		return err
	}))
}

// It stops with its context.
func TestPruneStops(t *testing.T) {
	t.Parallel()
	_, box := newOperated(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err := box.Prune(ctx, Retention{Scrub: day})
	require.ErrorIs(t, err, context.Canceled)
}
