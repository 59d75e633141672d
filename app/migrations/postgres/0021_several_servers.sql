-- Which server holds a session's socket, and since when; and when its peers were told that it had left.
alter table sessions add column server_id text collate "C";
alter table sessions add column connected_at bigint;
alter table sessions add column left_at bigint;
create index ix_sessions_silent on sessions (last_seen_at) where released_at is null and left_at is null;
create index ix_sessions_of on sessions (persona_id) where released_at is null;

-- Goes up with every change of keys, projects and personas, and with sessions that begin and end: whoever was
-- not told sees it here. A server that is alone has nobody to tell.
create table directory_versions (
    tenant_id text collate "C" primary key,
    names     bigint not null default 0,
    sessions  bigint not null default 0
);
create function names_changed() returns trigger language plpgsql as $$
begin
    insert into directory_versions as v (tenant_id, names) values (coalesce(new.tenant_id, old.tenant_id), 1)
        on conflict (tenant_id) do update set names = v.names + 1;
    return null;
end $$;
create function sessions_changed() returns trigger language plpgsql as $$
begin
    insert into directory_versions as v (tenant_id, sessions) values (coalesce(new.tenant_id, old.tenant_id), 1)
        on conflict (tenant_id) do update set sessions = v.sessions + 1;
    return null;
end $$;
create trigger names_changed after insert or delete or update on api_keys
    for each row execute function names_changed();
create trigger names_changed after insert or delete or update of pid on projects
    for each row execute function names_changed();
create trigger names_changed after insert or delete or update of project_id, identity, is_operator on personas
    for each row execute function names_changed();
create trigger sessions_changed after insert or delete or update of project_id, released_at on sessions
    for each row execute function sessions_changed();

-- What one server does for all of them, until when nobody else may.
create table duties (
    tenant_id text collate "C" not null references tenants(id) deferrable,
    duty      text collate "C" not null,
    server_id text collate "C" not null,
    until     bigint not null,
    primary key (tenant_id, duty)
);

-- Until when a server is at work on it.
alter table embed_intents add column taken_until bigint;

-- Links that open the page once.
create table sign_in_links (
    link_sha256 text collate "C" primary key,
    tenant_id   text collate "C" not null references tenants(id) deferrable,
    until       bigint not null
);

-- Which server pushed a signal to a session, and how long its news was on the way there.
alter table deliveries add column pushed_by text collate "C";
alter table deliveries add column hop_us bigint;
