-- Metrics read the dead ends and the labels there are, not every delta and every event.
create index ix_deltas_ruled_out on session_deltas (project_id, created_at)
    where tried_and_ruled_out <> '[]';
create index ix_gate_labelled on recallgate_events (project_id, label) where label is not null;
