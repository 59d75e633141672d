-- On which rung the host is known to have taken a bell, and whose bell it was when another's.
alter table deliveries add column rendered_by text;
alter table deliveries add column via text;

-- When an ASK or BLOCKER that nobody read is due for its next step: null once there is none.
alter table signal_queue add column escalate_at integer;
-- 0: none yet, 1: its recipient was rung on a further rung, 2: the operator was told.
alter table signal_queue add column escalation integer not null default 0;
alter table signal_queue add column escalated_at integer;
-- When the operator's command was run for it.
alter table signal_queue add column notified_at integer;

create index ix_signal_escalates on signal_queue (escalate_at)
    where escalate_at is not null and drained_at is null and ended_at is null;
create index ix_signal_at_operator on signal_queue (escalated_at)
    where escalation = 2 and drained_at is null and ended_at is null;
create index ix_signal_unnotified on signal_queue (escalated_at)
    where escalation = 2 and notified_at is null and drained_at is null and ended_at is null;
