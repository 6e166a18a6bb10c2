-- receipt: what providers tell later. Stored first, unique by the provider's
-- event; applied at once, or by a pass over what is unmatched.
create table {schema}.receipt (
    provider text not null,
    account text not null,
    event_key text not null,
    key uuid,
    provider_id text,
    kind smallint not null,
    permanent boolean not null,
    tries smallint not null default 0,
    received_at timestamptz not null default clock_timestamp(),
    due timestamptz default clock_timestamp(),  -- null once it is applied or given up
    happened_at timestamptz,
    applied_at timestamptz,
    code text,
    recipient text,
    primary key (provider, account, event_key),
    constraint receipt_names check (key is not null or provider_id is not null),
    constraint receipt_kind check (kind between 0 and 11),
    constraint receipt_applied check (applied_at is null or due is null)
);

create index receipt_due on {schema}.receipt (due) where due is not null;

insert into {schema}.migration (version) values (2);
