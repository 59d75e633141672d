-- Which rows a transaction writes, as open pages know them, while anybody watches: noted in a setting that ends
-- with the transaction, and read by whoever commits it.
create function note_touched() returns trigger language plpgsql as $$
declare
    noted text := coalesce(current_setting('prism.touched', true), '');
begin
    -- More than a page is told one by one: a longer list says only that it is too long.
    if length(noted) < 40000 then
        perform set_config('prism.touched', noted || tg_argv[0] || ' '
            || case when tg_op = 'DELETE' then old.rowid else new.rowid end || ';', true);
    end if;
    return null;
end $$;

create trigger note_touched after insert or update on signal_queue for each row
    when (current_setting('prism.watched', true) = 'on') execute function note_touched('signals');
create trigger note_touched after insert or update on sessions for each row
    when (current_setting('prism.watched', true) = 'on') execute function note_touched('sessions');
create trigger note_touched after insert or update on memory for each row
    when (current_setting('prism.watched', true) = 'on') execute function note_touched('memory');
create trigger note_touched after insert or update on operator_inputs for each row
    when (current_setting('prism.watched', true) = 'on') execute function note_touched('inputs');
create trigger note_touched after insert or update on memory_recall_events for each row
    when (current_setting('prism.watched', true) = 'on') execute function note_touched('recalls');
create trigger note_touched after insert or update on recallgate_events for each row
    when (current_setting('prism.watched', true) = 'on') execute function note_touched('gate');
create trigger note_touched after insert or update on loopback_runs for each row
    when (current_setting('prism.watched', true) = 'on') execute function note_touched('probes');
create trigger note_touched after insert on personas for each row
    when (current_setting('prism.watched', true) = 'on') execute function note_touched('settings');
create trigger note_touched after insert or update or delete on projects for each row
    when (current_setting('prism.watched', true) = 'on') execute function note_touched('settings');
create trigger note_touched after insert or update or delete on api_keys for each row
    when (current_setting('prism.watched', true) = 'on') execute function note_touched('settings');

-- The newest task that somebody has read and not acted on, without reading what else their inbox held.
create index ix_signal_read_tasks on signal_queue (to_persona_id, seq)
    where category = 'TASK' and drained_at is not null and acted_at is null and dismissed_at is null and ended_at is null;

-- Whose rows they are is asked once a statement, not once a row.
do $$
declare
    held_in record;
begin
    for held_in in
        select c.relname as name from pg_policy p join pg_class c on c.oid = p.polrelid
        where c.relnamespace = current_schema()::regnamespace and p.polname = 'tenant'
    loop
        execute format('alter policy tenant on %I using (tenant_id = (select this_tenant()))
                        with check (tenant_id = (select this_tenant()))', held_in.name);
    end loop;
    execute replace(pg_get_functiondef('keep_tenants_apart()'::regprocedure), '= this_tenant())', '= (select this_tenant()))');
    execute replace(pg_get_functiondef('words_held(tsquery)'::regprocedure), '= this_tenant()', '= (select this_tenant())');
end $$;
