// What the gate noticed of an assignment, and whether it was right.
import { useAct } from '../act';
import { call } from '../api';
import { count, short, words } from '../text';
import type { GateRow } from '../wire';
import { Chip, When } from './marks';
import { Trouble } from './panel';
import { signalHref } from './signal';

const TRIGGERS: Record<string, string> = {
  ack: 'at the acknowledgment',
  todo_add: 'as the todo was added',
  material_output: 'as work went out',
  recall: 'by a recall',
};

export function WarningItem({ event, showProject }: { event: GateRow; showProject?: boolean }) {
  const act = useAct();
  const { pid, id, right } = event;
  const label = (is: boolean) => act.run(() => call(pid, 'gate_label', { event_id: id, right: is }), pid, 'gate');
  const warned = event.outcome === 'warned';
  return (
    <li class="item beside-acts" data-row tabIndex={0} aria-label={`${event.outcome}: ${event.persona}`}>
      <div class="line">
        <Chip tone={warned ? 'fair' : 'good'}>
          <span aria-hidden="true">{warned ? '!' : '✓'}</span> {event.outcome}
        </Chip>
        <span class="strong">{event.persona}</span>
        <span class="dim small">
          {event.surface} · {words(event.task_class)} · {TRIGGERS[event.trigger] ?? words(event.trigger)}
        </span>
        {showProject && <span class="dim small">{pid}</span>}
        <When at={event.occurred_at} />
      </div>
      <p class="text">
        {event.assignment ?? <span class="dim">assignment {short(event.assignment_id)}, no longer kept</span>}
      </p>
      <p class="small dim">
        {warned ? 'Nothing was recalled before the work began.' : `${count(event.recall_count, 'recall')} came first.`}{' '}
        {/^[0-9a-f]{8}-/.test(event.assignment_id) && event.assignment && (
          <a href={signalHref(event.assignment_id)}>The assignment</a>
        )}
      </p>
      {warned && (
        <div class="acts">
          <button
            class="good"
            type="button"
            data-key="y"
            aria-pressed={right === true}
            aria-disabled={act.busy}
            onClick={() => void label(true)}
          >
            Right
          </button>
          <button
            class="bad"
            type="button"
            data-key="f"
            aria-pressed={right === false}
            aria-disabled={act.busy}
            onClick={() => void label(false)}
          >
            False alarm
          </button>
          {right !== null && right !== undefined && (
            <span class="dim small">You said: {right ? 'right' : 'false alarm'}.</span>
          )}
        </div>
      )}
      <Trouble problem={act.problem} />
    </li>
  );
}
