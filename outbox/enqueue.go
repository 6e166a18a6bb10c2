package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
)

// Enqueue writes the intent in the caller's transaction: one statement. added
// is false where the key is there already with the same message, as after a
// commit whose answer was lost; nothing happens then.
//
// A bad intent is a *[dispatch.FieldError], a key that stands for another
// message a *[dispatch.ConflictError]; both leave the transaction usable. Any
// other error is the database's and is passed on, serialization failures too.
//
// Call Wake after the commit.
func (b *Box) Enqueue(ctx context.Context, tx pgx.Tx, i dispatch.Intent) (added bool, err error) {
	m, err := b.freeze(i)
	if err != nil {
		return false, err
	}
	if tx == nil {
		return false, errors.New("outbox: transaction is nil")
	}
	added, err = m.answer(tx.QueryRow(ctx, b.sql.enqueue, m.args()...))
	if err == nil {
		b.wake.hint(m.lane)
	}
	return added, err
}

// EnqueueSQL is Enqueue for database/sql, with any driver for Postgres.
func (b *Box) EnqueueSQL(ctx context.Context, tx *sql.Tx, i dispatch.Intent) (added bool, err error) {
	m, err := b.freeze(i)
	if err != nil {
		return false, err
	}
	if tx == nil {
		return false, errors.New("outbox: transaction is nil")
	}
	added, err = m.answer(tx.QueryRowContext(ctx, b.sql.enqueue, m.args()...))
	if err == nil {
		b.wake.hint(m.lane)
	}
	return added, err
}

// Queue adds the intent to a batch of the caller's own statements, so that it
// costs no round trip of its own. A bad intent is an error here and nothing is
// added. A conflict is the error of the batch's results, and the server's: it
// ends the transaction, also where the batch itself holds the COMMIT. The batch
// must be sent in a transaction together with the business change.
func (b *Box) Queue(batch *pgx.Batch, i dispatch.Intent) error {
	m, err := b.freeze(i)
	if err != nil {
		return err
	}
	batch.Queue(b.sql.enqueueStrict, m.args()...).QueryRow(func(row pgx.Row) error {
		_, err := m.answer(row)
		return err
	})
	b.wake.hint(m.lane)
	return nil
}

// EnqueueMany is Enqueue for many intents in one statement, at most MaxMany.
// added says for each whether it is new. One bad intent, or one conflict,
// refuses them all and nothing is written; the error names its index.
func (b *Box) EnqueueMany(ctx context.Context, tx pgx.Tx, intents []dispatch.Intent) (added []bool, err error) {
	if tx == nil {
		return nil, errors.New("outbox: transaction is nil")
	}
	if len(intents) == 0 {
		return nil, nil
	}
	if len(intents) > MaxMany {
		return nil, fmt.Errorf("outbox: %d intents, at most %d in one call", len(intents), MaxMany)
	}
	rows := make([]message, len(intents))
	at := make(map[dispatch.Key]int, len(intents)) // key → the first intent with it
	var order []int
	for n, i := range intents {
		m, err := b.freeze(i)
		if err != nil {
			return nil, fmt.Errorf("intent %d: %w", n, err)
		}
		rows[n] = m
		if first, twice := at[m.key]; twice {
			if rows[first].plain != m.plain {
				return nil, fmt.Errorf("intent %d: %w", n, &dispatch.ConflictError{Key: m.key})
			}
			continue
		}
		at[m.key] = n
		order = append(order, n)
	}
	slices.SortFunc(order, func(x, y int) int { return rows[x].key.Compare(rows[y].key) })
	added = make([]bool, len(intents))
	if len(order) >= copyFrom && tx.Conn() != nil {
		done, err := b.copyMany(ctx, tx, rows, order)
		if err != nil {
			return nil, missing(err)
		}
		if done {
			for _, n := range order {
				added[n] = true
				b.wake.hint(rows[n].lane)
			}
			return added, nil
		}
	}
	taken := make([]bool, len(intents))
	var id, digestKey string
	var isNew bool
	var digest []byte
	var refused error
	var which int
	err = each(ctx, tx, b.sql.enqueueMany, manyArgs(rows, order), []any{&id, &isNew, &digest, &digestKey}, func() error {
		key, err := dispatch.ParseKey(id)
		if err != nil {
			return err
		}
		n := at[key]
		added[n], taken[n] = isNew, true
		if !isNew && refused == nil {
			refused = rows[n].sameAs(digest, digestKey)
			which = n
		}
		return nil
	})
	if err != nil {
		return nil, missing(err)
	}
	for _, n := range order {
		if !taken[n] && refused == nil {
			which, refused = n, rows[n].lapsed()
		}
	}
	if refused != nil {
		return nil, errors.Join(fmt.Errorf("intent %d: %w", which, refused), b.takeBack(ctx, tx, intents, added))
	}
	for _, n := range order {
		b.wake.hint(rows[n].lane)
	}
	return added, nil
}

// takeBack removes what a refused EnqueueMany has added. Nobody else can have
// seen it: the transaction is still open.
func (b *Box) takeBack(ctx context.Context, tx pgx.Tx, intents []dispatch.Intent, added []bool) error {
	var ids []string
	for n, isNew := range added {
		if isNew {
			ids = append(ids, intents[n].Key.String())
		}
	}
	_, err := tx.Exec(ctx, b.sql.takeBack, ids)
	return err
}

// MaxMany is how many intents one call of EnqueueMany takes.
const MaxMany = 10000
