// What the operator's words and verdicts say: one panel a question.
import { Chip, When } from '../../parts/marks';
import { Empty, Figure, Panel } from '../../parts/panel';
import { Plot, Ranked } from '../../parts/plot';
import { memoryHref } from '../../parts/signal';
import { number, Table } from '../../parts/table';
import { count, milliseconds, percent, words } from '../../text';
import { exact, shortDay } from '../../time';
import type { LookedBack, MetricsAnswer, Pair } from '../../wire';

/** Every metric, once all of them were read. */
export type Metrics = { [K in keyof MetricsAnswer]-?: NonNullable<MetricsAnswer[K]> };

interface Of {
  of: Metrics;
}

const VERDICTS = ['works', 'broken', 'partial'];

const sum = (lists: number[][], length: number): number[] =>
  Array.from({ length }, (_, i) => lists.reduce((total, list) => total + (list[i] ?? 0), 0));
const rate = (share: number | null | undefined): string =>
  share === null || share === undefined ? '–' : percent(share);

/** Says how far back was looked, where there is more than counts at once. */
export function lookedBack(of: Pick<Metrics, 'looked_back'>, metric: LookedBack['metric']): string {
  const back = of.looked_back.find((b) => b.metric === metric);
  if (!back) return '';
  return ` There is more than counts at once: these are the newest ${back.rows.toLocaleString('en')}, from ${exact(back.to)} on.`;
}

/** The first bucket that was looked at: days that were not are no days without anything. */
export function firstLooked(of: Pick<Metrics, 'looked_back' | 'buckets'>, metric: LookedBack['metric']): number {
  const back = of.looked_back.find((b) => b.metric === metric);
  return back ? Math.max(0, of.buckets.findLastIndex((at) => Date.parse(at) <= Date.parse(back.to))) : 0;
}

export function ConfirmationRate({ of }: Of) {
  const { series, total, works } = of.confirmations;
  const first = firstLooked(of, 'confirmations');
  const by = (verdict: string) => ({
    name: verdict,
    values: sum(
      series.filter((s) => s.verdict === verdict).map((s) => s.n),
      of.buckets.length,
    ).slice(first),
  });
  const via = [...new Set(series.map((s) => s.confirmed_via))];
  return (
    <div class="stack">
      <Plot
        title="Confirmation rate"
        about={
          total
            ? `${percent(works / total)} of ${count(total, 'verdict')} say that it works.${lookedBack(of, 'confirmations')}`
            : 'Do you find what is shipped working, or broken?'
        }
        name="confirmations"
        kind="bars"
        buckets={of.buckets.slice(first).map(shortDay)}
        series={[by('works'), by('broken'), by('partial')]}
        empty={{
          title: 'No verdict in this time.',
          how: 'Works, Broken and Partial stand on every row of Memory; prism confirm does the same.',
        }}
      />
      {via.length > 0 && (
        <Panel
          title="Verdicts by who took them"
          table={{
            name: 'verdicts-by-via',
            of: () => ({
              columns: ['via', 'verdict', 'n'],
              rows: series.map((s) => [s.confirmed_via, s.verdict, s.total]),
            }),
          }}
        >
          <Table
            label="Verdicts by who took them"
            columns={['Via', ...VERDICTS.map(number)]}
            rows={via.map((name) => ({
              key: name,
              cells: [
                name,
                ...VERDICTS.map((v) => series.find((s) => s.confirmed_via === name && s.verdict === v)?.total ?? 0),
              ],
            }))}
          />
        </Panel>
      )}
    </div>
  );
}

export function Misclassification({ of }: Of) {
  const rows = of.misclassification;
  return (
    <Panel
      title="Misclassification by agent"
      about={`How often what an agent captured was no such thing.${lookedBack(of, 'misclassification')}`}
      table={{
        name: 'misclassification',
        of: () => ({
          columns: ['agent', 'captured', 'reviewed', 'rejected', 'rate'],
          rows: rows.map((r) => [r.agent, r.captured, r.reviewed, r.rejected, r.rate]),
        }),
      }}
    >
      {rows.length === 0 ? (
        <Empty title="Nothing was captured in this time.">
          Agents appear here with the first input that you review.
        </Empty>
      ) : (
        <Table
          label="Misclassification"
          columns={['Agent', ...['captured', 'reviewed', 'rejected', 'rate'].map(number)]}
          rows={rows.map((r) => ({
            key: r.agent,
            cells: [r.agent, r.captured, r.reviewed, r.rejected, rate(r.rate)],
          }))}
        />
      )}
    </Panel>
  );
}

