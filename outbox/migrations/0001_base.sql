-- The base: what a message is, what is in motion, what is parked, what
-- happened. Every name is qualified, so that it works with any search_path. The
-- quoted schema is put in wherever it stands in braces; never in a comment,
-- which a name with a line break would end.

create table {schema}.migration (
    version integer primary key check (version > 0),
    at timestamptz not null default clock_timestamp()
);

-- message: what was decided, immutable from its insert on.
create table {schema}.message (
    id uuid primary key,
    form smallint not null,                 -- version of the stored form
    channel smallint not null,              -- 1 sms, 2 email
    priority smallint not null,
    budget smallint not null,               -- sends in all
    on_unknown smallint not null,
    notify smallint not null default 0,
    country smallint not null default 0,    -- ITU calling code, 0 for none
    on_unknown_after bigint not null default 0, -- microseconds, 0 for resolve_until
    created_at timestamptz not null default clock_timestamp(),
    not_before timestamptz,
    deadline timestamptz,                   -- null is never
    scrubbed_at timestamptz,
    route text not null,
    digest bytea not null,
    digest_key text,                        -- key id of the HMAC; null is plain SHA-256
    seal_key text,                          -- key id of the encryption; null is plain
    recipient text,
    recipient_hash bytea,
    sender text,                            -- logical
    senders jsonb,                          -- provider -> registered sender; null is each provider's own
    pinned text,                            -- provider of a drill
    template text,
    template_revision text,
    trace text,
    metadata jsonb,
    supersedes uuid,
    linked uuid,
    content bytea
) with (toast_tuple_target = 2048);

-- lz4 where the server was built with it: pglz costs 0.7 ms on a 20 kB mail.
do $this_tag_is_longer_than_any_name_that_a_schema_can_have_in_postgres$
begin
    alter table {schema}.message alter column content set compression lz4;
exception when feature_not_supported or undefined_object or syntax_error or invalid_parameter_value then
    null;
end
$this_tag_is_longer_than_any_name_that_a_schema_can_have_in_postgres$;

-- The guard: one key, one message. It allows exactly one change: content to
-- null, with scrubbed_at. An update that changes nothing is how an enqueue
-- reads its twin.
create function {schema}.guard_message() returns trigger
    language plpgsql
    set search_path = ''
as $$
begin
    if new is not distinct from old then
        return new;
    end if;
    if old.content is not null and new.content is null and new.scrubbed_at is not null then
        old.content := null;
        old.scrubbed_at := new.scrubbed_at;
        if new is not distinct from old then
            return new;
        end if;
    end if;
    raise exception 'message % is frozen: a change needs a new key', old.id
        using errcode = 'check_violation', constraint = 'message_frozen';
end
$$;

create trigger message_frozen before update on {schema}.message
    for each row execute function {schema}.guard_message();

-- What would be CHECKs of message and queue stands in triggers: Postgres reads
-- the text of every CHECK of a table anew for each statement, which was 40 % of
-- the server's work for an enqueue. The errors look like a CHECK's. A search
-- path of their own would cost as much again; they use nothing but operators
-- and functions of pg_catalog.
create function {schema}.check_message() returns trigger
    language plpgsql
as $$
declare
    broken text := case
        when not octet_length(new.digest) = 32 then 'message_digest'
        when not (new.content is null) = (new.scrubbed_at is not null) then 'message_content'
        when not new.channel in (1, 2) then 'message_channel'
        when not new.priority between 1 and 3 then 'message_priority'
        when not new.budget between 1 and 100 then 'message_budget'
        when not (new.on_unknown between 1 and 4 and new.on_unknown_after >= 0) then 'message_on_unknown'
        when not (length(new.route) between 1 and 40 and length(new.pinned) between 1 and 40) then 'message_names'
        end;
begin
    if broken is null then
        return new;
    end if;
    raise exception 'message % violates %', new.id, broken
        using errcode = 'check_violation', constraint = broken, schema = tg_table_schema, table = tg_table_name;
end
$$;

create trigger message_check before insert on {schema}.message
    for each row execute function {schema}.check_message();

-- queue: only what is in motion; narrow. The claim changes no indexed column.
create table {schema}.queue (
    id uuid not null,
    due timestamptz not null,
    lease timestamptz,
    claimed timestamptz,                    -- when the last send was claimed
    deadline timestamptz,                   -- the message's
    resolve_until timestamptz,              -- unknown: null until a worker that knows the contract sets it
    first_sent timestamptz,                 -- unknown: first send that may have left, at the provider that it is bound to
    claim uuid,                             -- the claim statement, for its audit
    fence integer not null default 0,
    state smallint not null default 1,      -- 1 pending, 2 sending, 3 unknown
    spent smallint not null default 0,
    budget smallint not null,
    encoding smallint,
    lookups smallint not null default 0,
    open smallint not null default 0,       -- sends that may have been accepted
    waived smallint not null default 0,     -- the same, knowingly set aside
    ended smallint not null default 0,      -- 1 cancelled, 2 superseded: no further send
    notify smallint not null default 0,     -- the message's
    lane text collate "C" not null,         -- route/priority/provider; an empty provider is any
    provider text,
    account text,
    ledger jsonb                            -- per provider and account: first, reach, floor, digest, open or waived
) with (
    fillfactor = 33,                        -- a claimed row is up to twice as large, and must find room on its page
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_vacuum_cost_delay = 0
);

create function {schema}.check_queue() returns trigger
    language plpgsql
