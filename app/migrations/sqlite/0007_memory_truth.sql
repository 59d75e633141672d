-- Where an operator's words were captured; null: before this was kept.
alter table operator_inputs add column surface text;
update operator_inputs set surface = (select s.surface from sessions s where s.id = operator_inputs.session_id);

-- A pickup and a start look for one identity's newest rows, however many others were written since.
create index ix_deltas_identity on session_deltas (project_id, identity, created_at desc);
create index ix_deltas_wrap on session_deltas (project_id, identity, created_at desc) where delta_kind = 'wrap';

-- What was last proven to reach a session. No reference to signals or sessions: it outlives both.
create table last_proven (
    persona_id text not null,
    session_id text not null,
    state      text not null check (state in ('received','rung','rendered','drained')),
    at         integer not null,
    surface    text not null,
    evidence   text,
    signal_id  text not null,
    primary key (persona_id, session_id)
) without rowid;
create index ix_last_proven_newest on last_proven (persona_id, at desc);
insert into last_proven (persona_id, session_id, state, at, surface, evidence, signal_id)
select persona_id, session_id, state, at, surface, strategy, signal_id from (
    select s.persona_id, f.session_id, f.state, f.at, s.surface, f.strategy, f.signal_id,
        row_number() over (partition by f.session_id order by f.at desc, f.place desc) as n
    from (
        select session_id, signal_id, strategy, received_at as at, 'received' as state, 1 as place from deliveries where received_at is not null
        union all select session_id, signal_id, strategy, rung_at, 'rung', 2 from deliveries where rung_at is not null
        union all select session_id, signal_id, strategy, rendered_at, 'rendered', 3 from deliveries where rendered_at is not null
        union all select session_id, signal_id, strategy, drained_at, 'drained', 4 from deliveries where drained_at is not null
    ) f
    join sessions s on s.id = f.session_id
    join signal_queue q on q.id = f.signal_id
    where not (q.signal_type = 'Loopback' and q.in_reply_to is not null)
) where n = 1;

-- One node for a spec and one for a commit, however they are written.
create temp table renamed (old text not null, project_id text not null, type text not null, name text not null);
insert into renamed
select dst, project_id, 'spec', case when n <> '' and n not glob '*[^0-9]*' and length(n) <= 6 then cast(cast(n as integer) as text) else n end
from (select distinct dst, project_id, replace(lower(trim(substr(dst, 6))), 'spec-', '') as n from edges where dst like 'spec:%');
insert into renamed
select dst, project_id, 'commit', case when n not glob '*[^0-9a-f]*' then substr(n, 1, 7) else n end
from (select distinct dst, project_id, lower(trim(substr(dst, 8))) as n from edges where dst like 'commit:%');
insert into renamed
select 'entity:' || id, project_id, 'commit', substr(name, 1, 7) from entities where type = 'commit' and length(name) > 7 and name not glob '*[^0-9a-f]*';
insert or ignore into entities (project_id, type, name) select distinct project_id, type, name from renamed;
insert or ignore into edges (src, kind, dst, project_id, created_at)
select e.src, e.kind, 'entity:' || n.id, e.project_id, e.created_at
from renamed r join edges e on e.dst = r.old and e.project_id = r.project_id
join entities n on n.project_id = r.project_id and n.type = r.type and n.name = r.name;
delete from edges where (dst, project_id) in (select old, project_id from renamed);
delete from entities where type = 'commit' and 'entity:' || id in (select old from renamed);
drop table renamed;

-- A verdict is found by what it is about.
update memory set text = (select c.refers_to_kind || ':' || c.refers_to_id from operator_confirmations c where c.id = memory.id)
where kind = 'confirmation' and trim(text) = '';
delete from memory_fts where rowid in (select m.rowid from memory m join operator_confirmations c on c.id = m.id);
insert into memory_fts (rowid, title, body, label)
select m.rowid, m.title, m.text || char(10) || c.refers_to_kind || ':' || c.refers_to_id,
    c.confirmed_by || ' the operator verdict ' || c.verdict || ' ' || c.refers_to_kind || ':' || c.refers_to_id || ' working state'
from memory m join operator_confirmations c on c.id = m.id;
insert into memory_fields (memory_id, field, ordinal, text)
select m.id, 'refers_to', (select coalesce(max(f.ordinal) + 1, 0) from memory_fields f where f.memory_id = m.id), c.refers_to_kind || ':' || c.refers_to_id
from memory m join operator_confirmations c on c.id = m.id where c.refers_to_kind <> 'delta';
insert into embed_intents (memory_id, queued_at)
select c.id, c.confirmed_at from operator_confirmations c join memory m on m.id = c.id where c.refers_to_kind <> 'delta'
on conflict do nothing;

-- The newest verdict decides whether a row answers "what works", and an agent's report on its own work by half (bit 2048).
update memory set cues = cues & ~8 | (
    select case when c.verdict <> 'works' then 0 when c.directness = 'reported' and c.on_own_delta then 2048 else 8 end
    from operator_confirmations c where c.refers_to_kind = 'delta' and c.refers_to_id = memory.id
    order by c.confirmed_at desc, c.rowid desc limit 1)
where kind not in ('confirmation', 'operator_input')
    and exists (select 1 from operator_confirmations c where c.refers_to_kind = 'delta' and c.refers_to_id = memory.id);

-- A todo's tags and paths are lists.
update artifacts set fields = json_set(fields, '$.tags', json('[' || replace(json_quote(json_extract(fields, '$.tags')), ' ', '","') || ']'))
where kind = 'todo' and json_type(fields, '$.tags') = 'text';
update artifacts set fields = json_set(fields, '$.paths', json('[' || replace(json_quote(json_extract(fields, '$.paths')), ' ', '","') || ']'))
where kind = 'todo' and json_type(fields, '$.paths') = 'text';

-- A label on a bookkeeping row says nothing; it is one on the session.
insert or ignore into edges (src, kind, dst, project_id, created_at)
select e.src, 'LABELS', 'session:' || d.session_id, e.project_id, e.created_at
from edges e join session_deltas d on d.id = e.dst
where e.kind = 'LABELS' and d.delta_kind in ('start', 'pickup', 'bootstrap_only') and d.session_id is not null;
delete from edges where kind = 'LABELS' and dst in (select id from session_deltas where delta_kind in ('start', 'pickup', 'bootstrap_only'));
