package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// dump is what the database says at the end.
type dump struct {
	messages []row
	orders   []string
	evidence []evidence
	claims   []claim
	moving   int // rows in the queue
	untold   int // notices that nobody has taken
}

// row is a message as an operator sees it.
type row struct {
	Key, Route, State, Reason string
	Budget, Notify            int64
	Deadline                  *time.Time
}

// evidence is the one history row of a send.
type evidence struct {
	Key      string
	Attempt  int64
	Kind     int64 // 1 attempt, 2 swept
	Outcome  int64 // 0 unknown, 1 ok, 2 rejected
	Status   int64
	Floor    time.Duration
	At       time.Time
	Provider string
}

// claim is a row of the flight recorder.
type claim struct {
	Key            string
	Attempt        int64
	Claimed, Lease time.Time
}

func takeDump(ctx context.Context, d *database) (out dump, err error) {
	if out.messages, err = collect[row](ctx, d, `select s.id::text, s.route, coalesce(s.state, ''), coalesce(s.reason, ''),
			m.budget::bigint, m.notify::bigint, m.deadline
		from "chaos box".status s join "chaos box".message m on m.id = s.id`); err != nil {
		return out, err
	}
	if out.evidence, err = collect[evidence](ctx, d, `select id::text, fence::bigint, kind::bigint, coalesce(outcome, 0)::bigint,
			coalesce(status, 0)::bigint, coalesce(floor, 0) * 1000, at, coalesce(provider, '')
		from "chaos box".history where sub = 0`); err != nil {
		return out, err
	}
	if out.claims, err = collect[claim](ctx, d, `select id::text, fence::bigint, claimed, lease from recorder.claim`); err != nil {
		return out, err
	}
	rows, err := d.admin.Query(ctx, "select key::text from shop.orders")
	if err != nil {
		return out, err
	}
	if out.orders, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return out, err
	}
	err = d.admin.QueryRow(ctx, `select (select count(*) from "chaos box".queue), (select count(*) from "chaos box".notice)`).Scan(&out.moving, &out.untold)
	return out, err
}

func collect[T any](ctx context.Context, d *database, sql string) ([]T, error) {
	rows, err := d.admin.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[T])
}
