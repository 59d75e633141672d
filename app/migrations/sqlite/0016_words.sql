-- How many rows of each project hold a word, by its stem: what a word tells, and what it costs to
-- look it up. Rows up to `last` are counted; those after it are few, and are counted by 256.
create table memory_words (
    stem       text not null,
    project_id text not null references projects(id),
    rows       integer not null,
    primary key (stem, project_id)
) without rowid;
create table memory_words_counted (
    last integer not null
);
insert into memory_words_counted (last) values (0);

-- Words under which a row is found and which are not shown; not known of rows that were there before.
alter table memory add column also text;

-- How many words a project's rows have: a long row holds a word more easily than a short one.
alter table memory_counts add column words integer not null default 0;
update memory_counts set words = held.words from (
        select project_id, sum(words) as words from memory indexed by ix_memory_candidate
        group by project_id
    ) held where held.project_id = memory_counts.project_id;
drop trigger memory_counts_row_added;
drop trigger memory_counts_row_removed;
drop trigger memory_counts_row_moved;
create trigger memory_counts_row_added after insert on memory begin
    insert into memory_counts (project_id, rows, words) values (new.project_id, 1, new.words)
        on conflict do update set rows = rows + 1, words = words + excluded.words;
end;
create trigger memory_counts_row_removed after delete on memory begin
    update memory_counts set rows = rows - 1, words = words - old.words
        where project_id = old.project_id;
end;
create trigger memory_counts_row_moved after update of project_id on memory
    when old.project_id <> new.project_id
begin
    insert into memory_counts (project_id, rows, waiting, words)
        values (new.project_id, 1, exists (select 1 from embed_intents where memory_id = new.id), new.words)
        on conflict do update set rows = rows + excluded.rows, waiting = waiting + excluded.waiting,
            words = words + excluded.words;
    update memory_counts set rows = rows - 1, words = words - old.words,
        waiting = waiting - exists (select 1 from embed_intents where memory_id = new.id)
        where project_id = old.project_id;
end;
create trigger memory_counts_row_changed after update of words on memory
    when old.words <> new.words and old.project_id = new.project_id
begin
    update memory_counts set words = words + new.words - old.words
        where project_id = new.project_id;
end;
