-- rate: the tokens of a provider that all processes share. Workers take them
-- in blocks; what a worker took and didn't use is lost with it.
create table {schema}.rate (
    provider text primary key,
    tokens double precision not null,
    at timestamptz not null default clock_timestamp(),
    constraint rate_tokens check (tokens >= 0)
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

insert into {schema}.migration (version) values (5);
