package outbox_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/leaks"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
	"github.com/seed-8098fbb7/dispatch/outbox/seal"
)

// ring is a keyring whose secrets follow from the ids: "k1", and "k1!" for
// another secret under the same id.
func ring(t *testing.T, ids ...string) *seal.Keyring {
	t.Helper()
	keys := make([]seal.Key, len(ids))
	for i, id := range ids {
		secret := sha256.Sum256([]byte(id))
		keys[i] = seal.Key{ID: strings.TrimSuffix(id, "!"), Secret: secret[:]}
	}
	r, err := seal.NewKeyring(keys[0], keys[1:]...)
	require.NoError(t, err)
	return r
}

// sealedBox is a box on a schema that is migrated already, with other keys.
func sealedBox(t *testing.T, pool *pgxpool.Pool, schema string, s outbox.Sealer) *outbox.Box {
	t.Helper()
	box, err := outbox.New(pool, outbox.Config{Schema: schema, Routes: []dispatch.Route{route()}, Seal: s})
	require.NoError(t, err)
	return box
}

// pgDump finds one that is no older than the server, from which it would refuse to
// read.
func pgDump(t *testing.T, pool *pgxpool.Pool) (path string, ok bool) {
	t.Helper()
	path, err := exec.LookPath("pg_dump")
	if err != nil {
		return "", false
	}
	says, err := exec.CommandContext(t.Context(), path, "--version").Output() // pg_dump (PostgreSQL) 15.18 (Debian ...)
	require.NoError(t, err)
	_, version, _ := strings.Cut(string(says), "(PostgreSQL) ")
	var major int
	_, err = fmt.Sscanf(version, "%d", &major)
	require.NoError(t, err, "%s", says)
	return path, major >= ask[int](t, pool, "select current_setting('server_version_num')::int / 10000")
}

// dump is everything that the schema's tables hold, as text, and what pg_dump
// says of it where there is a pg_dump.
func dump(t *testing.T, pool *pgxpool.Pool, schema string) string {
	t.Helper()
	rows, err := pool.Query(t.Context(), "select table_name from information_schema.tables where table_schema = $1 and table_type = 'BASE TABLE'", schema)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(tables), 6)
	var out strings.Builder
	for _, table := range tables {
		rows, err := pool.Query(t.Context(), "select t::text from "+schema+"."+table+" t")
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		out.WriteString(table + "\n" + strings.Join(lines, "\n") + "\n")
	}
	url, err := url.Parse(pgtest.DirectURL(t))
	require.NoError(t, err)
	query := url.Query()
	query.Del("search_path") // pgx's own
	url.RawQuery = query.Encode()
	if path, ok := pgDump(t, pool); ok {
		cmd := exec.CommandContext(t.Context(), path, "--schema="+schema, "--dbname="+url.String())
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		text, err := cmd.Output()
		require.NoError(t, err, stderr.String())
		require.Contains(t, string(text), "COPY "+schema+".message")
		out.Write(text)
	}
	return out.String()
}

const (
	secretTo   = "+15555550177"
	secretBody = "Your code is 482901"
	secretMail = "ada.lovelace@example.com"
	secretLine = "The invoice of Ada"
)

