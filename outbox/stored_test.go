package outbox_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

// enoughToCopy are as many intents as EnqueueMany writes by COPY.
const enoughToCopy = 200

// B109: instants are the same in every session, and spans are no calendar
// days. The clock is the database's, at the moment of the enqueue.
func TestTimesOfAnIntent(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	spring := time.Date(2027, 3, 14, 2, 30, 0, 123456000, time.UTC) // the clocks of New York skip this
	autumn := time.Date(2026, 11, 1, 5, 30, 0, 0, time.UTC)         // and have this hour twice
	epoch := func(q pgx.Tx, key dispatch.Key, column, table string) *int64 {
		return ask[*int64](t, q, "select (extract(epoch from "+column+") * 1000000)::bigint from "+schema+"."+table+" where id = $1", key.String())
	}
	for _, zone := range []string{"UTC", "America/New_York", "Asia/Kathmandu"} {
		for name, c := range map[string]struct {
			set      func(i *dispatch.Intent)
			valid    time.Duration // 0 is never
			deadline time.Time
		}{
			"the policy's validity": {set: func(*dispatch.Intent) {}, valid: 4 * time.Hour},
			"ValidFor":              {set: func(i *dispatch.Intent) { i.ValidFor = 24 * time.Hour }, valid: 24 * time.Hour},
			"ValidFor a year":       {set: func(i *dispatch.Intent) { i.ValidFor = 366 * 24 * time.Hour }, valid: 366 * 24 * time.Hour},
			"Never":                 {set: func(i *dispatch.Intent) { i.ValidFor = dispatch.Never }},
			"Never and NotBefore":   {set: func(i *dispatch.Intent) { i.ValidFor, i.NotBefore = dispatch.Never, spring }},
			"Deadline":              {set: func(i *dispatch.Intent) { i.Deadline = spring.In(time.FixedZone("", 5*3600+45*60)) }, deadline: spring},
			"NotBefore and Deadline": {
				set:      func(i *dispatch.Intent) { i.NotBefore, i.Deadline = autumn.Local(), spring },
				deadline: spring,
			},
			"in the past": {
				set:      func(i *dispatch.Intent) { i.NotBefore, i.Deadline = spring.AddDate(-4, 0, 0), spring.AddDate(-3, 0, 0) },
				deadline: spring.AddDate(-3, 0, 0),
			},
		} {
			t.Run(zone+" "+name, func(t *testing.T) {
				t.Parallel()
				cfg := pool.Config().ConnConfig.Copy()
				cfg.RuntimeParams["timezone"] = zone
				conn, err := pgx.ConnectConfig(t.Context(), cfg)
				require.NoError(t, err)
				defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
				i, twin := sms("hello"), sms("hello")
				c.set(&i)
				c.set(&twin)
				require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
					began := ask[int64](t, tx, "select (extract(epoch from clock_timestamp()) * 1000000)::bigint")
					require.Greater(t, began, ask[int64](t, tx, "select (extract(epoch from now()) * 1000000)::bigint"))
					_, err := box.Enqueue(t.Context(), tx, i)
					require.NoError(t, err)
					_, err = box.EnqueueMany(t.Context(), tx, []dispatch.Intent{twin})
					require.NoError(t, err)
					copied := many(enoughToCopy, func(_ int, i *dispatch.Intent) { c.set(i) })
					_, err = box.EnqueueMany(t.Context(), tx, copied)
					require.NoError(t, err)
					done := ask[int64](t, tx, "select (extract(epoch from clock_timestamp()) * 1000000)::bigint")
					for _, k := range []dispatch.Key{i.Key, twin.Key, copied[7].Key} {
						created, due := epoch(tx, k, "created_at", "message"), epoch(tx, k, "due", "queue")
						require.Less(t, began, *created, "not the transaction's start")
						require.Less(t, *created, done)
						deadline := epoch(tx, k, "deadline", "message")
						require.Equal(t, deadline, epoch(tx, k, "deadline", "queue"))
						switch {
						case !c.deadline.IsZero():
							require.Equal(t, c.deadline.UnixMicro(), *deadline)
						case c.valid == 0:
							require.Nil(t, deadline)
						default:
							require.Equal(t, c.valid.Microseconds(), *deadline-*created)
						}
						notBefore := epoch(tx, k, "not_before", "message")
						if i.NotBefore.IsZero() {
							require.Nil(t, notBefore)
						} else {
							require.Equal(t, i.NotBefore.UnixMicro(), *notBefore)
						}
						switch {
						case name == "in the past":
							require.Equal(t, *deadline, *due, "it is due at its deadline, to be ended")
						case i.NotBefore.UnixMicro() > began:
							require.Equal(t, *notBefore, *due)
						default:
							require.GreaterOrEqual(t, *due, *created)
							require.Less(t, *due, done)
						}
					}
					return nil
				}))
			})
		}
	}
}

