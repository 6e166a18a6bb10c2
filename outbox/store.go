package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// store is the engine's Store on Postgres. It holds no connection between
// calls, and no transaction over a send.
type store struct {
	pool *pgxpool.Pool
	sql  *statements
}

func (s *store) Lanes(ctx context.Context) (lanes []string, err error) {
	err = s.steady(ctx, s.sql.lanes, nil, func(rows pgx.Rows) (err error) {
		lanes, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return lanes, err
}

func (s *store) Peek(ctx context.Context, probes []engine.Probe) (engine.Sight, error) {
	lanes, due, id := make([]string, len(probes)), make([]*string, len(probes)), make([]string, len(probes))
	for i, p := range probes {
		lanes[i], due[i], id[i] = p.Lane, nullTime(p.From.Due), p.From.Key.String()
	}
	sight := engine.Sight{Next: -1}
	var first *time.Time
	var key *[16]byte
	var wait int64
	err := s.steady(ctx, s.sql.peek, []any{lanes, due, id}, func(rows pgx.Rows) error {
		return scanEach(rows, []any{&sight.Now, &first, &key, &wait}, func() error {
			var c engine.Cursor
			if first != nil && key != nil {
				c = engine.Cursor{Due: *first, Key: *key}
			}
			sight.First = append(sight.First, c)
			if d := micros(wait); wait >= 0 && (sight.Next < 0 || d < sight.Next) {
				sight.Next = d
			}
			return nil
		})
	})
	return sight, err
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// each calls f for every row that a statement returns, with the row scanned
// into scans.
func each(ctx context.Context, q querier, sql string, args, scans []any, f func() error) error {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return scanEach(rows, scans, f)
}

// scanEach calls f for every row, with the row scanned into scans.
func scanEach(rows pgx.Rows, scans []any, f func() error) error {
	for rows.Next() {
		if err := rows.Scan(scans...); err != nil {
			return err
		}
		if err := f(); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (s *store) Claim(ctx context.Context, c engine.Claim) (tasks []engine.Task, err error) {
	args := []any{
		c.Lane.String(), c.Provider, c.Account, int64(c.Encoding), uuidText(c.ID),
		c.Lease.Microseconds(), c.Window.Microseconds(), nullTime(c.From.Due), flag(c.Probe), c.From.Key.String(), int64(c.Limit),
	}
	err = s.steady(ctx, s.sql.claim, args, func(rows pgx.Rows) (err error) {
		tasks, err = readClaim(c, rows)
		return err
	})
	return tasks, err
}

// readClaim reads a claim's rows, each into its place: no row is on the heap
// twice.
func readClaim(c engine.Claim, rows pgx.Rows) ([]engine.Task, error) {
	tasks := make([]engine.Task, 0, min(c.Limit, 64)) // most claims are for more than there is
	var deadline, resolve *time.Time
	var ledger, senders, metadata *string
	var after int64
	for rows.Next() {
		tasks = append(tasks, engine.Task{Row: decide.Row{
			Lane: c.Lane, State: dispatch.Sending, Provider: c.Provider, Account: c.Account, Encoding: c.Encoding,
		}})
		t := &tasks[len(tasks)-1]
		if err := rows.Scan((*[16]byte)(&t.Key), &t.Due, &t.Claimed, &t.Lease, &deadline, &resolve, &t.Fence, &t.Spent, &t.Budget,
			&t.Lookups, &ledger, &t.OnUnknown.Action, &after, &t.Pinned, &senders, &t.From, &t.Form, &metadata, &t.Trace, &t.Created,
			&t.Country, &t.SealKey, &t.Digest); err != nil {
			return nil, err
		}
		t.Now, t.OnUnknown.After = t.Claimed, micros(after)
		t.Deadline, t.ResolveUntil = timeOf(deadline), timeOf(resolve)
		t.Senders, t.Metadata = bytesOf(senders), bytesOf(metadata)
		if !readLedger(ledger, &t.Ledger) {
			tasks = tasks[:len(tasks)-1]
		}
	}
	return tasks, rows.Err()
}

func (s *store) Unclaim(ctx context.Context, id [16]byte) (int, error) {
	tag, err := s.pool.Exec(ctx, s.sql.unclaim, uuidText(id))
	return int(tag.RowsAffected()), err
}

func (s *store) Page(ctx context.Context, lane string, after engine.Cursor, _ int) (tasks []engine.Task, next engine.Cursor, ok bool, err error) {
	next = after
	err = s.steady(ctx, s.sql.page, []any{lane, nullTime(after.Due), after.Key.String()}, func(rows pgx.Rows) (err error) {
		tasks, next, ok, err = readPage(lane, after, rows)
		return err
	})
	return tasks, next, ok, err
}

func readPage(lane string, after engine.Cursor, rows pgx.Rows) (tasks []engine.Task, next engine.Cursor, ok bool, err error) {
	parsed, _ := decide.ParseLane(lane)
	var n int64
	for rows.Next() {
		var last, due, claimed, lease, deadline, resolve, created *time.Time
		var lastID, id *[16]byte
		var fence, micro *int64
		var spent, budget, lookups *int
		var ended *decide.Ended
		var state *dispatch.State
		var action *dispatch.UnknownAction
		var ledger, senders *string
		var pinned *bool
		t := engine.Task{Row: decide.Row{Lane: parsed}}
		if err := rows.Scan(&n, &last, &lastID, &id, &due, &claimed, &lease, &deadline, &resolve, &fence, &spent, &budget, &lookups, &ended,
			&state, &t.Provider, &t.Account, &t.Encoding, &ledger, &action, &micro, &pinned, &senders, &created, &t.Now); err != nil {
			return nil, after, false, err
		}
		if last != nil {
			after = engine.Cursor{Due: *last, Key: *lastID}
		}
		if id == nil || action == nil || !readLedger(ledger, &t.Ledger) {
			continue // nothing to do on this page, or a row without its message
		}
		t.Key, t.Pinned, t.State, t.Fence, t.Ended = *id, *pinned, *state, *fence, *ended
		t.Spent, t.Budget, t.Lookups = *spent, *budget, *lookups
		t.OnUnknown = dispatch.OnUnknown{Action: *action, After: micros(*micro)}
		t.Due, t.Claimed, t.Lease, t.Deadline, t.ResolveUntil = *due, timeOf(claimed), timeOf(lease), timeOf(deadline), timeOf(resolve)
		t.Senders, t.Created = bytesOf(senders), timeOf(created)
		tasks = append(tasks, t)
	}
	return tasks, after, n >= pageRows, rows.Err()
}

// pageRows is the size of a page; it stands in pageSQL as {page}.
const pageRows = 500

func (s *store) Load(ctx context.Context, t engine.Task) (engine.Task, error) {
	var metadata *string
	found := false
	err := s.steady(ctx, s.sql.load, []any{t.Key.String(), t.Provider}, func(rows pgx.Rows) error {
		return scanEach(rows, []any{&t.Form, &t.From, &metadata, &t.Trace, &t.SealKey, &t.Digest}, func() error {
			found = true
			return nil
		})
	})
	t.Metadata = bytesOf(metadata)
	if err == nil && !found {
		err = fmt.Errorf("message %s is in the queue and has no content", t.Key)
	}
	return t, err
}

// readLedger reads a ledger. One that this release can't read, as a newer one
// may write it, makes its row one to leave alone: whatever was written over it
// would lose what it knows.
func readLedger(text *string, l *decide.Ledger) bool {
	return text == nil || json.Unmarshal([]byte(*text), l) == nil
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func bytesOf(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}

// stamp writes a time as text that Postgres reads the same in every session.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func nullTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := stamp(t)
	return &s
}

func uuidText(id [16]byte) string { return dispatch.Key(id).String() }
