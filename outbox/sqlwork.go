package outbox

// lanesSQL walks the distinct lanes by their index, one probe each.
const lanesSQL = `with recursive l as (
    (select q.lane from {schema}.queue q order by q.lane limit 1)
    union all
    select (select q.lane from {schema}.queue q where q.lane > l.lane order by q.lane limit 1) from l where l.lane is not null
)
select l.lane from l where l.lane is not null`

// peekSQL asks for one row of each lane that is due and not leased, of those
// from a place on, and for one that will be.
const peekSQL = `select (select clock_timestamp()), f.due, f.id,
    coalesce((select ceil(extract(epoch from q.due - clock_timestamp()) * 1000000)::bigint from {schema}.queue q
        where q.lane = l.lane and q.due > (select clock_timestamp())
        order by q.due, q.id limit 1), -1)
from unnest($1::text[], $2::text[], $3::text[]) with ordinality as l(lane, due, id, n) left join lateral (
    select q.due, q.id from {schema}.queue q
    where q.lane = l.lane and (q.due, q.id) >= (coalesce(l.due::timestamptz, '-infinity'), l.id::uuid)
        and q.due <= (select clock_timestamp()) and coalesce(q.lease <= clock_timestamp(), true)
    order by q.due, q.id limit 1
) f on true
order by l.n`

// claimSQL is rules 2 and 19: one lane, one provider, and never more than the
// limit, whatever the plan: the inner select runs once. A probe passes its
// provider's gate, but not its route's. The outer update needs
// no condition, since the inner one holds the row locks.
const claimSQL = `with c as (
    update {schema}.queue q
    set state = 2, fence = q.fence + 1, spent = q.spent + 1, provider = $2::text, account = $3::text,
        encoding = $4::bigint::smallint, claim = $5::text::uuid, claimed = clock_timestamp(),
        lease = clock_timestamp() + $6::bigint * interval '1 microsecond'
    where q.ctid = any(array(
        select w.ctid from {schema}.queue w
        where w.lane = $1::text and w.due <= (select clock_timestamp())
            and (w.due, w.id) >= (coalesce($8::text::timestamptz, '-infinity'), $10::text::uuid)
            and ($9::bigint = 1 or not (select exists (select from {schema}.gate g
                where g.provider = $2::text and g.country = 0 and coalesce(g.until > clock_timestamp(), true))))
            and not (select exists (select from {schema}.gate g
                where g.provider = '/' || split_part($1::text, '/', 1) and g.country = 0 and coalesce(g.until > clock_timestamp(), true)))
            and case w.state
                when 1 then w.ended = 0 and w.spent < w.budget and coalesce(w.deadline > clock_timestamp(), true)
                when 3 then w.ended = 0 and w.spent < w.budget and coalesce(w.deadline > clock_timestamp(), true)
                    and coalesce(w.lease <= clock_timestamp(), true) and w.open = 1
                    and w.provider = $2::text and w.account = $3::text and w.encoding = $4::bigint
                    and coalesce(w.resolve_until > clock_timestamp(), true)
                    and w.first_sent + $7::bigint * interval '1 microsecond' > clock_timestamp()
                else false end
        order by w.due, w.id
        limit $11::bigint
        for update skip locked))
    returning q.id, q.due, q.claimed, q.lease, q.deadline, q.resolve_until, q.fence, q.spent, q.budget, q.lookups, q.ledger
)
select c.id, c.due, c.claimed, c.lease, c.deadline, c.resolve_until, c.fence::bigint, c.spent::bigint, c.budget::bigint,
    c.lookups::bigint, c.ledger::text, m.on_unknown::bigint, m.on_unknown_after, m.pinned is not null, m.senders::text,
    coalesce(m.senders ->> $2::text, ''), m.content, m.metadata::text, coalesce(m.trace, ''), m.created_at, m.country::bigint,
    coalesce(m.seal_key, ''), case when m.seal_key is not null then m.digest end
from c join {schema}.message m on m.id = c.id`

// unclaimSQL is rule 13. What has ended meanwhile is the sweeper's to finish.
const unclaimSQL = `update {schema}.queue q
set state = case when q.open > 0 then 3 else 1 end, spent = q.spent - 1, claim = null, lease = null
where q.claim = $1::text::uuid and q.state = 2`

