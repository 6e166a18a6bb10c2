package outbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
)

// Filter says which messages are meant: those that pass every field that is
// set. The zero filter passes all of them; Bulk refuses it.
type Filter struct {
	// States are the states that pass.
	States []dispatch.State
	Route  string
	// Provider is the one that had the message last.
	Provider string
	// Reason is that of held and dead messages.
	Reason dispatch.Reason
	// Recipient is the number of an SMS or the first To address of an email, in
	// any form that an intent may have it in, in capitals or not; exactly as it
	// was enqueued, where it is sealed.
	Recipient string
	// Since and Before bound when the message was parked, where States are Held
	// or Dead alone, and when it was enqueued otherwise.
	Since, Before time.Time
}

// Message is a row of a list. It holds neither recipient nor text.
type Message struct {
	Key      dispatch.Key
	Route    string
	Channel  dispatch.Channel
	State    dispatch.State
	Reason   dispatch.Reason
	Provider string // that had it last, empty for none yet
	Attempts int    // sends that were made
	Budget   int
	Created  time.Time
	Changed  time.Time // when the last thing happened to it
	Next     time.Time // when its next step is due, zero where it isn't in motion
	Deadline time.Time // zero is never
	Template dispatch.Template
	Scrubbed bool // its content was removed
	// Status, Code and Detail are those of the last thing that went wrong.
	Status int
	Code   string
	Detail string
}

// MaxList is how many messages one call of List returns.
const MaxList = 1000

// listScan is how many keys a statement looks at; it stands in the statements
// as {scan}. listRounds is how many statements a call of List may need.
const (
	listScan   = 1000
	listRounds = 20
)

// List returns messages that pass the filter, up to limit (100 where zero, at
// most MaxList), and a cursor for the next call, empty at the end. A call looks
// at 20,000 messages at most: where few pass, it may return less than the limit,
// even nothing, with a cursor to go on from.
//
// Held and dead messages alone come in the order in which they were parked, the
// newest first; unknown ones alone the longest uncertain first; those in motion
// alone what is due first; any others by their enqueue, the newest first. A
// message that moves meanwhile may be passed over or come twice. A field of the filter that
// can't be, and a cursor of another filter, are a *dispatch.FieldError.
func (b *Box) List(ctx context.Context, f Filter, cursor string, limit int) (messages []Message, next string, err error) {
	if b.pool == nil {
		return nil, "", ErrNoPool
	}
	if limit < 0 || limit > MaxList {
		return nil, "", fmt.Errorf("outbox: limit %d, want 1 to %d", limit, MaxList)
	}
	limit = or(limit, 100)
	q, err := b.listing(f, cursor)
	if err != nil {
		return nil, "", fmt.Errorf("outbox: list: %w", err)
	}
	for range listRounds {
		more, err := q.page(ctx, b, limit-len(messages))
		if err != nil {
			return nil, "", fmt.Errorf("outbox: list: %w", missing(err))
		}
		messages = append(messages, more...)
		if q.done || len(messages) == limit {
			break
		}
	}
	return messages, q.cursor(), nil
}

// listing is a filter on its way through the index that fits it.
type listing struct {
	source    byte // 'q', 'u', 'p', 'm' or 'r'
	text      string
	states    []int64
	filter    Filter
	recipient []string
	at        time.Time // where the next page begins
	id        string
	done      bool
}

func (b *Box) listing(f Filter, cursor string) (*listing, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	q := &listing{filter: f, states: []int64{}, recipient: []string{}}
	for _, s := range f.States {
		q.states = append(q.states, int64(s))
	}
	if f.Recipient != "" {
		var err error
		if q.recipient, err = b.recipients(f.Recipient); err != nil {
			return nil, err
		}
	}
	switch {
	case f.Recipient != "":
		q.source, q.text = 'r', b.sql.listRecipient
	case f.only(dispatch.Held, dispatch.Dead):
		q.source, q.text = 'p', b.sql.listParked
	case f.only(dispatch.InDoubt):
		q.source, q.text = 'u', b.sql.listUnknown
	case f.only(dispatch.Pending, dispatch.Sending, dispatch.InDoubt):
		q.source, q.text = 'q', b.sql.listQueue
	default:
		q.source, q.text = 'm', b.sql.listMessages
	}
	if q.source != 'q' && q.source != 'u' {
		q.at = f.Before // newest first: it begins there
	}
	return q, q.seek(cursor)
}

func (f Filter) check() error {
	for _, s := range f.States {
		if s < dispatch.Pending || s > dispatch.Cancelled {
			return &dispatch.FieldError{Field: "States", Reason: fmt.Sprintf("has %d, which is no state", s)}
		}
	}
	if f.Reason < 0 || f.Reason > dispatch.ReasonChanged {
		return &dispatch.FieldError{Field: "Reason", Reason: "is unknown"}
	}
	for _, n := range []struct{ field, name string }{{"Route", f.Route}, {"Provider", f.Provider}} {
		if n.name == "" {
			continue
		}
		if err := dispatch.ValidName(n.name); err != nil {
			return &dispatch.FieldError{Field: n.field, Reason: err.Error()}
		}
	}
	for _, t := range []struct {
		field string
		at    time.Time
	}{{"Since", f.Since}, {"Before", f.Before}} {
		if !t.at.IsZero() && (t.at.Year() < 1970 || t.at.Year() > 9998) {
			return &dispatch.FieldError{Field: t.field, Reason: "is outside the years 1970 to 9998"}
		}
	}
	return nil
}

