package outbox

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// Apply sends the acceptances through one narrow statement and everything else
// through one general one. Each is a transaction of its own and locks its rows
// in the order of their keys.
func (s *store) Apply(ctx context.Context, changes []engine.Change) ([]engine.Result, error) {
	results := make([]engine.Result, len(changes))
	var sent, rest []int
	for i, c := range changes {
		if c.Move.Rule == decide.RuleOK && c.Record.Kind == engine.KindAttempt {
			sent = append(sent, i)
		} else {
			rest = append(rest, i)
		}
	}
	if err := s.applySent(ctx, changes, sent, results); err != nil {
		return nil, err
	}
	if err := s.applyRest(ctx, changes, rest, results); err != nil {
		return nil, err
	}
	return results, nil
}

func (s *store) applySent(ctx context.Context, changes []engine.Change, which []int, results []engine.Result) error {
	n := len(which)
	if n == 0 {
		return nil
	}
	id := make([]pgtype.UUID, n) // of all modes of pgx, and without an allocation each
	provider, account := make([]string, n), make([]string, n)
	ref, code, request := make([]string, n), make([]string, n), make([]string, n)
	fence, status, took := make([]int64, n), make([]int64, n), make([]int64, n)
	for i, at := range which {
		c := &changes[at]
		r := &c.Record
		id[i], fence[i], provider[i], account[i] = pgtype.UUID{Bytes: c.Key, Valid: true}, c.Fence, r.Provider, r.Account
		ref[i], status[i], code[i] = label(r.ProviderID, 300), int64(r.Evidence.Status), label(r.Evidence.Code, 100)
		took[i], request[i] = r.Took.Milliseconds(), hex.EncodeToString(r.Evidence.Request)
		results[at] = engine.Result{Status: engine.Applied, State: dispatch.Sent}
	}
	args := []any{id, fence, provider, account, ref, status, code, took, request}
	var lost []int64
	read := func(rows pgx.Rows) (err error) {
		lost, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	}
	err := s.steady(ctx, s.sql.applySent, args, read)
	if unique(err) {
		err = s.steady(ctx, s.sql.applySentKnown, args, read)
	}
	for _, at := range lost {
		results[which[at-1]] = engine.Result{Status: engine.Fenced}
	}
	return err
}

// unique reports whether a row was there already.
func unique(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && pe.Code == "23505"
}

func (s *store) applyRest(ctx context.Context, changes []engine.Change, which []int, results []engine.Result) error {
	if len(which) == 0 {
		return nil
	}
	var a columns
	for _, at := range which {
		if err := a.add(&changes[at]); err != nil {
			return err
		}
	}
	var at int64
	var state *dispatch.State
	var reason *dispatch.Reason
	var found, applied bool
	var now time.Time
	return s.steady(ctx, s.sql.apply, a.args(), func(rows pgx.Rows) error {
		return scanEach(rows, []any{&at, &found, &applied, &state, &reason, &now}, func() error {
			r := engine.Result{Status: engine.Fenced, Now: now}
			switch {
			case applied:
				r.Status, r.State, r.Reason = engine.Applied, *state, *reason
			case found:
				r.Status = engine.Again
			}
			results[which[at-1]] = r
			return nil
		})
	})
}

// columns are the arguments of applySQL, one array each.
type columns struct {
	text   [17][]string
	number [21][]int64
}

func (a *columns) add(c *engine.Change) error {
	m, r := &c.Move, &c.Record
	ledger := ""
	if len(m.Ledger) > 0 {
		b, err := json.Marshal(m.Ledger)
		if err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
		ledger = string(b)
	}
	for i, v := range [...]string{
		c.Key.String(), stamp(m.NotBefore), m.Lane.String(), m.Provider, m.Account, stamp(m.First), stamp(m.ResolveUntil), ledger,
		r.Provider, r.Account, label(r.ProviderID, 300), label(r.Evidence.Code, 100), label(r.Verdict.Reason, 300),
		label(r.Evidence.Reason, 500), hex.EncodeToString(r.Evidence.Request), label(r.Actor, 200), label(r.Why, 1000),
	} {
		a.text[i] = append(a.text[i], v)
	}
	for i, v := range [...]int64{
		c.Fence, int64(c.From), flag(c.Idle), int64(m.To), int64(m.Reason), int64(m.Spent), m.Wait.Microseconds(), int64(m.Encoding),
		int64(m.Ledger.Count(decide.Open)), int64(m.Ledger.Count(decide.Waived)), m.Lease.Microseconds(), int64(m.Lookups),
		int64(m.Rule), int64(r.Kind), int64(r.Verdict.Outcome), int64(r.Verdict.Scope), int64(r.Evidence.Stage),
		int64(r.Evidence.Status), r.Verdict.Floor.Microseconds(), r.Took.Milliseconds(), int64(m.End),
	} {
		a.number[i] = append(a.number[i], v)
	}
	return nil
}

func (a *columns) args() []any {
	t, n := &a.text, &a.number
	return []any{
		t[0], n[0], n[1], n[2], n[3], n[4], n[5],
		n[6], t[1], t[2], t[3], t[4], n[7], t[5], t[6], t[7],
		n[8], n[9], n[10], n[11], n[12], n[13], t[8], t[9],
		t[10], n[14], n[15], n[16], n[17], t[11], t[12], t[13],
		n[18], n[19], t[14], t[15], t[16], n[20],
	}
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// label makes what a vendor or a person wrote fit to be stored: valid UTF-8
// without NUL, cut at a rune boundary.
func label(s string, most int) string {
	if len(s) <= most && utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?")
	for len(s) > most {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}
