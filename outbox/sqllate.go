package outbox

// The locked moves: message, then queue, then parked, each a statement of its
// own under READ COMMITTED, so that each decides on what it then reads.

const lockMessageSQL = `select m.route, m.priority::bigint, coalesce(m.pinned, ''), m.budget::bigint, m.on_unknown::bigint,
    m.on_unknown_after, m.content is null
from {schema}.message m where m.id = $1::text::uuid for no key update`

const lockQueueSQL = `select q.state::bigint, 0::bigint, q.fence::bigint, q.spent::bigint, q.lookups::bigint, q.ended::bigint,
    coalesce(q.encoding, 0)::bigint, coalesce(q.provider, ''), coalesce(q.account, ''), q.lane, q.ledger::text,
    q.due, q.claimed, q.lease, q.deadline, q.resolve_until
from {schema}.queue q where q.id = $1::text::uuid for update`

const lockParkedSQL = `select p.state::bigint, p.reason::bigint, p.fence::bigint, p.spent::bigint, 0::bigint, p.ended::bigint,
    coalesce(p.encoding, 0)::bigint, coalesce(p.provider, ''), coalesce(p.account, ''), p.lane, p.ledger::text,
    null::timestamptz, null::timestamptz, null::timestamptz, p.deadline, null::timestamptz
from {schema}.parked p where p.id = $1::text::uuid for update`

const knownSQL = `select
    coalesce((select h.state from {schema}.history h where h.id = $1::text::uuid and h.state in (6, 7)
        order by h.at desc, h.fence desc, h.sub desc limit 1), 0)::bigint,
    coalesce((select max(h.fence) from {schema}.history h where h.id = $1::text::uuid), 0)::bigint,
    f.id is not null, coalesce(f.provider, ''), coalesce(f.account, ''), coalesce(f.provider_id, ''),
    coalesce(e.kind, 0)::bigint, coalesce(e.outcome, 0)::bigint, coalesce(e.provider_id, ''), clock_timestamp()
from (select 1) one
left join lateral (select h.* from {schema}.history h where h.id = $1::text::uuid and h.outcome = 1
    order by h.at, h.fence, h.sub limit 1) f on true
left join lateral (select h.* from {schema}.history h where h.id = $1::text::uuid and h.fence = $2::bigint and h.sub = 0) e on true`

const recordSQL = `insert into {schema}.history (id, fence, sub, kind, move, state, reason, outcome, scope, stage, floor, provider,
    account, provider_id, status, code, detail, words, took, request, actor, why)
values ($1::text::uuid, $2::bigint, case when $3::bigint in (1, 2) then 0 else nextval({event_number}) end, $3::bigint,
    $4::bigint, $5::bigint, $6::bigint, case when $3::bigint in (1, 2, 3, 4, 5) then $7::bigint end, $8::bigint, $9::bigint,
    nullif($10::bigint, 0), nullif($11::text, ''), nullif($12::text, ''), nullif($13::text, ''), nullif($14::bigint, 0),
    nullif($15::text, ''), nullif($16::text, ''), nullif($17::text, ''), $18::bigint, decode(nullif($19::text, ''), 'hex'),
    nullif($20::text, ''), nullif($21::text, ''))
on conflict (id, fence, sub) do nothing`

const markEndedSQL = `update {schema}.queue q set ended = $2::bigint where q.id = $1::text::uuid`

const requeueSQL = `insert into {schema}.queue (id, lane, due, deadline, resolve_until, first_sent, fence, state, spent, budget, encoding,
    lookups, open, waived, ended, provider, account, ledger, notify)
select $1::text::uuid, $2::text, coalesce($3::text::timestamptz, clock_timestamp()), $4::text::timestamptz, $5::text::timestamptz,
    case when $8::bigint = 3 then $6::text::timestamptz end, $7::bigint, $8::bigint, $10::bigint, $11::bigint, $12::bigint, $13::bigint,
    $14::bigint, $15::bigint, $16::bigint, nullif($17::text, ''), case when $8::bigint = 3 then $18::text else nullif($18::text, '') end,
    nullif($19::text, '')::jsonb, (select m.notify from {schema}.message m where m.id = $1::text::uuid)
where $9::bigint >= 0`

const reparkSQL = `insert into {schema}.parked (id, lane, deadline, first_sent, fence, state, reason, spent, budget, encoding,
    open, waived, ended, provider, account, ledger)
select $1::text::uuid, $2::text, $4::text::timestamptz, $6::text::timestamptz, $7::bigint, $8::bigint, $9::bigint, $10::bigint,
    $11::bigint, $12::bigint, $14::bigint, $15::bigint, $16::bigint, nullif($17::text, ''), nullif($18::text, ''),
    nullif($19::text, '')::jsonb
where $3::text is not distinct from $3::text and $5::text is not distinct from $5::text and $13::bigint >= 0`

const unqueueSQL = `delete from {schema}.queue q where q.id = $1::text::uuid`

const unparkSQL = `delete from {schema}.parked p where p.id = $1::text::uuid`

const historySQL = `select h.at, h.fence::bigint, h.kind::bigint, h.move::bigint, h.state::bigint, h.reason::bigint,
    coalesce(h.outcome, -1)::bigint, coalesce(h.scope, 0)::bigint, coalesce(h.stage, 0)::bigint, coalesce(h.status, 0)::bigint,
    coalesce(h.code, ''), coalesce(h.detail, ''), coalesce(h.words, ''), coalesce(h.provider, ''), coalesce(h.provider_id, ''),
    coalesce(h.wait, -1), coalesce(h.floor, 0), coalesce(h.took, 0)::bigint, coalesce(h.actor, ''), coalesce(h.why, '')
from {schema}.history h where h.id = $1::text::uuid order by h.at, h.fence, h.sub`

const statusSQL = `select m.route, m.channel::bigint, m.budget::bigint, m.created_at, m.deadline,
    coalesce(q.state, p.state, (select h.state from {schema}.history h where h.id = m.id
        order by h.at desc, h.fence desc, h.sub desc limit 1))::bigint,
    coalesce(p.reason, 0)::bigint, coalesce(q.spent, p.spent, 0)::bigint, q.due,
    coalesce(m.template, ''), coalesce(m.template_revision, ''), m.country::bigint, coalesce(m.pinned, ''), m.senders::text,
    m.on_unknown::bigint, coalesce(q.provider, ''), coalesce(q.ended, 0)::bigint, q.ledger::text
from {schema}.message m
left join {schema}.queue q on q.id = m.id
left join {schema}.parked p on p.id = m.id
where m.id = $1::text::uuid`
