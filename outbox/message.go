package outbox

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/canon"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/form"
)

// message is an intent as it is stored.
type message struct {
	key      dispatch.Key
	lane     decide.Lane
	plain    [32]byte // digest of route and form
	digest   [32]byte // the same as it is stored: under sealKey where that is set
	intent   dispatch.Intent
	form     []byte
	policy   dispatch.Policy
	senders  string
	metadata string
	sender   string
	to       string
	country  int

	sealer  Sealer
	sealKey string
	hash    []byte // of the recipient

	supersedes dispatch.Key
}

// freeze resolves everything that a message needs for its whole life.
func (b *Box) freeze(i dispatch.Intent) (message, error) {
	if i.Route == "" {
		i.Route = b.only
		if i.Route == "" {
			return message{}, &dispatch.FieldError{Field: "Route", Reason: "is empty, and the box has several"}
		}
	}
	i, err := i.Normalize()
	if err != nil {
		return message{}, err
	}
	r, ok := b.routes[i.Route]
	if !ok {
		return message{}, &dispatch.FieldError{Field: "Route", Reason: fmt.Sprintf("%q is not a route of this box", i.Route)}
	}
	senders, err := r.Freeze(i)
	if err != nil {
		return message{}, err
	}
	m := message{key: i.Key, intent: i, policy: r.Policy, form: form.Encode(i.Content)}
	if err := m.checkValidity(); err != nil {
		return message{}, err
	}
	m.plain = canon.Digest(r.Name, m.form)
	m.digest = m.plain
	m.lane = decide.Lane{Route: r.Name, Priority: firstOf(i.Priority, r.Priority, dispatch.Normal), Provider: i.Provider}
	if m.senders, err = jsonText(senders); err != nil {
		return message{}, err
	}
	if m.metadata, err = jsonText(i.Metadata); err != nil {
		return message{}, err
	}
	if i.OnUnknown.Action != 0 {
		m.policy.OnUnknown.Action = i.OnUnknown.Action
	}
	if i.OnUnknown.After != 0 {
		m.policy.OnUnknown.After = i.OnUnknown.After
	}
	if v := m.valid(); v >= 0 && time.Until(i.NotBefore) >= micros(v) {
		return message{}, &dispatch.FieldError{Field: "NotBefore", Reason: "is after the end of the route's validity; set ValidFor or Deadline"}
	}
	switch c := i.Content.(type) {
	case dispatch.SMS:
		m.sender, m.to, m.country = c.Sender, c.To, dispatch.CallingCode(c.To)
	case dispatch.Email:
		m.sender, m.to = c.Sender, c.To[0].Email
	}
	if b.seal != nil {
		if err := m.seal(b.seal); err != nil {
			return message{}, err
		}
	}
	return m, nil
}

// checkValidity is Normalize's check once more, with the policy's validity and
// to the microsecond, which is what Postgres keeps.
func (m *message) checkValidity() error {
	i := m.intent
	end := i.Deadline
	if valid := m.valid(); valid >= 0 {
		end = time.Now().Add(micros(valid))
	}
	if end.IsZero() || i.NotBefore.UnixMicro() < end.UnixMicro() {
		return nil
	}
	return m.lapsed()
}

// lapsed is the error for a message that would be over before its start, as it
// is found by the database's clock too.
func (m *message) lapsed() error {
	switch {
	case !m.intent.Deadline.IsZero():
		return &dispatch.FieldError{Field: "Deadline", Reason: "is not after NotBefore"}
	case m.intent.ValidFor != 0:
		return &dispatch.FieldError{Field: "ValidFor", Reason: "ends before NotBefore"}
	}
	return &dispatch.FieldError{Field: "ValidFor", Reason: fmt.Sprintf("of the route's policy, %v, ends before NotBefore", m.policy.ValidFor)}
}

func firstOf(list ...dispatch.Priority) dispatch.Priority {
	for _, p := range list {
		if p != 0 {
			return p
		}
	}
	return 0
}

func jsonText(m map[string]string) (string, error) {
	if len(m) == 0 {
		return "", nil
	}
	b, err := json.Marshal(m)
	return string(b), err
}

