// The recall box's answer: what an agent would see, in its order, and why each row is there.
import { useEffect, useState } from 'preact/hooks';
import { call, problemOf, project, type Answer, type Ask, type Problem } from '../../api';
import { Chip, When } from '../../parts/marks';
import { Empty, Trouble } from '../../parts/panel';
import { Judge, SomeWithoutVerdict, Verdicts } from '../../parts/verdicts';
import { onChanges } from '../../live';
import { useRead } from '../../read';
import { param, setParams } from '../../route';
import { count, milliseconds, percent, short, words } from '../../text';
import { EVERYWHERE, type RecallHit } from '../../wire';
import { refersTo } from '../memory';

interface Found {
  pid: string;
  answer: Answer<'recall'>;
}

/** A recall looks into one project; all of them are asked side by side, as many as this. */
const PROJECTS_MAX = 8;

export function Results({ query }: { query: string }) {
  const known = useRead('projects', {}, ['settings'], { pid: EVERYWHERE });
  const pids = project.value === EVERYWHERE ? known.data?.projects.slice(0, PROJECTS_MAX) : [project.value];
  const beyond = project.value === EVERYWHERE ? (known.data?.projects.length ?? 0) - PROJECTS_MAX : 0;
  const { found, problem, slow } = useRecall(query, pids);
  if (problem) return <Trouble problem={problem} />;
  if (!found) return slow ? <p class="slow">Recalling…</p> : <div class="waiting" />;
  const hits = found
    .flatMap(({ pid, answer }) => answer.results.map((hit) => ({ pid, hit })))
    .sort((a, b) => b.hit.score - a.hit.score);
  return (
    <>
      <Summary found={found} />
      {beyond > 0 && (
        <p class="small dim">
          Asked were the first {PROJECTS_MAX} projects, and not the {count(beyond, 'other')}: choose one of them to ask it.
        </p>
      )}
      <SomeWithoutVerdict of={hits.map(({ hit }) => refersTo(hit))} />
      {hits.length === 0 ? (
        <section class="panel">
          <Empty title="Nothing is remembered about that.">
            Ask with other words, or as the thing was written down.
          </Empty>
        </section>
      ) : (
        <section class="panel" aria-label="Results">
          <ol class="rows">
            {hits.map(({ pid, hit }, i) => (
              <Hit key={hit.id} pid={pid} hit={hit} rank={i + 1} />
            ))}
          </ol>
        </section>
      )}
    </>
  );
}

function useRecall(query: string, pids: string[] | undefined) {
  const [found, setFound] = useState<Found[]>();
  const [problem, setProblem] = useState<Problem>();
  const [slow, setSlow] = useState(false);
  const [turn, setTurn] = useState(0);
  const key = pids?.join('\n');
  useEffect(
    () =>
      onChanges(
        (c) => (c === 'all' || c.some((x) => x.what === 'memory' || x.what === 'review')) && setTurn((n) => n + 1),
      ),
    [],
  );
  useEffect(() => {
    if (!pids) return;
    const abort = new AbortController();
    const timer = setTimeout(() => setSlow(true), 200);
    // A preview leaves no trace: the figures of what agents ask stay the agents'.
    const ask = { query, k: 12, preview: true } as Ask<'recall'>;
    Promise.all(pids.map(async (pid) => ({ pid, answer: await call(pid, 'recall', ask, abort.signal) })))
      .then((all) => (setFound(all), setProblem(undefined)))
      .catch((error) => abort.signal.aborted || setProblem(problemOf(error)))
      .finally(() => (clearTimeout(timer), setSlow(false)));
    return () => (clearTimeout(timer), abort.abort());
  }, [query, key, turn]);
  return { found, problem, slow };
}

function Summary({ found }: { found: Found[] }) {
  const one = found.length === 1 ? found[0]?.answer : undefined;
  const legs = Object.entries(found[0]?.answer.legs ?? {});
  return (
    <p class="small dim row wrap">
      {one && <span>Memory is {percent(one.confidence)} sure that the answer is here.</span>}
      {one?.note && <span>{one.note}</span>}
      {legs.map(([name, leg]) => (
        <span key={name} title={leg.reason ?? `${leg.hits} hits`}>
          {name} {leg.state === 'on' ? milliseconds(leg.ms) : `off${leg.reason ? ` (${leg.reason})` : ''}`}
        </span>
      ))}
      <span>Nothing of this look is recorded.</span>
    </p>
  );
}

function Hit({ pid, hit, rank }: { pid: string; hit: RecallHit; rank: number }) {
  const about = refersTo(hit);
  return (
    <li
      class={`item ${hit.superseded_by ? 'done' : ''}`}
      data-row
      tabIndex={0}
      aria-current={param('id') === hit.id ? 'true' : undefined}
      aria-label={hit.title ?? words(hit.kind)}
    >
      <div class="line">
        <span class="dim number">{rank}</span>
        <Chip>{words(hit.kind)}</Chip>
        <span class="strong">{hit.identity}</span>
        {project.value === EVERYWHERE && <span class="dim small">{pid}</span>}
        <When at={hit.created_at} />
        <span class="dim small number push" title="score">
          {hit.score.toFixed(3)}
        </span>
      </div>
      <a
        class="quiet"
        data-open
        href={`#/memory?id=${hit.id}`}
        onClick={(e) => (e.preventDefault(), setParams({ id: hit.id }))}
      >
        {hit.title && <span class="strong block">{hit.title}</span>}
        <span class="text clip">{hit.text}</span>
      </a>
      {hit.ruled_out?.map((r) => (
        <p key={r.approach} class="small">
          <Chip tone="bad">ruled out</Chip> {r.approach}: <span class="dim">{r.outcome}</span>
        </p>
      ))}
      {hit.superseded_by && (
        <p class="small dim">
          Superseded by <a href={`#/memory?id=${hit.superseded_by}`}>{short(hit.superseded_by)}</a>
        </p>
      )}
      <ul class="why" aria-label="Why it is here">
        {hit.why.map((w) => (
          <li key={w}>{w}</li>
        ))}
      </ul>
      <Verdicts of={hit.verdicts} />
      {about && <Judge pid={pid} refersTo={about} />}
    </li>
  );
}
