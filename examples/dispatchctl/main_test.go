package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var update = flag.Bool("update", false, "write the golden files anew")

// world is an outbox with messages in every state, and no worker any more.
type world struct {
	box    *outbox.Box
	schema string
	dsn    string
	keys   map[string]dispatch.Key
	names  []string // of keys, in order
}

// newWorld enqueues messages, whose text says what becomes of them, and waits
// until nothing moves but what is for later.
func newWorld(t *testing.T, texts ...string) *world {
	t.Helper()
	pool, schema := pgtest.Pool(t)
	w := &world{schema: schema, dsn: pgtest.URL(t), keys: map[string]dispatch.Key{}}
	routes := []dispatch.Route{{Name: "sms", Providers: []string{"test"}}, {Name: "news", Providers: []string{"test"}}}
	shop, err := dispatch.NewNamespace("shop")
	require.NoError(t, err)
	w.box, err = outbox.New(pool, outbox.Config{Schema: schema, Routes: routes})
	require.NoError(t, err)
	require.NoError(t, w.box.Migrate(t.Context()))
	for _, text := range texts {
		i := dispatch.Intent{Key: dispatch.NewKey(), Route: "sms", Content: dispatch.SMS{To: "+15555550123", Body: text}}
		if text == "sent" {
			i.Key = shop.Key("login/1")
		}
		if text == "later" {
			i.Route, i.NotBefore = "news", time.Now().Add(time.Hour)
		}
		w.keys[text], w.names = i.Key, append(w.names, text)
		require.NoError(t, w.box.InTx(t.Context(), func(tx pgx.Tx) error {
			_, err := w.box.Enqueue(t.Context(), tx, i)
			return err
		}))
	}
	p := &outboxtest.Provider{Respond: func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		switch body := e.Content.(dispatch.SMS).Body; {
		case strings.HasPrefix(body, "refused"):
			return dispatch.Accepted{}, &dispatch.Fault{
				Evidence: dispatch.Evidence{Stage: dispatch.Answered, Status: 400, Code: "21211", Reason: "no such number +15555550123"},
				Verdict:  dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Message, Reason: "refused"},
			}
		case strings.HasPrefix(body, "lost"):
			return dispatch.Accepted{}, context.DeadlineExceeded
		}
		return accept(), nil
	}}
	worker, err := outbox.NewWorker(w.box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{p}, PollInterval: 20 * time.Millisecond, SweepInterval: 20 * time.Millisecond,
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, pool.QueryRow(context.WithoutCancel(t.Context()), `select count(*) from "`+schema+`".queue where due < now() + interval '1 minute'`).Scan(&n))
		return n == 0
	}, 30*time.Second, 20*time.Millisecond)
	calls := 0 // that say something about the provider: the worker shares them every two seconds
	for _, text := range texts {
		if text == "sent" || strings.HasPrefix(text, "lost") {
			calls++
		}
	}
	require.Eventually(t, func() bool {
		health, err := w.box.Health(context.WithoutCancel(t.Context()))
		require.NoError(t, err)
		told := 0
		for _, h := range health {
			told += h.Calls
		}
		return told >= calls
	}, 30*time.Second, 50*time.Millisecond)
	stop()
	require.NoError(t, <-done)
	return w
}

// call runs the program and returns what it ends with and writes.
func (w *world) call(ctx context.Context, args ...string) (code int, out, err string) {
	var stdout, stderr bytes.Buffer
	for i, a := range args {
		if name, ok := strings.CutPrefix(a, "@"); ok {
			args[i] = w.keys[name].String()
		}
	}
	p := program{out: &stdout, err: &stderr, now: time.Now, getenv: func(name string) string {
		if name == "DATABASE_URL" {
			return w.dsn
		}
		return ""
	}}
	code = p.run(ctx, args)
	return code, stdout.String(), stderr.String()
}

