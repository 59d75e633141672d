// Memory: what agents would find, every row with its neighbourhood, and the operator's verdict on it.
import { project } from '../api';
import { asked, NothingHere, Range, SearchBox, since, Who } from '../parts/filters';
import { Chip, Verdict, When } from '../parts/marks';
import { Empty, Head, SaveCsv, Trouble } from '../parts/panel';
import { Judge, SomeWithoutVerdict } from '../parts/verdicts';
import { useList } from '../read';
import { param, setParams } from '../route';
import { count, words } from '../text';
import { EVERYWHERE, type ListMemory, type MemoryView } from '../wire';
import { ThingDetail } from './memory/graph';
import { Recalls } from './memory/recalls';
import { Results } from './memory/results';
import { RowDetail } from './memory/row';

export const VIEWS: [string, string, string[]][] = [
  ['', 'Everything', []],
  ['narratives', 'Narratives', ['integration_narrative']],
  ['decisions', 'Decisions', ['decision']],
  ['specs', 'Specs', ['spec']],
  ['plans', 'Plans', ['plan']],
  ['todos', 'Todos', ['todo']],
  ['postmortems', 'Postmortems', ['postmortem']],
  ['work', 'Work', ['wrap', 'checkpoint']],
  ['notes', 'Notes', ['note', 'fact', 'rule', 'journal', 'retro', 'other']],
  ['words', 'Your words', ['operator_input', 'confirmation']],
];

/** Deltas and specs can carry a verdict. */
export function refersTo(row: {
  kind: string;
  id: string;
  number?: number | null | undefined;
  refers_to?: string | null | undefined;
}): string | null {
  if (row.refers_to) return row.refers_to;
  if (row.kind === 'spec') return row.number ? `spec:SPEC-${String(row.number).padStart(3, '0')}` : null;
  return ['wrap', 'checkpoint', 'note', 'integration_narrative', 'other'].includes(row.kind) ? `delta:${row.id}` : null;
}

const NOTHING = { q: '', id: '', node: '', words: '', cited: '', recall: '' };

export function Memory() {
  const id = param('id');
  const node = param('node');
  const view = param('view');
  const query = param('q');
  return (
    <>
      <Head name="Memory" lead="What was learned, as agents find it. Your verdict decides what they find next time." />
      <SearchBox name="q" label="Recall" placeholder="Ask in plain words: what was seen, said or done" />
      <div class="tabs" role="group" aria-label="What to show">
        {VIEWS.map(([key, name]) => (
          <button
            key={key}
            type="button"
            class="plain"
            aria-pressed={view === key && query === ''}
            onClick={() => setParams({ ...NOTHING, view: key })}
          >
            {name}
          </button>
        ))}
        <button
          type="button"
          class="plain"
          aria-pressed={view === 'recalls' && query === ''}
          onClick={() => setParams({ ...NOTHING, view: 'recalls' })}
        >
          What agents asked
        </button>
      </div>
      <div class={`split ${id || node ? 'open' : ''}`}>
        <div class="list stack">
          {query ? (
            <Results query={query} />
          ) : view === 'recalls' ? (
            <Recalls />
          ) : (
            <Rows kinds={VIEWS.find(([key]) => key === view)?.[2] ?? [view]} />
          )}
        </div>
        {id ? <RowDetail id={id} /> : node && <ThingDetail node={node} pid={project.value} />}
      </div>
    </>
  );
}

function Rows({ kinds }: { kinds: string[] }) {
  const ask = {
    ...asked({ identity: param('identity'), words: param('words'), since: since() }),
    ...(kinds.length ? { kinds } : {}),
  } as ListMemory;
  const list = useList(
    'memory_list',
    ask,
    ['memory', 'review'],
    (a) => a.rows,
    (r) => r.id,
  );
  const rows = list.data?.rows ?? [];
  return (
    <>
      <div class="filters">
        <Range />
        <Who />
        <SaveCsv
          name="memory"
          of={() => ({
            columns: ['id', 'project', 'at', 'kind', 'number', 'title', 'status', 'verdict', 'by', 'text'],
            rows: rows.map((r) => [
              r.id,
              r.pid,
              r.created_at,
              r.kind,
              r.number,
              r.title,
              r.status,
              r.verdict,
              r.identity,
              r.text,
            ]),
          })}
        />
      </div>
      <Trouble problem={list.problem} again={list.again} />
      {list.slow && <p class="slow">Reading…</p>}
      <SomeWithoutVerdict of={rows.map(refersTo)} />
      {list.data && (
        <section class={`panel ${list.stale ? 'stale' : ''}`} aria-label="Rows">
          {rows.length === 0 ? (
            <NothingHere filters={['range', 'identity', 'words']}>
              <Empty title="Nothing of this kind is kept yet.">
                Agents keep what they learn with <code>prism_wrap</code>, <code>prism_decide</code>,{' '}
                <code>prism_remember</code>; you with <code>prism note</code> or <code>prism import</code>.
              </Empty>
            </NothingHere>
          ) : (
            <ul class="rows">
              {rows.map((r) => (
                <MemoryItem key={r.id} row={r} open={r.id === param('id')} />
              ))}
            </ul>
          )}
        </section>
      )}
      {list.data?.next && (
        <p class="empty">
          <button type="button" onClick={list.more}>
            Older
          </button>
        </p>
      )}
    </>
  );
}

function MemoryItem({ row, open }: { row: MemoryView; open: boolean }) {
  const about = refersTo(row);
  return (
    <li
      class={`item ${row.hidden || row.superseded_by ? 'done' : ''}`}
      data-row
      tabIndex={0}
      aria-current={open ? 'true' : undefined}
      aria-label={row.title ?? words(row.kind)}
    >
      <div class="line">
        <Chip>
          {words(row.kind)}
          {row.number ? ` ${row.number}` : ''}
        </Chip>
        <span class="strong">{row.identity}</span>
        {row.status && <span class="dim small">{row.status}</span>}
        {row.verdict && <Verdict is={row.verdict} />}
        {row.hidden && <Chip tone="bad">rejected</Chip>}
        {row.superseded_by && <Chip>superseded</Chip>}
        {project.value === EVERYWHERE && <span class="dim small">{row.pid}</span>}
        <When at={row.created_at} />
      </div>
      <a
        class="quiet"
        data-open
        href={`#/memory?id=${row.id}`}
        onClick={(e) => (e.preventDefault(), setParams({ id: row.id }))}
      >
        {row.title && <span class="strong block">{row.title}</span>}
        {row.text && row.text !== row.title && <span class="text clip">{row.text}</span>}
        {!row.title && !row.text && <span class="dim">no words</span>}
      </a>
      {row.more ? <span class="dim small">{count(row.more, 'more character')}</span> : null}
      {about && <Judge pid={row.pid} refersTo={about} />}
    </li>
  );
}
