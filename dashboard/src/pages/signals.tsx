// Signals: the searchable history, one signal opened beside it, and sending.
import { project } from '../api';
import { asked, Choice, Filters, Range, SearchBox, since, Who } from '../parts/filters';
import { CATEGORIES, Category, When } from '../parts/marks';
import { Empty, Head, SaveCsv, Trouble } from '../parts/panel';
import { FromTo, Standing } from '../parts/signal';
import { Virtual } from '../parts/virtual';
import { useList } from '../read';
import { param, setParams } from '../route';
import { exact } from '../time';
import { EVERYWHERE, type ListSignals, type SignalRow } from '../wire';
import { Compose } from './signals/compose';
import { SignalDetail } from './signals/detail';

const STATES = ['waiting', 'drained', 'acted', 'dismissed', 'expired', 'recalled', 'failed'];
const TYPES = [
  'TaskAssigned',
  'ReviewRequested',
  'ReviewCompleted',
  'Acknowledgment',
  'StatusUpdate',
  'Question',
  'Answer',
  'Loopback',
];
const ROW_PX = 64;

export function Signals() {
  const id = param('id');
  const filters = asked({
    words: param('q'),
    category: param('category'),
    state: param('state'),
    identity: param('identity'),
    signal_type: param('type'),
    since: since(),
  });
  const ask = { ...filters, ...(param('type') === 'Loopback' ? { probes: true } : {}) } as ListSignals;
  const list = useList(
    'signal_list',
    ask,
    ['signal'],
    (a) => a.signals,
    (s) => s.signal_id,
  );
  const rows = list.data?.rows ?? [];
  return (
    <>
      <Head name="Signals" lead="Everything that was sent, how far it got, and why." />
      <Compose />
      <Filters search={<SearchBox name="q" label="Search" placeholder="words in a signal, a name, a type" />}>
        <Choice name="category" label="Category" options={CATEGORIES} />
        <Choice name="state" label="State" options={STATES} />
        <Choice name="type" label="Type" options={TYPES} />
        <Range />
        <Who />
        <SaveCsv name="signals" of={() => csvOf(rows)} />
      </Filters>
      <div class={`split ${id ? 'open' : ''}`}>
        <div class="list stack">
          <Trouble problem={list.problem} again={list.again} />
          {list.slow && <p class="slow">Reading…</p>}
          {list.data && (
            <section class={`panel ${list.stale ? 'stale' : ''}`} aria-label="History">
              {rows.length === 0 ? (
                <Nothing lookedBackTo={list.data.lookedBackTo} more={list.more} />
              ) : (
                <Virtual
                  rows={rows}
                  height={ROW_PX}
                  idOf={(s) => s.signal_id}
                  draw={(s) => <Row signal={s} open={s.signal_id === id} />}
                  onEnd={list.more}
                  label="Signals"
                />
              )}
            </section>
          )}
          {rows.length > 0 && list.data?.lookedBackTo && <LookFurther to={list.data.lookedBackTo} more={list.more} />}
        </div>
        {id && <SignalDetail id={id} />}
      </div>
    </>
  );
}

function Row({ signal, open }: { signal: SignalRow; open: boolean }) {
  return (
    <div
      class="signal"
      data-row
      tabIndex={0}
      aria-current={open ? 'true' : undefined}
      onClick={() => setParams({ id: signal.signal_id })}
    >
      <Category is={signal.category} />
      <FromTo signal={signal} />
      <a
        class="quiet one-line what"
        data-open
        href={`#/signals?id=${signal.signal_id}`}
        onClick={(e) => e.preventDefault()}
      >
        {signal.summary || signal.signal_type}
      </a>
      <span class="meta">
        <Standing signal={signal} />
        {project.value === EVERYWHERE && <span class="dim small">{signal.pid}</span>}
        <When at={signal.created_at} />
      </span>
    </div>
  );
}

function Nothing({ lookedBackTo, more }: { lookedBackTo: string | undefined; more: () => void }) {
  const filtered = ['q', 'category', 'state', 'type', 'range', 'identity'].some((name) => param(name) !== '');
  if (lookedBackTo) return <LookFurther to={lookedBackTo} more={more} />;
  if (filtered)
    return (
      <Empty title="No signal is like that.">
        <button
          type="button"
          class="plain"
          onClick={() => setParams({ q: '', category: '', state: '', type: '', range: '', identity: '' })}
        >
          Clear the filters
        </button>
      </Empty>
    );
  return (
    <Empty title="No signal has been sent yet.">
      Agents send with <code>prism_signal</code>, you with the line above or <code>prism send Donna "…"</code>.{' '}
      <code>prism demo</code> shows a week of them.
    </Empty>
  );
}

function LookFurther({ to, more }: { to: string; more: () => void }) {
  return (
    <p class="empty">
      Looked back to {exact(to)}.{' '}
      <button type="button" onClick={more}>
        Look further
      </button>
    </p>
  );
}

const csvOf = (rows: SignalRow[]) => ({
  columns: ['signal_id', 'project', 'sent', 'type', 'category', 'from', 'to', 'summary', 'state', 'at'],
  rows: rows.map((s) => [
    s.signal_id,
    s.pid,
    s.created_at,
    s.signal_type,
    s.category,
    s.from_identity,
    s.to_identity,
    s.summary,
    s.state,
    s.at,
  ]),
});
