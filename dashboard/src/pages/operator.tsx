// Operator: what was captured of the operator's words, to be reviewed, and what it all says about the agents.
import { useState } from 'preact/hooks';
import { project } from '../api';
import { asked, Choice, Range, since } from '../parts/filters';
import { Batch, InputItem, useJudged } from '../parts/input';
import { Empty, Head, Panel, SaveCsv, Trouble } from '../parts/panel';
import { CALM_MS, useList, useRead } from '../read';
import { param, setParams } from '../route';
import { EVERYWHERE, type InputRow, type ListInputs } from '../wire';
import {
  ConfirmationRate,
  CorrectionPatterns,
  DeadEnds,
  Misclassification,
  PrismVsNative,
  RecallPanel,
  RepeatCorrections,
} from './operator/panels';

const NONE: InputRow[] = [];
/** Rows before the panels below; the rest comes on demand. */
const FIRST = 6;

export function Operator() {
  const range = since('28d');
  const bucket = (param('bucket') || 'day') as 'hour' | 'day' | 'week';
  const metrics = useRead('metrics', { bucket, ...(range ? { since: range } : {}) }, ['memory', 'review', 'recall'], {
    calm: CALM_MS,
  });
  const m = metrics.data;
  return (
    <>
      <Head name="Operator" lead="What you said, whether it was understood, and whether it helped." />
      <Review />
      <div class="filters">
        <Range all="last 28 days" />
        <Choice name="bucket" label="By" all="day" options={['hour', 'week']} />
      </div>
      <Trouble problem={metrics.problem} again={metrics.again} />
      {metrics.slow && <p class="slow">Reading…</p>}
      {m && (
        <div class={`masonry ${metrics.stale ? 'stale' : ''}`}>
          <ConfirmationRate of={m} />
          <Misclassification of={m} />
          <CorrectionPatterns of={m} />
          <RepeatCorrections of={m} />
          <PrismVsNative of={m} />
          <DeadEnds of={m} />
          <RecallPanel of={m} />
        </div>
      )}
    </>
  );
}

function Review() {
  const which = param('review') || 'unreviewed';
  const ask = { ...asked({ class: param('class'), identity: param('identity') }), review: which } as ListInputs;
  const list = useList(
    'input_list',
    ask,
    ['review', 'memory'],
    (a) => a.inputs,
    (i) => i.id,
  );
  const [all, setAll] = useState(false);
  const [selected, setSelected] = useState<Set<string>>(new Set());
  const [everyRow, judged] = useJudged(list.data?.rows ?? NONE);
  const rows = all ? everyRow : everyRow.slice(0, FIRST);
  const chosen = rows.filter((r) => selected.has(r.id));
  const select = (id: string, on: boolean) =>
    setSelected((s) => {
      const next = new Set(s);
      if (on) next.add(id);
      else next.delete(id);
      return next;
    });
  return (
    <Panel
      title={which === 'unreviewed' ? 'Unreviewed' : 'Inputs'}
      bare
      about="What agents took for your corrections, confirmations and changes of direction. Accept what is one; reject what is not, and the agent is told."
      tools={
        <SaveCsv
          name="inputs"
          of={() => ({
            columns: ['id', 'project', 'at', 'class', 'words', 'while', 'by', 'surface', 'confidence', 'review'],
            rows: rows.map((r) => [
              r.id,
              r.pid,
              r.captured_at,
              r.class,
              r.prompt_text,
              r.triggered_action,
              r.captured_via,
              r.surface,
              r.confidence,
              r.operator_review,
            ]),
          })}
        />
      }
    >
      <div class="inside filters">
        <Choice name="review" label="Show" all="unreviewed" options={['accepted', 'rejected', 'all']} />
        <Choice name="class" label="Class" options={['correction', 'confirmation', 'direction_pivot']} />
        {param('identity') && (
          <button type="button" onClick={() => setParams({ identity: '' })}>
            Only {param('identity')} ✕
          </button>
        )}
        {rows.length > 1 && (
          <button
            class="plain"
            type="button"
            onClick={() => setSelected(selected.size ? new Set() : new Set(rows.map((r) => r.id)))}
          >
            {selected.size ? 'Select none' : `Select all ${rows.length}`}
          </button>
        )}
      </div>
      <Trouble problem={list.problem} again={list.again} />
      {list.slow && <p class="slow">Reading…</p>}
      {list.data && rows.length === 0 && (
        <Empty title={which === 'unreviewed' ? 'Everything is reviewed.' : 'Nothing like that.'}>
          Agents capture your words with <code>prism_operator_input</code> when you correct, confirm or redirect them;
          they wait here for a yes or a no.
        </Empty>
      )}
      <ul class={`rows ${list.stale ? 'stale' : ''}`}>
        {rows.map((i) => (
          <InputItem
            key={i.id}
            input={i}
            onJudged={judged}
            showProject={project.value === EVERYWHERE}
            selected={selected.has(i.id)}
            onSelect={(on) => select(i.id, on)}
          />
        ))}
      </ul>
      {chosen.length > 0 && (
        <div class="inside">
          <Batch inputs={chosen} onJudged={judged} onDone={() => setSelected(new Set())} />
        </div>
      )}
      {everyRow.length > rows.length ? (
        <p class="empty">
          <button type="button" onClick={() => setAll(true)}>
            Show all {everyRow.length}
            {list.data?.next ? ' and older' : ''}
          </button>
        </p>
      ) : (
        list.data?.next && (
          <p class="empty">
            <button type="button" onClick={list.more}>
              Older
            </button>
          </p>
        )
      )}
    </Panel>
  );
}
