package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

// What a worker counts shows in the trend; steps are summed over countries, and
// what is older than was asked for is left out.
func TestTrend(t *testing.T) {
	box, pool, schema := newBox(t)
	p := &outboxtest.Provider{}
	p.Respond = func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		if e.Attempt == 1 {
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseDial})
		}
		return accept(), nil
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	i := sms("hello")
	enqueue(t, box, i)
	reaches(t, box, i.Key, dispatch.Sent)
	sum := func(passed, step time.Duration) (calls, failed, accepted int, steps map[time.Time]bool) {
		list, err := box.Trend(t.Context(), passed, step)
		require.NoError(t, err)
		steps = map[time.Time]bool{}
		for _, s := range list {
			require.Equal(t, s.From.Truncate(step), s.From)
			calls, failed, accepted = calls+s.Calls, failed+s.Failed, accepted+s.Accepted
			steps[s.From] = true
		}
		return calls, failed, accepted, steps
	}
	require.Eventually(t, func() bool { // a worker adds what it has counted every few seconds
		calls, _, _, _ := sum(time.Hour, time.Minute)
		return calls == 2
	}, 30*time.Second, 50*time.Millisecond)
	calls, failed, accepted, _ := sum(time.Hour, time.Minute)
	require.Equal(t, []int{2, 1, 1}, []int{calls, failed, accepted})

	_, err := pool.Exec(t.Context(), `insert into `+pgx.Identifier{schema}.Sanitize()+`.health (provider, country, slot, calls, failed, accepted)
		select p, c, date_trunc('minute', now()) - interval '30 minutes' + s * interval '10 seconds', 10, 4, 6
		from unnest(array['old', 'test']) p, unnest(array[0, 46]) c, generate_series(0, 11) s`)
	require.NoError(t, err)
	calls, failed, _, steps := sum(time.Hour, time.Minute)
	require.Equal(t, 2+2*2*12*10, calls)
	require.Equal(t, 1+2*2*12*4, failed)
	require.LessOrEqual(t, len(steps), 2+2)
	calls, _, _, _ = sum(20*time.Minute, time.Minute)
	require.Equal(t, 2, calls, "what is older is left out")

	for _, bad := range [][2]time.Duration{{time.Hour, 0}, {time.Hour, 15 * time.Second}, {time.Minute, time.Hour}, {25 * time.Hour, time.Hour}, {-time.Hour, -time.Minute}} {
		_, err := box.Trend(t.Context(), bad[0], bad[1])
		require.Error(t, err, "%v", bad)
	}
	none, err := outbox.New(nil, outbox.Config{Routes: []dispatch.Route{route()}})
	require.NoError(t, err)
	_, err = none.Trend(t.Context(), time.Hour, time.Minute)
	require.ErrorIs(t, err, outbox.ErrNoPool)
	require.Equal(t, "sms", none.Routes()[0].Name)
}
