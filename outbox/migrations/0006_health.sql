-- health: what providers did, in slots of ten seconds, summed by all
-- processes. Nothing reads it per claim.
create table {schema}.health (
    provider text not null,
    country smallint not null,
    slot timestamptz not null,
    calls integer not null default 0,       -- that say something about the provider
    failed integer not null default 0,      -- of them
    accepted integer not null default 0,
    fast integer not null default 0,        -- of those accepted in this slot: delivered within the limit
    slow integer not null default 0,        -- and later
    took integer[] not null default '{}',   -- calls by duration, see Durations
    primary key (provider, country, slot)
) with (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

insert into {schema}.migration (version) values (6);
