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
-- What is left to review and to label, and what the operator said of one delta.
create index ix_operator_inputs_left on operator_inputs (project_id, captured_at)
    where operator_review is null;
create index ix_operator_inputs_reverses on operator_inputs (reverses_delta)
    where reverses_delta is not null;
create index ix_gate_left on recallgate_events (project_id, occurred_at)
    where outcome = 'warned' and label is null;