// applySentSQL is rule 6 for a whole batch: the row leaves the queue, its
// evidence enters the history. It returns what did not go through. Every plan
// that is left to it probes for one row after the other, in the order of the
// batch; a row that another statement has just changed is looked at again once
// that has ended.
const applySentSQL = `with i as (
    select u.id, u.fence, u.provider, u.account, u.provider_id, u.status, u.code, u.took, u.request, u.n
    from unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::bigint[], $9::text[])
        with ordinality as u(id, fence, provider, account, provider_id, status, code, took, request, n)
), gone as (
    delete from {schema}.queue q using i where q.id = i.id and q.fence = i.fence and q.state + 0 = 2
    returning i.*, q.notify
), asked as (
    insert into {schema}.notice (id, event) select gone.id, 1 from gone where gone.notify & 1 <> 0
), told as (
    insert into {schema}.history (id, fence, kind, move, state, outcome, scope, stage, provider, account, provider_id, status,
        code, took, request)
    select g.id, g.fence, 1, 6, 6, 1, 0, 2, g.provider, g.account, nullif(g.provider_id, ''), nullif(g.status, 0),
        nullif(g.code, ''), g.took, decode(nullif(g.request, ''), 'hex')
    from gone g {known}
)
select i.n from i where i.n not in (select gone.n from gone)`

// onKnown leaves evidence alone that is there already, which a row that is being
// sent can't have: it costs an eighth of the settle to look, so that only a
// settle that ran into some does.
const onKnown = `on conflict (id, fence, sub) do nothing`

// applySQL carries out any other batch of changes. end() is decided here, from
// what the locked row says; decide.End is its twin.
const applySQL = `with i as (
    select * from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
        $8::bigint[], $9::text[], $10::text[], $11::text[], $12::text[], $13::bigint[], $14::text[], $15::text[], $16::text[],
        $17::bigint[], $18::bigint[], $19::bigint[], $20::bigint[], $21::bigint[], $22::bigint[], $23::text[], $24::text[],
        $25::text[], $26::bigint[], $27::bigint[], $28::bigint[], $29::bigint[], $30::text[], $31::text[], $32::text[],
        $33::bigint[], $34::bigint[], $35::text[], $36::text[], $37::text[], $38::bigint[])
        with ordinality as u(id, fence, was, idle, goal, goal_reason, spent,
        wait, not_before, lane, provider, account, encoding, first_sent, resolve_until, ledger,
        open, waived, lease, lookups, move, kind, r_provider, r_account,
        provider_id, outcome, scope, stage, status, code, detail, words,
        floor, took, request, actor, why, ends, n)
), r as materialized (
    select i.*, q.tid, greatest(q.ended, i.ends) as ended, q.deadline, q.budget, clock_timestamp() as now from i left join lateral (
        select q.ctid as tid, q.ended, q.deadline, q.budget from {schema}.queue q
        where q.id = i.id::uuid and q.fence = i.fence and q.state + 0 = i.was
            and (i.idle = 0 or coalesce(q.lease <= clock_timestamp(), true))
        limit 1 for update
    ) q on true
), e as materialized (
    select r.*, case
        when r.goal = 1 and r.ended <> 0 and r.waived = 0 then 7
        when r.goal = 1 and (r.ended <> 0 or r.deadline <= r.now or r.spent >= r.budget) then 5
        when r.goal = 5 and r.goal_reason = 1 and r.ended <> 0 then 7
        else r.goal end as state
    from r
), p as materialized (
    select e.*, case
        when e.state not in (4, 5) then 0
        when e.goal <> 1 then e.goal_reason
        when e.ended <> 0 then 5
        when e.waived > 0 then 4
        when e.deadline <= e.now then 3
        else 2 end as reason,
        least(greatest(e.now + e.wait * interval '1 microsecond', nullif(e.not_before, '')::timestamptz),
            case e.state when 1 then e.deadline else nullif(e.resolve_until, '')::timestamptz end) as due
    from e
), gone as (
    delete from {schema}.queue q where q.ctid = any(array(select p.tid from p where p.tid is not null and p.state >= 4))
    returning q.id, q.notify
), asked as (
    insert into {schema}.notice (id, event, reason)
    select gone.id, e.event, p.reason from gone join p on p.id::uuid = gone.id and p.tid is not null
    cross join lateral (select case p.state when 4 then 4 when 5 then 2 when 6 then 1 else 8 end as event) e
    where gone.notify & e.event <> 0
), kept as (
    update {schema}.queue q
    set state = p.state, due = p.due, spent = p.spent, lane = p.lane, claim = null, open = p.open, waived = p.waived,
        ended = p.ended,
        ledger = nullif(p.ledger, '')::jsonb, lookups = p.lookups,
        fence = q.fence + case when p.lease > 0 then 1 else 0 end,
        lease = case when p.lease > 0 then p.now + p.lease * interval '1 microsecond' end,
        provider = case p.state when 3 then p.provider else q.provider end,
        account = case p.state when 3 then p.account else q.account end,
        encoding = case p.state when 3 then p.encoding else q.encoding end,
        first_sent = case p.state when 3 then nullif(p.first_sent, '')::timestamptz end,
        resolve_until = case p.state when 3 then nullif(p.resolve_until, '')::timestamptz end
    from p where q.ctid = p.tid and p.state in (1, 3)
    returning q.id
), done as (
    select gone.id from gone union all select kept.id from kept
), park as (
    insert into {schema}.parked (id, parked_at, deadline, first_sent, fence, state, reason, spent, budget, encoding, open, waived,
        ended, lane, provider, account, ledger)
    select p.id::uuid, p.now, p.deadline, nullif(p.first_sent, '')::timestamptz, p.fence, p.state, p.reason, p.spent, p.budget,
        p.encoding, p.open, p.waived, p.ended, p.lane, nullif(p.provider, ''), nullif(p.account, ''), nullif(p.ledger, '')::jsonb
    from p join gone on gone.id = p.id::uuid where p.tid is not null and p.state in (4, 5)
), told as (
    insert into {schema}.history (id, at, fence, sub, kind, move, state, reason, outcome, scope, stage, wait, floor, provider,
        account, provider_id, status, code, detail, words, took, request, actor, why)
    select p.id::uuid, p.now, p.fence, case when p.kind in (1, 2) then 0 else nextval({event_number}) end,
        case p.kind when 0 then 7 else p.kind end, p.move, p.state, p.reason,
        case when p.kind in (1, 2, 4) then p.outcome end, case when p.kind = 1 then p.scope end,
        case when p.kind in (1, 2) then p.stage end,
        case when p.state in (1, 3) then (extract(epoch from p.due - p.now) * 1000000)::bigint end, nullif(p.floor, 0),
        nullif(p.r_provider, ''), nullif(p.r_account, ''), nullif(p.provider_id, ''), nullif(p.status, 0), nullif(p.code, ''),
        nullif(p.detail, ''), nullif(p.words, ''), case when p.kind in (1, 4) then p.took end,
        decode(nullif(p.request, ''), 'hex'), nullif(p.actor, ''), nullif(p.why, '')
    from p join done on done.id = p.id::uuid where p.tid is not null and (p.kind <> 0 or p.state >= 4)
    on conflict (id, fence, sub) do nothing
)
select p.n, p.tid is not null, d.id is not null, p.state::bigint, p.reason::bigint, clock_timestamp()
from p left join done d on d.id = p.id::uuid and p.tid is not null order by p.n`

