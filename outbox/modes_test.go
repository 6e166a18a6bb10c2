package outbox_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

// hostile are names that a schema may have and that break a text which puts
// them in unquoted, twice, or into a literal.
var hostile = []string{
	`o'brien "the" schema`,
	`ÜPPER çase 数据`,
	"x" + strings.Repeat("ü", 31), // 63 bytes
	`{schema} {limit} {page} {event_number}`,
	`select $1 -- $$ /* $body$`,
	`back\slash' \`,
	`"`, `a.b`, ` `, `$`, `;`, `%s`, "line\nbreak", `public.dispatch`, `user`,
}

// rolePool connects as a role that is no superuser, owns nothing yet, and has
// an empty search_path.
func rolePool(t *testing.T, change func(*pgx.ConnConfig)) *pgxpool.Pool {
	t.Helper()
	super, _ := pgtest.Pool(t)
	cfg, err := pgxpool.ParseConfig(pgtest.Role(t, super))
	require.NoError(t, err)
	change(cfg.ConnConfig)
	cfg.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func ident(schema string) string { return pgx.Identifier{schema}.Sanitize() }

// The whole life of messages, in each exec mode: what travels as text or
// binary, prepared or not, comes to the same. B117: three of them keep nothing
// in the session, as a pooler in transaction mode needs it.
func TestWholeLifeInEveryExecMode(t *testing.T) {
	t.Parallel()
	for n, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool := rolePool(t, func(cfg *pgx.ConnConfig) {
				if mode == pgx.QueryExecModeCacheStatement || mode == pgx.QueryExecModeDescribeExec {
					pgtest.Direct(t, cfg) // these need a session
				}
				cfg.DefaultQueryExecMode = mode
			})
			require.False(t, ask[bool](t, pool, "select usesuper from pg_user where usename = current_user"))
			require.Empty(t, ask[string](t, pool, "show search_path"))
			wholeLife(t, pool, hostile[n], nil)
			wholeLife(t, pool, "sealed "+mode.String(), ring(t, "k1"))
		})
	}
}

func TestHostileSchemaNames(t *testing.T) {
	t.Parallel()
	pool := rolePool(t, func(*pgx.ConnConfig) {})
	for _, name := range hostile[5:] {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wholeLife(t, pool, name, nil)
		})
	}
}

func TestSchemaNamesThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pg_dispatch", strings.Repeat("x", 64), strings.Repeat("ü", 32), "a\x00b", "a\xff"} {
		_, err := outbox.New(nil, outbox.Config{Schema: name, Routes: routes()})
		require.ErrorContains(t, err, "schema", "%q", name)
		_, err = outbox.Migrations(name)
		require.ErrorContains(t, err, "schema", "%q", name)
	}
	_, err := outbox.Migrations("")
	require.ErrorContains(t, err, "schema is empty")
}

// A sessions's own settings of how literals and times are written matter
// nowhere.
func TestOddSessions(t *testing.T) {
	t.Parallel()
	super, _ := pgtest.Pool(t)
	for name, set := range map[string]map[string]string{
		"literals": {"standard_conforming_strings": "off", "backslash_quote": "off", "escape_string_warning": "on", "bytea_output": "escape"},
		"times":    {"timezone": "Asia/Kathmandu", "datestyle": "SQL, DMY", "intervalstyle": "iso_8601", "extra_float_digits": "0"},
		"plans":    {"plan_cache_mode": "force_generic_plan", "enable_indexscan": "off", "enable_bitmapscan": "off", "enable_tidscan": "off"},
		"isolated": {"default_transaction_isolation": "serializable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := pgxpool.ParseConfig(pgtest.Role(t, super))
			require.NoError(t, err)
			pgtest.Direct(t, cfg.ConnConfig)
			// As text, which the other modes may ask for, pgx itself reads neither times nor bytes that are written oddly.
			cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
			for k, v := range set {
				cfg.ConnConfig.RuntimeParams[k] = v
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			wholeLife(t, pool, `back\slash' `+name, nil)
		})
	}
}