export function CorrectionPatterns({ of }: Of) {
  const rows = of.corrections;
  return (
    <Panel
      title="Corrections by what was being done"
      about={`What agents were at when you stopped them, grouped by the words they share.${lookedBack(of, 'corrections')}`}
      table={{
        name: 'corrections',
        of: () => ({
          columns: ['what', 'shared', 'n', 'agents'],
          rows: rows.map((r) => [r.label, r.shared.join(' '), r.total, r.agents.join(' ')]),
        }),
      }}
    >
      {rows.length === 0 ? (
        <Empty title="No correction in this time.">The work that you stop most often comes first here.</Empty>
      ) : (
        <>
          <Ranked
            rows={rows
              .slice(0, 8)
              .map((r) => ({ name: r.label || 'not noted', n: r.total, note: `${r.total} · ${r.agents.join(', ')}` }))}
          />
          <details>
            <summary>What you said</summary>
            <ul class="stack small">
              {rows
                .slice(0, 8)
                .flatMap((r) => r.examples)
                .map((e) => (
                  <li key={e.id}>
                    <a class="quiet" href={memoryHref(e.id)}>
                      “{e.text}”
                    </a>{' '}
                    <span class="dim">{e.identity}</span> <When at={e.at} />
                  </li>
                ))}
            </ul>
          </details>
        </>
      )}
    </Panel>
  );
}

export function RepeatCorrections({ of }: Of) {
  const { repeats } = of;
  return (
    <div class="stack">
      <Plot
        title="Repeat corrections"
        about={`The share of corrections, week by week, that you had typed before.${lookedBack(of, 'repeats')}`}
        name="repeat-corrections"
        kind="line"
        max={1}
        format={percent}
        buckets={repeats.weeks.map((w) => shortDay(w.week))}
        series={[
          {
            name: 'typed again',
            values: repeats.weeks.map((w) => w.rate ?? (w.corrections ? w.repeated / w.corrections : null)),
          },
        ]}
        empty={{
          title: 'No correction was typed twice.',
          how: 'When you have to say the same thing again, the week shows it here, with both times to compare.',
        }}
      />
      {repeats.pairs.length > 0 && (
        <Panel title="Said twice">
          <Pairs of={repeats.pairs} />
        </Panel>
      )}
    </div>
  );
}

function Pairs({ of }: { of: Pair[] }) {
  return (
    <ul class="stack">
      {of.slice(0, 6).map((p) => (
        <li key={p.again.id} class="quote small">
          <p>
            <a class="quiet text" href={memoryHref(p.again.id)}>
              {p.again.text}
            </a>{' '}
            <span class="dim">{p.again.identity}</span> <When at={p.again.at} />
          </p>
          <p class="dim">
            before:{' '}
            <a class="quiet text" href={memoryHref(p.first.id)}>
              {p.first.text}
            </a>{' '}
            {p.first.identity} <When at={p.first.at} />
          </p>
          <p class="dim">
            share {p.shared.join(', ')} ({percent(p.similarity)})
          </p>
        </li>
      ))}
    </ul>
  );
}

export function PrismVsNative({ of }: Of) {
  const { surfaces } = of;
  return (
    <Panel
      title="Confirmations against corrections"
      about={`By the surface that an agent runs in: where do you agree, where do you correct?${lookedBack(of, 'surfaces')}`}
      table={{
        name: 'surfaces',
        of: () => ({
          columns: ['surface', 'confirmations', 'corrections', 'pivots', 'rate'],
          rows: surfaces.map((s) => [s.surface, s.confirmations, s.corrections, s.direction_pivots, s.rate]),
        }),
      }}
    >
      {surfaces.length === 0 ? (
        <Empty title="Nothing was captured in this time.">
          Each surface shows how often you confirmed and how often you corrected.
        </Empty>
      ) : (
        <Table
          label="Surfaces"
          columns={['Surface', ...['confirmed', 'corrected', 'redirected', 'agreement'].map(number)]}
          rows={surfaces.map((s) => ({
            key: s.surface,
            cells: [words(s.surface), s.confirmations, s.corrections, s.direction_pivots, rate(s.rate)],
          }))}
        />
      )}
    </Panel>
  );
}