// pageSQL has no state condition in its page: with one, a statement would walk
// the whole backlog when nothing has expired.
const pageSQL = `with d as materialized (
    select q.* from {schema}.queue q
    where q.lane = $1::text and (q.due, q.id) > (coalesce($2::text::timestamptz, '-infinity'), $3::text::uuid)
        and q.due <= (select clock_timestamp())
    order by q.due, q.id limit {page}
), s as (
    select count(*) as n, (array_agg(d.due order by d.due desc, d.id desc))[1] as due,
        (array_agg(d.id order by d.due desc, d.id desc))[1] as id
    from d
), x as (
    select d.* from d where case d.state
        when 1 then d.ended <> 0 or d.spent >= d.budget or coalesce(d.deadline <= clock_timestamp(), false)
        else coalesce(d.lease <= clock_timestamp(), true) end
)
select s.n, s.due, s.id, x.id, x.due, x.claimed, x.lease, x.deadline, x.resolve_until, x.fence::bigint, x.spent::bigint,
    x.budget::bigint, x.lookups::bigint, x.ended::bigint, x.state::bigint, coalesce(x.provider, ''), coalesce(x.account, ''),
    coalesce(x.encoding, 0)::bigint, x.ledger::text, m.on_unknown::bigint, m.on_unknown_after, m.pinned is not null,
    m.senders::text, m.created_at, clock_timestamp()
from s left join x on true left join {schema}.message m on m.id = x.id
order by x.due, x.id`

const loadSQL = `select m.content, coalesce(m.senders ->> $2::text, ''), m.metadata::text, coalesce(m.trace, ''),
    coalesce(m.seal_key, ''), case when m.seal_key is not null then m.digest end
from {schema}.message m where m.id = $1::text::uuid`
