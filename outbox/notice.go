package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// Notice tells the application what became of a message, for what
// Intent.Notify asked for.
type Notice struct {
	// Number is unique and the same each time the notice is told.
	Number int64
	Key    dispatch.Key
	Route  string
	// Channel is the message's.
	Channel dispatch.Channel
	// Event is one of the Notify events.
	Event dispatch.Notify
	// Reason is why the message is dead or held.
	Reason dispatch.Reason
	// Detail is the receipt's kind for Delivered and Undelivered.
	Detail string
	// At is when it happened, by the database's clock.
	At time.Time
	// Tries counts how often it was told, from 1.
	Tries int
	// Metadata is the intent's.
	Metadata map[string]string
}

// noticeLease is how long the application may take for one notice.
const noticeLease = 30 * time.Second

// tellAll is the herald: it takes notices and tells the application of each.
// What it does never keeps a send waiting.
func (r *run) tellAll(ctx context.Context) {
	pause := pacer{most: r.cfg.PollInterval}
	for ctx.Err() == nil {
		n, err := r.tellSome(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			r.failed(ctx, "notices", "notices failed", err)
			r.rest(ctx, nil, pause.fail())
		case n > 0:
			pause.reset()
		default:
			r.rest(ctx, nil, pause.idle())
		}
	}
}

func (r *run) tellSome(ctx context.Context) (int, error) {
	s := r.box.store
	rows, err := s.pool.Query(ctx, s.sql.takeNotices, (noticeLease + 10*time.Second).Microseconds())
	if err != nil {
		return 0, err
	}
	notices, err := pgx.CollectRows(rows, scanNotice)
	if err != nil {
		return 0, err
	}
	for _, n := range notices {
		if ctx.Err() != nil { // the rest is told when its lease ends
			break
		}
		text := s.sql.dropNotice
		if taken := r.tellOne(ctx, n); taken != nil {
			text = s.sql.deferNotice
			r.log.WarnContext(ctx, "application did not take a notice", slog.String("key", n.Key.String()), slog.Int("tries", n.Tries))
		}
		if _, err = s.pool.Exec(context.WithoutCancel(ctx), text, n.Number); err != nil {
			break
		}
	}
	return len(notices), err
}

// tellOne calls the application's function. Its panic is an error.
func (r *run) tellOne(ctx context.Context, n Notice) (err error) {
	limit, done := context.WithTimeout(ctx, noticeLease)
	defer done()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("hook panicked for message %s", n.Key)
		}
	}()
	return r.cfg.Notices(limit, n)
}

func scanNotice(row pgx.CollectableRow) (n Notice, err error) {
	var metadata string
	if err := row.Scan(&n.Number, (*[16]byte)(&n.Key), &n.Event, &n.Reason, &n.Detail, &n.At, &n.Tries, &n.Route, &n.Channel, &metadata); err != nil {
		return n, err
	}
	if metadata != "" {
		err = json.Unmarshal([]byte(metadata), &n.Metadata)
	}
	return n, err
}

// notice writes the notice of a locked move: what the row became, and what a
// receipt reports.
func (s *store) notice(ctx context.Context, tx pgx.Tx, v engine.View, edit engine.Edit) error {
	if edit.Write && edit.Row.State != v.State {
		if event := eventOf(edit.Row.State); event != 0 {
			if _, err := tx.Exec(ctx, s.sql.notice, v.Key.String(), int64(event), int64(edit.Row.Reason), ""); err != nil {
				return err
			}
		}
	}
	for _, e := range edit.Entries {
		if e.Record.Kind != engine.KindReceipt {
			continue
		}
		event := dispatch.Notify(0)
		switch e.Record.Verdict.Reason {
		case dispatch.Delivered.String():
			event = dispatch.NotifyDelivered
		case dispatch.Undelivered.String(), dispatch.Failed.String(), dispatch.Bounced.String(), dispatch.Complained.String():
			event = dispatch.NotifyUndelivered
		}
		if event == 0 {
			continue
		}
		if _, err := tx.Exec(ctx, s.sql.notice, v.Key.String(), int64(event), int64(0), e.Record.Verdict.Reason); err != nil {
			return err
		}
	}
	return nil
}

// eventOf is the event of a message's state; the settling statements know the
// same.
func eventOf(s dispatch.State) dispatch.Notify {
	switch s {
	case dispatch.Sent:
		return dispatch.NotifySent
	case dispatch.Dead:
		return dispatch.NotifyDead
	case dispatch.Held:
		return dispatch.NotifyHeld
	case dispatch.Cancelled:
		return dispatch.NotifyCancelled
	case dispatch.Pending, dispatch.Sending, dispatch.InDoubt:
	}
	return 0
}
