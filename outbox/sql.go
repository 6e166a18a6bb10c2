package outbox

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Every statement of the package stands in the sql*.go files, in the order of
// a message's life. {schema} is the quoted schema, the only thing that is ever
// put into a text, and {event_number} its sequence as a literal.
//
// Arguments are text, bytea, bigint and arrays of them, cast on the server, so
// that every exec mode of pgx and every driver of database/sql can send them; the
// keys of a settle, which only pgx sends, are an array of uuid.
//
// Three habits keep the plans the same whatever the statistics say at the
// moment: the state stands in expressions that have no statistics, rows are
// reached by ctid = any(array(...)) or by a lateral probe with a limit, and
// the clock stands in a sub-select, so that it is a constant to the index.

// statements are the texts for one schema.
type statements struct {
	enqueue, enqueueMany, takeBack            string
	copyMessage, copyQueue                    string
	enqueueStrict                             string
	lanes, peek, page, load                   string
	claim, unclaim                            string
	applySent, applySentKnown, apply          string
	lockMessage, lockQueue, lockParked, known string
	markEnded, requeue, repark                string
	record, unqueue, unpark                   string
	historyOf, statusOf, resend, sealed       string
	receive, dueReceipts                      string
	takeReceipt, putOffReceipt                string
	gates, closeGate, probeGate               string
	passGate, openGate                        string
	seedRate, takeTokens                      string
	addHealth, health, dropHealth, delivered  string
	trend                                     string
	notice, takeNotices                       string
	dropNotice, deferNotice                   string
	waiting, lanesDepth, doubts, size         string
	parked, holdback, now                     string
	listQueue, listUnknown, listParked        string
	listMessages, listRecipient               string
	scrubbable, scrub, deletable, delete      string
	dropReceipts                              string
}

func render(schema string) statements {
	in := func(s string) string {
		return strings.NewReplacer("{schema}", schema, "{event_number}", quoteText(schema+".event_number"),
			"{bound}", strconv.Itoa(statsBound), "{scan}", strconv.Itoa(listScan), "{prune}", strconv.Itoa(prunePage)).Replace(s)
	}
	st := statements{
		enqueue: in(enqueueSQL), enqueueMany: in(enqueueManySQL),
		enqueueStrict: in(strings.Replace(enqueueSQL, enqueueTwin, enqueueConflict, 1)), takeBack: in(takeBackSQL),
		copyMessage: in(copyMessageSQL), copyQueue: in(copyQueueSQL),
		lanes: in(lanesSQL), peek: in(peekSQL), page: in(strings.ReplaceAll(pageSQL, "{page}", strconv.Itoa(pageRows))), load: in(loadSQL),
		claim: in(claimSQL), unclaim: in(unclaimSQL), apply: in(applySQL),
		applySent: in(strings.Replace(applySentSQL, " {known}", "", 1)), applySentKnown: in(strings.Replace(applySentSQL, "{known}", onKnown, 1)),
		lockMessage: in(lockMessageSQL), lockQueue: in(lockQueueSQL), lockParked: in(lockParkedSQL), known: in(knownSQL),
		markEnded: in(markEndedSQL), requeue: in(requeueSQL), repark: in(reparkSQL), record: in(recordSQL), unqueue: in(unqueueSQL), unpark: in(unparkSQL),
		historyOf: in(historySQL), statusOf: in(statusSQL), resend: in(resendSQL), sealed: in(sealedSQL),
		receive: in(receiveSQL), dueReceipts: in(dueReceiptsSQL), takeReceipt: in(takeReceiptSQL), putOffReceipt: in(putOffReceiptSQL),
		gates: in(gatesSQL), closeGate: in(closeGateSQL), probeGate: in(probeGateSQL), passGate: in(admitGateSQL), openGate: in(openGateSQL),
		seedRate: in(seedRateSQL), takeTokens: in(spendRateSQL),
		addHealth: in(addHealthSQL), health: in(healthSQL), dropHealth: in(dropHealthSQL), delivered: in(deliveredSQL),
		trend:  in(trendSQL),
		notice: in(noticeSQL), takeNotices: in(takeNoticesSQL), dropNotice: in(dropNoticeSQL), deferNotice: in(deferNoticeSQL),
		waiting: in(waitingSQL), lanesDepth: in(lanesDepthSQL), doubts: in(doubtsSQL), size: in(sizeSQL), parked: in(parkedSQL), holdback: in(holdbackSQL),
		now: in(nowSQL), listQueue: in(listQueueSQL), listUnknown: in(listUnknownSQL), listParked: in(listParkedSQL),
		listMessages: in(listMessagesSQL), listRecipient: in(listRecipientSQL),
		scrubbable: in(pageOver(scrubbableSQL)), scrub: in(listOver(scrubSQL)), deletable: in(pageOver(deletableSQL)),
		delete: in(listOver(deleteSQL)), dropReceipts: in(dropReceiptsSQL),
	}
	return st
}