// secretLife sends messages by every way in and to every kind of end, at a
// vendor that quotes what it gets.
func secretLife(t *testing.T, pool *pgxpool.Pool, schema string, s outbox.Sealer) (first dispatch.Intent) {
	t.Helper()
	box := sealedBox(t, pool, schema, s)
	text := func(body string) dispatch.Intent {
		return dispatch.Intent{
			Key: dispatch.NewKey(), Content: dispatch.SMS{To: secretTo, Body: body}, Notify: dispatch.NotifySent | dispatch.NotifyDead | dispatch.NotifyDelivered,
		}
	}
	mail := dispatch.Intent{Key: dispatch.NewKey(), Content: dispatch.Email{
		To: []dispatch.Address{{Email: secretMail, Name: "Ada"}}, Subject: secretLine, HTML: "<p>" + secretLine + "</p>",
		Attachments: []dispatch.Attachment{{Name: "invoice.txt", Type: "text/plain", Data: []byte(secretLine)}},
	}}
	first = text(secretBody)
	many, queued, refused, old, new := text(secretBody), text(secretBody), text(secretBody+" refused"), text(secretBody+" old"), text(secretBody+" new")
	again := dispatch.NewKey()
	old.NotBefore = time.Now().Add(time.Hour)
	why := outbox.Audit{By: "ada", Why: "a test"}
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := box.Enqueue(t.Context(), tx, first)
		require.NoError(t, err)
		_, err = box.EnqueueMany(t.Context(), tx, []dispatch.Intent{many, refused, mail, old})
		require.NoError(t, err)
		var batch pgx.Batch
		require.NoError(t, box.Queue(&batch, queued))
		require.NoError(t, tx.SendBatch(t.Context(), &batch).Close())
		_, err = box.Supersede(t.Context(), tx, old.Key, new, why)
		require.NoError(t, err)
		added, err := box.ResendAsNew(t.Context(), tx, first.Key, again, why)
		require.NoError(t, err)
		require.True(t, added)
		return nil
	}))

	p := &outboxtest.Provider{Promise: dispatch.Contract{Dedupe: dispatch.Dedupe{Window: time.Hour}}}
	p.Respond = func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		bytes := sha256.Sum256([]byte("to=" + secretTo + "&body=" + secretBody))
		ev := dispatch.Evidence{Stage: dispatch.Answered, Status: 400, OwnBody: true, Request: bytes[:], Code: "21211", Reason: "no such number: " + secretTo}
		c, _ := e.Content.(dispatch.SMS)
		switch {
		case strings.HasSuffix(c.Body, "refused"):
			return dispatch.Accepted{}, fault(ev)
		case e.Key == first.Key && e.Attempt == 1: // taken, and the answer was lost
			accept()
			ev.Status, ev.Stage = 0, dispatch.MaybeSent
			return dispatch.Accepted{}, &dispatch.Fault{Evidence: ev, Verdict: dispatch.Verdict{Outcome: dispatch.Unknown}}
		case e.Key == first.Key:
			require.Equal(t, bytes[:], e.Replay, "the digest that it sealed comes back as it was")
		}
		a := accept()
		a.Evidence.Request = bytes[:]
		return a, nil
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	for _, key := range []dispatch.Key{first.Key, many.Key, queued.Key, mail.Key, new.Key, again} {
		reaches(t, box, key, dispatch.Sent)
	}
	reaches(t, box, refused.Key, dispatch.Dead)
	reaches(t, box, old.Key, dispatch.Cancelled)
	require.NoError(t, box.Receive(t.Context(), []dispatch.Receipt{
		{Provider: "test", Account: "account", EventKey: "1", Key: many.Key, Kind: dispatch.Delivered, Recipient: secretTo},
		{Provider: "test", Account: "account", EventKey: "2", Key: mail.Key, Kind: dispatch.Delivered, Recipient: secretMail},
	}))
	for _, e := range p.Accepted() {
		if e.Key == again || e.Key == first.Key {
			require.Equal(t, first.Content, e.Content)
		}
		if e.Key == mail.Key {
			require.Equal(t, mail.Content, e.Content)
		}
	}
	return first
}

func TestSealedContentIsNowhereInADump(t *testing.T) {
	t.Parallel()
	request := sha256.Sum256([]byte("to=" + secretTo + "&body=" + secretBody))
	var secrets []string
	for _, s := range []string{secretTo, secretTo[1:], secretBody, "482901", secretMail, secretLine, "Lovelace", "invoice.txt", string(request[:])} {
		secrets = append(secrets, s, hex.EncodeToString([]byte(s)))
	}
	_, plainPool, plainSchema := newBox(t)
	i := secretLife(t, plainPool, plainSchema, nil)
	plain := dump(t, plainPool, plainSchema)
	digest := ask[string](t, plainPool, "select encode(digest, 'hex') from "+plainSchema+".message where id = $1", i.Key.String())
	for _, s := range []string{secretTo, hex.EncodeToString([]byte(secretBody)), secretMail, hex.EncodeToString(request[:]), digest} {
		require.Contains(t, plain, s, "without a seal it is there: the dump shows everything")
	}

	_, pool, schema := newBox(t)
	secretLife(t, pool, schema, ring(t, "k1"))
	sealed := dump(t, pool, schema)
	for _, s := range append(secrets, digest) {
		require.NotContains(t, strings.ToLower(sealed), strings.ToLower(s))
	}
	require.Equal(t, 1, ask[int](t, pool, "select count(distinct country) from "+schema+".message where channel = 1"), "the calling code stays")
	require.Equal(t, 1, ask[int](t, pool, "select min(country) from "+schema+".message where channel = 1"))
}

