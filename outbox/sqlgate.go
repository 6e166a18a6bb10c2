package outbox

const gatesSQL = `select g.provider, g.country::bigint, g.reason::bigint, coalesce(g.until > clock_timestamp(), true),
    g.probe_at <= clock_timestamp(), g.until, g.since, coalesce((extract(epoch from clock_timestamp() - greatest(g.opened_at, g.until)) * 1000000)::bigint, -1),
    coalesce((extract(epoch from greatest(g.opened_at, g.until) - g.since) * 1000000)::bigint, 0),
    coalesce(g.actor, ''), coalesce(g.why, '')
from {schema}.gate g`

// closeGateSQL closes a gate, or keeps a closed one closed for longer. A
// closed gate's reason only gets heavier, and its next probe stays, but for a
// wait that the provider named, before or now: no probe goes out within it.
const closeGateSQL = `insert into {schema}.gate as g (provider, country, reason, until, probe_at, actor, why)
select $1::text, $2::bigint, $3::bigint,
    case when $4::bigint >= 0 then clock_timestamp() + $4::bigint * interval '1 microsecond' end,
    clock_timestamp() + greatest($4::bigint, $5::bigint, $6::bigint) * interval '1 microsecond', nullif($7::text, ''), nullif($8::text, '')
on conflict (provider, country) do update set
    reason = case when coalesce(g.until > clock_timestamp(), true) then greatest(g.reason, excluded.reason) else excluded.reason end,
    until = case when not coalesce(g.until > clock_timestamp(), true) then excluded.until
        when g.until is null or excluded.until is null then null
        else greatest(g.until, excluded.until) end,
    since = case when coalesce(g.until > clock_timestamp(), true) then g.since else clock_timestamp() end,
    step = case when coalesce(g.until > clock_timestamp(), true) then g.step else 0 end,
    passed = 0,
    probe_at = greatest(case when g.until is null then g.probe_at else greatest(excluded.probe_at, g.until) end, excluded.until),
    actor = coalesce(excluded.actor, case when coalesce(g.until > clock_timestamp(), true) then g.actor end),
    why = coalesce(excluded.why, case when coalesce(g.until > clock_timestamp(), true) then g.why end)`

// probeGateSQL gives one worker the next probe of a closed gate.
const probeGateSQL = `update {schema}.gate g
set step = least(g.step + 1, 20),
    probe_at = clock_timestamp() + least($3::bigint * power(2, g.step), $4::bigint) * interval '1 microsecond'
where g.provider = $1::text and g.country = $2::bigint and g.until is null and g.reason <> 5 and g.probe_at <= clock_timestamp()`

// admitGateSQL counts a probe that passed, and opens the gate after enough of
// them.
const admitGateSQL = ` update {schema}.gate g
set passed = g.passed + 1, step = 0,
    probe_at = clock_timestamp() + $4::bigint * interval '1 microsecond',
    until = case when g.passed + 1 >= $3::bigint then clock_timestamp() end,
    opened_at = case when g.passed + 1 >= $3::bigint then clock_timestamp() else g.opened_at end
where g.provider = $1::text and g.country = $2::bigint and g.until is null and g.reason <> 5`

const openGateSQL = `update {schema}.gate g
set until = clock_timestamp(), opened_at = clock_timestamp(), step = 0, passed = 0, actor = nullif($2::text, ''), why = nullif($3::text, '')
where g.provider = $1::text and coalesce(g.until > clock_timestamp(), true)`

const seedRateSQL = `insert into {schema}.rate (provider, tokens) values ($1::text, $2::bigint) on conflict (provider) do nothing`

// spendRateSQL takes up to so many tokens, and says how long it takes until
// there is one more.
const spendRateSQL = `with r as (
    select r.tokens, r.at, clock_timestamp() as now from {schema}.rate r where r.provider = $1::text for update
), a as (
    select least($3::bigint, r.tokens + $2::bigint / 1000.0 * greatest(extract(epoch from r.now - r.at), 0)) as tokens, r.now from r
), g as (
    select a.tokens, least($4::bigint, floor(a.tokens)) as granted, a.now from a
), u as (
    update {schema}.rate r set tokens = g.tokens - g.granted, at = g.now from g where r.provider = $1::text
)
select g.granted::bigint, ceil(greatest(1 - (g.tokens - g.granted), 0) * 1000000000.0 / $2::bigint)::bigint from g`
