package outbox

import "strings"

// Retention walks the messages from the oldest, a page of keys at a time. Each
// page is two statements of one transaction. The first finds what is over and
// locks it: no verb, no receipt, no late truth and no repeat of the enqueue goes
// on while it holds, since all of them take the message's lock first. The
// second, whose snapshot is from after the locks, looks once more. With one
// statement for both, a requeue that commits between its snapshot and its lock
// would be invisible to it, and a message in motion would lose its text. What
// isn't over isn't locked either: a lock is a write.
//
// What happened last tells how old an end is, so that a receipt or a late
// acceptance begins the time anew.

// overSQL are those of {ids} that are over: sent or cancelled for so long ($1),
// or dead for so long ($2) and past their deadline, so that nothing requeues
// them. What is in motion or held isn't, nor what this release doesn't know. A
// time of zero is for ever; $3 is kept after the deadline; $4 is the route.
const overSQL = `over as materialized (
    select m.id from {schema}.message m
    left join lateral (select p.id, p.state, p.parked_at from {schema}.parked p where p.id = m.id limit 1) p on true
    where m.id = any({ids}) and not coalesce((select true from {schema}.queue q where q.id = m.id limit 1), false)
        and ($4::text = '' or m.route = $4::text)
        and ($3::bigint = 0 or coalesce(m.deadline <= clock_timestamp() - $3::bigint * interval '1 microsecond', true))
        and case
            when p.id is null then $1::bigint > 0 and (
                select l.state in (6, 7) and l.at <= clock_timestamp() - $1::bigint * interval '1 microsecond'
                from {schema}.history l where l.id = m.id order by l.at desc, l.fence desc, l.sub desc limit 1)
            else p.state = 5 and $2::bigint > 0 and coalesce(m.deadline <= clock_timestamp(), true)
                and greatest(p.parked_at, (select max(l.at) from {schema}.history l where l.id = m.id))
                    <= clock_timestamp() - $2::bigint * interval '1 microsecond'
            end
)`

// pageEnd tells where a page ended, and what of it is locked.
const pageEnd = `, s as (
    select count(*) as n, (array_agg(d.created_at order by d.created_at desc, d.id desc))[1] as at,
        (array_agg(d.id order by d.created_at desc, d.id desc))[1] as id
    from page d
)
select s.n, s.at, coalesce(s.id::text, ''), coalesce(l.id::text, '') from s left join locked l on true`

const scrubbableSQL = `with page as materialized (
    select m.created_at, m.id from {schema}.message m
    where m.content is not null and (m.created_at, m.id) > (coalesce($5::text::timestamptz, '-infinity'), $6::text::uuid)
        and m.created_at <= (select clock_timestamp()) - $7::bigint * interval '1 microsecond'
    order by m.created_at, m.id limit {prune}
), ` + overSQL + `, locked as materialized (
    select m.id from {schema}.message m where m.id = any(array(select o.id from over o)) for no key update skip locked
)` + pageEnd

const deletableSQL = `with page as materialized (
    select u.created_at, u.id from (
        (select m.created_at, m.id from {schema}.message m
        where m.content is not null and (m.created_at, m.id) > (coalesce($5::text::timestamptz, '-infinity'), $6::text::uuid)
            and m.created_at <= (select clock_timestamp()) - $7::bigint * interval '1 microsecond'
        order by m.created_at, m.id limit {prune})
        union all
        (select m.created_at, m.id from {schema}.message m
        where m.content is null and (m.created_at, m.id) > (coalesce($5::text::timestamptz, '-infinity'), $6::text::uuid)
            and m.created_at <= (select clock_timestamp()) - $7::bigint * interval '1 microsecond'
        order by m.created_at, m.id limit {prune})
    ) u order by u.created_at, u.id limit {prune}
), ` + overSQL + `, locked as materialized (
    select m.id from {schema}.message m where m.id = any(array(select o.id from over o)) for update skip locked
)` + pageEnd

// scrubSQL removes content, and with it what the vendors said in words, which
// may quote it.
const scrubSQL = `with ` + overSQL + `, words as (
    update {schema}.history h set words = null where h.id = any(array(select o.id from over o)) and h.words is not null
), gone as (
    update {schema}.message m set content = null, scrubbed_at = clock_timestamp()
    where m.id = any(array(select o.id from over o)) and m.content is not null returning m.id
)
select count(*) from gone`

// deleteSQL removes messages with all that is known of them.
const deleteSQL = `with ` + overSQL + `, p as (
    delete from {schema}.parked p where p.ctid = any(array(select w.ctid from over o
        cross join lateral (select p.ctid from {schema}.parked p where p.id = o.id limit 1) w))
), h as (
    delete from {schema}.history h where h.id = any(array(select o.id from over o))
), gone as (
    delete from {schema}.message m where m.id = any(array(select o.id from over o)) returning m.id
)
select count(*) from gone`

// dropReceiptsSQL removes old receipts that are applied or were given up.
const dropReceiptsSQL = `delete from {schema}.receipt r where r.ctid = any(array(
    select w.ctid from {schema}.receipt w
    where w.received_at <= (select clock_timestamp()) - $1::bigint * interval '1 microsecond' and w.due is null
    order by w.received_at limit {prune} for update skip locked))`

// pageOver and listOver say which messages overSQL looks at: those of the page,
// and those of the argument.
func pageOver(sql string) string {
	return strings.ReplaceAll(sql, "{ids}", "array(select d.id from page d)")
}

func listOver(sql string) string { return strings.ReplaceAll(sql, "{ids}", "$5::text[]::uuid[]") }