// enqueueTwin reads a message that is there already; enqueueConflict, for
// statements whose answer comes after the commit, runs into the guard where it
// is another one. Digests under two keys can't be compared here: message.answer
// does.
const (
	enqueueTwin     = `do update set id = excluded.id`
	enqueueConflict = `do update set id = excluded.id, digest = case
        when t.digest_key is not distinct from excluded.digest_key then excluded.digest else t.digest end`
)

// quoteSchema validates and quotes a schema's name.
func quoteSchema(name string) (string, error) {
	switch {
	case name == "":
		return "", errors.New("schema is empty")
	case len(name) > 63:
		return "", errors.New("schema is longer than 63 bytes")
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return "", errors.New("schema is not valid UTF-8 without NUL")
	case strings.HasPrefix(name, "pg_"):
		return "", errors.New("schema begins with pg_, which Postgres keeps for itself")
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`, nil
}

// quoteText quotes a literal, whatever the session's
// standard_conforming_strings.
func quoteText(s string) string {
	s = strings.ReplaceAll(s, "'", "''")
	if strings.Contains(s, `\`) {
		return " E'" + strings.ReplaceAll(s, `\`, `\\`) + "'"
	}
	return "'" + s + "'"
}

// enqueueSelect fills message and queue from the rows of i. A key that is
// there already is read through an update that changes nothing: it sees, and
// waits for, a twin of another transaction that this statement's snapshot
// doesn't hold. A row that would be over before its start, by the clock here,
// is left out, for the caller to be told in words.
const enqueueSelect = `, m as (
    insert into {schema}.message (id, form, channel, priority, budget, on_unknown, on_unknown_after, notify, country,
        created_at, not_before, deadline, route, digest, digest_key, seal_key, recipient, recipient_hash, sender, senders,
        pinned, template, template_revision, trace, metadata, supersedes, linked, content)
    select i.id::uuid, i.form::smallint, i.channel::smallint, i.priority::smallint, i.budget::smallint,
        i.on_unknown::smallint, i.on_unknown_after, i.notify::smallint, i.country::smallint,
        i.now, i.not_before::timestamptz, coalesce(i.deadline::timestamptz, i.now + i.valid * interval '1 microsecond'),
        i.route, i.digest, i.digest_key, i.seal_key, i.recipient, i.recipient_hash, i.sender, i.senders::jsonb,
        i.pinned, i.template, i.template_revision, i.trace, i.metadata::jsonb, i.supersedes::uuid, i.linked::uuid, i.content
    from i
    where coalesce(i.not_before::timestamptz < coalesce(i.deadline::timestamptz, i.now + i.valid * interval '1 microsecond'), true)
    on conflict (id) do update set id = excluded.id
    returning id, digest, digest_key, xmax = 0 as added, route, priority, pinned, budget, notify, not_before, deadline
), q as (
    insert into {schema}.queue (id, lane, due, deadline, budget, notify)
    select m.id, m.route || '/' || m.priority || '/' || coalesce(m.pinned, ''),
        least(greatest(clock_timestamp(), m.not_before), m.deadline), m.deadline, m.budget, m.notify
    from m where m.added
)
select m.id::text, m.added, m.digest, coalesce(m.digest_key, '') from m`

// enqueueSQL is the same for one message, without the detour by i, whose volatile
// clock would make it a materialized row of 28 columns. The clock is that of
// the statement's arrival, also in a pipeline.
const enqueueSQL = `with m as (
    insert into {schema}.message as t (id, form, channel, priority, budget, on_unknown, on_unknown_after, notify, country,
        created_at, not_before, deadline, route, digest, digest_key, seal_key, recipient, recipient_hash, sender, senders,
        pinned, template, template_revision, trace, metadata, supersedes, linked, content)
    select $1::text::uuid, $2::bigint::smallint, $3::bigint::smallint, $4::bigint::smallint, $5::bigint::smallint,
        $6::bigint::smallint, $7::bigint, $8::bigint::smallint, $9::bigint::smallint,
        statement_timestamp(), $10::text::timestamptz,
        coalesce($11::text::timestamptz, statement_timestamp() + $12::bigint * interval '1 microsecond'),
        $13::text, $14::bytea, $15::text, $16::text, $17::text, $18::bytea, $19::text, $20::text::jsonb,
        $21::text, $22::text, $23::text, $24::text, $25::text::jsonb, $26::text::uuid, $27::text::uuid, $28::bytea
    where coalesce($10::text::timestamptz
        < coalesce($11::text::timestamptz, statement_timestamp() + $12::bigint * interval '1 microsecond'), true)
    on conflict (id) do update set id = excluded.id
    returning t.id, t.digest, t.digest_key, t.xmax = 0 as added, t.deadline
), q as (
    insert into {schema}.queue (id, lane, due, deadline, budget, notify)
    select m.id, $13::text || '/' || $4::bigint || '/' || coalesce($21::text, ''),
        least(greatest(clock_timestamp(), $10::text::timestamptz), m.deadline), m.deadline, $5::bigint::smallint, $8::bigint::smallint
    from m where m.added
)
select m.id::text, m.added, m.digest, coalesce(m.digest_key, '') from m`

const enqueueManySQL = `with i as (
    select nullif(id, '') as id, form, channel, priority, budget, on_unknown, on_unknown_after, notify, country,
        nullif(not_before, '') as not_before, nullif(deadline, '') as deadline, nullif(valid, -1) as valid, route, digest,
        nullif(digest_key, '') as digest_key, nullif(seal_key, '') as seal_key, nullif(recipient, '') as recipient,
        nullif(recipient_hash, ''::bytea) as recipient_hash, nullif(sender, '') as sender, nullif(senders, '') as senders,
        nullif(pinned, '') as pinned, nullif(template, '') as template, nullif(template_revision, '') as template_revision,
        nullif(trace, '') as trace, nullif(metadata, '') as metadata, nullif(supersedes, '') as supersedes,
        nullif(linked, '') as linked, content, clock_timestamp() as now
    from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
        $9::bigint[], $10::text[], $11::text[], $12::bigint[], $13::text[], $14::bytea[], $15::text[], $16::text[],
        $17::text[], $18::bytea[], $19::text[], $20::text[], $21::text[], $22::text[], $23::text[], $24::text[],
        $25::text[], $26::text[], $27::text[], $28::bytea[])
        as u(id, form, channel, priority, budget, on_unknown, on_unknown_after, notify, country, not_before, deadline, valid,
        route, digest, digest_key, seal_key, recipient, recipient_hash, sender, senders, pinned, template, template_revision,
        trace, metadata, supersedes, linked, content)
)` + enqueueSelect

const takeBackSQL = `with q as (
    delete from {schema}.queue q where q.id = any($1::text[]::uuid[]) returning q.id
)
delete from {schema}.message m where m.id = any(array(select q.id from q))`
