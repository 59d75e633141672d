-- Which server holds a session's socket, and since when; and when its peers were told that it had left.
alter table sessions add column server_id text;
alter table sessions add column connected_at integer;
alter table sessions add column left_at integer;
create index ix_sessions_silent on sessions (last_seen_at) where released_at is null and left_at is null;
create index ix_sessions_of on sessions (persona_id) where released_at is null;

-- Goes up with every change of keys, projects and personas, and with sessions that begin and end: whoever was
-- not told sees it here. A server that is alone has nobody to tell.
create table directory_versions (
    tenant_id text primary key,
    names     integer not null default 0,
    sessions  integer not null default 0
);

-- What one server does for all of them, until when nobody else may.
create table duties (
    tenant_id text not null references tenants(id),
    duty      text not null,
    server_id text not null,
    until     integer not null,
    primary key (tenant_id, duty)
);

-- Until when a server is at work on it.
alter table embed_intents add column taken_until integer;

-- Links that open the page once.
create table sign_in_links (
    link_sha256 text primary key,
    tenant_id   text not null references tenants(id),
    until       integer not null
);

-- Which server pushed a signal to a session, and how long its news was on the way there.
alter table deliveries add column pushed_by text;
alter table deliveries add column hop_us integer;