// Equal recipients have equal hashes under one key, so that they can be found;
// equal texts have nothing in common.
func TestSealedRecipientIsFound(t *testing.T) {
	t.Parallel()
	_, pool, schema := newBox(t)
	box := sealedBox(t, pool, schema, ring(t, "k1"))
	one, two, other := sms("hello"), sms("hello"), sms("hello")
	other.Content = dispatch.SMS{To: "+15555550199", Body: "hello"}
	enqueue(t, box, one, two, other)
	require.Equal(t, 2, ask[int](t, pool, "select count(distinct recipient_hash) from "+schema+".message"))
	require.Equal(t, 3, ask[int](t, pool, "select count(distinct content) from "+schema+".message"))
	require.Equal(t, 0, ask[int](t, pool, "select count(recipient) from "+schema+".message"))
}

// A key is rotated while messages wait: what was sealed under the old one goes
// out, a repeated enqueue is the same message, and another one under the same
// key is refused, by every way in.
func TestRotationWhileMessagesWait(t *testing.T) {
	t.Parallel()
	plain, pool, schema := newBox(t)
	before := sealedBox(t, pool, schema, ring(t, "k1"))
	unsealed, waiting := sms("enqueued before anything was sealed"), sms("enqueued under the old key")
	enqueue(t, plain, unsealed)
	enqueue(t, before, waiting)

	box := sealedBox(t, pool, schema, ring(t, "k2", "k1"))
	fresh := sms("enqueued under the new key")
	enqueue(t, box, fresh)
	for _, i := range []dispatch.Intent{unsealed, waiting, fresh} {
		repeated(t, box, i)
	}
	require.Equal(t, []string{"", "k1", "k2"}, askAll(t, pool, "select coalesce(seal_key, '') from "+schema+".message order by created_at, id"))

	// A worker that was started before the rotation lacks the new key; one from
	// after it has both.
	p := &outboxtest.Provider{}
	stop := start(t, before, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	reaches(t, box, waiting.Key, dispatch.Sent)
	reaches(t, box, unsealed.Key, dispatch.Sent)
	waits(t, box, pool, schema, fresh.Key, `waits for key "k2"`)
	require.NoError(t, stop())
	due(t, pool, schema)
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	reaches(t, box, fresh.Key, dispatch.Sent)
	require.Len(t, p.Accepted(), 3)

	// Once the old key is gone, what it sealed can't be compared or resent.
	after := sealedBox(t, pool, schema, ring(t, "k2"))
	require.NoError(t, after.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := after.Enqueue(t.Context(), tx, waiting)
		require.ErrorIs(t, err, outbox.ErrSealed)
		require.ErrorIs(t, err, seal.ErrNoKey)
		_, err = after.EnqueueMany(t.Context(), tx, []dispatch.Intent{sms("new"), waiting})
		require.ErrorIs(t, err, outbox.ErrSealed)
		require.ErrorContains(t, err, "intent 1")
		_, err = after.ResendAsNew(t.Context(), tx, waiting.Key, dispatch.NewKey(), outbox.Audit{By: "ada", Why: "a test"})
		require.ErrorIs(t, err, outbox.ErrSealed)
		_, err = plain.Enqueue(t.Context(), tx, waiting)
		require.ErrorIs(t, err, outbox.ErrSealed)
		return nil
	}))
	require.Equal(t, 3, count(t, pool, schema, "message"))
}

// repeated enqueues an intent once more by each way in, and another content
// under its key.
func repeated(t *testing.T, box *outbox.Box, i dispatch.Intent) {
	t.Helper()
	other := i
	other.Content = dispatch.SMS{To: "+15555550123", Body: "another"}
	var conflict *dispatch.ConflictError
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		added, err := box.Enqueue(t.Context(), tx, i)
		require.NoError(t, err)
		require.False(t, added)
		many, err := box.EnqueueMany(t.Context(), tx, []dispatch.Intent{i, i})
		require.NoError(t, err)
		require.Equal(t, []bool{false, false}, many)
		var batch pgx.Batch
		require.NoError(t, box.Queue(&batch, i))
		require.NoError(t, tx.SendBatch(t.Context(), &batch).Close())

		_, err = box.Enqueue(t.Context(), tx, other)
		require.ErrorAs(t, err, &conflict)
		_, err = box.EnqueueMany(t.Context(), tx, []dispatch.Intent{other})
		require.ErrorAs(t, err, &conflict)
		_, err = box.EnqueueMany(t.Context(), tx, []dispatch.Intent{i, other})
		require.ErrorAs(t, err, &conflict)
		return nil
	}))
	err := box.InTx(t.Context(), func(tx pgx.Tx) error {
		var batch pgx.Batch
		require.NoError(t, box.Queue(&batch, other))
		return tx.SendBatch(t.Context(), &batch).Close()
	})
	require.ErrorAs(t, err, &conflict)
}

