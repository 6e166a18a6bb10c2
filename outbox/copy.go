package outbox

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// copyFrom is how many intents are worth three more round trips: above it,
// EnqueueMany copies them into the tables, at twice the rate of its statement.
const copyFrom = 200

// copyMany writes the messages by COPY. done is false, and nothing is written,
// where a key is there already, for the statement to find out which: a COPY
// can't tell. It sees a twin of another transaction all the same, since the
// unique index makes it wait for that one's end.
func (b *Box) copyMany(ctx context.Context, tx pgx.Tx, rows []message, order []int) (done bool, err error) {
	err = pgx.BeginFunc(ctx, tx, func(sub pgx.Tx) error { // a savepoint
		var now time.Time
		if err := sub.QueryRow(ctx, "select clock_timestamp()").Scan(&now); err != nil {
			return err
		}
		conn := sub.Conn().PgConn()
		for _, n := range order {
			if m := &rows[n]; !m.startsBefore(now) {
				return errLapsed
			}
		}
		for _, t := range []struct {
			sql string
			row func(buf []byte, m *message, now time.Time) []byte
		}{{b.sql.copyMessage, copyMessage}, {b.sql.copyQueue, copyQueue}} {
			if _, err := conn.CopyFrom(ctx, &copyRows{rows: rows, order: order, now: now, row: t.row}, t.sql); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errLapsed) || unique(err) {
		return false, nil
	}
	return err == nil, err
}

// errLapsed leaves it to the statement to say which message would be over
// before its start.
var errLapsed = errors.New("a message would be over before its start")

// startsBefore reports whether the message begins before its end.
func (m *message) startsBefore(now time.Time) bool {
	end := m.end(now)
	return end.IsZero() || m.intent.NotBefore.UnixMicro() < end.UnixMicro()
}

// end is the message's deadline, where it was enqueued at now; zero is never.
func (m *message) end(now time.Time) time.Time {
	if valid := m.valid(); valid >= 0 {
		return now.Add(micros(valid))
	}
	return m.intent.Deadline
}

const (
	copyMessageSQL = `copy {schema}.message (id, form, channel, priority, budget, on_unknown, on_unknown_after, notify, country,
    created_at, not_before, deadline, route, digest, digest_key, seal_key, recipient, recipient_hash, sender, senders,
    pinned, template, template_revision, trace, metadata, supersedes, linked, content) from stdin (format binary)`

	copyQueueSQL = `copy {schema}.queue (id, lane, due, deadline, budget, notify) from stdin (format binary)`
)

// copyRows is the rows in COPY's binary format
// (https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format").
type copyRows struct {
	rows  []message
	order []int
	now   time.Time
	row   func(buf []byte, m *message, now time.Time) []byte

	next       int
	begun, end bool
	buf, rest  []byte
}

// copyChunk is how much is encoded at a time.
const copyChunk = 64 << 10

// Read encodes as many rows as fill a chunk.
func (c *copyRows) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		if c.end {
			return 0, io.EOF
		}
		buf := c.buf[:0]
		if !c.begun {
			c.begun = true
			buf = append(buf, "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
		}
		for c.next < len(c.order) && len(buf) < copyChunk {
			buf = c.row(buf, &c.rows[c.order[c.next]], c.now)
			c.next++
		}
		if c.next == len(c.order) {
			c.end = true
			buf = append(buf, 0xff, 0xff)
		}
		c.buf, c.rest = buf, buf
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func copyMessage(buf []byte, m *message, now time.Time) []byte {
	n, t := m.numbers(), m.texts()
	buf = binary.BigEndian.AppendUint16(buf, 28)
	buf = putBytes(buf, m.key[:])
	for _, v := range n[:5] {
		buf = putSmall(buf, v)
	}
	buf = putInt(buf, n[5])
	buf = putSmall(buf, n[6])
	buf = putSmall(buf, n[7])
	buf = putTime(buf, now)
	buf = putTime(buf, m.intent.NotBefore)
	buf = putTime(buf, m.end(now))
	buf = putText(buf, t[3])
	buf = putBytes(buf, m.digest[:])
	buf = putText(buf, t[4])
	buf = putText(buf, t[5])
	buf = putText(buf, t[6])
	buf = putNull(buf)
	buf = putText(buf, t[7])
	buf = putJSON(buf, t[8])
	for _, v := range t[9:13] {
		buf = putText(buf, v)
	}
	buf = putJSON(buf, t[13])
	buf = putKey(buf, uuid.UUID(m.supersedes))
	buf = putKey(buf, uuid.UUID(m.intent.Linked))
	return putBytes(buf, m.form)
}

func copyQueue(buf []byte, m *message, now time.Time) []byte {
	n := m.numbers()
	due := now
	if m.intent.NotBefore.After(due) {
		due = m.intent.NotBefore
	}
	end := m.end(now)
	if !end.IsZero() && end.Before(due) {
		due = end
	}
	buf = binary.BigEndian.AppendUint16(buf, 6)
	buf = putBytes(buf, m.key[:])
	buf = putText(buf, m.lane.String())
	buf = putTime(buf, due)
	buf = putTime(buf, end)
	buf = putSmall(buf, n[3])
	return putSmall(buf, n[6])
}

func putNull(buf []byte) []byte { return append(buf, 0xff, 0xff, 0xff, 0xff) }

func putBytes(buf, v []byte) []byte {
	return append(binary.BigEndian.AppendUint32(buf, uint32(len(v))), v...) //nolint:gosec // a message is far smaller
}

// putText puts null for an empty text.
func putText(buf []byte, v string) []byte {
	if v == "" {
		return putNull(buf)
	}
	return append(binary.BigEndian.AppendUint32(buf, uint32(len(v))), v...) //nolint:gosec // as above
}

// putJSON puts a jsonb: its version, 1, and its text.
func putJSON(buf []byte, v string) []byte {
	if v == "" {
		return putNull(buf)
	}
	buf = append(binary.BigEndian.AppendUint32(buf, uint32(len(v)+1)), 1) //nolint:gosec // as above
	return append(buf, v...)
}

func putKey(buf []byte, v uuid.UUID) []byte {
	if v == uuid.Nil {
		return putNull(buf)
	}
	return putBytes(buf, v[:])
}

func putSmall(buf []byte, v int64) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(buf, 2), uint16(v)) //nolint:gosec // checked by Normalize
}

func putInt(buf []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(buf, 8), uint64(v)) //nolint:gosec // two's complement is the format
}

// postgresEpoch is the zero of timestamps, 2000-01-01, in Unix microseconds.
const postgresEpoch = 946_684_800_000_000

// putTime puts null for the zero time.
func putTime(buf []byte, t time.Time) []byte {
	if t.IsZero() {
		return putNull(buf)
	}
	return putInt(buf, t.UnixMicro()-postgresEpoch)
}
