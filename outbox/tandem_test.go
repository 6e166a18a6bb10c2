package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/internal/sim"
)

// What the simulation proves, it proves of its model of the database. So every
// operation of the Store runs, by a random script, against the model and
// against Postgres, with the same arguments and at the same moment; answers are
// compared, and all rows after each step.
func TestModelAndPostgresInTandem(t *testing.T) {
	t.Parallel()
	tm := newTandem(t)
	var rules [41]int
	for seed := range uint64(tandemSeeds) {
		tm.begin(seed)
		require.Empty(t, tm.play(tandemSteps))
		for n, taken := range tm.model.Rules() {
			rules[n] += taken
		}
	}
	t.Logf("rows of the transition table: %v; calls: %v", rules[1:], tm.calls)
	for n, taken := range rules {
		require.True(t, n == 0 || taken > 0, "row %d of the transition table was never taken: %v", n, rules)
	}
}

const (
	tandemSeeds = 12
	tandemSteps = 350
)

// tandem is the model and a real store beside it.
type tandem struct {
	t      *testing.T
	pool   *pgxpool.Pool // of one connection, which has the clock
	schema string
	box    *Box
	real   *store
	model  *sim.Tandem
	rnd    *rand.Rand
	now    time.Time
	seed   uint64
	story  []string
	diff   string
	calls  map[string]int

	tasks    []engine.Task // claimed, the stale ones too
	pages    []engine.Task // seen by the sweep, perhaps long ago
	asks     []asking
	claims   [][16]byte
	messages []sim.TandemMessage
	later    map[dispatch.Key]time.Time // NotBefore, where a message has one
}

// asking is a look-up that was claimed.
type asking struct {
	engine.Task
	asked time.Time
}

// newTandem makes a schema whose statements read the test's clock: its own
// clock_timestamp() stands before Postgres' in the search_path. The statements
// are the very ones, and time is exact: both sides meet each deadline, lease
// and window to the microsecond, and nothing waits.
func newTandem(t *testing.T) *tandem {
	t.Helper()
	admin, schema := pgtest.Pool(t)
	_, err := admin.Exec(t.Context(), "create function "+schema+`.clock_timestamp() returns timestamptz language sql volatile
		as $$ select pg_catalog.current_setting('tandem.clock')::timestamptz $$`)
	require.NoError(t, err)
	cfg := admin.Config()
	cfg.MaxConns = 1
	pgtest.Direct(t, cfg.ConnConfig) // all that follows is the session's
	cfg.ConnConfig.RuntimeParams["search_path"] = schema + ", pg_catalog"
	cfg.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan" // planning is most of the time otherwise
	cfg.ConnConfig.RuntimeParams["tandem.clock"] = stamp(sim.TandemStart)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	box, err := New(pool, Config{Schema: schema, Routes: []dispatch.Route{{Name: "sms", Providers: []string{"alpha", "beta"}}}})
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	tm := &tandem{t: t, pool: pool, schema: schema, box: box, calls: map[string]int{}}
	tm.plant(nil)
	return tm
}

// smallPage is the page of the sweep here, so that its cursor matters.
const smallPage = 2

// plant gives the real side its statements, changed by the bug.
func (tm *tandem) plant(bug func(*statements)) {
	texts := render(tm.box.schema)
	texts.page = strings.Replace(texts.page, "limit 500", fmt.Sprint("limit ", smallPage), 1)
	require.Contains(tm.t, texts.page, fmt.Sprint("limit ", smallPage))
	if bug != nil {
		bug(&texts)
	}
	tm.real = &store{pool: tm.pool, sql: &texts}
}

// begin empties both sides.
func (tm *tandem) begin(seed uint64) {
	ctx := context.WithoutCancel(tm.t.Context())
	for _, table := range []string{"message", "queue", "parked", "history", "gate"} {
		_, err := tm.pool.Exec(ctx, "delete from "+tm.schema+"."+table)
		require.NoError(tm.t, err)
	}
	tm.model, tm.rnd, tm.seed = sim.NewTandem(), rand.New(rand.NewPCG(seed, 7)), seed
	tm.story, tm.diff = nil, ""
	tm.tasks, tm.pages, tm.asks, tm.claims, tm.messages = nil, nil, nil, nil, nil
	tm.now, tm.later = sim.TandemStart, map[dispatch.Key]time.Time{}
	tm.set()
	var clock time.Time
	require.NoError(tm.t, tm.pool.QueryRow(ctx, "select clock_timestamp()").Scan(&clock))
	require.True(tm.t, clock.Equal(tm.now), "the statements must read the test's clock")
}

