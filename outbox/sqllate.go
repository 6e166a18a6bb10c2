package outbox

// The locked moves: message, then queue, then parked, each a statement of its
// own under READ COMMITTED, so that each decides on what it then reads.

const lockMessageSQL = `select m.budget::bigint from {schema}.message m where m.id = $1::text::uuid for no key update`

const lockQueueSQL = `select q.state::bigint, q.fence::bigint, coalesce(q.provider, ''), coalesce(q.account, '')
from {schema}.queue q where q.id = $1::text::uuid for update`

const lockParkedSQL = `select p.state::bigint, p.fence::bigint, coalesce(p.provider, ''), coalesce(p.account, '')
from {schema}.parked p where p.id = $1::text::uuid for update`

// truthSQL reads what is already known: the state that the history ended in,
// the first acceptance, and the evidence of the fence in question.
const truthSQL = `select
    coalesce((select h.state::bigint from {schema}.history h where h.id = $1::text::uuid and h.state in (6, 7)
        order by h.at desc, h.fence desc, h.sub desc limit 1), 0),
    coalesce((select h.provider || ' ' || h.account || ' ' || coalesce(h.provider_id, '') from {schema}.history h
        where h.id = $1::text::uuid and h.outcome = 1 order by h.at, h.fence, h.sub limit 1), ''),
    coalesce((select h.kind::bigint from {schema}.history h where h.id = $1::text::uuid and h.fence = $2::bigint and h.sub = 0), 0),
    coalesce((select h.outcome::bigint from {schema}.history h where h.id = $1::text::uuid and h.fence = $2::bigint and h.sub = 0), 0),
    coalesce((select coalesce(h.provider_id, '') from {schema}.history h where h.id = $1::text::uuid and h.fence = $2::bigint and h.sub = 0), '')`

const evidenceSQL = `insert into {schema}.history (id, fence, kind, move, state, outcome, stage, provider, account, detail)
values ($1::text::uuid, $2::bigint, 2, 18, 6, 0, 0, nullif($3::text, ''), nullif($4::text, ''), 'settled by late truth while sending')
on conflict (id, fence, sub) do nothing`

const recordSQL = `insert into {schema}.history (id, fence, sub, kind, move, state, outcome, scope, stage, floor, provider, account,
    provider_id, status, code, detail, words, took, request, actor, why)
values ($1::text::uuid, $2::bigint, case when $3::bigint = 1 then 0 else nextval('{schema}.event_number') end, $3::bigint, $4::bigint,
    $5::bigint, $6::bigint, $7::bigint, $8::bigint, nullif($9::bigint, 0), nullif($10::text, ''), nullif($11::text, ''),
    nullif($12::text, ''), nullif($13::bigint, 0), nullif($14::text, ''), nullif($15::text, ''), nullif($16::text, ''),
    $17::bigint, decode(nullif($18::text, ''), 'hex'), nullif($19::text, ''), nullif($20::text, ''))
on conflict (id, fence, sub) do nothing`

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
    coalesce(m.template, ''), coalesce(m.template_revision, '')
from {schema}.message m
left join {schema}.queue q on q.id = m.id
left join {schema}.parked p on p.id = m.id
where m.id = $1::text::uuid`