as $$
declare
    broken text := case
        when not case new.state
            when 1 then new.open = 0 and new.lease is null and new.claim is null
            when 2 then new.lease is not null and new.claim is not null and new.claimed is not null
                and new.provider is not null and new.account is not null and new.encoding is not null and new.spent > 0
            when 3 then new.open > 0 and new.claim is null and new.first_sent is not null
                and new.provider is not null and new.account is not null
            else false end then 'queue_state'
        when not (new.fence >= 0 and new.spent between 0 and new.budget and new.open >= 0 and new.waived >= 0
            and new.ended between 0 and 2 and new.lookups >= 0) then 'queue_counts'
        when not (new.open + new.waived = 0 or new.ledger is not null) then 'queue_ledger'
        when not (                          -- what both Postgres and Go can hold, in text too
            least(new.due, new.lease, new.claimed, new.deadline, new.resolve_until, new.first_sent) >= '1970-01-01 00:00:00+00'
            and greatest(new.due, new.lease, new.claimed, new.deadline, new.resolve_until, new.first_sent)
                < '9999-01-01 00:00:00+00') then 'queue_finite'
        end;
begin
    if broken is null then
        return new;
    end if;
    raise exception 'queue row % violates %', new.id, broken
        using errcode = 'check_violation', constraint = broken, schema = tg_table_schema, table = tg_table_name;
end
$$;

create trigger queue_check before insert or update on {schema}.queue
    for each row execute function {schema}.check_queue();

create index queue_claim on {schema}.queue (lane, due, id);
create unique index queue_id on {schema}.queue (id);

-- parked: for a person to look at.
create table {schema}.parked (
    id uuid primary key,
    parked_at timestamptz not null default clock_timestamp(),
    deadline timestamptz,
    first_sent timestamptz,
    fence integer not null,
    state smallint not null,                -- 4 held, 5 dead
    reason smallint not null,
    spent smallint not null,
    budget smallint not null,
    encoding smallint,
    open smallint not null,
    waived smallint not null,
    ended smallint not null,
    lane text collate "C" not null,
    provider text,
    account text,
    ledger jsonb,
    constraint parked_state check (state in (4, 5) and reason between 1 and 7),
    constraint parked_held check (state <> 4 or open > 0),
    constraint parked_counts check (fence >= 0 and spent between 0 and budget and open >= 0 and waived >= 0),
    constraint parked_finite check (
        least(parked_at, deadline, first_sent) >= '1970-01-01 00:00:00+00'
        and greatest(parked_at, deadline, first_sent) < '9999-01-01 00:00:00+00'),
    constraint parked_reason check (open + waived = 0 or reason in (4, 5, 6, 7))
);

create index parked_at on {schema}.parked (state, parked_at);

-- history: everything that happened to a key; append-only. sub 0 is the one
-- evidence row of the send with that fence; other rows take a number from
-- event_number.
create sequence {schema}.event_number;

create table {schema}.history (
    id uuid not null,
    at timestamptz not null default clock_timestamp(),
    sub bigint not null default 0,
    fence integer not null,
    took integer,                           -- milliseconds from the send's begin to its outcome
    status integer,
    kind smallint not null,                 -- 1 attempt, 2 swept, 3 late, 4 look-up, 5 receipt, 6 manual, 7 moved
    move smallint not null,                 -- the row of the transition table
    state smallint not null,                -- after it
    reason smallint not null default 0,
    outcome smallint,
    scope smallint,
    stage smallint,
    wait bigint,                            -- microseconds until the next try
    floor bigint,                           -- microseconds that the provider asked for
    provider text,
    account text,
    provider_id text,
    code text,
    detail text,                            -- our words; no personal data
    words text,                             -- the vendor's words; may quote a recipient
    request bytea,                          -- digest of the request's bytes
    actor text,
    why text,
    primary key (id, fence, sub)
) with (
    autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05
);

create index history_provider_id on {schema}.history (provider_id, provider) where provider_id is not null;

-- status: what an operator expects on one row.
create view {schema}.status as
select m.id,
    m.route,
    case coalesce(q.state, p.state, h.state)
        when 1 then 'pending' when 2 then 'sending' when 3 then 'unknown' when 4 then 'held'
        when 5 then 'dead' when 6 then 'sent' when 7 then 'cancelled' end as state,
    case p.reason
        when 1 then 'rejected' when 2 then 'budget' when 3 then 'deadline' when 4 then 'unresolved'
        when 5 then 'superseded' when 6 then 'dropped' when 7 then 'changed' end as reason,
    (select count(*) from {schema}.history s where s.id = m.id and s.sub = 0) as attempts,
    m.budget as max_attempts,
    coalesce(q.spent, p.spent) as spent,
    q.due as next_attempt_at,
    q.lease as leased_until,
    e.detail as last_error,
    e.status as last_status,
    e.code as last_code,
    coalesce(h.provider, q.provider, p.provider) as provider,
    r.provider_id as provider_reference,
    m.deadline,
    m.created_at,
    coalesce(p.parked_at, h.at) as changed_at
from {schema}.message m
left join {schema}.queue q on q.id = m.id
left join {schema}.parked p on p.id = m.id
left join lateral (
    select * from {schema}.history h where h.id = m.id order by h.at desc, h.fence desc, h.sub desc limit 1
) h on true
left join lateral (
    select * from {schema}.history e where e.id = m.id and e.outcome is distinct from 1 and e.detail is not null
    order by e.at desc, e.fence desc, e.sub desc limit 1
) e on true
left join lateral (
    select * from {schema}.history r where r.id = m.id and r.provider_id is not null
    order by r.at desc, r.fence desc, r.sub desc limit 1
) r on true;

insert into {schema}.migration (version) values (1);
