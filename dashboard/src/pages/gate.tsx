// Gate: did agents recall before they worked, and were the warnings right?
import { asked, Choice, NothingHere, Range, since } from '../parts/filters';
import { Below, Empty, Figure, Head, Panel, SaveCsv, Trouble } from '../parts/panel';
import { Plot } from '../parts/plot';
import { WarningItem } from '../parts/warning';
import { project } from '../api';
import { CALM_MS, useList, useRead } from '../read';
import { param } from '../route';
import { count, percent } from '../text';
import { shortDay } from '../time';
import { EVERYWHERE, type AskMetrics, type GateMetrics, type ListGateEvents, type MetricsAnswer } from '../wire';
import { firstLooked, lookedBack } from './operator/panels';

export function Gate() {
  const range = since('28d');
  const numbers: AskMetrics = { only: ['gate'], ...(range ? { since: range } : {}) };
  const metrics = useRead('metrics', numbers, ['gate'], { calm: CALM_MS / 3 });
  const label = param('label');
  const ask = {
    ...asked({ outcome: param('outcome'), since: since() }),
    ...(label ? { labelled: label === 'judged' } : {}),
  } as ListGateEvents;
  const list = useList(
    'gate_list',
    ask,
    ['gate'],
    (a) => a.events,
    (e) => e.id,
  );
  const rows = list.data?.rows ?? [];
  return (
    <>
      <Head
        name="Gate"
        lead="Whether agents looked up what is known before they worked, and whether the warnings were right."
      />
      <div class="filters">
        <Choice name="outcome" label="Outcome" options={['warned', 'satisfied']} />
        <Choice name="label" label="Your judgement" options={['judged', 'open']} />
        <Range />
        <SaveCsv
          name="gate"
          of={() => ({
            columns: ['id', 'project', 'at', 'outcome', 'class', 'trigger', 'agent', 'surface', 'recalls', 'right'],
            rows: rows.map((e) => [
              e.id,
              e.pid,
              e.occurred_at,
              e.outcome,
              e.task_class,
              e.trigger,
              e.persona,
              e.surface,
              e.recall_count,
              e.right,
            ]),
          })}
        />
      </div>
      <Trouble problem={metrics.problem} again={metrics.again} />
      {metrics.data?.gate && (
        <div class="columns">
          <Precision gate={metrics.data.gate} />
          <OverTime gate={metrics.data.gate} of={metrics.data} />
        </div>
      )}
      <Below reads={[metrics]}>
        <Panel title="What the gate noticed" bare>
          <Trouble problem={list.problem} again={list.again} />
          {list.slow && <p class="slow">Reading…</p>}
          {list.data && rows.length === 0 && (
            <NothingHere filters={['outcome', 'label', 'range']}>
              <Empty title="Nothing has been noticed here.">
                An event is written when an agent acknowledges a task or adds a todo: warned when it had looked nothing
                up, satisfied when it had. <code>prism demo</code> shows some.
              </Empty>
            </NothingHere>
          )}
          <ul class={`rows ${list.stale ? 'stale' : ''}`}>
            {rows.map((e) => (
              <WarningItem key={e.id} event={e} showProject={project.value === EVERYWHERE} />
            ))}
          </ul>
          {list.data?.next && (
            <p class="empty">
              <button type="button" onClick={list.more}>
                Older
              </button>
            </p>
          )}
        </Panel>
      </Below>
    </>
  );
}

const VERDICTS: Record<string, string> = {
  ok: 'The warnings hold what they promise.',
  low: 'Too many false alarms: look at the ones you marked.',
  too_few_labels: 'Too few are judged for a verdict.',
};

function Precision({ gate }: { gate: GateMetrics }) {
  const warned = gate.warned.reduce((a, b) => a + b, 0);
  const satisfied = gate.satisfied.reduce((a, b) => a + b, 0);
  return (
    <Panel title="Precision" about="Of the warnings you judged, how many were right.">
      <dl class="figures">
        <Figure name="Right" note={`of ${count(gate.labelled, 'judged warning')}; ${gate.labels_needed} are needed`}>
          {gate.precision === null || gate.precision === undefined ? '–' : gate.precision.toFixed(2)}
        </Figure>
        <Figure name="Target" note={VERDICTS[gate.verdict] ?? gate.verdict}>
          {gate.precision_target.toFixed(1)}
        </Figure>
        <Figure name="Recalled first" note={`${satisfied} of ${count(warned + satisfied, 'assignment')}`}>
          {warned + satisfied ? percent(satisfied / (warned + satisfied)) : '–'}
        </Figure>
      </dl>
    </Panel>
  );
}

function OverTime({ gate, of }: { gate: GateMetrics; of: MetricsAnswer }) {
  const looked = { buckets: of.buckets, looked_back: of.looked_back ?? [] };
  const first = firstLooked(looked, 'gate');
  const about = lookedBack(looked, 'gate');
  return (
    <Plot
      title="Warned and satisfied"
      {...(about ? { about } : {})}
      name="gate-over-time"
      kind="bars"
      buckets={of.buckets.slice(first).map(shortDay)}
      series={[
        { name: 'satisfied', values: gate.satisfied.slice(first) },
        { name: 'warned', values: gate.warned.slice(first) },
      ]}
      empty={{
        title: 'Nothing in this time.',
        how: 'Each day shows how many assignments began with a recall and how many without.',
      }}
    />
  );
}
