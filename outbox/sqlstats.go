package outbox

// lanesDepthSQL looks at the first entries of each lane, {bound} at most, which
// is all of it where they are fewer. What is claimed was due first, so that it
// lies among them too. Where they are as many, the entries at the lane's end
// that are not due (not overdue) are counted, to the same bound.
const lanesDepthSQL = `with recursive l as (
    (select q.lane from {schema}.queue q order by q.lane limit 1)
    union all
    select (select q.lane from {schema}.queue q where q.lane > l.lane order by q.lane limit 1) from l where l.lane is not null
), f as materialized (
    select l.lane, w.*
    from l cross join lateral (
        select count(*) as n, count(*) filter (where w.state = 2) as sending, count(*) filter (where w.state = 3) as unknown,
            min(w.claimed) filter (where w.state = 2) as claimed, min(w.first_sent) filter (where w.state = 3) as first_sent,
            min(w.due) filter (where w.state = 1) as due,
            count(*) filter (where w.state = 1 and w.due <= clock_timestamp()) as ready,
            count(*) filter (where w.state = 1 and w.due <= clock_timestamp() - $1::bigint * interval '1 microsecond') as late
        from (select q.state, q.due, q.claimed, q.first_sent from {schema}.queue q where q.lane = l.lane
            order by q.due, q.id limit {bound}) w
    ) w where l.lane is not null
)
select f.lane, f.n, f.sending, f.unknown, f.ready, f.late,
    case when f.n < {bound} then 0 else (select count(*) from (select from {schema}.queue q
        where q.lane = f.lane and q.due > (select clock_timestamp()) order by q.due limit {bound}) t) end,
    case when f.n < {bound} then 0 else (select count(*) from (select from {schema}.queue q
        where q.lane = f.lane and q.due > (select clock_timestamp() - $1::bigint * interval '1 microsecond') order by q.due limit {bound}) t) end,
    coalesce((extract(epoch from clock_timestamp() - f.due) * 1000000)::bigint, -1),
    coalesce((extract(epoch from clock_timestamp() - f.claimed) * 1000000)::bigint, -1),
    coalesce((extract(epoch from clock_timestamp() - f.first_sent) * 1000000)::bigint, -1)
from f`

// doubtsSQL counts what is unknown, for lanes that are too deep for the
// statement above.
const doubtsSQL = `select u.lane, count(*), coalesce((extract(epoch from clock_timestamp() - min(u.first_sent)) * 1000000)::bigint, -1)
from (select q.lane, q.first_sent, q.state from {schema}.queue q where q.first_sent is not null order by q.first_sent, q.id limit {bound}) u
where u.state = 3 group by u.lane`

// sizeSQL is what the database itself estimates: rows and dead rows of the
// queue and of what is parked, and the shares of the most common lanes.
const sizeSQL = `with t as (
    select c.oid, c.relname::text as name, c.reltuples from pg_catalog.pg_class c
    where c.relnamespace = (select n.oid from pg_catalog.pg_namespace n where n.nspname = $1::text)
        and c.relname in ('queue', 'parked') and c.relkind = 'r'
)
select t.name, greatest(pg_catalog.pg_stat_get_live_tuples(t.oid), t.reltuples::bigint, 0),
    pg_catalog.pg_stat_get_dead_tuples(t.oid), coalesce(s.lane, ''), coalesce(s.share, 0)::float8
from t left join lateral (
    select u.lane, u.share from pg_catalog.pg_stats s
    cross join lateral unnest(s.most_common_vals::text::text[], s.most_common_freqs) as u(lane, share)
    where s.schemaname = $1::text and s.tablename = t.name and s.attname = 'lane'
) s on true`

// parkedSQL walks the kinds of what is parked, one probe each, and counts each
// to the bound.
const parkedSQL = `with recursive k as (
    (select p.state, p.lane, p.reason from {schema}.parked p order by p.state, p.lane, p.reason limit 1)
    union all
    select n.* from k cross join lateral (
        select p.state, p.lane, p.reason from {schema}.parked p where (p.state, p.lane, p.reason) > (k.state, k.lane, k.reason)
        order by p.state, p.lane, p.reason limit 1
    ) n
)
select k.state::bigint, k.lane, k.reason::bigint,
    (select count(*) from (select from {schema}.parked p
        where p.state = k.state and p.lane = k.lane and p.reason = k.reason
        order by p.parked_at limit {bound}) c),
    (select count(*) from (select from {schema}.parked p
        where p.state = k.state and p.lane = k.lane and p.reason = k.reason
            and p.parked_at > (select clock_timestamp() - interval '1 hour')
        order by p.parked_at limit {bound}) c),
    coalesce((extract(epoch from clock_timestamp() - (select p.parked_at from {schema}.parked p
        where p.state = k.state and p.lane = k.lane and p.reason = k.reason order by p.parked_at limit 1)) * 1000000)::bigint, -1)
from k`

// waitingSQL counts what waits beside the messages: receipts to apply, receipts
// that nothing was found for, notices to tell. It comes first in the batch,
// which is one transaction, and switches the compiler off for the rest: the
// planner takes a hundred lanes for granted, and compiling for them would take
// twenty times as long as reading the few there are.
const waitingSQL = `select pg_catalog.set_config('jit', 'off', true), clock_timestamp(),
    (select count(*) from (select from {schema}.receipt r where r.due is not null limit {bound}) c),
    (select count(*) from (select from {schema}.receipt r where r.due is null and r.applied_at is null limit {bound}) c),
    (select count(*) from (select from {schema}.notice n limit {bound}) c)`

// holdbackSQL finds what keeps vacuum from removing dead rows: the oldest
// snapshot or transaction of a session, a prepared transaction, a replication
// slot, a standby's feedback. A role without pg_read_all_stats doesn't see how
// long other roles' sessions are at it.
const holdbackSQL = `select h.kind, h.name, h.age::bigint, coalesce((extract(epoch from clock_timestamp() - h.since) * 1000000)::bigint, -1)
from (
    select 'session' as kind, a.pid::text as name, greatest(age(a.backend_xmin), age(a.backend_xid)) as age, a.xact_start as since
    from pg_catalog.pg_stat_activity a
    where a.pid <> pg_catalog.pg_backend_pid() and (a.backend_xmin is not null or a.backend_xid is not null)
        and a.backend_type <> 'walsender' and (a.datid is null or a.datname = pg_catalog.current_database())
    union all
    select 'prepared', x.gid, age(x.transaction), x.prepared from pg_catalog.pg_prepared_xacts x
    where x.database = pg_catalog.current_database()
    union all
    select 'slot', s.slot_name::text, age(s.xmin), null from pg_catalog.pg_replication_slots s where s.xmin is not null
    union all
    select 'standby', r.pid::text, age(r.backend_xmin), null from pg_catalog.pg_stat_replication r where r.backend_xmin is not null
) h
order by h.since nulls last, h.age desc limit 1`