// only reports whether the filter has states, and none but these.
func (f Filter) only(states ...dispatch.State) bool {
	for _, s := range f.States {
		found := false
		for _, want := range states {
			found = found || s == want
		}
		if !found {
			return false
		}
	}
	return len(f.States) > 0
}

// recipients are the forms in which a recipient may be stored.
func (b *Box) recipients(to string) ([]string, error) {
	i := dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.SMS{To: to, Body: "x"}}
	if strings.Contains(to, "@") {
		i.Content = dispatch.Email{To: []dispatch.Address{{Email: to}}, Text: "x"}
	}
	i, err := i.Normalize()
	if err != nil {
		var field *dispatch.FieldError
		if errors.As(err, &field) {
			return nil, &dispatch.FieldError{Field: "Recipient", Reason: field.Reason}
		}
		return nil, err
	}
	switch c := i.Content.(type) {
	case dispatch.SMS:
		to = c.To
	case dispatch.Email:
		to = c.To[0].Email
	}
	forms := []string{to}
	if b.seal != nil { // under any of its keys, and as it is from before there were any
		for _, key := range b.seal.Keys() {
			sum, err := b.seal.Sum(key, []byte(sumRecipient+to))
			if err != nil {
				return nil, fmt.Errorf("seal: %w", err)
			}
			forms = append(forms, hex.EncodeToString(sum[:]))
		}
	}
	return forms, nil
}

// seek begins behind a cursor: its source, microseconds and key.
func (q *listing) seek(cursor string) error {
	if cursor == "" {
		return nil
	}
	bad := &dispatch.FieldError{Field: "Cursor", Reason: "is not one of this filter's"}
	parts := strings.Split(cursor, ".")
	if len(parts) != 3 || parts[0] != string(q.source) {
		return bad
	}
	micro, err := strconv.ParseInt(parts[1], 10, 64)
	at := time.UnixMicro(micro)
	if err != nil || at.Year() < 1970 || at.Year() > 9998 {
		return bad
	}
	key, err := dispatch.ParseKey(parts[2])
	if err != nil {
		return bad
	}
	q.at, q.id = at, key.String()
	return nil
}

func (q *listing) cursor() string {
	if q.done || q.id == "" {
		return ""
	}
	return fmt.Sprintf("%c.%d.%s", q.source, q.at.UnixMicro(), q.id)
}

// page reads what passes of the next page, at most so many, and moves on: behind
// the last of them where there are as many, else behind the page.
func (q *listing) page(ctx context.Context, b *Box, most int) ([]Message, error) {
	var id *string
	if q.id != "" {
		id = &q.id
	}
	f := q.filter
	rows, err := b.pool.Query(ctx, q.text, nullTime(q.at), id, f.Route, q.states, f.Provider, int64(f.Reason), q.recipient,
		nullTime(f.Since), nullTime(f.Before), int64(most), flag(q.source == 'q' || q.source == 'u'), flag(q.source == 'p'))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Message
	var scanned int64
	var endAt, at *time.Time
	var endID *[16]byte
	for rows.Next() {
		m, ok, err := scanMessage(rows, &scanned, &endAt, &endID, &at)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, m)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	switch {
	case len(out) == most:
		q.at, q.id = *at, out[most-1].Key.String()
	case scanned < listScan:
		q.done = true
	default:
		q.at, q.id = *endAt, dispatch.Key(*endID).String()
	}
	return out, nil
}

// scanMessage reads a row; ok is false where nothing of the page passed.
func scanMessage(row pgx.CollectableRow, n *int64, endAt **time.Time, endID **[16]byte, at **time.Time) (m Message, ok bool, err error) {
	var id *[16]byte
	var route *string
	var channel *dispatch.Channel
	var budget *int
	var created, changed, due, deadline *time.Time
	var scrubbed *bool
	if err := row.Scan(n, endAt, endID, at, &id, &route, &channel, &m.State, &m.Reason, &m.Provider, &m.Attempts, &budget, &created,
		&changed, &due, &deadline, &m.Template.Name, &m.Template.Revision, &scrubbed, &m.Status, &m.Code, &m.Detail); err != nil || id == nil {
		return m, false, err
	}
	m.Key, m.Route, m.Channel, m.Budget, m.Scrubbed = *id, *route, *channel, *budget, *scrubbed
	m.Created, m.Changed, m.Next, m.Deadline = timeOf(created), timeOf(changed), timeOf(due), timeOf(deadline)
	return m, true, nil
}
