-- A browser that signed in to the page has a key of its own: what it calls itself, and when it ends.
alter table api_keys add column browser text;
alter table api_keys add column expires_at integer;
-- Made by `prism demo`, and taken away by it.
alter table projects add column demo integer not null default 0;

-- The page lists what was, newest first, without reading what it does not show.
create index ix_signal_time on signal_queue (project_id, created_at);
create index ix_signal_replies on signal_queue (in_reply_to)
    where in_reply_to is not null and signal_type <> 'Loopback';
create index ix_sessions_time on sessions (project_id, created_at);
create index ix_operator_inputs_time on operator_inputs (project_id, captured_at);
create index ix_operator_confirmations_time on operator_confirmations (project_id, confirmed_at);
