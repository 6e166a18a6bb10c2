-- notice: what the application wants to hear of, written by the statement that
-- made it true, and kept until the application has taken it.
create table {schema}.notice (
    number bigint generated always as identity primary key,
    id uuid not null,
    event smallint not null,                -- 1 sent, 2 dead, 4 held, 8 cancelled, 16 undelivered, 32 delivered
    reason smallint not null default 0,
    tries smallint not null default 0,
    at timestamptz not null default clock_timestamp(),
    due timestamptz not null default clock_timestamp(),
    detail text
);

create index notice_due on {schema}.notice (due, number);

insert into {schema}.migration (version) values (4);
