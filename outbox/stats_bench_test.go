package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
)

// BenchmarkStats reads the figures of a box with a million pending messages,
// five million finished and twenty thousand dead ones, and lists its newest.
// It takes minutes to fill:
//
//	go test -run '^$' -bench Stats -benchtime 20x ./outbox
func BenchmarkStats(b *testing.B) {
	pool, schema := pgtest.Pool(b)
	box, err := New(pool, Config{Schema: schema, Routes: []dispatch.Route{{Name: "sms", Providers: []string{"test"}}}})
	require.NoError(b, err)
	require.NoError(b, box.Migrate(b.Context()))
	conn, err := pool.Acquire(b.Context())
	require.NoError(b, err)
	for _, sql := range []string{
		"set session_replication_role = replica", // not the triggers' time
		"drop index " + schema + ".message_recipient, " + schema + ".history_provider_id",
		`insert into ` + schema + `.message (id, form, channel, priority, budget, on_unknown, route, digest, content, recipient, created_at)
			select md5(g::text)::uuid, 1, 1, 2, 8, 1, 'sms', '\x00', '\x01', '+1555' || g, now() - interval '1 day' + g * interval '10 ms'
			from generate_series(1, 6000000) g`,
		`insert into ` + schema + `.queue (id, lane, due, budget) select md5(g::text)::uuid,
			case when g % 10 = 0 then 'sms/1/' when g % 2 = 0 then 'sms/2/' else 'sms/3/' end, now() - interval '1 hour' + g * interval '1 ms', 8
			from generate_series(1, 1000000) g`,
		`insert into ` + schema + `.history (id, at, fence, kind, move, state, outcome, provider, account) select md5(g::text)::uuid,
			now() - interval '1 day' + g * interval '10 ms', 1, 1, 6, 6, 1, 'test', 'account' from generate_series(1000001, 6000000) g`,
		`insert into ` + schema + `.parked (id, parked_at, fence, state, reason, spent, budget, open, waived, ended, lane)
			select md5(g::text)::uuid, now() - g * interval '1 s', 1, 5, 1 + g % 3, 1, 8, 0, 0, 0, 'sms/2/' from generate_series(1000001, 1020000) g`,
		"vacuum analyze " + schema + ".queue, " + schema + ".parked, " + schema + ".message, " + schema + ".history",
		"set session_replication_role = default",
	} {
		_, err := conn.Exec(b.Context(), sql)
		require.NoError(b, err, sql)
	}
	conn.Release()
	var stats, count, list time.Duration
	for b.Loop() {
		began := time.Now()
		s, err := box.Stats(b.Context())
		stats += time.Since(began)
		require.NoError(b, err)
		require.InEpsilon(b, 1_000_000, s.Total(dispatch.Pending).Count, 0.05)
		require.EqualValues(b, 20_000, s.Total(dispatch.Dead).Count)
		began = time.Now()
		var n int64
		require.NoError(b, pool.QueryRow(b.Context(), "select count(*) from "+schema+".queue where lane >= ''").Scan(&n))
		count += time.Since(began)
		began = time.Now()
		page, _, err := box.List(b.Context(), Filter{States: []dispatch.State{dispatch.Sent}}, "", 100)
		list += time.Since(began)
		require.NoError(b, err)
		require.Len(b, page, 100)
	}
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(b.N) / 1000 }
	b.ReportMetric(each(stats), "stats_ms")
	b.ReportMetric(each(list), "list_ms")
	b.ReportMetric(each(count), "count_ms")
	b.ReportMetric(float64(stats)/float64(count), "stats/count")
}
