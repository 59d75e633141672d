// Delivery: does what is sent arrive, by surface and machine; and a probe to see it now.
import { useState } from 'preact/hooks';
import { useAct } from '../act';
import { call, project } from '../api';
import { asked, Choice, NothingHere, Range, since } from '../parts/filters';
import { Chip, When, type Tone } from '../parts/marks';
import { Below, Empty, Figure, Head, Panel, SaveCsv, Scroll, Trouble } from '../parts/panel';
import { Plot } from '../parts/plot';
import { Sure } from '../parts/sure';
import { signalHref } from '../parts/signal';
import { CALM_MS, useList, useRead } from '../read';
import { param } from '../route';
import { count, milliseconds, percent, short, words } from '../text';
import { exact, shortDay } from '../time';
import type { DeliveryAnswer, DeliveryPlace, ListProbes, Probe, ProbeRow, SessionRow } from '../wire';

const OUTCOMES: Record<string, [string, Tone]> = {
  complete: ['✓', 'good'],
  partial: ['◐', 'fair'],
  timeout: ['✗', 'bad'],
};
const LAYERS: Record<string, string> = {
  backend_write: 'written',
  redis_publish: 'published',
  shim_tee_receipt: 'received by the shim',
  channel_notification: 'bell rung',
  model_ack: 'read by the model',
};

function Outcome({ is }: { is: string }) {
  const [mark, tone] = OUTCOMES[is] ?? ['·', ''];
  return (
    <Chip tone={tone}>
      <span aria-hidden="true">{mark}</span> {is}
    </Chip>
  );
}

export function Delivery() {
  const range = since('28d');
  const read = useRead('delivery', range ? { since: range } : {}, ['probe', 'session'], { calm: CALM_MS / 3 });
  const places = read.data?.places ?? [];
  return (
    <>
      <Head name="Delivery" lead="Whether what is sent arrives, where, and how fast." />
      <div class="filters">
        <Range all="last 28 days" />
        <Choice name="outcome" label="Runs" options={['complete', 'partial', 'timeout']} />
      </div>
      <Trouble problem={read.problem} again={read.again} />
      {read.slow && <p class="slow">Reading…</p>}
      {read.data && places.length === 0 && (
        <section class="panel">
          <Empty title="No agent has been here in this time.">
            Once one runs (<code>prism coder --as Donna -- claude</code>), it stands here with a button that probes its
            inbox, layer by layer.
          </Empty>
        </section>
      )}
      {read.data && <LookedBack of={read.data} />}
      <div class={`stack wide-gap ${read.stale ? 'stale' : ''}`}>
        {read.data &&
          places.map((p) => <Place key={`${p.surface}/${p.machine_id}`} of={p} all={read.data as DeliveryAnswer} />)}
      </div>
      <Below reads={[read]}>
        <Runs />
      </Below>
    </>
  );
}

/** Says of what there is more than counts at once. */
function LookedBack({ of }: { of: DeliveryAnswer }) {
  const said = [
    of.probes_from && `probes from ${exact(of.probes_from)} on`,
    of.signals_from && `signals from ${exact(of.signals_from)} on`,
  ].filter(Boolean);
  if (said.length === 0) return null;
  return <p class="small dim">There is more than counts at once: this counts {said.join(' and ')}.</p>;
}

function Place({ of, all }: { of: DeliveryPlace; all: DeliveryAnswer }) {
  const where = `${words(of.surface)} on ${of.machine_id}`;
  return (
    <section class="stack" aria-label={where}>
      <h2>
        {words(of.surface)} <span class="dim">on {of.machine_id}</span>
      </h2>
      <div class="columns">
        <Panel title="Arrival" of={where} table={{ name: `delivery-${of.surface}`, of: () => layersCsv(of) }}>
          <dl class="figures">
            <Figure name="Dropped" note={`${of.runs - of.complete} of ${count(of.runs, 'probe')}`}>
              {of.drop_rate === null || of.drop_rate === undefined ? '–' : percent(of.drop_rate)}
            </Figure>
            <Figure name="Last probe">{of.last_run_at ? <When at={of.last_run_at} /> : '–'}</Figure>
          </dl>
          <Times of={of} />
        </Panel>
        <Plot
          title="Probes over time"
          of={where}
          name={`probes-${of.surface}`}
          kind="bars"
          buckets={all.buckets.map(shortDay)}
          series={[
            { name: 'complete', values: of.n.map((n, i) => n - (of.dropped[i] ?? 0)) },
            { name: 'not complete', values: of.dropped },
          ]}
          empty={{ title: 'No probe in this time.', how: 'Run one from here, or with prism loopback-test.' }}
        />
      </div>
      <Sessions rows={of.sessions} where={where} />
    </section>
  );
}

const ms = (value: number | null | undefined): string =>
  value === null || value === undefined ? '–' : milliseconds(value);