// wholeLife enqueues by every way and follows messages to every kind of end.
func wholeLife(t *testing.T, pool *pgxpool.Pool, schema string, sealer outbox.Sealer) {
	t.Helper()
	deduped, plain := route("deduping"), route("plain")
	plain.Name = "plain"
	plain.Senders = dispatch.Senders{"otp": {"plain": "Shop"}}
	box, err := outbox.New(pool, outbox.Config{Schema: schema, Routes: []dispatch.Route{deduped, plain}, Seal: sealer})
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	require.NoError(t, box.Validate(t.Context()))

	content := map[dispatch.Key]dispatch.Content{}
	message := func(route string, c dispatch.Content) dispatch.Intent {
		i := dispatch.Intent{
			Key: dispatch.NewKey(), Route: route, Content: c,
			Metadata: map[string]string{"k": `'"\$1` + "\n"}, TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		}
		content[i.Key] = c
		return i
	}
	text := func(body string) dispatch.SMS { return dispatch.SMS{To: "+15555550123", Body: body} }
	ok := message("sms", text(`ok: it's "$1" \ and \' and 数据 `+"\U0001f600\r\n\t\x01"))
	retry, lost := message("sms", text("retry")), message("sms", text("lost"))
	refused := message("sms", text("refused"))
	held := message("plain", dispatch.SMS{To: "+15555550123", Sender: "otp", Body: "lost"})
	mail := message("sms", dispatch.Email{
		To: []dispatch.Address{{Name: "Smith, John", Email: "a@example.com"}}, Subject: "Grüße", HTML: "<p>" + strings.Repeat("x", 20_000),
		Attachments: []dispatch.Attachment{{Name: "a.bin", Type: "application/octet-stream", Data: []byte{0, 1, 0x5c, 0xff, '\''}}},
	})
	later := message("sms", text("later"))
	later.NotBefore, later.Deadline = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)

	clash := ok
	clash.Content = text("another")
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		for want := range 2 { // and once more
			added, err := box.Enqueue(t.Context(), tx, ok)
			require.NoError(t, err)
			require.Equal(t, want == 0, added)
		}
		many, err := box.EnqueueMany(t.Context(), tx, []dispatch.Intent{retry, ok, mail, later, refused})
		require.NoError(t, err)
		require.Equal(t, []bool{true, false, true, true, true}, many)
		var batch pgx.Batch
		require.NoError(t, box.Queue(&batch, lost))
		require.NoError(t, box.Queue(&batch, held))
		require.NoError(t, box.Queue(&batch, held))
		require.NoError(t, tx.SendBatch(t.Context(), &batch).Close())

		var conflict *dispatch.ConflictError
		_, err = box.Enqueue(t.Context(), tx, clash)
		require.ErrorAs(t, err, &conflict)
		_, err = box.EnqueueMany(t.Context(), tx, []dispatch.Intent{message("sms", text("taken back")), clash})
		require.ErrorAs(t, err, &conflict)
		return nil
	}))

	require.ErrorIs(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		added, err := box.EnqueueMany(t.Context(), tx, slices.Collect(func(yield func(dispatch.Intent) bool) {
			for range enoughToCopy {
				yield(message("sms", text("copied")))
			}
		}))
		require.NoError(t, err)
		require.NotContains(t, added, false)
		return context.Canceled
	}), context.Canceled)

	respond := func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		c, _ := e.Content.(dispatch.SMS)
		switch {
		case c.Body == "retry" && e.Attempt == 1:
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.Answered, Status: 429, OwnBody: true})
		case c.Body == "refused":
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.Answered, Status: 400, OwnBody: true, Code: "21211", Reason: "it's bad"})
		case c.Body == "lost" && e.Attempt == 1:
			accept()
			return dispatch.Accepted{}, context.DeadlineExceeded
		}
		return accept(), nil
	}
	a := &outboxtest.Provider{Promise: dispatch.Contract{Name: "deduping", Dedupe: dispatch.Dedupe{Window: time.Hour}}, Respond: respond}
	b := &outboxtest.Provider{Promise: dispatch.Contract{Name: "plain"}, Respond: respond}
	stop := start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{a, b}})

	for key, want := range map[dispatch.Key]int{ok.Key: 1, mail.Key: 1, retry.Key: 2, lost.Key: 2} {
		h := reaches(t, box, key, dispatch.Sent)
		require.Equal(t, want, h.Attempts)
		require.NotEmpty(t, h.Reference)
		require.Equal(t, 1, a.Deliveries(key))
	}
	for _, e := range a.Accepted() {
		require.Equal(t, content[e.Key], e.Content)
		require.Equal(t, ok.Metadata, e.Metadata)
		require.Equal(t, ok.TraceParent, e.TraceParent)
	}
	h := reaches(t, box, refused.Key, dispatch.Dead)
	require.Equal(t, dispatch.ReasonRejected, h.Reason)
	require.Equal(t, "21211", h.Events[0].Code)
	h = reaches(t, box, held.Key, dispatch.Held)
	require.Equal(t, "unknown", h.Events[0].Outcome.String())
	require.Equal(t, "Shop", b.Accepted()[0].From)
	h = reaches(t, box, later.Key, dispatch.Pending)
	require.WithinDuration(t, later.NotBefore, h.Next, time.Microsecond)
	require.WithinDuration(t, later.Deadline, h.Deadline, time.Microsecond)

	// By hand.
	why := outbox.Audit{By: "ada", Why: "it's a test"}
	state, err := box.Cancel(t.Context(), later.Key, why)
	require.NoError(t, err)
	require.Equal(t, dispatch.Cancelled, state)
	reaches(t, box, later.Key, dispatch.Cancelled)
	state, err = box.SendAnyway(t.Context(), held.Key, why)
	require.NoError(t, err)
	require.Equal(t, dispatch.Pending, state)
	require.Equal(t, 2, reaches(t, box, held.Key, dispatch.Sent).Attempts)
	require.NoError(t, stop())

	// What operators ask for.
	stats, err := box.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.Total(dispatch.Dead).LastHour)
	require.NoError(t, box.Check(t.Context(), outbox.Alarms{Holdback: -1}))
	for name, f := range map[string]outbox.Filter{
		"all": {}, "dead": {States: []dispatch.State{dispatch.Dead}}, "unknown": {States: []dispatch.State{dispatch.InDoubt}},
		"in motion": {States: []dispatch.State{dispatch.Pending, dispatch.Sending}}, "recipient": {Recipient: "a@example.com"},
	} {
		got, next, err := box.List(t.Context(), f, "", 0)
		require.NoError(t, err)
		require.Empty(t, next)
		require.Len(t, got, map[string]int{"all": 7, "dead": 1, "recipient": 1}[name], name)
	}
	require.NoError(t, box.PauseRoute(t.Context(), "plain", why))
	p, err := box.Bulk(t.Context(), outbox.Filter{Reason: dispatch.ReasonRejected}, box.Retry, why, nil)
	require.NoError(t, err)
	require.Equal(t, 1, p.Done[dispatch.Pending])
	p, err = box.Bulk(t.Context(), outbox.Filter{States: []dispatch.State{dispatch.Pending}}, box.GiveUp, why, nil)
	require.NoError(t, err)
	require.Equal(t, map[error]int{outbox.ErrNotParked: 1}, p.Refused)
	pruned, err := box.Prune(t.Context(), outbox.Retention{Scrub: time.Nanosecond, Delete: 100 * 24 * time.Hour})
	require.NoError(t, err)
	require.EqualValues(t, 6, pruned.Scrubbed)
	_, err = box.Bulk(t.Context(), outbox.Filter{Route: "sms", States: []dispatch.State{dispatch.Pending}}, box.Cancel, why, nil)
	require.NoError(t, err)

	rows, err := pool.Query(t.Context(), "select state, count(*) from "+ident(schema)+".status group by state order by state")
	require.NoError(t, err)
	type line struct {
		State string
		Count int64
	}
	lines, err := pgx.CollectRows(rows, pgx.RowToStructByPos[line])
	require.NoError(t, err)
	require.Equal(t, []line{{"cancelled", 2}, {"sent", 5}}, lines)
	require.NoError(t, box.Migrate(t.Context()))
}

