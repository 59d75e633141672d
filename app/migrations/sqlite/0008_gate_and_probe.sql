-- The gate judges from rows: what a session (or a persona without one) last produced, and what it
-- had produced when it recalled.
alter table sessions add column last_output_at integer;
alter table personas add column last_output_at integer;
alter table memory_recall_events add column output_before integer;
create index ix_recall_without_session
    on memory_recall_events (identity, project_id, occurred_at) where session_id is null;

-- One event an assignment and trigger. Older homes may hold repeats: they stay, the first counts.
alter table recallgate_events add column is_first integer;
update recallgate_events set is_first = 1 where id in
    (select id from
        (select id, row_number() over
            (partition by project_id, assignment_id, trigger order by occurred_at, id) as place
         from recallgate_events)
     where place = 1);
create unique index ux_gate_event
    on recallgate_events (project_id, assignment_id, trigger) where is_first = 1;

-- Open windows are looked up by who must act, and end with the session.
create index ix_gate_windows_actor on recallgate_windows (session_id, project_id);
delete from recallgate_windows where session_id in
    (select id from sessions where released_at is not null);