function Times({ of }: { of: DeliveryPlace }) {
  return (
    <Scroll label="Time to each layer">
      <table>
        <thead>
          <tr>
            <th scope="col">Layer</th>
            <th scope="col" class="n">
              seen
            </th>
            <th scope="col" class="n">
              missing
            </th>
            <th scope="col" class="n">
              half within
            </th>
            <th scope="col" class="n">
              95% within
            </th>
          </tr>
        </thead>
        <tbody>
          {of.layers.map((l) => (
            <tr key={l.layer}>
              <td>{LAYERS[l.layer] ?? words(l.layer)}</td>
              <td class="n">{l.observed}</td>
              <td class="n">{l.missing}</td>
              <td class="n">{ms(l.p50_ms)}</td>
              <td class="n">{ms(l.p95_ms)}</td>
            </tr>
          ))}
          {of.signals.map((s) => (
            <tr key={s.state}>
              <td>signals {s.state}</td>
              <td class="n">{s.n}</td>
              <td class="n" />
              <td class="n">{ms(s.p50_ms)}</td>
              <td class="n">{ms(s.p95_ms)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

const layersCsv = (of: DeliveryPlace) => ({
  columns: ['what', 'seen', 'missing', 'p50_ms', 'p95_ms'],
  rows: [
    ...of.layers.map((l) => [l.layer, l.observed, l.missing, l.p50_ms, l.p95_ms]),
    ...of.signals.map((s) => [s.state, s.n, null, s.p50_ms, s.p95_ms]),
  ],
});

function Sessions({ rows, where }: { rows: SessionRow[]; where: string }) {
  if (rows.length === 0) return <p class="dim small">No session is open there: nothing to probe.</p>;
  return (
    <section class="panel" aria-label={`Open sessions, ${where}`}>
      <ul class="rows">
        {rows.map((s) => (
          <Session key={s.session_id} session={s} />
        ))}
      </ul>
    </section>
  );
}

function Session({ session }: { session: SessionRow }) {
  const act = useAct();
  const [probe, setProbe] = useState<Probe | null>(null);
  const run = () =>
    act.run(
      async () => setProbe(await call(session.pid, 'probe_run', { session_id: session.session_id })),
      session.pid,
      'probe',
    );
  const release = () =>
    act.run(
      () => call(session.pid, 'session_release', { session_id: session.session_id, reason: 'operator' }),
      session.pid,
      'session',
    );
  return (
    <li class="item" data-row tabIndex={0} aria-label={`${session.identity} in ${words(session.surface)}`}>
      <div class="line">
        <span class="strong">{session.identity}</span>
        <span class="dim small">
          {session.pid} · {session.state}
          {session.connected ? '' : ', no socket'} · <span class="mono">{short(session.session_id)}</span>
        </span>
        <When at={session.last_seen_at} />
        <span class="row push">
          <Sure label="Release" sure={`End ${session.identity}’s session`} busy={act.busy} run={() => void release()} />
          <button
            type="button"
            aria-disabled={act.busy}
            title="Its bell rings: that may cost a turn of the model"
            onClick={() => void run()}
          >
            Run probe
          </button>
        </span>
      </div>
      {probe && <ProbeResult of={probe} />}
      <Trouble problem={act.problem} />
    </li>
  );
}

function ProbeResult({ of }: { of: Pick<Probe, 'outcome' | 'layers'> }) {
  return (
    <div class="way" aria-live="polite">
      <p>
        <Outcome is={of.outcome} />
      </p>
      <ol>
        {Object.entries(of.layers).map(([name, seen]) => (
          <li key={name} data-reached={seen.observed ? 'yes' : 'no'}>
            <i aria-hidden="true" />
            <span>{LAYERS[name] ?? words(name)}</span>
            <small class="dim number">{seen.observed ? ms(seen.elapsed_ms) : 'not seen'}</small>
          </li>
        ))}
      </ol>
      {of.layers.channel_notification.evidence === 'sent' && (
        <p class="dim small">The bell was sent; this host cannot confirm it.</p>
      )}
      {of.layers.channel_notification.strategy && (
        <p class="dim small">Bell by {words(of.layers.channel_notification.strategy)}.</p>
      )}
    </div>
  );
}

function Runs() {
  const ask = asked({ outcome: param('outcome'), since: since() }) as ListProbes;
  const list = useList(
    'probe_list',
    ask,
    ['probe'],
    (a) => a.runs,
    (r) => r.loopback_id,
  );
  const rows = list.data?.rows ?? [];
  return (
    <Panel
      title="Runs"
      tools={
        <SaveCsv
          name="probes"
          of={() => ({
            columns: ['loopback_id', 'project', 'started', 'identity', 'surface', 'machine', 'outcome', 'missing'],
            rows: rows.map((r) => [
              r.loopback_id,
              r.pid,
              r.started_at,
              r.identity,
              r.surface,
              r.machine_id,
              r.outcome,
              r.missing_layers.join(' '),
            ]),
          })}
        />
      }
    >
      <Trouble problem={list.problem} again={list.again} />
      {list.data && rows.length === 0 && (
        <NothingHere filters={['outcome', 'range']}>
          <Empty title="No probe has run here.">
            Press “Run probe” at a session above, or <code>prism loopback-test</code>.
          </Empty>
        </NothingHere>
      )}
      {rows.length > 0 && (
        <Scroll label="Probe runs">
          <table>
            <thead>
              <tr>
                <th scope="col">When</th>
                <th scope="col">Who</th>
                <th scope="col">Where</th>
                <th scope="col">Outcome</th>
                <th scope="col">Not seen</th>
                <th scope="col" class="n">
                  To the bell
                </th>
              </tr>
            </thead>
            <tbody>
              {rows.map((r) => (
                <Run key={r.loopback_id} run={r} showProject={project.value === '*'} />
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {list.data?.next && (
        <p class="empty">
          <button type="button" onClick={list.more}>
            Older
          </button>
        </p>
      )}
    </Panel>
  );
}

function Run({ run, showProject }: { run: ProbeRow; showProject: boolean }) {
  return (
    <tr>
      <td>
        <a href={signalHref(run.signal_id)} class="quiet">
          <When at={run.started_at} />
        </a>
      </td>
      <td>
        {run.identity}
        {showProject && <span class="dim small"> {run.pid}</span>}
      </td>
      <td>
        {words(run.surface)} on {run.machine_id}
      </td>
      <td>
        <Outcome is={run.outcome} />
      </td>
      <td>{run.missing_layers.map((l) => LAYERS[l] ?? words(l)).join(', ') || '–'}</td>
      <td class="n">{ms(run.layers.channel_notification.elapsed_ms)}</td>
    </tr>
  );
}
