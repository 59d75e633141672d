-- What the fields of a row mean, one vector each. An id is never used twice: whoever holds
-- vectors in memory asks for those after the last one it has.
create table memory_vectors (
    id         integer primary key autoincrement,
    memory_row integer not null references memory(rowid),
    ordinal    integer not null,
    model      text not null,
    vector     blob not null
);
create unique index ix_memory_vectors_row on memory_vectors (memory_row, ordinal);

-- A row whose text breaks the worker is tried again only so often.
alter table embed_intents add column attempts integer not null default 0;
create index ix_embed_intents_queue on embed_intents (attempts, queued_at);

-- What kind of answer a row can be (see `cue` in core/src/memory/question.rs), and how long it is.
-- Candidates are judged by these columns alone, so they stand together in one index.
alter table memory add column cues integer not null default 0;
alter table memory add column words integer not null default 30;
update memory set words = length(text) - length(replace(text, ' ', '')) + 1;
update memory set cues = cues | 1024 where rtrim(text) like '%?';
update memory set cues = cues | 66 where kind = 'decision';
update memory set cues = cues | 16 where kind = 'integration_narrative';
update memory set cues = cues | 32 where kind = 'postmortem';
update memory set cues = cues | 256 where kind in ('operator_input', 'confirmation');
update memory set cues = cues | (select case i.class when 'correction' then 1 when 'direction_pivot' then 2 else 8 end from operator_inputs i where i.id = memory.id) where kind = 'operator_input';
update memory set cues = cues | (select case when c.verdict = 'works' then 8 else 32 end from operator_confirmations c where c.id = memory.id) where kind = 'confirmation';
update memory set cues = cues | 128 where id in (select memory_id from memory_fields where field = 'operator_visible_effect');
update memory set cues = cues | 4 where id in (select memory_id from memory_fields where field = 'tried_and_ruled_out');
update memory set cues = cues | 8 where id in (select refers_to_id from operator_confirmations where verdict = 'works');
create index ix_memory_candidate on memory (rowid, project_id, hidden, created_at, kind, cues, words, identity, session_id, id);

-- What came from a file: asked again, it is found instead of written twice.
create table imports (
    project_id text not null references projects(id),
    source     text not null,
    line_id    text not null,
    sha256     text not null,
    memory_id  text not null,
    primary key (project_id, source, line_id)
) without rowid;
