package outbox

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// A prepared statement keeps its plan until the next ANALYZE of a table of it.
// Where it was planned while the tables were small, as on a new system, a
// newsletter of a million rows would be read from end to end by every claim,
// settle and look-up until autovacuum comes by, a minute later. So what is on a
// worker's way is planned without the plans that are good for small tables only,
// and once: for a claim whose limit is an argument, Postgres would believe a plan
// of its own for each execution to be cheaper, and take as long to find it as to
// claim.
// The settings end with the transaction: no session is changed, and none is
// needed.

// steadySQL goes before a statement in the same pipeline, which is one
// transaction.
const steadySQL = `select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
    set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)`

// steadyTx and steadyRead begin a transaction of several statements the same
// way; the second reads only, from one snapshot.
var (
	steadyTx   = pgx.TxOptions{BeginQuery: "begin isolation level read committed;" + steadyLocal}
	steadyRead = pgx.TxOptions{BeginQuery: "begin isolation level repeatable read read only;" + steadyLocal}
)

const steadyLocal = " set local enable_seqscan = off; set local enable_bitmapscan = off; set local enable_mergejoin = off; set local jit = off; set local plan_cache_mode = force_generic_plan"

// steady runs one statement in a transaction of its own and lets read have its
// rows. Nothing that read took counts before steady has returned nil: only then
// is it committed.
func (s *store) steady(ctx context.Context, sql string, args []any, read func(rows pgx.Rows) error) (err error) {
	var b pgx.Batch
	b.Queue(steadySQL)
	b.Queue(sql, args...)
	results := s.pool.SendBatch(ctx, &b)
	defer func() {
		if e := results.Close(); err == nil {
			err = e
		}
	}()
	if _, err := results.Exec(); err != nil {
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	if err := read(rows); err != nil {
		return err
	}
	return rows.Err()
}
