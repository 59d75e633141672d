-- Cost does not grow with history, and history does not grow without end.

-- Leases that are open: the sweep gives them back in time, a released session at once.
create index ix_signal_leased on signal_queue (leased_until, leased_to)
    where leased_until is not null and drained_at is null and ended_at is null;
-- Echoes of probes that have not ended: a finished probe takes its own with it.
create index ix_signal_echo on signal_queue (in_reply_to)
    where signal_type = 'Loopback' and ended_at is null;
-- What an agent is shown at its start is found without reading what is long done.
create index ix_operator_inputs_rejected on operator_inputs (project_id, reviewed_at)
    where operator_review = 'rejected';
create index ix_artifacts_open on artifacts (project_id, kind, created_at)
    where status not in ('done', 'dropped', 'resolved');

-- Whether anybody ever started as this persona outlives its sessions.
alter table personas add column started_at integer;
update personas set started_at =
    (select min(s.created_at) from sessions s where s.persona_id = personas.id);

-- Whoever refers to a row keeps it; these find the referrer.
create index ix_operator_confirmations_session on operator_confirmations (session_id)
    where session_id is not null;
create index ix_operator_inputs_session on operator_inputs (session_id)
    where session_id is not null;
create index ix_artifacts_session on artifacts (session_id) where session_id is not null;
create index ix_gate_assignment on recallgate_events (assignment_id);
create index ix_gate_session on recallgate_events (actor_session_id)
    where actor_session_id is not null;
create index ix_loopback_runs_signal on loopback_runs (signal_id);

-- What is left of probes once their envelopes have gone.
create table loopback_days (
    project_id text not null references projects(id),
    -- Year, month and day, UTC.
    day        text not null,
    identity   text not null,
    outcome    text not null,
    runs       integer not null,
    primary key (project_id, day, identity, outcome)
) without rowid;

-- From when on old rows go: at once in a new home; where there was something already, the first
-- start sets a day, so that the operator hears of it before.
create table retention (
    id        integer primary key check (id = 1),
    begins_at integer
);
insert into retention (id, begins_at)
    select 1, case when exists (select 1 from tenants) then null else 0 end;
