package outbox

// addHealthSQL adds what a process has counted. The arrays of durations come
// as text, since an array of arrays must be rectangular.
const addHealthSQL = `insert into {schema}.health as h (provider, country, slot, calls, failed, accepted, fast, slow, took)
select i.provider, i.country, to_timestamp(floor(extract(epoch from clock_timestamp() - i.ago * interval '1 microsecond') / 10) * 10),
    sum(i.calls), sum(i.failed), sum(i.accepted), sum(i.fast), sum(i.slow), max(i.took)::integer[]
from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[])
    as i(provider, country, ago, calls, failed, accepted, fast, slow, took)
group by 1, 2, 3 order by 1, 2, 3
on conflict (provider, country, slot) do update set
    calls = h.calls + excluded.calls, failed = h.failed + excluded.failed, accepted = h.accepted + excluded.accepted,
    fast = h.fast + excluded.fast, slow = h.slow + excluded.slow,
    took = (select coalesce(array_agg(coalesce(h.took[n], 0) + coalesce(excluded.took[n], 0) order by n), '{}')
        from generate_series(1, greatest(cardinality(h.took), cardinality(excluded.took))) n)`

// healthSQL sums the window per provider and country, from where its gate last
// opened: what closed it must not close it again. ripe counts the accepted
// messages that are old enough to have been delivered in time.
const healthSQL = `with w as (
    select h.* from {schema}.health h
    left join {schema}.gate g on g.provider = h.provider and g.country = 0 and g.reason = 2
    left join {schema}.gate c on c.provider = h.provider and c.country = h.country and c.country <> 0 and c.reason = 2
    where h.slot > clock_timestamp() - $1::bigint * interval '1 microsecond'
        and h.slot >= coalesce(greatest(g.opened_at, case when g.until <= clock_timestamp() then g.until end,
            case when c.until <= clock_timestamp() then c.until end), '-infinity')
), n as (
    select w.provider, w.country, t.k, sum(t.n) as n from w cross join lateral unnest(w.took) with ordinality as t(n, k) group by 1, 2, 3
), t as (
    select n.provider, n.country, array_agg(n.n order by n.k) as took from n group by 1, 2
)
select w.provider, w.country::bigint, sum(w.calls)::bigint, sum(w.failed)::bigint, sum(w.accepted)::bigint,
    coalesce(sum(w.accepted) filter (where w.slot < clock_timestamp() - ($2::bigint + 10000000) * interval '1 microsecond'), 0)::bigint,
    coalesce(sum(w.fast) filter (where w.slot < clock_timestamp() - ($2::bigint + 10000000) * interval '1 microsecond'), 0)::bigint,
    sum(w.fast)::bigint, sum(w.slow)::bigint, coalesce(t.took::text, '{}')
from w left join t on t.provider = w.provider and t.country = w.country
group by w.provider, w.country, t.took`

// trendSQL sums what is younger, by provider and step. It walks the providers
// and countries, one probe each, and then reads nothing but what it sums.
const trendSQL = `with recursive k as (
    (select h.provider, h.country from {schema}.health h order by h.provider, h.country limit 1)
    union all
    select n.* from k cross join lateral (
        select h.provider, h.country from {schema}.health h where (h.provider, h.country) > (k.provider, k.country)
        order by h.provider, h.country limit 1
    ) n
)
select k.provider, t.began, sum(t.calls)::bigint, sum(t.failed)::bigint, sum(t.accepted)::bigint
from k cross join lateral (
    select date_bin($2::bigint * interval '1 second', h.slot, '1970-01-01 00:00:00+00') as began, h.calls, h.failed, h.accepted
    from {schema}.health h
    where h.provider = k.provider and h.country = k.country
        and h.slot > (select clock_timestamp() - $1::bigint * interval '1 microsecond')
) t
group by 1, 2 order by 1, 2`

const dropHealthSQL = `delete from {schema}.health h where h.slot < clock_timestamp() - interval '1 day'`

// deliveredSQL is when a message was accepted, and where it went.
const deliveredSQL = `select (extract(epoch from clock_timestamp() - h.at) * 1000000)::bigint, m.country::bigint
from {schema}.history h join {schema}.message m on m.id = h.id
where h.id = $1::text::uuid and h.outcome = 1 and h.kind <> 5 and h.provider = $2::text
    and (select count(*) from {schema}.history d where d.id = h.id and d.kind = 5 and d.detail = 'delivered') = 1
order by h.at limit 1`