// valid is the time from the enqueue to the deadline in microseconds, -1 where
// the deadline is an instant or there is none.
func (m *message) valid() int64 {
	d := m.intent.ValidFor
	if d == 0 {
		d = m.policy.ValidFor
	}
	if d == dispatch.Never || !m.intent.Deadline.IsZero() {
		return -1
	}
	return d.Microseconds()
}

// numbers and texts are the columns of a message, in the order of the
// statement's arguments.
func (m *message) numbers() [9]int64 {
	return [...]int64{
		canon.Version, int64(m.intent.Content.Channel()), int64(m.lane.Priority), int64(m.policy.Attempts),
		int64(m.policy.OnUnknown.Action), m.policy.OnUnknown.After.Microseconds(), int64(m.intent.Notify), int64(m.country), m.valid(),
	}
}

func (m *message) texts() [16]string {
	linked, supersedes := "", ""
	if !m.intent.Linked.IsZero() {
		linked = m.intent.Linked.String()
	}
	if !m.supersedes.IsZero() {
		supersedes = m.supersedes.String()
	}
	return [...]string{
		m.key.String(), stamp(m.intent.NotBefore), stamp(m.intent.Deadline), m.lane.Route, m.sealKey, m.sealKey, m.to, m.sender, m.senders,
		m.lane.Provider, m.intent.Template.Name, m.intent.Template.Revision, m.intent.TraceParent, m.metadata, supersedes, linked,
	}
}

func (m *message) args() []any {
	n, t := m.numbers(), m.texts()
	text := func(i int) any {
		if t[i] == "" {
			return nil
		}
		return t[i]
	}
	var valid, hash any // a nil slice isn't null to every driver
	if n[8] >= 0 {
		valid = n[8]
	}
	if m.hash != nil {
		hash = m.hash
	}
	return []any{
		t[0], n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], text(1), text(2), valid, t[3], m.digest[:], text(4), text(5),
		text(6), hash, text(7), text(8), text(9), text(10), text(11), text(12), text(13), text(14), text(15), m.form,
	}
}

func manyArgs(rows []message, order []int) []any {
	var n [9][]int64
	var t [16][]string
	digest, hash, content := make([][]byte, 0, len(order)), make([][]byte, 0, len(order)), make([][]byte, 0, len(order))
	for _, at := range order {
		m := &rows[at]
		for i, v := range m.numbers() {
			n[i] = append(n[i], v)
		}
		for i, v := range m.texts() {
			t[i] = append(t[i], v)
		}
		digest, hash, content = append(digest, m.digest[:]), append(hash, append([]byte{}, m.hash...)), append(content, m.form)
	}
	return []any{
		t[0], n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], t[1], t[2], n[8], t[3], digest, t[4], t[5],
		t[6], hash, t[7], t[8], t[9], t[10], t[11], t[12], t[13], t[14], t[15], content,
	}
}

// answer reads the row that the statement returns.
func (m *message) answer(row interface{ Scan(dest ...any) error }) (added bool, err error) {
	var id, digestKey string
	var digest []byte
	if err := row.Scan(&id, &added, &digest, &digestKey); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			return false, m.lapsed()
		}
		var pe *pgconn.PgError
		if errors.As(err, &pe) && pe.ConstraintName == "message_frozen" {
			return false, &dispatch.ConflictError{Key: m.key}
		}
		return false, missing(err)
	}
	if !added {
		return false, m.sameAs(digest, digestKey)
	}
	return true, nil
}

// missing explains the most likely first error of a new user.
func missing(err error) error {
	var pe interface{ SQLState() string } // what the drivers' errors have in common
	if errors.As(err, &pe) {
		switch pe.SQLState() {
		case "42P01", "3F000": // undefined table, invalid schema
			return fmt.Errorf("%w: call Box.Migrate: %w", ErrNotMigrated, err)
		}
	}
	return err
}

func defaultLane(r dispatch.Route) decide.Lane {
	return decide.Lane{Route: r.Name, Priority: firstOf(r.Priority, dispatch.Normal)}
}