// A message whose key is missing, or another one under the same name, waits in
// sight: pending or unknown as it was, nothing spent, no attempt, and a reason.
// With the right key it goes out; one that may have been accepted goes out as
// the replay that it is.
func TestWrongKeyWaits(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]outbox.Sealer{"missing": ring(t, "k2"), "another": ring(t, "k1!"), "none": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, pool, schema := newBox(t)
			right := sealedBox(t, pool, schema, ring(t, "k1"))
			fresh, open := sms("fresh"), sms("open")
			request := sha256.Sum256([]byte("the bytes of the request"))
			p := &outboxtest.Provider{Promise: dispatch.Contract{Dedupe: dispatch.Dedupe{Window: time.Hour}}}
			first, stop := context.WithCancel(t.Context())
			defer stop()
			p.Respond = func(_ context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
				a := accept()
				a.Evidence.Request = request[:]
				if e.Key == open.Key && e.Attempt == 1 {
					stop() // nothing is claimed any more
					return dispatch.Accepted{}, &dispatch.Fault{
						Evidence: dispatch.Evidence{Stage: dispatch.MaybeSent, Request: request[:]}, Verdict: dispatch.Verdict{Outcome: dispatch.Unknown},
					}
				}
				if e.Key == open.Key {
					require.Equal(t, request[:], e.Replay)
				}
				return a, nil
			}
			enqueue(t, right, open)
			w, err := outbox.NewWorker(right, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
			require.NoError(t, err)
			require.NoError(t, w.Run(first))
			enqueue(t, right, fresh)
			due(t, pool, schema)

			var log bytes.Buffer
			end := start(t, sealedBox(t, pool, schema, wrong), outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Logger: leaks.Suite.Logger(slog.NewTextHandler(&log, nil))})
			waits(t, right, pool, schema, fresh.Key, `waits for key "k1"`)
			waits(t, right, pool, schema, open.Key, `waits for key "k1"`)
			require.NoError(t, end())
			require.Len(t, p.Sends(), 1)
			require.Contains(t, log.String(), `waits for key \"k1\"`)
			require.NotContains(t, log.String(), "5555550123")

			due(t, pool, schema)
			start(t, right, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
			require.Equal(t, 1, reaches(t, right, fresh.Key, dispatch.Sent).Attempts)
			require.Equal(t, 2, reaches(t, right, open.Key, dispatch.Sent).Attempts)
			require.Len(t, p.Accepted(), 2)
		})
	}
}

// waits until a worker has found that it can't open the message, and looks at
// what became of it.
func waits(t *testing.T, box *outbox.Box, pool *pgxpool.Pool, schema string, key dispatch.Key, reason string) {
	t.Helper()
	var h outbox.History
	require.Eventually(t, func() bool {
		var err error
		h, err = box.History(t.Context(), key)
		require.NoError(t, err)
		return strings.Contains(h.String(), reason)
	}, 20*time.Second, 5*time.Millisecond)
	require.Contains(t, []dispatch.State{dispatch.Pending, dispatch.InDoubt}, h.State)
	require.Equal(t, h.Attempts, h.Spent, h.String())
	require.WithinDuration(t, time.Now().Add(time.Minute), h.Next, 20*time.Second)
	require.Contains(t, ask[string](t, pool, "select last_error from "+schema+".status where id = $1", key.String()), reason)
}

// due makes everything in the queue due now.
func due(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), "update "+schema+".queue set due = clock_timestamp()")
	require.NoError(t, err)
}

func askAll(t *testing.T, pool *pgxpool.Pool, sql string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql)
	require.NoError(t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return out
}