// play runs the script, and returns the story of the first difference.
func (tm *tandem) play(steps int) string {
	for range steps {
		tm.step()
		at := tm.now
		if tm.diff == "" {
			tm.pass()
			tm.compareRows(at)
		}
		if tm.diff != "" {
			return tm.tale()
		}
	}
	return ""
}

// tale is the story of a difference: the last steps, and all before them that
// name the same message.
func (tm *tandem) tale() string {
	last := len(tm.story) - 1
	key := uuidPattern.FindString(tm.story[last])
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, step %d", tm.seed, last+1)
	for n, line := range tm.story {
		if n > last-8 || key != "" && n > last-90 && strings.Contains(line, key) {
			b.WriteString("\n  " + line)
		}
	}
	return b.String() + "\n" + tm.diff
}

var uuidPattern = regexp.MustCompile("[0-9a-f]{8}-[0-9a-f-]{27}")

func (tm *tandem) set() {
	tm.model.Set(tm.now)
	_, err := tm.pool.Exec(context.WithoutCancel(tm.t.Context()), setClockSQL, stamp(tm.now))
	require.NoError(tm.t, err)
}

// tell begins a step of the story.
func (tm *tandem) tell(call, format string, args ...any) {
	tm.calls[call]++
	tm.story = append(tm.story, fmt.Sprintf("%s %-8s %s", tm.now.Sub(sim.TandemStart), call, fmt.Sprintf(format, args...)))
}

// same compares what both sides answered. It returns whether they answered at
// all: an error is the database's refusal of an impossible row, on both sides.
func (tm *tandem) same(what string, model, real any, modelErr, realErr error) bool {
	if a, b := kindOf(modelErr), kindOf(realErr); a != b {
		tm.diff = fmt.Sprintf("%s:\n  model    %s %v\n  postgres %s %v", what, a, modelErr, b, realErr)
		if pe := (*pgconn.PgError)(nil); errors.As(realErr, &pe) {
			tm.diff += ": " + pe.Detail
		}
		return false
	}
	if modelErr != nil {
		tm.story[len(tm.story)-1] += " → " + kindOf(modelErr)
		return false
	}
	a, b := show(model), show(real)
	if a != b {
		tm.diff = fmt.Sprintf("%s:\n  model    %s\n  postgres %s", what, a, b)
		return false
	}
	if len(a) < 100 {
		tm.story[len(tm.story)-1] += " → " + a
	}
	return true
}

func kindOf(err error) string {
	var pe *pgconn.PgError
	switch {
	case err == nil:
		return "fine"
	case errors.Is(err, sim.ErrCheck), errors.As(err, &pe) && pe.Code == "23514":
		return "check violated"
	case pe != nil:
		return "error " + pe.Code
	}
	return err.Error()
}

func show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// compareRows compares all rows in motion and parked, the gates, and what the
// history has got since a moment.
func (tm *tandem) compareRows(at time.Time) {
	rows, gates, entries, all := tm.dump(at)
	differ(tm, "rows", tm.model.Rows(), rows)
	differ(tm, "gates", tm.model.GateRows(), gates)
	known, n := tm.model.History(at)
	differ(tm, "history", known, entries)
	differ(tm, "length of the history", []int{n}, []int{all})
}