var (
	moments   = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	clocks    = regexp.MustCompile(`(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\.\d{3}`)
	durations = regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?(ms|s)\b`)
	numbers   = regexp.MustCompile(`("[a-z0-9_]*seconds": )[0-9.e-]+`)
	rows      = regexp.MustCompile(`(dead rows |"queue_dead_rows": |"transactions": |"name": ")\d+`)
	holds     = regexp.MustCompile(`(?s),\n  "vacuum_holdback": \{.*?\}`)
	cursors   = regexp.MustCompile(`\b([pqumr])\.\d+\.`)
	blanks    = regexp.MustCompile(` {2,}`)
)

// steady takes out what differs from run to run.
func (w *world) steady(s string) string {
	for _, name := range w.names {
		s = strings.ReplaceAll(s, w.keys[name].String(), "@"+name)
	}
	s = strings.ReplaceAll(s, w.schema, "SCHEMA")
	s = moments.ReplaceAllString(s, "TIME")
	s = clocks.ReplaceAllString(s, "CLOCK")
	s = holds.ReplaceAllString(s, "")
	s = numbers.ReplaceAllString(s, "${1}0")
	s = rows.ReplaceAllString(s, "${1}0")
	s = cursors.ReplaceAllString(s, "$1.0.")
	s = durations.ReplaceAllString(s, "DURATION")
	s = strings.ReplaceAll(s, ", next step in DURATION", "") // said where the step was not due at once
	return s
}

// golden compares a call with its file.
func (w *world) golden(t *testing.T, name string, args ...string) {
	t.Helper()
	shown := "$ dispatchctl " + strings.Join(args, " ")
	code, out, errs := w.call(t.Context(), append([]string{args[0], "--schema", w.schema}, args[1:]...)...)
	got := w.steady(fmt.Sprintf("%s\n%s-- stderr\n%s-- exit %d\n", shown, out, errs, code))
	got = blanks.ReplaceAllStringFunc(got, func(b string) string {
		if strings.Contains(out, "{\n") {
			return b
		}
		return "  " // the width of a column depends on what was taken out
	})
	assert.NotContains(t, out+errs, "postgres://")
	file := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

const by, why = "--by=ada", "--why=test"

// The calls go through one outbox's life, in order.
func TestGolden(t *testing.T) {
	w := newWorld(t, "sent", "refused", "refused too", "lost", "lost too", "lost three", "later")
	for _, c := range []struct {
		name string
		args []string
	}{
		{"migrate", []string{"migrate"}},
		{"migrate_arguments", []string{"migrate", "now"}},
		{"unknown_flag", []string{"stats", "--colour"}},
		{"flag_help", []string{"drain", "--help"}},
		{"stats", []string{"stats"}},
		{"stats_json", []string{"stats", "--json"}},
		{"stats_check", []string{"stats", "--check"}},
		{"stats_over", []string{"stats", "--check", "--dead", "2", "--held=3", "--late=-1s"}},
		{"stats_limit", []string{"stats", "--dead", "2"}},
		{"history", []string{"history", "@refused"}},
		{"history_held", []string{"history", "@lost"}},
		{"history_json", []string{"history", "@refused", "--json"}},
		{"history_words", []string{"history", "--json", "--words", "@refused"}},
		{"history_none", []string{"history"}},
		{"history_natural", []string{"history", "--namespace", "shop", "login/1"}},
		{"history_natural_none", []string{"history", "--namespace", "shop", " "}},
		{"history_bad", []string{"history", "x"}},
		{"history_two", []string{"history", "@sent", "@lost"}},
		{"history_missing", []string{"history", "0191e2a4-7c1d-7c1d-8c1d-0191e2a47c1d"}},
		{"list", []string{"list", "--state", "sent,pending"}},
		{"list_json", []string{"list", "--json", "--state=sent", "--since=1h", "--limit=1"}},
		{"list_recipient", []string{"list", "--recipient", "+1 555 555 0123", "--state", "dead", "--reason", "rejected"}},
		{"list_unheard", []string{"list", "--route", "smss", "--provider", "tset"}},
		{"list_none_dead", []string{"list", "--route", "news", "--state", "dead"}},
		{"list_nothing", []string{"list", "--before", "2026-01-01T00:00:00Z"}},
		{"list_bad_limit", []string{"list", "--limit", "0"}},
		{"list_bad_state", []string{"list", "--state", "gone"}},
		{"list_bad_reason", []string{"list", "--reason", "mood"}},
		{"list_bad_time", []string{"list", "--since", "yesterday"}},
		{"list_bad_recipient", []string{"list", "--recipient", "not@an@address"}},
		{"list_bad_route", []string{"list", "--route", "NO ROUTE"}},
		{"list_bad_cursor", []string{"list", "--cursor", "x"}},
		{"requeue_without_who", []string{"requeue", "@refused"}},
		{"requeue_empty", []string{"requeue", by, why}},
		{"requeue_times", []string{"requeue", by, why, "--since", "24h"}},
		{"requeue_both", []string{"requeue", by, why, "--state", "dead", "@refused"}},
		{"requeue_key", []string{"requeue", by, why, "@refused"}},
		{"requeue_moving", []string{"requeue", by, why, "@refused"}},
		{"requeue_filter", []string{"requeue", by, why, "--state", "dead", "--route", "sms"}},
		{"requeue_mixed", []string{"requeue", by, why, "--state", "pending,held", "--route", "sms", "--json"}},
		{"requeue_nothing", []string{"requeue", by, why, "--route", "nobody"}},
		{"requeue_anyway", []string{"requeue", "--anyway", by, why, "@lost too"}},
		{"resolve_nothing", []string{"resolve", by, why}},
		{"resolve_word", []string{"resolve", "perhaps", "@lost", by, why}},
		{"resolve_accepted_id", []string{"resolve", "accepted", "--state", "held", "--id", "SM1", by, why}},
		{"resolve_accepted", []string{"resolve", "accepted", "@lost", "--id", "SM1", by, why, "--json"}},
		{"resolve_late", []string{"resolve", "not-accepted", "@lost", by, why}},
		{"resolve_give_up", []string{"resolve", "give-up", by, why, "--route", "sms"}},
		{"cancel_sent", []string{"cancel", "@sent", by, why}},
		{"pause_kind", []string{"pause", "test", by, why}},
		{"pause_name", []string{"pause", "provider", "T E S T", by, why}},
		{"pause_without_who", []string{"pause", "provider", "test"}},
		{"pause_unseen", []string{"pause", "provider", "tset", by, why}},
		{"pause_provider", []string{"pause", "provider", "test", by, why}},
		{"pause_route", []string{"pause", "route", "news", by, why, "--json"}},
		{"stats_paused", []string{"stats"}},
		{"history_paused", []string{"history", "@later"}},
		{"history_paused_json", []string{"history", "--json", "@later"}},
		{"resume_provider", []string{"resume", "provider", "test", by, why}},
		{"resume_route", []string{"resume", "route", "news", by, why}},
		{"resume_again", []string{"resume", "provider", "test", by, why}},
		{"resume_unseen", []string{"resume", "provider", "tset", by, why}},
		{"drain_bad", []string{"drain", "--every", "1ms"}},
		{"drain_late", []string{"drain", "--timeout", "50ms", "--every", "10ms"}},
		{"drain_route", []string{"drain", "--route", "nobody", "--json"}},
		{"cancel_rest", []string{"cancel", "--state", "pending", by, why}},
		{"drain_empty", []string{"drain"}},
		{"prune_nothing", []string{"prune"}},
		{"prune_without_validity", []string{"prune", "--delete", "720h"}},
		{"prune_early", []string{"prune", "--delete", "24h", "--valid-for", "48h"}},
		{"prune_far", []string{"prune", "--scrub", "1000000h"}},
		{"prune", []string{"prune", "--scrub", "1ms"}},
		{"prune_json", []string{"prune", "--scrub", "1ms", "--scrub-dead", "1ms", "--delete", "720h", "--valid-for", "48h", "--json"}},
		{"requeue_scrubbed", []string{"requeue", by, why, "--state", "dead"}},
	} {
		if !t.Run(c.name, func(t *testing.T) { w.golden(t, c.name, c.args...) }) && testing.Verbose() {
			t.Log(c.args)
		}
	}
}

func TestCallsWithoutADatabase(t *testing.T) {
	secret := "sentinelpassword"
	for name, c := range map[string]struct {
		dsn  string
		args []string
		code int
		say  string
	}{
		"nothing":     {"", nil, exitUsage, "usage: dispatchctl COMMAND"},
		"help":        {"", []string{"help"}, exitDone, "usage: dispatchctl COMMAND"},
		"unknown":     {"", []string{"send"}, exitUsage, `"send" is no command`},
		"no dsn":      {"", []string{"stats"}, exitUsage, "no database: set --dsn or DATABASE_URL"},
		"bad dsn":     {"postgres://u:" + secret + "@[::1", []string{"stats"}, exitUsage, "the database's DSN can't be read"},
		"bad port":    {"postgres://u:" + secret + "@127.0.0.1:99999/x", []string{"stats"}, exitUsage, "the database's DSN can't be read"},
		"unreachable": {"postgres://u:" + secret + "@127.0.0.1:1/x?connect_timeout=2", []string{"stats"}, exitFailed, "the database can't be reached: connection refused"},
		"flag":        {"", []string{"stats", "--dsn", "postgres://u:" + secret + "@127.0.0.1:1/x"}, exitFailed, "the database can't be reached"},
		"help of one": {"postgres://u:" + secret + "@127.0.0.1:1/x", []string{"stats", "--help"}, exitDone, "usage: dispatchctl stats"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{dsn: c.dsn}
			code, out, errs := w.call(t.Context(), c.args...)
			assert.Equal(t, c.code, code, errs)
			assert.Empty(t, out)
			assert.Contains(t, errs, c.say)
			assert.NotContains(t, errs, secret)
		})
	}
}

func TestSchemas(t *testing.T) {
	w := &world{dsn: pgtest.URL(t)}
	code, _, errs := w.call(t.Context(), "stats", "--schema", "dispatch_nowhere")
	assert.Equal(t, exitFailed, code)
	assert.Equal(t, "dispatchctl: schema dispatch_nowhere is not migrated: run dispatchctl migrate\n", errs)
	code, _, errs = w.call(t.Context(), "stats", "--schema", "a\x00b")
	assert.Equal(t, exitUsage, code, errs)
}

// What a provider says of all its held messages is one call.
func TestResolveAll(t *testing.T) {
	w := newWorld(t, "lost", "lost too", "lost three", "refused")
	code, out, errs := w.call(t.Context(), "resolve", "accepted", "--schema", w.schema, "--state", "held", "--provider", "test", by, why)
	require.Equal(t, exitDone, code, errs)
	assert.Equal(t, "resolve accepted: 3 sent\n", out)
	h, err := w.box.History(t.Context(), w.keys["lost too"])
	require.NoError(t, err)
	require.Equal(t, dispatch.Sent, h.State)
	require.Equal(t, []string{"ada", "test"}, []string{h.Events[len(h.Events)-1].By, h.Events[len(h.Events)-1].Why})
}
