-- Every row is one tenant's, and a transaction sees the rows of the tenant that it has set: by policies, which
-- the owner of the tables is under as well. Indexes over much history are built anew, which takes as long as it takes.
set local statement_timeout = 0;

-- Whose rows this transaction is about. Where nobody has said so this fails, and with it whatever asked.
create function this_tenant() returns text language sql stable parallel safe as
$$ select current_setting('prism.tenant')::uuid::text $$;

alter table tenants add constraint tenants_name unique (name);

-- A tenant's first rows come with the tenant.
delete from retention where not exists (select 1 from tenants);
delete from memory_words_counted where not exists (select 1 from tenants);

-- Gives every table its tenant, its policy, keys that count within a tenant and references that stay within one.
-- Called after every migration, so that no table is forgotten; what is as it should be stays as it is. The schema's
-- number and the list of tenants are everybody's.
create function keep_tenants_apart() returns void language plpgsql as $$
declare
    -- Whose the rows are that come from a time with one tenant.
    only_one text := (select case when count(*) = 1 then min(id) end from tenants);
    everybodys constant text[] := array['prism_schema', 'prism_moving', 'tenants'];
    held_in record;
    has_rows boolean;
    steps text[];
    references_again text[];
    last_steps text[] := '{}';
    step text;
begin
    for held_in in
        select c.oid, c.relname as name from pg_class c
        where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p')
            and c.relname <> all (everybodys)
        order by c.relname
    loop
        if not exists (select 1 from pg_attribute a
                       where a.attrelid = held_in.oid and a.attname = 'tenant_id' and not a.attisdropped) then
            execute format('select exists (select 1 from %I)', held_in.name) into has_rows;
            if has_rows and only_one is null then
                raise exception 'nobody knows whose the rows of % are', held_in.name;
            end if;
            execute format('alter table %I add column tenant_id text collate "C" not null default %L',
                           held_in.name, coalesce(only_one, ''));
        end if;
        execute format('alter table %I alter column tenant_id set default this_tenant()', held_in.name);
        if not exists (select 1 from pg_policy p where p.polrelid = held_in.oid) then
            execute format('create policy tenant on %I using (tenant_id = this_tenant())
                            with check (tenant_id = this_tenant())', held_in.name);
        end if;
        -- Whoever changes the tables sees all rows while keys and references are made.
        execute format('alter table %I no force row level security', held_in.name);
        last_steps := last_steps || format('alter table %I enable row level security', held_in.name);
        -- Words are looked up by `words_held`, which is the owner's.
        if held_in.name <> 'memory_fts' then
            last_steps := last_steps || format('alter table %I force row level security', held_in.name);
        end if;
    end loop;

    select array_agg(format('alter table %s drop constraint %I', c.conrelid::regclass, c.conname)),
           array_agg(format('alter table %s add constraint %I %s', c.conrelid::regclass, c.conname,
               regexp_replace(regexp_replace(pg_get_constraintdef(c.oid), '^FOREIGN KEY \(', 'FOREIGN KEY (tenant_id, '),
                              'REFERENCES ([^(]+)\(', 'REFERENCES \1(tenant_id, ')))
        into steps, references_again
    from pg_constraint c
    where c.connamespace = current_schema()::regnamespace and c.contype = 'f' and c.conparentid = 0
        and c.confrelid <> 'tenants'::regclass and pg_get_constraintdef(c.oid) !~ '^FOREIGN KEY \(tenant_id,';
    foreach step in array coalesce(steps, '{}') loop
        execute step;
    end loop;

    select array_agg(format('alter table %s drop constraint %I, add constraint %2$I %3$s', c.conrelid::regclass, c.conname,
               regexp_replace(pg_get_constraintdef(c.oid), '\(', '(tenant_id, ')))
        into steps
    from pg_constraint c join pg_class t on t.oid = c.conrelid
    where c.connamespace = current_schema()::regnamespace and c.contype in ('p', 'u') and c.conparentid = 0
        and t.relname <> all (everybodys) and pg_get_constraintdef(c.oid) !~ '\(tenant_id[,)]';
    foreach step in array coalesce(steps, '{}') loop
        execute step;
    end loop;

    select array_agg(format('drop index %s; %s', i.indexrelid::regclass,
               regexp_replace(pg_get_indexdef(i.indexrelid), ' USING btree \(', ' USING btree (tenant_id, ')))
        into steps
    from pg_index i join pg_class t on t.oid = i.indrelid
    where t.relnamespace = current_schema()::regnamespace and i.indisunique and t.relkind = 'r'
        and t.relname <> all (everybodys)
        and not exists (select 1 from pg_constraint c where c.conindid = i.indexrelid)
        and pg_get_indexdef(i.indexrelid) !~ ' USING btree \(tenant_id[,)]';
    foreach step in array coalesce(steps, '{}') loop
        execute step;
    end loop;

    foreach step in array coalesce(references_again, '{}') || last_steps loop
        execute step;
    end loop;
end $$;

select keep_tenants_apart();

-- What is walked by time or number is walked within a tenant.
drop index ix_sessions_open, ix_signal_expiry, ix_signal_leased, ix_signal_escalates, ix_signal_at_operator,
    ix_signal_unnotified, ix_operator_inputs_class_created, ix_operator_inputs_unreviewed, ix_embed_intents_queue,
    ix_memory_candidate, ix_memory_vectors_model, ix_edges_back, ix_edges_verdicts, ix_signal_trace;
create index ix_sessions_open on sessions (tenant_id, last_seen_at) where released_at is null;
create index ix_signal_expiry on signal_queue (tenant_id, expires_at) where drained_at is null and ended_at is null;
create index ix_signal_leased on signal_queue (tenant_id, leased_until, leased_to)
    where leased_until is not null and drained_at is null and ended_at is null;
create index ix_signal_escalates on signal_queue (tenant_id, escalate_at)
    where escalate_at is not null and drained_at is null and ended_at is null;
create index ix_signal_at_operator on signal_queue (tenant_id, escalated_at)
    where escalation = 2 and drained_at is null and ended_at is null;
create index ix_signal_unnotified on signal_queue (tenant_id, escalated_at)
    where escalation = 2 and notified_at is null and drained_at is null and ended_at is null;
create index ix_operator_inputs_class_created on operator_inputs (tenant_id, class, captured_at desc);
create index ix_operator_inputs_unreviewed on operator_inputs (tenant_id, captured_at desc) where operator_review is null;
create index ix_embed_intents_queue on embed_intents (tenant_id, attempts, queued_at);
create index ix_memory_candidate on memory
    (tenant_id, rowid, project_id, hidden, created_at, kind, cues, words, identity, session_id, id);
create index ix_memory_vectors_model on memory_vectors (tenant_id, model, memory_row);
create index ix_edges_back on edges (tenant_id, dst, kind, src);
create index ix_edges_verdicts on edges (tenant_id, dst, created_at) where kind = 'CONFIRMS';
-- Behind a policy an index serves only what can tell nobody anything of a row: to compare does, to cut does not.
create index ix_signal_trace on signal_queue (trace_id);

-- So are numbers from a list made before they are compared; by a function that stays one, since it is strict.
drop function each_of(text);
create function each_of(list text) returns table (key bigint, value text, number bigint)
language sql immutable strict rows 100 as
$$ select e.ordinality - 1, e.value, number_in(e.value) from json_array_elements_text(list::json) with ordinality e $$;

-- For the same reason the index of words is asked by the owner of the table, for the rows of this tenant.
do $$
begin
    execute format(
        'create function words_held(sought tsquery) returns table (rowid bigint)
         language sql stable security definer rows 1000 set search_path = pg_catalog, %I, pg_temp as
         ''select f.rowid from memory_fts f where f.held @@ sought and f.tenant_id = this_tenant()''',
        current_schema());
end $$;

create or replace function memory_counts_row() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        insert into memory_counts as k (project_id, rows, words) values (new.project_id, 1, new.words)
            on conflict (tenant_id, project_id) do update set rows = k.rows + 1, words = k.words + excluded.words;
    elsif tg_op = 'DELETE' then
        update memory_counts set rows = rows - 1, words = words - old.words
            where project_id = old.project_id;
    elsif old.project_id <> new.project_id then
        insert into memory_counts as k (project_id, rows, waiting, words)
            values (new.project_id, 1, (select count(*) from embed_intents where memory_id = new.id), new.words)
            on conflict (tenant_id, project_id) do update set rows = k.rows + excluded.rows,
                waiting = k.waiting + excluded.waiting, words = k.words + excluded.words;
        update memory_counts set rows = rows - 1, words = words - old.words,
            waiting = waiting - (select count(*) from embed_intents where memory_id = new.id)
            where project_id = old.project_id;
    elsif old.words <> new.words then
        update memory_counts set words = words + new.words - old.words
            where project_id = new.project_id;
    end if;
    return null;
end $$;
