-- What a send maintains is paid on every send: smaller indexes, of what is looked for alone.

-- The waiting rows of an inbox; whether one is free is known without reading its payload.
drop index ix_signal_waiting;
create index ix_signal_waiting on signal_queue
    (to_persona_id, seq, leased_until, expires_at, signal_type, drained_at, ended_at)
    where drained_at is null and ended_at is null;

-- A sender's key, in whatever project: this database has one tenant.
drop index ux_signal_idempotency;
create unique index ux_signal_idempotency on signal_queue (idempotency_key, from_identity)
    where idempotency_key is not null;

-- Eight digits are what people quote at the least, and tell traces apart well enough.
drop index ix_signal_trace;
create index ix_signal_trace on signal_queue (substr(trace_id, 1, 8));
