package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
)

// Retention says how long what is over is kept, counted from the last thing
// that happened to a message: an attempt, a receipt, a verb. A zero time is for
// ever. What is in motion or held is never touched, and a dead message not
// before its deadline, since until then it may be requeued.
type Retention struct {
	// Route restricts it to one route; empty is all.
	Route string
	// Scrub is when a sent or cancelled message loses its content, and its
	// history the vendors' words, which may quote it. A nanosecond is at once:
	// for one-time codes. What stays is the digest of the content, by which a
	// repeated enqueue is recognized: a code of six digits is guessed from a
	// plain one, so seal what must not be.
	Scrub time.Duration
	// ScrubDead is the same for dead messages. Nothing requeues a message
	// without its content.
	ScrubDead time.Duration
	// Delete is when a sent or cancelled message goes, with its history. Its key
	// is new from then on: the same intent, enqueued once more, is sent once
	// more, and late truth finds nothing. So it is at least a day longer than the
	// longest validity of the box's routes, and no message goes before a day
	// after its own deadline.
	Delete time.Duration
	// DeleteDead is the same for dead messages.
	DeleteDead time.Duration
}

// Pruned counts what Prune did.
type Pruned struct {
	Scrubbed, Deleted int64 // messages
	Receipts          int64 // that were deleted
}

// keepKeys is how long a key is kept at least, after its message is over and
// its deadline has passed: as long as a receipt waits for its message.
const keepKeys = matchFor

// prunePage is how many messages one transaction of Prune takes; it stands in
// the statements as {prune}.
const prunePage = 1000

// check refuses what can't be meant.
func (r Retention) check(routes map[string]dispatch.Route) error {
	if _, ok := routes[r.Route]; !ok && r.Route != "" {
		return fmt.Errorf("retention: %q is not a route of this box", r.Route)
	}
	for _, t := range []struct {
		name string
		d    time.Duration
	}{{"Scrub", r.Scrub}, {"ScrubDead", r.ScrubDead}, {"Delete", r.Delete}, {"DeleteDead", r.DeleteDead}} {
		if t.d < 0 || t.d > 100*365*24*time.Hour {
			return fmt.Errorf("retention: %s is %v, want 0 to a hundred years", t.name, t.d)
		}
	}
	need := keepKeys
	for name, route := range routes {
		if r.Route != "" && r.Route != name {
			continue
		}
		need = max(need, route.Policy.ValidFor+keepKeys) // Never is negative
	}
	for _, t := range []struct {
		name string
		d    time.Duration
	}{{"Delete", r.Delete}, {"DeleteDead", r.DeleteDead}} {
		if t.d != 0 && t.d < need {
			return fmt.Errorf("retention: %s is %v, want at least %v: the longest validity of a route and a day, "+
				"in which the same key may be enqueued again and late receipts come", t.name, t.d, need)
		}
	}
	return nil
}

// Prune carries out a retention, in transactions of 1,000 messages at most,
// until nothing is left to do or ctx ends; it returns what it did so far with any
// error. It may run beside workers and beside itself. A worker does it by itself
// where WorkerConfig.Retention says so.
func (b *Box) Prune(ctx context.Context, r Retention) (Pruned, error) {
	if b.pool == nil {
		return Pruned{}, ErrNoPool
	}
	if err := r.check(b.routes); err != nil {
		return Pruned{}, fmt.Errorf("outbox: %w", err)
	}
	p := pruner{box: b, retention: r}
	for {
		more, err := p.step(ctx)
		if err != nil {
			return p.done, fmt.Errorf("outbox: prune: %w", missing(err))
		}
		if !more {
			return p.done, nil
		}
	}
}

// pruner carries out one retention step by step. Its zero place is the oldest
// message.
type pruner struct {
	box           *Box
	retention     Retention
	scrub, delete place
	done          Pruned
}

// place is where a walk over the messages is.
type place struct {
	at   time.Time
	id   string
	done bool
}

