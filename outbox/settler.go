package outbox

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// most is how many outcomes go into one settle.
const most = 500

// settle is the settler: it writes at once whatever has finished; while one
// write is under way the next batch gathers. A buffered success is a future
// unknown, so nothing waits for a batch to fill. It ends when the channel is
// closed and everything is written.
func (r *run) settle() {
	batch := make([]engine.Change, 0, most)
	for c := range r.settles {
		batch = gather(append(batch[:0], c), r.settles)
		r.settleAll(batch)
	}
}

func gather(batch []engine.Change, more <-chan engine.Change) []engine.Change {
	for len(batch) < most {
		select {
		case c, ok := <-more:
			if !ok {
				return batch
			}
			batch = append(batch, c)
		default:
			return batch
		}
	}
	return batch
}

// settleAll writes a batch, however long the database is away. It repeats only
// its own write, never a send: a row whose lease ends meanwhile is taken over
// by the sweeper, and its outcome is recorded as late.
func (r *run) settleAll(batch []engine.Change) {
	pause := pacer{most: 2 * time.Second}
	began := time.Now()
	for len(batch) > 0 {
		results, again, err := r.write(batch)
		if err == nil {
			for i, res := range results {
				r.tell(&batch[i], res)
			}
			batch = again
			continue
		}
		ctx := context.WithoutCancel(r.cut)
		r.failed(ctx, "settle", "settle failed", err, slog.Int("outcomes", len(batch)))
		if refused(err) && len(batch) > 1 { // one row spoils it: halve
			half := len(batch) / 2
			rest := append([]engine.Change(nil), batch[half:]...)
			r.settleAll(batch[:half])
			batch = rest
			continue
		}
		// After the cut nobody waits for ever: what can't be written now is the
		// sweeper's.
		if refused(err) || r.cut.Err() != nil && time.Since(began) > r.cfg.DrainTimeout {
			for i := range batch {
				r.tellLost(&batch[i])
			}
			return
		}
		r.rest(ctx, nil, pause.fail())
	}
}

// write settles with a context of its own: neither Run's end nor a cut may
// tear it off.
func (r *run) write(batch []engine.Change) ([]engine.Result, []engine.Change, error) {
	ctx, done := context.WithTimeout(context.WithoutCancel(r.cut), 30*time.Second)
	defer done()
	return r.engine.Settle(ctx, batch)
}

// refused reports whether the database refused the data, so that the same
// write can't succeed: classes 22 (data) and 23 (constraints).
func refused(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && (pe.Code[:2] == "22" || pe.Code[:2] == "23")
}

// tellLost logs an outcome that nobody will read in the history: with the
// provider's id a person can still say what became of the message.
func (r *run) tellLost(c *engine.Change) {
	id := c.Record.ProviderID
	if c.Record.Named {
		id = "names the recipient"
	}
	ctx := r.context(c)
	r.log.ErrorContext(ctx, "outcome could not be written, the sweeper will find its row",
		slog.String("key", c.Key.String()), slog.Int64("attempt", c.Fence), slog.String("provider", c.Record.Provider),
		slog.String("outcome", c.Record.Verdict.Outcome.String()), slog.String("id", id))
	if c.Record.Kind != engine.KindNone {
		r.observe(ctx, observation(c, engine.Result{}))
	}
	r.observe(ctx, Observation{Kind: "error", Detail: "lost", Key: c.Key, Route: c.Move.Lane.Route, Provider: c.Record.Provider, Wait: -1})
}

// tell logs what a person may want to know: key, attempt, status and delay,
// never the recipient, the text or the vendor's words.
func (r *run) tell(c *engine.Change, res engine.Result) {
	rec := &c.Record
	if rec.Kind == engine.KindNone || res.Status == engine.Again { // Again: it will be written once more
		return
	}
	level, text := told(rec, res)
	if r.cfg.Observer == nil && !r.log.Enabled(r.cut, level) {
		return
	}
	ctx := r.context(c)
	if r.cfg.Observer != nil {
		r.observe(ctx, observation(c, res))
	}
	if !r.log.Enabled(ctx, level) {
		return
	}
	r.log.LogAttrs(ctx, level, text, //nolint:sloglint // one of a few fixed texts
		slog.String("key", c.Key.String()), slog.Int64("attempt", c.Fence), slog.String("route", c.Move.Lane.Route),
		slog.String("provider", rec.Provider), slog.String("outcome", rec.Verdict.Outcome.String()),
		slog.String("scope", rec.Verdict.Scope.String()), slog.String("reason", rec.Verdict.Reason),
		slog.Int("status", rec.Evidence.Status), slog.String("code", rec.Evidence.Code), slog.String("state", res.State.String()),
		slog.String("why", res.Reason.String()), slog.Duration("took", rec.Took), slog.Duration("delay", c.Move.Wait))
}

// told is how loud a line is, and what it says: what goes as it should is for
// debugging, what mends itself is worth a line, and what may end with a person
// is a warning.
func told(rec *engine.Record, res engine.Result) (slog.Level, string) {
	switch {
	case res.Double:
		return slog.LevelError, "message was accepted twice"
	case rec.Verdict.Outcome == dispatch.OK && rec.Kind == engine.KindLookup:
		return slog.LevelInfo, "look-up found the message"
	case rec.Verdict.Outcome == dispatch.OK:
		return slog.LevelDebug, "message accepted"
	case res.State == dispatch.Held || res.State == dispatch.Dead:
		return slog.LevelWarn, "message parked"
	case rec.Kind == engine.KindMoved:
		return slog.LevelWarn, "message waits"
	case rec.Kind == engine.KindLookup:
		return slog.LevelInfo, "look-up did not find the message"
	case rec.Verdict.Outcome == dispatch.Unknown:
		return slog.LevelWarn, "attempt may have been accepted"
	}
	return slog.LevelInfo, "attempt not accepted"
}
