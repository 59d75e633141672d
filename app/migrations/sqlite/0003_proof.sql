-- What probes found, and what the gate noticed.
create table loopback_runs (
    loopback_id text primary key,
    project_id  text not null references projects(id),
    session_id  text,
    identity    text not null,
    signal_id   text not null references signal_queue(id),
    outcome     text not null check (outcome in ('complete','partial','timeout')),
    envelope    text not null,
    finished_at integer not null
);
create index ix_loopback_runs on loopback_runs (project_id, finished_at desc);

-- Ids and counts only: the question stands on the recall event alone.
create table recallgate_events (
    id               text primary key,
    tenant_id        text not null references tenants(id),
    project_id       text not null references projects(id),
    assignment_id    text not null,
    task_class       text not null check (task_class in ('tier1','tier2')),
    gate_mode        text not null check (gate_mode in ('off','advisory')),
    outcome          text not null check (outcome in ('satisfied','warned')),
    -- `ack`, `todo_add`, `material_output` or `recall`.
    trigger          text not null,
    actor_session_id text,
    actor_persona    text not null,
    actor_surface    text not null,
    recall_count     integer not null default 0,
    occurred_at      integer not null,
    -- The operator's label of a warning: 1 it was right, 0 it was not.
    label            integer check (label in (0, 1)),
    labelled_at      integer
);
create index ix_gate_time on recallgate_events (project_id, occurred_at desc);
-- Assignments whose agent has neither recalled nor produced anything yet.
create table recallgate_windows (
    project_id    text not null references projects(id),
    assignment_id text not null,
    session_id    text not null,
    task_class    text not null,
    arrived_at    integer not null,
    primary key (project_id, assignment_id, session_id)
) without rowid;