// Everything that an intent says is frozen with it.
func TestEverythingIsStored(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t, twoRoutes()...)
	linked := dispatch.NewKey()
	text := dispatch.Intent{
		Key: dispatch.NewKey(), Route: "sms", Content: dispatch.SMS{To: "+44 20 7946 0000", Sender: "otp", Body: "hällo \U0001f600"},
		Priority: dispatch.Low, Provider: "other", OnUnknown: dispatch.OnUnknown{Action: dispatch.UnknownFailover, After: time.Minute},
		Notify: dispatch.NotifySent | dispatch.NotifyHeld, Template: dispatch.Template{Name: "login", Revision: "r7"},
		Metadata:    map[string]string{"tenant": "7", `quote"`: "line\nbreak \\ 'x' \u2028", "empty": ""},
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Linked: linked,
	}
	mail := dispatch.Intent{Key: dispatch.NewKey(), Route: "sms", Content: dispatch.Email{
		To: []dispatch.Address{{Name: "Smith, John", Email: "a@example.com"}}, Subject: "Grüße", Text: "hi",
		Attachments: []dispatch.Attachment{{Name: "a.bin", Type: "application/octet-stream", Data: []byte{0, 1, 0xff, '\''}}},
	}}
	plain := dispatch.Intent{Key: dispatch.NewKey(), Route: "news", Content: dispatch.SMS{To: "+15555550123", Body: "hi"}}
	for _, enqueueAll := range []func(tx pgx.Tx, list ...dispatch.Intent) error{
		func(tx pgx.Tx, list ...dispatch.Intent) error {
			for _, i := range list {
				if _, err := box.Enqueue(t.Context(), tx, i); err != nil {
					return err
				}
			}
			return nil
		},
		func(tx pgx.Tx, list ...dispatch.Intent) error {
			_, err := box.EnqueueMany(t.Context(), tx, list)
			return err
		},
		func(tx pgx.Tx, list ...dispatch.Intent) error {
			_, err := box.EnqueueMany(t.Context(), tx, append(list, many(enoughToCopy, func(_ int, i *dispatch.Intent) { i.Route = "news" })...))
			return err
		},
	} {
		tx := begin(t, pool)
		require.NoError(t, enqueueAll(tx, text, mail, plain))
		row := func(key dispatch.Key) map[string]any {
			rows, err := tx.Query(t.Context(), "select m.*, q.lane, q.state, q.fence, q.spent, q.budget as q_budget from "+schema+".message m join "+schema+".queue q using (id) where id = $1", key.String())
			require.NoError(t, err)
			r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToMap)
			require.NoError(t, err)
			require.Len(t, r["digest"], 32)
			require.NotEmpty(t, r["content"])
			require.EqualValues(t, 1, r["form"])
			require.EqualValues(t, 1, r["state"])
			require.EqualValues(t, 0, r["fence"])
			require.EqualValues(t, 0, r["spent"])
			require.EqualValues(t, 8, r["budget"])
			require.EqualValues(t, 8, r["q_budget"])
			for _, c := range []string{"id", "created_at", "deadline", "digest", "content", "form", "state", "fence", "spent", "budget", "q_budget"} {
				delete(r, c)
			}
			maps.DeleteFunc(r, func(_ string, v any) bool { return v == nil })
			return r
		}
		require.Equal(t, map[string]any{
			"channel": int16(1), "priority": int16(3), "on_unknown": int16(3), "on_unknown_after": int64(60_000_000), "notify": int16(5),
			"country": int16(44), "route": "sms", "recipient": "+442079460000", "sender": "otp",
			"senders": map[string]any{"test": "+15555550100", "other": "Shop"}, "pinned": "other", "template": "login",
			"template_revision": "r7", "trace": text.TraceParent, "linked": [16]byte(linked), "lane": "sms/3/other",
			"metadata": map[string]any{"tenant": "7", `quote"`: "line\nbreak \\ 'x' \u2028", "empty": ""},
		}, row(text.Key))
		require.Equal(t, map[string]any{
			"channel": int16(2), "priority": int16(1), "on_unknown": int16(1), "on_unknown_after": int64(0), "notify": int16(0),
			"country": int16(0), "route": "sms", "recipient": "a@example.com", "lane": "sms/1/",
		}, row(mail.Key))
		require.Equal(t, map[string]any{
			"channel": int16(1), "priority": int16(2), "on_unknown": int16(1), "on_unknown_after": int64(0), "notify": int16(0),
			"country": int16(1), "route": "news", "recipient": "+15555550123", "lane": "news/2/",
		}, row(plain.Key))
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

