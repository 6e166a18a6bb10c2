-- gate: the shared hold on a provider, for one country or for all (0). It is
-- closed while until is null or in the future; an open one is kept, since its
-- past decides how it opens the next time.
create table {schema}.gate (
    provider text not null,
    country smallint not null default 0,
    reason smallint not null,               -- 1 floor, 2 health, 3 circuit, 4 account, 5 paused
    step smallint not null default 0,       -- probes that failed in a row
    passed smallint not null default 0,     -- probes that passed in a row
    until timestamptz,                      -- null: until a probe passes, or a person opens it
    since timestamptz not null default clock_timestamp(),
    probe_at timestamptz not null default clock_timestamp(),
    opened_at timestamptz,
    actor text,
    why text,
    primary key (provider, country),
    constraint gate_finite check (              -- null, not infinity, is a hold without an end
        least(until, since, probe_at, opened_at) >= '1970-01-01 00:00:00+00'
        and greatest(until, since, probe_at, opened_at) < '9999-01-01 00:00:00+00'),
    constraint gate_reason check (reason between 1 and 5 and step >= 0 and passed >= 0)
);

insert into {schema}.migration (version) values (3);
