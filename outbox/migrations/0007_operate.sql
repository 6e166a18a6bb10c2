-- What operators ask for: lists, counts and retention. Enqueue pays for the two
-- indexes of message; no claim touches a column of any of these.

-- Every message is in one of the two: those with their content, for the scrub
-- to find the oldest, and those without.
create index message_created on {schema}.message (created_at, id) where content is not null;
create index message_scrubbed on {schema}.message (created_at, id) where content is null;

-- By recipient, newest first: eight bytes instead of an address.
create index message_recipient on {schema}.message
    (hashtextextended(lower(coalesce(recipient, encode(recipient_hash, 'hex'))), 0), created_at);

-- What may have been accepted and is in motion. A claim doesn't change
-- first_sent, so it stays an update within its page.
create index queue_unknown on {schema}.queue (first_sent, id) where first_sent is not null;

drop index {schema}.parked_at;
create index parked_at on {schema}.parked (state, parked_at, id);
create index parked_kind on {schema}.parked (state, lane, reason, parked_at);

-- Receipts that nothing was found for, and all by their age.
create index receipt_unmatched on {schema}.receipt (received_at) where due is null and applied_at is null;
create index receipt_received on {schema}.receipt (received_at);

insert into {schema}.migration (version) values (7);
