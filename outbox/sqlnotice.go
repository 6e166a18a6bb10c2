package outbox

// noticeSQL writes a notice in the transaction of a locked move, if the
// message asks for it.
const noticeSQL = `insert into {schema}.notice (id, event, reason, detail)
select m.id, $2::bigint, $3::bigint, nullif($4::text, '') from {schema}.message m
where m.id = $1::text::uuid and m.notify & $2::bigint <> 0`

// takeNoticesSQL leases notices to one worker, which tells the application of
// each and then removes it. A worker that dies before that leaves them to be
// told again.
const takeNoticesSQL = `with n as (
    update {schema}.notice n set due = clock_timestamp() + $1::bigint * interval '1 microsecond', tries = least(n.tries + 1, 30000)
    where n.ctid = any(array(select w.ctid from {schema}.notice w where w.due <= (select clock_timestamp())
        order by w.due, w.number limit 20 for update skip locked))
    returning n.number, n.id, n.event, n.reason, n.detail, n.at, n.tries
)
select n.number, n.id, n.event::bigint, n.reason::bigint, coalesce(n.detail, ''), n.at, n.tries::bigint, m.route, m.channel::bigint,
    coalesce(m.metadata::text, '')
from n join {schema}.message m on m.id = n.id order by n.number`

const dropNoticeSQL = `delete from {schema}.notice n where n.number = $1::bigint`

// deferNoticeSQL tries a notice again that the application didn't take.
const deferNoticeSQL = `update {schema}.notice n
set due = clock_timestamp() + least(power(2, least(n.tries, 12)), 3600) * interval '1 second'
where n.number = $1::bigint`
