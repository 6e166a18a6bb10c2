package outbox

// Lists read a page of at most {scan} keys by an index, whatever the filter
// says, and then what of it passes: so no list is dearer than its page, and the
// cursor goes on behind the page where it had too little. Each is in the order
// that its index has.

// listQueueSQL lists what is in motion, what is due first before the rest.
const listQueueSQL = `with recursive l as (
    (select q.lane from {schema}.queue q order by q.lane limit 1)
    union all
    select (select q.lane from {schema}.queue q where q.lane > l.lane order by q.lane limit 1) from l where l.lane is not null
), page as materialized (
    select w.due as at, w.id
    from l cross join lateral (
        select q.due, q.id from {schema}.queue q
        where q.lane = l.lane and (q.due, q.id) > (coalesce($1::text::timestamptz, '-infinity'),
            coalesce($2::text::uuid, '00000000-0000-0000-0000-000000000000'))
        order by q.due, q.id limit {scan}
    ) w
    where l.lane is not null and ($3::text = '' or split_part(l.lane, '/', 1) = $3::text)
    order by w.due, w.id limit {scan}
)` + listHits

// listUnknownSQL lists what may have been accepted and is in motion, the
// longest uncertain first.
const listUnknownSQL = `with page as materialized (
    select q.first_sent as at, q.id from {schema}.queue q
    where q.first_sent is not null and (q.first_sent, q.id) > (coalesce($1::text::timestamptz, '-infinity'),
        coalesce($2::text::uuid, '00000000-0000-0000-0000-000000000000'))
    order by q.first_sent, q.id limit {scan}
)` + listHits

// listParkedSQL lists what is parked, the newest first.
const listParkedSQL = `with page as materialized (
    select w.parked_at as at, w.id
    from unnest($4::bigint[]) as s(state) cross join lateral (
        select p.parked_at, p.id from {schema}.parked p
        where p.state = s.state::smallint and (p.parked_at, p.id) < (coalesce($1::text::timestamptz, 'infinity'),
            coalesce($2::text::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
            and p.parked_at >= coalesce($8::text::timestamptz, '-infinity')
        order by p.parked_at desc, p.id desc limit {scan}
    ) w
    order by w.parked_at desc, w.id desc limit {scan}
)` + listHits

// listMessagesSQL lists messages in whatever state, the newest first.
const listMessagesSQL = `with page as materialized (
    select u.created_at as at, u.id from (
        (select m.created_at, m.id from {schema}.message m
        where m.content is not null and (m.created_at, m.id) < (coalesce($1::text::timestamptz, 'infinity'),
            coalesce($2::text::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
            and m.created_at >= coalesce($8::text::timestamptz, '-infinity')
        order by m.created_at desc, m.id desc limit {scan})
        union all
        (select m.created_at, m.id from {schema}.message m
        where m.content is null and (m.created_at, m.id) < (coalesce($1::text::timestamptz, 'infinity'),
            coalesce($2::text::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
            and m.created_at >= coalesce($8::text::timestamptz, '-infinity')
        order by m.created_at desc, m.id desc limit {scan})
    ) u
    order by u.created_at desc, u.id desc limit {scan}
)` + listHits

// listRecipientSQL lists one recipient's messages, the newest first.
const listRecipientSQL = `with page as materialized (
    select w.created_at as at, w.id
    from unnest($7::text[]) as r(recipient) cross join lateral (
        select m.created_at, m.id from {schema}.message m
        where hashtextextended(lower(coalesce(m.recipient, encode(m.recipient_hash, 'hex'))), 0) = hashtextextended(lower(r.recipient), 0)
            and lower(coalesce(m.recipient, encode(m.recipient_hash, 'hex'))) = lower(r.recipient)
            and m.created_at <= coalesce($1::text::timestamptz, 'infinity')
            and (m.created_at, m.id) < (coalesce($1::text::timestamptz, 'infinity'),
                coalesce($2::text::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
            and m.created_at >= coalesce($8::text::timestamptz, '-infinity')
        order by m.created_at desc, m.id desc limit {scan}
    ) w
    order by w.created_at desc, w.id desc limit {scan}
)` + listHits

// listHits is what of a page passes the filter, and where the page ended.
// The recipient ($7) is the page's matter alone. $11 tells that the order is ascending, $12 that times bound when a message
// was parked. The last history row is read for the state of final messages and
// for who had it last, the last error as the view status tells it.
const listHits = `, hit as materialized (
    select d.n, d.at, d.id, coalesce(q.state, p.state, h.state) as state, coalesce(p.reason, h.reason, 0) as reason,
        coalesce(h.provider, q.provider, p.provider) as provider, q.due, coalesce(p.parked_at, h.at, m.created_at) as changed,
        m.route, m.channel, m.budget, m.created_at, m.deadline, m.template, m.template_revision, m.scrubbed
    from (select d.at, d.id, row_number() over (order by
        case when $11::bigint = 1 then d.at end, case when $11::bigint = 1 then d.id end, d.at desc, d.id desc) as n from page d) d
    cross join lateral (select m.route, m.channel, m.budget, m.created_at, m.deadline, m.template, m.template_revision, m.content is null as scrubbed
        from {schema}.message m where m.id = d.id limit 1) m
    left join lateral (select q.state, q.provider, q.due from {schema}.queue q where q.id = d.id limit 1) q on true
    left join lateral (select p.state, p.reason, p.provider, p.parked_at from {schema}.parked p where p.id = d.id limit 1) p on true
    left join lateral (
        select h.at, h.state, h.reason, h.provider from {schema}.history h where h.id = d.id
        order by h.at desc, h.fence desc, h.sub desc limit 1
    ) h on true
    where ($3::text = '' or m.route = $3::text)
        and (cardinality($4::bigint[]) = 0 or coalesce(q.state, p.state, h.state) = any($4::bigint[]))
        and ($5::text = '' or coalesce(h.provider, q.provider, p.provider) = $5::text)
        and ($6::bigint = 0 or coalesce(p.reason, 0) = $6::bigint)
        and cardinality($7::text[]) >= 0
        and case when $12::bigint = 1 then p.parked_at else m.created_at end >= coalesce($8::text::timestamptz, '-infinity')
        and case when $12::bigint = 1 then p.parked_at else m.created_at end < coalesce($9::text::timestamptz, 'infinity')
    order by d.n limit $10::bigint
), s as (
    select count(*) as n,
        case when $11::bigint = 1 then (array_agg(d.at order by d.at desc, d.id desc))[1] else (array_agg(d.at order by d.at, d.id))[1] end as at,
        case when $11::bigint = 1 then (array_agg(d.id order by d.at desc, d.id desc))[1] else (array_agg(d.id order by d.at, d.id))[1] end as id
    from page d
)
select s.n, s.at, s.id, t.at, t.id, t.route, t.channel::bigint, coalesce(t.state, 0)::bigint, coalesce(t.reason, 0)::bigint,
    coalesce(t.provider, ''), (select count(*) from {schema}.history a where a.id = t.id and a.sub = 0), t.budget::bigint,
    t.created_at, t.changed, t.due, t.deadline, coalesce(t.template, ''), coalesce(t.template_revision, ''), t.scrubbed,
    coalesce(e.status, 0)::bigint, coalesce(e.code, ''), coalesce(e.detail, '')
from s left join hit t on true
left join lateral (
    select e.status, e.code, e.detail from {schema}.history e
    where e.id = t.id and e.outcome is distinct from 1 and e.detail is not null
    order by e.at desc, e.fence desc, e.sub desc limit 1
) e on true
order by t.n`

const nowSQL = `select clock_timestamp()`
