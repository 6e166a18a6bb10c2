package outbox_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

func TestEnqueueMany(t *testing.T) { //nolint:tparallel // as above
	t.Parallel()
	box, pool, schema := newBox(t)
	add, rows := business(t, pool, schema)
	try := func(t *testing.T, intents ...dispatch.Intent) (added []bool, err error) {
		t.Helper()
		require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
			added, err = box.EnqueueMany(t.Context(), tx, intents)
			return add(tx) // usable, whatever became of it
		}))
		return added, err
	}
	old := sms("old")
	enqueue(t, box, old)
	before := stored(t, pool, schema, old.Key)
	state := func() [3]int {
		return [3]int{count(t, pool, schema, "message"), count(t, pool, schema, "queue"), rows()}
	}

	t.Run("tells for each whether it is new", func(t *testing.T) {
		a, b := sms("a"), sms("b")
		added, err := try(t, b, old, a, b, a, old)
		require.NoError(t, err)
		require.Equal(t, []bool{true, false, true, false, false, false}, added)
		require.Equal(t, [3]int{3, 3, 1}, state())
	})
	t.Run("nothing", func(t *testing.T) {
		added, err := try(t)
		require.NoError(t, err)
		require.Empty(t, added)
	})
	t.Run("one bad intent refuses them all", func(t *testing.T) {
		bad := sms("x")
		bad.Content = dispatch.SMS{To: "5555550123", Body: "x"}
		_, err := try(t, sms("a"), sms("b"), bad)
		var field *dispatch.FieldError
		require.ErrorAs(t, err, &field)
		require.Contains(t, err.Error(), "intent 2")
		require.Equal(t, [3]int{3, 3, 3}, state())
	})
	t.Run("a conflict inside the call refuses them all", func(t *testing.T) {
		a := sms("a")
		twin := a
		twin.Content = dispatch.SMS{To: "+15555550123", Body: "b"}
		_, err := try(t, sms("x"), a, twin)
		var conflict *dispatch.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Contains(t, err.Error(), "intent 2")
		require.Equal(t, a.Key, conflict.Key)
		require.Equal(t, [3]int{3, 3, 4}, state())
	})
	t.Run("a conflict with what is there refuses them all", func(t *testing.T) {
		twin := old
		twin.Content = dispatch.SMS{To: "+15555550123", Body: "b"}
		earlier, a := sms("enqueued before in the same transaction"), sms("a")
		require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
			_, err := box.Enqueue(t.Context(), tx, earlier)
			require.NoError(t, err)
			added, err := box.EnqueueMany(t.Context(), tx, []dispatch.Intent{a, earlier, twin, sms("b")})
			require.Nil(t, added)
			var conflict *dispatch.ConflictError
			require.ErrorAs(t, err, &conflict)
			require.Contains(t, err.Error(), "intent 2")
			require.Equal(t, old.Key, conflict.Key)
			added, err = box.EnqueueMany(t.Context(), tx, []dispatch.Intent{a})
			require.NoError(t, err)
			require.Equal(t, []bool{true}, added, "it was not left behind")
			return add(tx)
		}))
		require.Equal(t, [3]int{5, 5, 5}, state())
	})
	t.Run("the same among many", func(t *testing.T) {
		before := state()
		twin := old
		twin.Content = dispatch.SMS{To: "+15555550123", Body: "b"}
		list := append(many(enoughToCopy, nil), twin)
		_, err := try(t, list...)
		var conflict *dispatch.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Contains(t, err.Error(), "intent 200")
		require.Equal(t, [3]int{before[0], before[1], before[2] + 1}, state(), "nothing is left of them")
		list[enoughToCopy] = old
		added, err := try(t, list...)
		require.NoError(t, err)
		require.Equal(t, append(slices.Repeat([]bool{true}, enoughToCopy), false), added)
		added, err = try(t, list...)
		require.NoError(t, err)
		require.NotContains(t, added, true)
		require.Equal(t, [3]int{before[0] + enoughToCopy, before[1] + enoughToCopy, before[2] + 3}, state())
	})
	require.Equal(t, before, stored(t, pool, schema, old.Key))
}

// Two producers copy the same keys at once: the second waits for the first's
// end, and is told that they are there.
func TestCopyWaitsForItsTwin(t *testing.T) { //nolint:tparallel // one after the other
	t.Parallel()
	box, pool, schema := newBox(t)
	for name, end := range map[string]func(tx pgx.Tx) error{
		"that commits":    func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
		"that rolls back": func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			intents := many(enoughToCopy, nil)
			first := begin(t, pool)
			_, err := box.EnqueueMany(t.Context(), first, intents)
			require.NoError(t, err)
			second := begin(t, pool)
			pid := ask[int](t, second, "select pg_backend_pid()")
			done := make(chan struct{})
			var added []bool
			go func() {
				defer close(done)
				added, err = box.EnqueueMany(t.Context(), second, intents)
			}()
			require.Eventually(t, func() bool {
				return ask[bool](t, pool, "select coalesce((select wait_event_type = 'Lock' from pg_stat_activity where pid = $1), false)", pid)
			}, 20*time.Second, 2*time.Millisecond)
			require.NoError(t, end(first))
			waitFor(t, done)
			require.NoError(t, err)
			require.Equal(t, slices.Repeat([]bool{name == "that rolls back"}, enoughToCopy), added)
			require.NoError(t, second.Commit(t.Context()))
			require.Equal(t, enoughToCopy, ask[int](t, pool, "select count(*) from "+schema+".queue where id = any($1::text[]::uuid[])", keys(intents)))
		})
	}
}

