package outbox

// sealedSQL is what ResendAsNew has to seal again: sealed content is bound to its
// message.
const sealedSQL = `select coalesce(m.seal_key, ''), m.digest, m.content from {schema}.message m
where m.id = $1::text::uuid and m.seal_key is not null and m.content is not null`

// resendSQL copies a message under a new key: content, recipient and senders
// as they were frozen, a fresh budget and validity. $3 and $4 are the content
// sealed again and its key; null copies what is there.
const resendSQL = `with m as (
    insert into {schema}.message (id, form, channel, priority, budget, on_unknown, on_unknown_after, notify, country, deadline,
        route, digest, digest_key, seal_key, recipient, recipient_hash, sender, senders, pinned, template, template_revision, trace,
        metadata, linked, content)
    select $2::text::uuid, o.form, o.channel, o.priority, o.budget, o.on_unknown, o.on_unknown_after, o.notify, o.country,
        case when o.deadline is not null then clock_timestamp() + (o.deadline - greatest(o.created_at, coalesce(o.not_before, o.created_at))) end,
        o.route, o.digest, o.digest_key, coalesce($4::text, o.seal_key), o.recipient, o.recipient_hash, o.sender, o.senders, o.pinned, o.template,
        o.template_revision, o.trace, o.metadata, o.id, coalesce($3::bytea, o.content)
    from {schema}.message o where o.id = $1::text::uuid and o.content is not null
    on conflict (id) do update set id = excluded.id
    returning id, xmax = 0 as added, linked, digest, route, priority, pinned, budget, notify, deadline
), q as (
    insert into {schema}.queue (id, lane, due, deadline, budget, notify)
    select m.id, m.route || '/' || m.priority || '/' || coalesce(m.pinned, ''), clock_timestamp(), m.deadline, m.budget, m.notify
    from m where m.added
)
select m.added, m.linked is not distinct from $1::text::uuid, m.digest = (select o.digest from {schema}.message o where o.id = $1::text::uuid),
    m.route || '/' || m.priority || '/' || coalesce(m.pinned, '')
from m`

// receiveSQL stores receipts; a repeat changes nothing.
const receiveSQL = `insert into {schema}.receipt (provider, account, event_key, key, provider_id, kind, permanent, happened_at, code, recipient)
select i.provider, i.account, i.event_key, nullif(i.key, '')::uuid, nullif(i.provider_id, ''), i.kind, i.permanent = 1,
    nullif(i.at, '')::timestamptz, nullif(i.code, ''), nullif(i.recipient, '')
from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[], $9::text[], $10::text[])
    as i(provider, account, event_key, key, provider_id, kind, permanent, at, code, recipient)
order by i.provider, i.account, i.event_key
on conflict (provider, account, event_key) do nothing`

// dueReceiptsSQL leases receipts to apply, and finds the message that each is
// about: by our reference, else by the provider's id.
const dueReceiptsSQL = `with r as (
    update {schema}.receipt r set due = clock_timestamp() + interval '30 seconds'
    where r.ctid = any(array(select w.ctid from {schema}.receipt w where w.due <= (select clock_timestamp())
        order by w.due limit 200 for update skip locked))
    returning r.*
)
select r.provider, r.account, r.event_key, coalesce(r.provider_id, ''), r.kind::bigint, coalesce(r.code, ''),
    coalesce(m.id::text, h.id::text, '')
from r
left join {schema}.message m on m.id = r.key
left join lateral (
    select h.id from {schema}.history h where h.provider_id = r.provider_id and h.provider = r.provider
        and h.account is not distinct from r.account order by h.at limit 1
) h on m.id is null
order by coalesce(m.id, h.id)`

// takeReceiptSQL marks a receipt as applied, under its lock, so that it is
// applied once.
const takeReceiptSQL = `update {schema}.receipt r set due = null, applied_at = clock_timestamp()
where r.provider = $1::text and r.account = $2::text and r.event_key = $3::text and r.due is not null`

// putOffReceiptSQL tries an unmatched receipt again, and gives up after a while:
// it stays for a person to see, with neither due nor applied_at.
const putOffReceiptSQL = `update {schema}.receipt r
set tries = least(r.tries + 1, 30000), due = case when r.received_at > clock_timestamp() - $4::bigint * interval '1 microsecond'
    then clock_timestamp() + least(power(2, least(r.tries, 6)), 60) * interval '1 second' end
where r.provider = $1::text and r.account = $2::text and r.event_key = $3::text and r.due is not null`