func differ[T any](tm *tandem, what string, model, real []T) {
	if tm.diff != "" || len(model) == 0 && len(real) == 0 || reflect.DeepEqual(model, real) {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d in the model, %d in postgres", what, len(model), len(real))
	for n := range max(len(model), len(real)) {
		a, c := "-", "-"
		if n < len(model) {
			a = show(model[n])
		}
		if n < len(real) {
			c = show(real[n])
		}
		if a != c {
			fmt.Fprintf(&b, "\n  model    %s\n  postgres %s", a, c)
		}
	}
	tm.diff = b.String()
}

const setClockSQL = "select set_config('tandem.clock', $1::text, false)"

const tandemRowsSQL = `select 'queue' as "table", q.id, q.lane, q.state::bigint, 0::bigint, q.fence::bigint, q.spent::bigint, q.budget::bigint,
    q.lookups::bigint, q.open::bigint, q.waived::bigint, q.ended::bigint, coalesce(q.encoding, 0)::bigint, coalesce(q.provider, ''),
    coalesce(q.account, ''), q.ledger::text, q.due, q.claimed, q.lease, q.deadline, q.resolve_until, q.first_sent, q.claim
from {schema}.queue q
union all
select 'parked', p.id, p.lane, p.state::bigint, p.reason::bigint, p.fence::bigint, p.spent::bigint, p.budget::bigint,
    0, p.open::bigint, p.waived::bigint, p.ended::bigint, coalesce(p.encoding, 0)::bigint, coalesce(p.provider, ''),
    coalesce(p.account, ''), p.ledger::text, null, null, null, p.deadline, null, null, null
from {schema}.parked p
order by 1 desc, 2`

const tandemHistorySQL = `select h.id, h.at, h.fence::bigint, h.sub = 0, h.kind::bigint, h.move::bigint, h.state::bigint, h.reason::bigint,
    coalesce(h.outcome, -1)::bigint, coalesce(h.provider, ''), coalesce(h.account, ''), coalesce(h.provider_id, '')
from {schema}.history h where h.at >= $1::text::timestamptz order by h.id, h.at, h.fence, h.sub`

const tandemGatesSQL = `select g.provider, g.reason::bigint, g.step::bigint, g.passed::bigint, g.until, g.since, g.probe_at, g.opened_at
from {schema}.gate g order by g.provider`

// dump reads what the model dumps, and sets the clock for what follows, in one
// round trip.
func (tm *tandem) dump(at time.Time) (rows []sim.TandemRow, gates []sim.TandemGate, entries []sim.TandemEntry, all int) {
	in := func(s string) string { return strings.ReplaceAll(s, "{schema}", tm.schema) }
	var batch pgx.Batch
	batch.Queue(in(tandemRowsSQL)).Query(func(found pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(found, scanTandemRow)
		return err
	})
	batch.Queue(in(tandemGatesSQL)).Query(func(found pgx.Rows) (err error) {
		gates, err = pgx.CollectRows(found, func(r pgx.CollectableRow) (g sim.TandemGate, err error) {
			var until, opened *time.Time
			err = r.Scan(&g.Provider, &g.Reason, &g.Step, &g.Passed, &until, &g.Since, &g.Probe, &opened)
			g.Until, g.Opened, g.Since, g.Probe = utc(until), utc(opened), g.Since.UTC(), g.Probe.UTC()
			return g, err
		})
		return err
	})
	batch.Queue(in(tandemHistorySQL), stamp(at)).Query(func(found pgx.Rows) (err error) {
		entries, err = pgx.CollectRows(found, func(r pgx.CollectableRow) (e sim.TandemEntry, err error) {
			err = r.Scan((*[16]byte)(&e.Key), &e.At, &e.Fence, &e.Evidence, &e.Kind, &e.Rule, &e.State, &e.Reason, &e.Outcome,
				&e.Provider, &e.Account, &e.ID)
			e.At = e.At.UTC()
			return e, err
		})
		return err
	})
	batch.Queue(in("select count(*) from {schema}.history")).QueryRow(func(r pgx.Row) error { return r.Scan(&all) })
	batch.Queue(setClockSQL, stamp(tm.now))
	require.NoError(tm.t, tm.pool.SendBatch(context.WithoutCancel(tm.t.Context()), &batch).Close())
	return rows, gates, entries, all
}

func scanTandemRow(r pgx.CollectableRow) (v sim.TandemRow, err error) {
	var ledger *string
	var due, claimed, lease, deadline, resolve, first *time.Time
	var claim *[16]byte
	err = r.Scan(&v.Table, (*[16]byte)(&v.Key), &v.Lane, &v.State, &v.Reason, &v.Fence, &v.Spent, &v.Budget, &v.Lookups, &v.Open, &v.Waived,
		&v.Ended, &v.Encoding, &v.Provider, &v.Account, &ledger, &due, &claimed, &lease, &deadline, &resolve, &first, &claim)
	var l decide.Ledger
	if !readLedger(ledger, &l) {
		return v, fmt.Errorf("ledger %s", *ledger)
	}
	v.Ledger = sim.TandemLedger(l)
	v.Due, v.Claimed, v.Lease, v.Deadline, v.ResolveUntil, v.First = utc(due), utc(claimed), utc(lease), utc(deadline), utc(resolve), utc(first)
	if claim != nil {
		v.Claim = *claim
	}
	return v, err
}

func utc(t *time.Time) time.Time { return timeOf(t).UTC() }