export function DeadEnds({ of }: Of) {
  const { dead_ends } = of;
  const first = firstLooked(of, 'dead_ends');
  const [n, again] = [dead_ends.n.slice(first), dead_ends.again.slice(first)];
  return (
    <div class="stack">
      <Plot
        title="Dead ends"
        about={`${count(dead_ends.total, 'approach', 'approaches')} tried and ruled out, ${dead_ends.again_total} of them walked into again.${lookedBack(of, 'dead_ends')}`}
        name="dead-ends"
        kind="bars"
        buckets={of.buckets.slice(first).map(shortDay)}
        series={[
          { name: 'new', values: n.map((all, i) => Math.max(0, all - (again[i] ?? 0))) },
          { name: 'again', values: again },
        ]}
        empty={{ title: 'No dead end was noted.', how: 'Agents note them in prism_wrap as tried_and_ruled_out.' }}
      />
      {dead_ends.pairs.length > 0 && (
        <Panel title="Walked into again">
          <Pairs of={dead_ends.pairs} />
        </Panel>
      )}
    </div>
  );
}

export function RecallPanel({ of }: Of) {
  const { recall } = of;
  const last = (values: (number | null)[]) => values.findLast((v) => v !== null);
  const [p50, p95] = [last(recall.p50_ms), last(recall.p95_ms)];
  const first = firstLooked(of, 'recall');
  const [asked, cited] = [recall.n.slice(first), recall.cited.slice(first)];
  return (
    <div class="stack">
      <Plot
        title="Recalls"
        about={`How often agents looked something up, and how often they used it.${lookedBack(of, 'recall')}`}
        name="recalls"
        kind="bars"
        buckets={of.buckets.slice(first).map(shortDay)}
        series={[
          { name: 'cited', values: cited },
          { name: 'not cited', values: asked.map((n, i) => n - (cited[i] ?? 0)) },
        ]}
        empty={{ title: 'No agent looked anything up.', how: 'semantic_recall writes an event each time.' }}
      />
      <Panel title="Memory in use">
        <dl class="figures">
          <Figure name="Cited" note={`${recall.cited_total} of ${count(recall.total, 'recall')}`}>
            {recall.total ? percent(recall.cited_total / recall.total) : '–'}
          </Figure>
          <Figure
            name="Half within"
            note={p95 === null || p95 === undefined ? 'lately' : `95% within ${milliseconds(p95)}`}
          >
            {p50 === null || p50 === undefined ? '–' : milliseconds(p50)}
          </Figure>
          <Figure name="Never recalled" note={`of ${count(recall.rows, 'row')}`}>
            {recall.rows_never_recalled}
          </Figure>
          <Figure name="Rot" note="0 is fresh, 1 is rotten">
            {recall.rot === null || recall.rot === undefined ? '–' : recall.rot.toFixed(2)}
          </Figure>
        </dl>
        {recall.by_identity.length > 0 && (
          <p class="row wrap small">
            {recall.by_identity.map((t) => (
              <Chip key={t.identity}>
                {t.identity}: {t.n}, {t.cited} cited
              </Chip>
            ))}
          </p>
        )}
        {recall.never_recalled.length > 0 && (
          <details>
            <summary>Rows that nobody found yet</summary>
            <ul class="stack small">
              {recall.never_recalled.map((e) => (
                <li key={e.id}>
                  <a class="quiet" href={memoryHref(e.id)}>
                    {e.text}
                  </a>{' '}
                  <span class="dim">{e.identity}</span> <When at={e.at} />
                </li>
              ))}
            </ul>
          </details>
        )}
      </Panel>
    </div>
  );
}