// What the database refuses of a copied batch leaves the transaction usable.
func TestCopyRefused(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	_, err := pool.Exec(t.Context(), "alter table "+schema+".queue add constraint no_luck check (due < '2000-01-01')")
	require.NoError(t, err)
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := box.EnqueueMany(t.Context(), tx, many(enoughToCopy, nil))
		require.ErrorContains(t, err, "no_luck")
		require.NotContains(t, err.Error(), "+1555")
		require.Zero(t, ask[int](t, tx, "select count(*) from "+schema+".message"))
		return nil
	}))
}

func keys(intents []dispatch.Intent) (list []string) {
	for _, i := range intents {
		list = append(list, i.Key.String())
	}
	return list
}

func TestEnqueueManyTakesTenThousand(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	intents := many(outbox.MaxMany, func(n int, i *dispatch.Intent) {
		i.Content = dispatch.SMS{To: "+15555550123", Body: fmt.Sprint("number ", n)}
		if n%2 == 0 {
			i.Metadata = map[string]string{"n": fmt.Sprint(n)}
		}
	})
	rand := slices.Clone(intents)
	slices.SortFunc(rand, func(a, b dispatch.Intent) int { return strings.Compare(a.Key.String()[30:], b.Key.String()[30:]) })
	for n, want := range []bool{true, false} {
		require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
			added, err := box.EnqueueMany(t.Context(), tx, rand)
			require.NoError(t, err)
			require.Len(t, added, outbox.MaxMany)
			require.NotContains(t, added, !want, n)
			return nil
		}))
	}
	require.Equal(t, outbox.MaxMany, count(t, pool, schema, "message"))
	require.Equal(t, outbox.MaxMany, count(t, pool, schema, "queue"))
	require.Equal(t, outbox.MaxMany/2, ask[int](t, pool, "select count(*) from "+schema+".message where metadata is not null and convert_from(content, 'sql_ascii') like '%number ' || (metadata ->> 'n')"))
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := box.EnqueueMany(t.Context(), tx, append(rand, sms("one too many")))
		require.ErrorContains(t, err, "at most 10000")
		return nil
	}))
}

// B114: two producers with the same keys in opposite orders.
func TestEnqueueManyInOppositeOrders(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	const rounds, size = 10, 2000
	for range rounds {
		up := many(size, nil)
		down := slices.Clone(up)
		slices.Reverse(down)
		gate := make(chan struct{})
		type result struct {
			added []bool
			err   error
		}
		results := make(chan result, 2)
		for _, list := range [][]dispatch.Intent{up, down} {
			go func() {
				var r result
				r.err = box.InTx(t.Context(), func(tx pgx.Tx) (err error) {
					<-gate
					r.added, err = box.EnqueueMany(t.Context(), tx, list)
					return err
				})
				results <- r
			}()
		}
		close(gate)
		fresh := 0
		for range 2 {
			r := <-results
			require.NoError(t, r.err) // no 40P01
			for _, a := range r.added {
				if a {
					fresh++
				}
			}
		}
		require.Equal(t, size, fresh)
	}
	require.Equal(t, rounds*size, count(t, pool, schema, "queue"))
}

func TestQueueInABatch(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	_, rows := business(t, pool, schema)
	insert := "insert into " + schema + ".business default values"
	first, second := sms("first"), sms("second")

	var batch pgx.Batch
	batch.Queue(insert)
	require.NoError(t, box.Queue(&batch, first))
	require.NoError(t, box.Queue(&batch, second))
	require.NoError(t, box.Queue(&batch, first), "a repeat is no error")
	bad := sms("x")
	bad.Key = dispatch.Key{}
	var field *dispatch.FieldError
	require.ErrorAs(t, box.Queue(&batch, bad), &field)
	require.Equal(t, 4, batch.Len(), "a bad intent adds nothing")
	batch.Queue(insert)
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error { return tx.SendBatch(t.Context(), &batch).Close() }))
	require.Equal(t, 2, rows())
	require.Equal(t, 2, count(t, pool, schema, "queue"))

	var clash pgx.Batch
	twin := first
	twin.Content = dispatch.SMS{To: "+15555550123", Body: "changed"}
	clash.Queue("begin")
	clash.Queue(insert)
	require.NoError(t, box.Queue(&clash, sms("beside it")))
	require.NoError(t, box.Queue(&clash, twin))
	clash.Queue("commit") // in the same round trip: nobody could stop it
	err := pool.SendBatch(t.Context(), &clash).Close()
	var conflict *dispatch.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, first.Key, conflict.Key)
	require.Equal(t, 2, rows(), "the conflict ended the transaction on the server")

	p := &outboxtest.Provider{}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	for _, i := range []dispatch.Intent{first, second} {
		reaches(t, box, i.Key, dispatch.Sent)
		require.Equal(t, 1, p.Deliveries(i.Key))
	}
}