// step takes a page of each walk, from the oldest message again once all are
// done; more is false then.
func (p *pruner) step(ctx context.Context) (more bool, err error) {
	b, r := p.box, p.retention
	if err := p.page(ctx, &p.scrub, b.sql.scrubbable, b.sql.scrub, r.Scrub, r.ScrubDead, 0, &p.done.Scrubbed); err != nil {
		return false, err
	}
	if err := p.page(ctx, &p.delete, b.sql.deletable, b.sql.delete, r.Delete, r.DeleteDead, keepKeys, &p.done.Deleted); err != nil {
		return false, err
	}
	dropped := int64(0)
	if keep := max(r.Delete, r.DeleteDead); keep > 0 && r.Route == "" {
		tag, err := b.pool.Exec(ctx, b.sql.dropReceipts, ceilMicros(keep))
		if err != nil {
			return false, err
		}
		dropped = tag.RowsAffected()
		p.done.Receipts += dropped
	}
	if p.scrub.done && p.delete.done && dropped < prunePage {
		p.scrub, p.delete = place{}, place{}
		return false, nil
	}
	return true, nil
}

// page is one transaction of a walk.
func (p *pruner) page(ctx context.Context, at *place, lock, act string, final, dead, grace time.Duration, done *int64) error {
	youngest := final
	if final == 0 || dead != 0 && dead < final {
		youngest = dead
	}
	if youngest == 0 || at.done {
		at.done = true
		return nil
	}
	id := at.id
	if id == "" {
		id = dispatch.Key{}.String()
	}
	var scanned, acted int64
	var end *time.Time
	var endID string
	err := pgx.BeginTxFunc(ctx, p.box.pool, steadyTx, func(tx pgx.Tx) error {
		var key string
		var ids []string
		args := []any{ceilMicros(final), ceilMicros(dead), grace.Microseconds(), p.retention.Route}
		if err := each(ctx, tx, lock, append(args[:4:4], nullTime(at.at), id, youngest.Microseconds()), []any{&scanned, &end, &endID, &key}, func() error {
			if key != "" {
				ids = append(ids, key)
			}
			return nil
		}); err != nil || len(ids) == 0 {
			return err
		}
		return tx.QueryRow(ctx, act, append(args[:4:4], ids)...).Scan(&acted)
	})
	if err != nil {
		return err
	}
	*done += acted
	at.at, at.id, at.done = timeOf(end), endID, scanned < prunePage
	return nil
}

// ceilMicros is a time in microseconds, at least one where it isn't zero.
func ceilMicros(d time.Duration) int64 {
	return (d + time.Microsecond - 1).Microseconds()
}

// pruneSteps is how many pages a pruner takes in a row, so that a long backlog
// isn't walked at once.
const pruneSteps = 20

// prune is a pruner: it takes some pages, goes on from there after a pause, and
// begins at the oldest message again after the newest. Workers may do so at
// once: each skips what another has locked.
func (r *run) prune(ctx context.Context, keep Retention) {
	p := pruner{box: r.box, retention: keep}
	pause := time.Minute
	for _, d := range []time.Duration{keep.Scrub, keep.ScrubDead, keep.Delete, keep.DeleteDead} {
		if d > 0 {
			pause = min(pause, max(d/10, r.cfg.SweepInterval))
		}
	}
	for ctx.Err() == nil {
		p.done = Pruned{}
		err := p.steps(ctx)
		if err != nil && ctx.Err() == nil {
			r.failed(ctx, "retention", "retention failed", err)
		}
		if p.done != (Pruned{}) {
			r.log.InfoContext(ctx, "retention", slog.Int64("scrubbed", p.done.Scrubbed), slog.Int64("deleted", p.done.Deleted),
				slog.Int64("receipts", p.done.Receipts))
		}
		r.rest(ctx, nil, pause)
	}
}

func (p *pruner) steps(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, 30*time.Second)
	defer done()
	for range pruneSteps {
		if more, err := p.step(ctx); err != nil || !more {
			return err
		}
	}
	return nil
}
