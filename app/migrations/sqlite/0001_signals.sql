-- Who is who.
create table tenants (
    id         text primary key,
    name       text not null,
    created_at integer not null
);

create table projects (
    id         text primary key,
    tenant_id  text not null references tenants(id),
    pid        text not null,
    created_at integer not null,
    unique (tenant_id, pid)
);

create table personas (
    id              text primary key,
    tenant_id       text not null references tenants(id),
    project_id      text not null references projects(id),
    identity        text not null,
    identity_folded text not null,
    is_operator     integer not null default 0,
    -- The head of this inbox: assigned inside the transaction that writes the row.
    inbox_seq       integer not null default 0,
    created_at      integer not null,
    unique (project_id, identity_folded)
);

create table api_keys (
    id         text primary key,
    tenant_id  text not null references tenants(id),
    -- Null for the operator's key.
    identity   text,
    key_sha256 text not null unique,
    prefix     text not null,
    created_at integer not null,
    revoked_at integer
);

create table sessions (
    id             text primary key,
    tenant_id      text not null references tenants(id),
    project_id     text not null references projects(id),
    persona_id     text not null references personas(id),
    identity       text not null,
    surface        text not null,
    machine_id     text not null,
    process_pid    integer not null,
    name           text,
    created_at     integer not null,
    last_seen_at   integer not null,
    first_verb_at  integer,
    last_verb_at   integer,
    released_at    integer,
    release_reason text
);
create index ix_sessions_persona on sessions (persona_id, created_at);
create index ix_sessions_open on sessions (last_seen_at) where released_at is null;

-- The queue. Times are microseconds since 1970, UTC.
create table signal_queue (
    id              text primary key,
    tenant_id       text not null references tenants(id),
    project_id      text not null references projects(id),
    trace_id        text not null,
    to_persona_id   text not null references personas(id),
    to_identity     text not null,
    -- Null for a row that was kept as failed: it has no place in the inbox.
    seq             integer,
    from_identity   text not null,
    from_session    text,
    signal_type     text not null,
    category        text,
    payload         text not null,
    in_reply_to     text,
    delivery_class  text not null,
    publish_path    text not null default 'queued_offline',
    idempotency_key text,
    body_sha256     text not null,
    created_at      integer not null,
    expires_at      integer not null,
    lease_id        text,
    leased_to       text,
    leased_until    integer,
    drained_at      integer,
    drained_by      text,
    acted_at        integer,
    dismissed_at    integer,
    ended_at        integer,
    ended_as        text,
    constraint ck_signal_category check (category is null or category in ('INFO','TASK','ASK','BLOCKER')),
    constraint ck_signal_class check (delivery_class in ('async','sync')),
    constraint ck_signal_ended check ((ended_at is null) = (ended_as is null) and (ended_as is null or ended_as in ('expired','recalled','failed')))
);
create unique index ux_signal_inbox on signal_queue (to_persona_id, seq);
create unique index ux_signal_idempotency on signal_queue (tenant_id, from_identity, idempotency_key) where idempotency_key is not null;
create index ix_signal_trace on signal_queue (trace_id);
create index ix_signal_waiting on signal_queue (to_persona_id, seq) where drained_at is null and ended_at is null;
create index ix_signal_expiry on signal_queue (expires_at) where drained_at is null and ended_at is null;
create index ix_signal_lease on signal_queue (lease_id) where lease_id is not null;

-- What each session of the recipient is known to have had: one row, facts as times.
create table deliveries (
    signal_id   text not null references signal_queue(id),
    session_id  text not null references sessions(id),
    pushed_at   integer,
    received_at integer,
    rung_at     integer,
    rendered_at integer,
    drained_at  integer,
    strategy    text,
    primary key (signal_id, session_id)
) without rowid;
create index ix_deliveries_session on deliveries (session_id);

-- What the columns above cannot say: acknowledgments with their notes, returned leases.
create table signal_trace_events (
    id          integer primary key,
    signal_id   text not null references signal_queue(id),
    layer       text not null,
    state       text not null,
    observed_at integer not null,
    session_id  text,
    detail      text
);
create index ix_trace_signal on signal_trace_events (signal_id);