// The map of senders is frozen: what the route says later is for later
// messages.
func TestSendersAreFrozen(t *testing.T) {
	t.Parallel()
	r := route("test")
	r.Senders = dispatch.Senders{"otp": {"test": "+15555550100"}}
	old, pool, schema := newBox(t, r)
	i := sms("hello")
	i.Content = dispatch.SMS{To: "+15555550123", Sender: "otp", Body: "hello"}
	enqueue(t, old, i)
	r.Senders = dispatch.Senders{"otp": {"test": "+15555550199"}}
	changed, err := outbox.New(pool, outbox.Config{Schema: schema, Routes: []dispatch.Route{r}})
	require.NoError(t, err)
	added := false
	require.NoError(t, changed.InTx(t.Context(), func(tx pgx.Tx) (err error) {
		added, err = changed.Enqueue(t.Context(), tx, i)
		return err
	}))
	require.False(t, added, "a repeat after a deploy is the same intent")
	p := &outboxtest.Provider{}
	start(t, changed, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	reaches(t, changed, i.Key, dispatch.Sent)
	require.Equal(t, "+15555550100", p.Accepted()[0].From)
}

// A program that only enqueues needs no pool.
func TestBoxWithoutAPool(t *testing.T) {
	t.Parallel()
	whole, pool, schema := newBox(t)
	box, err := outbox.New(nil, outbox.Config{Schema: schema, Routes: routes(), Notify: true})
	require.NoError(t, err)
	i, other := sms("hello"), sms("other")
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		added, err := box.Enqueue(t.Context(), tx, i)
		require.True(t, added)
		if err != nil {
			return err
		}
		_, err = box.EnqueueMany(t.Context(), tx, []dispatch.Intent{other})
		return err
	}))
	box.Wake()
	require.Equal(t, dispatch.Pending, reaches(t, whole, i.Key, dispatch.Pending).State)

	require.ErrorIs(t, box.InTx(t.Context(), func(pgx.Tx) error { return nil }), outbox.ErrNoPool)
	require.ErrorIs(t, box.Migrate(t.Context()), outbox.ErrNoPool)
	require.ErrorIs(t, box.Validate(t.Context()), outbox.ErrNoPool)
	_, err = box.History(t.Context(), i.Key)
	require.ErrorIs(t, err, outbox.ErrNoPool)
	_, err = outbox.NewWorker(box, outbox.WorkerConfig{Providers: []dispatch.Provider{&outboxtest.Provider{}}})
	require.ErrorIs(t, err, outbox.ErrNoPool)
}

func TestEnqueueWithoutATransaction(t *testing.T) {
	t.Parallel()
	box, err := outbox.New(nil, outbox.Config{Routes: routes()})
	require.NoError(t, err)
	_, err = box.Enqueue(t.Context(), nil, sms("hello"))
	require.ErrorContains(t, err, "transaction is nil")
	_, err = box.EnqueueSQL(t.Context(), nil, sms("hello"))
	require.ErrorContains(t, err, "transaction is nil")
	_, err = box.EnqueueMany(t.Context(), nil, []dispatch.Intent{sms("hello")})
	require.ErrorContains(t, err, "transaction is nil")
}

// B119: a body of any size, with notifications on, in a schema of any name: a
// channel's name is as short as a schema's, and ends at a rune.
func TestNotifyCarriesNothing(t *testing.T) {
	t.Parallel()
	pool, plain := pgtest.Pool(t)
	unicode := "x" + strings.Repeat("ü", 31)
	for schema, channel := range map[string]string{plain: "dispatch " + plain, unicode: "dispatch x" + strings.Repeat("ü", 26)} {
		box, err := outbox.New(pool, outbox.Config{Schema: schema, Routes: routes(), Notify: true})
		require.NoError(t, err)
		require.NoError(t, box.Migrate(t.Context()))
		listener, err := pgx.Connect(t.Context(), pgtest.DirectURL(t))
		require.NoError(t, err)
		defer func() { _ = listener.Close(context.WithoutCancel(t.Context())) }()
		_, err = listener.Exec(t.Context(), "listen "+ident(channel))
		require.NoError(t, err)
		enqueue(t, box, dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.Email{
			To: []dispatch.Address{{Email: "a@example.com"}}, Text: strings.Repeat("0123456789", 2000),
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		n, err := listener.WaitForNotification(ctx)
		require.NoError(t, err, schema)
		require.Empty(t, n.Payload)
	}
	_, err := pool.Exec(t.Context(), "drop schema "+ident(unicode)+" cascade")
	require.NoError(t, err)
}
