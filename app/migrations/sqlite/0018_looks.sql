-- A hook's brief shows the newest corrections of its project, and counts those that wait for a
-- review: neither reads other projects, nor what was reviewed long ago.
create index ix_operator_inputs_corrections on operator_inputs (project_id, captured_at desc)
    where class = 'correction';
create index ix_operator_inputs_to_review on operator_inputs (project_id, captured_via)
    where class = 'correction' and operator_review is null;

-- What waits is counted by category at every status: the index alone answers it.
drop index ix_signal_waiting;
create index ix_signal_waiting on signal_queue
    (to_persona_id, seq, leased_until, expires_at, signal_type, drained_at, ended_at, category)
    where drained_at is null and ended_at is null;
