// Operator: what was captured of the operator's words, to be reviewed, and what it all says about the agents.
import type { JSX } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { project } from '../api';
import { asked, Choice, Range, since } from '../parts/filters';
import { Batch, InputItem, useJudged } from '../parts/input';
import { Below, Empty, Head, Panel, SaveCsv, Trouble } from '../parts/panel';
import { CALM_MS, useList, useRead } from '../read';
import { param, setParams } from '../route';
import { EVERYWHERE, type AskMetrics, type Change, type InputRow, type ListInputs } from '../wire';
import {
  ConfirmationRate,
  CorrectionPatterns,
  DeadEnds,
  Misclassification,
  PrismVsNative,
  RecallPanel,
  RepeatCorrections,
  type Metrics,
} from './operator/panels';

const NONE: InputRow[] = [];
/** Rows before the panels below; the rest comes on demand. */
const FIRST = 6;

export function Operator() {
  const range = since('28d');
  const bucket = (param('bucket') || 'day') as 'hour' | 'day' | 'week';
  const ask = { bucket, ...(range ? { since: range } : {}) };
  const panels = PANELS.map((panel) => usePanel(panel, ask));
  const whole = panels.every((p) => p.read.data)
    ? (Object.assign({}, ...panels.map((p) => p.read.data)) as Metrics)
    : undefined;
  const [review, setReview] = useState<{ data: unknown; problem: unknown }>({ data: undefined, problem: undefined });
  const troubled = panels.find((p) => p.read.problem)?.read;
  return (
    <>
      <Head name="Operator" lead="What you said, whether it was understood, and whether it helped." />
      <Review onCome={setReview} />
      <Below reads={[review]}>
        <div class="filters">
          <Range all="last 28 days" />
          <Choice name="bucket" label="By" all="day" options={['hour', 'week']} />
        </div>
        <Trouble problem={troubled?.problem} again={troubled?.again} />
        {panels.some((p) => p.read.slow) && <p class="slow">Reading…</p>}
        <div class={`masonry ${panels.some((p) => p.read.stale) ? 'stale' : ''}`}>
          {panels.map(({ at, Shown, metric, read }) => (
            <div key={metric} ref={at}>
              {/* While another range is being read, each panel has the buckets of its own figures. */}
              {whole && <Shown of={{ ...whole, ...(read.data as Metrics), looked_back: read.data?.looked_back ?? [] }} />}
            </div>
          ))}
        </div>
      </Below>
    </>
  );
}

type Metric = NonNullable<AskMetrics['only']>[number];

/** What each panel is counted from, and what changes it. */
const PANELS: { metric: Metric; topics: Change['what'][]; Shown: (props: { of: Metrics }) => JSX.Element }[] = [
  { metric: 'confirmations', topics: ['memory'], Shown: ConfirmationRate },
  { metric: 'misclassification', topics: ['review', 'memory'], Shown: Misclassification },
  { metric: 'corrections', topics: ['review', 'memory'], Shown: CorrectionPatterns },
  { metric: 'repeats', topics: ['review', 'memory'], Shown: RepeatCorrections },
  { metric: 'surfaces', topics: ['review', 'memory'], Shown: PrismVsNative },
  { metric: 'dead_ends', topics: ['memory'], Shown: DeadEnds },
  { metric: 'recall', topics: ['recall', 'memory'], Shown: RecallPanel },
];

/** Reads one metric; what is off the screen waits until it comes into sight. */
function usePanel({ metric, topics, Shown }: (typeof PANELS)[number], ask: AskMetrics) {
  const at = useRef<HTMLDivElement>(null);
  return { metric, Shown, at, read: useRead('metrics', { ...ask, only: [metric] }, topics, { calm: CALM_MS, at }) };
}

function Review({ onCome }: { onCome: (read: { data: unknown; problem: unknown }) => void }) {
  const which = param('review') || 'unreviewed';
  const ask = { ...asked({ class: param('class'), identity: param('identity') }), review: which } as ListInputs;
  const list = useList(
    'input_list',
    ask,
    ['review', 'memory'],
    (a) => a.inputs,
    (i) => i.id,
  );
  useLayoutEffect(() => onCome({ data: list.data, problem: list.problem }), [list.data, list.problem]);
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
            columns: ['id', 'project', 'at', 'class', 'words', 'while', 'left out', 'by', 'surface', 'confidence', 'review'],
            rows: everyRow.map((r) => [
              r.id,
              r.pid,
              r.captured_at,
              r.class,
              r.prompt_text,
              r.triggered_action,
              r.more ?? 0,
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
