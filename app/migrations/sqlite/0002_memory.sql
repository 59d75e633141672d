-- What agents did and learned.
create table session_deltas (
    id                      text primary key,
    tenant_id               text not null references tenants(id),
    project_id              text not null references projects(id),
    session_id              text references sessions(id),
    identity                text not null,
    surface                 text not null,
    delta_kind              text not null check (delta_kind in ('start','wrap','checkpoint','pickup','bootstrap_only','note','integration_narrative','other')),
    summary                 text not null,
    next                    text,
    open_loops              text not null default '[]',
    touched_files           text not null default '[]',
    touched_files_source    text not null default 'none' check (touched_files_source in ('caller','git','none')),
    operator_visible_effect text,
    tried_and_ruled_out     text not null default '[]',
    subject                 text,
    tags                    text not null default '[]',
    -- The three answers of an integration narrative.
    operator_sees           text,
    pieces                  text not null default '[]',
    would_break_it          text,
    created_at              integer not null,
    check (delta_kind <> 'integration_narrative' or (operator_sees is not null and would_break_it is not null and pieces <> '[]'))
);
create index ix_deltas_project on session_deltas (project_id, created_at desc);
create index ix_deltas_session on session_deltas (session_id, created_at);

-- What the operator said of it.
create table operator_confirmations (
    id             text primary key,
    tenant_id      text not null references tenants(id),
    project_id     text not null references projects(id),
    session_id     text references sessions(id),
    refers_to_kind text not null check (refers_to_kind in ('delta','signal','spec','commit')),
    refers_to_id   text not null,
    verdict        text not null check (verdict in ('works','broken','partial')),
    notes          text,
    confirmed_by   text not null,
    confirmed_via  text not null,
    directness     text not null check (directness in ('direct','reported')),
    on_own_delta   integer not null default 0,
    confirmed_at   integer not null
);
create index ix_operator_confirmations_refers_to on operator_confirmations (refers_to_kind, refers_to_id);

create table operator_inputs (
    id               text primary key,
    tenant_id        text not null references tenants(id),
    project_id       text not null references projects(id),
    session_id       text references sessions(id),
    captured_via     text not null,
    captured_at      integer not null,
    class            text not null check (class in ('correction','confirmation','direction_pivot')),
    prompt_text      text not null,
    triggered_action text,
    reverses_delta   text references session_deltas(id),
    confidence       text not null check (confidence in ('high','low')),
    operator_review  text check (operator_review in ('accepted','rejected') or operator_review is null),
    reviewed_at      integer
);
create index ix_operator_inputs_class_created on operator_inputs (class, captured_at desc);
create index ix_operator_inputs_unreviewed on operator_inputs (captured_at desc) where operator_review is null;

-- Decisions, specs, plans, todos, journals, retros, postmortems, facts and rules.
create table artifacts (
    id         text primary key,
    tenant_id  text not null references tenants(id),
    project_id text not null references projects(id),
    session_id text references sessions(id),
    kind       text not null check (kind in ('decision','spec','plan','todo','journal','retro','postmortem','fact','rule')),
    number     integer,
    title      text not null,
    body       text not null,
    fields     text not null default '{}',
    status     text not null,
    version    integer not null default 1,
    identity   text not null,
    created_at integer not null,
    updated_at integer not null,
    unique (project_id, kind, number)
);
create table artifact_versions (
    artifact_id text not null references artifacts(id),
    version     integer not null,
    title       text not null,
    body        text not null,
    status      text not null,
    identity    text not null,
    created_at  integer not null,
    primary key (artifact_id, version)
) without rowid;

-- The recall index: one row for whatever can be recalled, with its own text.
create table memory (
    rowid      integer primary key,
    id         text not null unique,
    project_id text not null references projects(id),
    session_id text,
    kind       text not null,
    identity   text not null,
    title      text,
    text       text not null,
    created_at integer not null,
    hidden     integer not null default 0
);
create index ix_memory_project on memory (project_id, created_at);
create index ix_memory_session on memory (session_id, created_at) where session_id is not null;
create virtual table memory_fts using fts5 (title, body, label, tokenize = 'porter unicode61', content = '', contentless_delete = 1);

-- One vector a field; the embedder works through the intents.
create table memory_fields (
    memory_id text not null references memory(id),
    field     text not null,
    ordinal   integer not null,
    text      text not null,
    primary key (memory_id, ordinal)
) without rowid;
create table embed_intents (
    memory_id text primary key references memory(id),
    queued_at integer not null
) without rowid;

-- The trigraph: canonical entities, edges, and how long a row was true.
create table entities (
    id         integer primary key,
    project_id text not null references projects(id),
    type       text not null,
    name       text not null,
    unique (project_id, type, name)
);
-- Nodes are ids of rows, or `entity:<id>`, `signal:<id>`, `session:<id>`, `attempt:<delta>#<n>`.
create table edges (
    src        text not null,
    kind       text not null check (kind in ('CONFIRMS','LABELS','COMBINES','RULED_OUT_IN','REPLIES_TO','MENTIONS','SUPERSEDES','REFERENCES_RECALL')),
    dst        text not null,
    project_id text not null references projects(id),
    created_at integer not null,
    primary key (src, kind, dst)
) without rowid;
create index ix_edges_back on edges (dst, kind, src);
create table entity_states (
    node          text primary key,
    valid_from    integer not null,
    valid_until   integer,
    superseded_by text
) without rowid;

-- Every recall, and what came of it. The question stands here and nowhere else.
create table memory_recall_events (
    id          text primary key,
    tenant_id   text not null references tenants(id),
    project_id  text not null references projects(id),
    session_id  text,
    identity    text not null,
    surface     text not null,
    query       text not null,
    results     text not null,
    latency_us  integer not null,
    tokens      integer not null,
    occurred_at integer not null
);
create index ix_recall_session on memory_recall_events (session_id, occurred_at);
create table memory_citations (
    recall_event_id text not null references memory_recall_events(id),
    result_id       text not null,
    purpose         text,
    identity        text not null,
    cited_at        integer not null,
    primary key (recall_event_id, result_id)
) without rowid;
