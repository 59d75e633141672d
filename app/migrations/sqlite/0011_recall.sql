-- How many rows each project holds, and how many of them wait for their vectors: what a word tells
-- is a matter of its project, and counting would read every row at each recall. The rows keep the
-- counts themselves, whoever writes them.
create table memory_counts (
    project_id text primary key references projects(id),
    rows       integer not null default 0,
    waiting    integer not null default 0
) without rowid;
insert into memory_counts (project_id, rows, waiting)
    select m.project_id, count(*), count(i.memory_id)
    from memory m left join embed_intents i on i.memory_id = m.id group by m.project_id;

create trigger memory_counts_row_added after insert on memory begin
    insert into memory_counts (project_id, rows) values (new.project_id, 1)
        on conflict do update set rows = rows + 1;
end;
create trigger memory_counts_row_removed after delete on memory begin
    update memory_counts set rows = rows - 1 where project_id = old.project_id;
end;
create trigger memory_counts_row_moved after update of project_id on memory
    when old.project_id <> new.project_id
begin
    insert into memory_counts (project_id, rows, waiting)
        values (new.project_id, 1, exists (select 1 from embed_intents where memory_id = new.id))
        on conflict do update set rows = rows + excluded.rows, waiting = waiting + excluded.waiting;
    update memory_counts set rows = rows - 1,
        waiting = waiting - exists (select 1 from embed_intents where memory_id = new.id)
        where project_id = old.project_id;
end;
create trigger memory_counts_queued after insert on embed_intents begin
    update memory_counts set waiting = waiting + 1
        where project_id = (select project_id from memory where id = new.memory_id);
end;
create trigger memory_counts_embedded after delete on embed_intents begin
    update memory_counts set waiting = waiting - 1
        where project_id = (select project_id from memory where id = old.memory_id);
end;

-- What recent recalls of a project brought is read without reading all there ever were.
create index ix_recall_project on memory_recall_events (project_id, occurred_at);