// Two boxes in two schemas of one database don't see each other, though they
// have a key in common.
func TestBoxesInTwoSchemas(t *testing.T) {
	t.Parallel()
	one, _, _ := newBox(t)
	two, pool, schema := newBox(t)
	i := sms("hello")
	enqueue(t, one, i)
	enqueue(t, two, i)
	p := &outboxtest.Provider{}
	start(t, one, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	reaches(t, one, i.Key, dispatch.Sent)
	last := sms("last")
	enqueue(t, one, last)
	reaches(t, one, last.Key, dispatch.Sent)
	h, err := two.History(t.Context(), i.Key)
	require.NoError(t, err)
	require.Equal(t, dispatch.Pending, h.State)
	require.Empty(t, h.Events)
	require.Equal(t, 1, p.Deliveries(i.Key))
	require.Equal(t, 1, count(t, pool, schema, "queue"))
}

// B130: several applications, or an old and a new release of one, on one
// schema. What a worker doesn't know it leaves alone, uncounted and in sight:
// a route, a priority, a provider, a content of a newer release.
func TestUnknownRowsAreLeftAlone(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	news := route("mailer")
	news.Name = "news"
	other, err := outbox.New(pool, outbox.Config{Schema: schema, Routes: []dispatch.Route{news}})
	require.NoError(t, err)
	theirs, short, mine := sms("theirs"), sms("theirs, and over"), sms("mine")
	short.ValidFor = time.Millisecond
	enqueue(t, other, theirs, short)

	insert := func(form, lane string) dispatch.Key {
		key := dispatch.NewKey()
		_, err := pool.Exec(t.Context(), `with m as (insert into `+schema+`.message (id, form, channel, priority, budget, on_unknown, route, digest, content)
			values ($1, 1, 1, 2, 8, 1, split_part($3, '/', 1), sha256('x'), $2::text::bytea))
			insert into `+schema+`.queue (id, lane, due, budget) values ($1, $3, clock_timestamp(), 8)`, key.String(), form, lane)
		require.NoError(t, err)
		return key
	}
	const readable = `\x0101010c2b31353535353535303132330302` + `6869`
	fromNewer := insert(`\x63010101`, "sms/2/")
	strange := []dispatch.Key{
		insert(readable, "sms/9/"), insert(readable, "sms/2/gone"), insert(readable, "sms"), insert(readable, "gone/2/"), insert(readable, "sms/2/a/b"),
	}
	enqueue(t, box, mine)
	p := &outboxtest.Provider{}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	reaches(t, box, mine.Key, dispatch.Sent)
	require.Equal(t, dispatch.ReasonDeadline, reaches(t, box, short.Key, dispatch.Dead).Reason, "its deadline is kept by any worker")

	require.Eventually(t, func() bool { // it was claimed, handed back uncounted, and waits
		return ask[bool](t, pool, "select state = 1 and fence = 1 and spent = 0 and due > clock_timestamp() + interval '50 seconds' from "+schema+".queue where id = $1", fromNewer.String())
	}, 20*time.Second, 5*time.Millisecond)
	last := sms("last") // and the worker goes on
	enqueue(t, box, last)
	reaches(t, box, last.Key, dispatch.Sent)
	for _, key := range append(strange, theirs.Key) {
		require.True(t, ask[bool](t, pool, "select state = 1 and fence = 0 and spent = 0 from "+schema+".queue where id = $1", key.String()))
		h, err := box.History(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, dispatch.Pending, h.State)
		require.Equal(t, "pending", ask[string](t, pool, "select state from "+schema+".status where id = $1", key.String()))
	}
	require.Len(t, p.Sends(), 2)

	_, err = pool.Exec(t.Context(), "update "+schema+".queue set state = 9 where id = $1", theirs.Key.String())
	var pe *pgconn.PgError
	require.ErrorAs(t, err, &pe)
	require.Equal(t, "23514", pe.Code, "a state of a newer release is its own to allow")

	q := &outboxtest.Provider{Promise: dispatch.Contract{Name: "mailer"}}
	start(t, other, outbox.WorkerConfig{Providers: []dispatch.Provider{q}})
	reaches(t, other, theirs.Key, dispatch.Sent)
}
