// One row of memory, whole: what it says, its versions, what was said of it, and what stands beside it.
import { useState } from 'preact/hooks';
import { useAct } from '../../act';
import { call } from '../../api';
import { Chip, InputClass, When } from '../../parts/marks';
import { Trouble } from '../../parts/panel';
import { memoryHref } from '../../parts/signal';
import { Judge, NoVerdict, Verdicts } from '../../parts/verdicts';
import { useRead } from '../../read';
import { setParams } from '../../route';
import { count, short, words } from '../../text';
import { exact } from '../../time';
import type { DeltaView, MemoryShown, VersionView } from '../../wire';
import { Neighbourhood } from './graph';

export function RowDetail({ id }: { id: string }) {
  const read = useRead('memory_show', { id }, ['memory', 'review']);
  return (
    <aside class="beside panel" aria-label="Row">
      <header>
        <h2>
          {read.data && !read.stale
            ? words(read.data.row.kind) + (read.data.row.number ? ` ${read.data.row.number}` : '')
            : 'Row'}
        </h2>
        <span class="dim small mono">{short(id)}</span>
        <div class="tools">
          <button class="plain" type="button" onClick={() => setParams({ id: '' })}>
            Close
          </button>
        </div>
      </header>
      <div class="inside stack">
        <Trouble problem={read.problem} again={read.again} />
        {read.slow && <p class="slow">Reading…</p>}
        {read.data && (
          <div class={`stack wide-gap ${read.stale ? 'stale' : ''}`} key={read.data.row.id}>
            <Shown of={read.data} />
          </div>
        )}
      </div>
    </aside>
  );
}

function Shown({ of }: { of: MemoryShown }) {
  const { row } = of;
  return (
    <>
      <div class="row wrap">
        <span class="strong">{row.identity}</span>
        {row.status && <Chip>{row.status}</Chip>}
        {row.hidden && (
          <Chip tone="bad" title="You rejected it: recall does not bring it">
            out of recall
          </Chip>
        )}
        <When at={row.created_at} />
      </div>
      {row.title && <h3 class="lead">{row.title}</h3>}
      <Body of={of} />
      {row.superseded_by && (
        <p class="small">
          Superseded by <a href={memoryHref(row.superseded_by)}>{short(row.superseded_by)}</a>.
        </p>
      )}
      {of.refers_to ? (
        <div data-row>
          <Judge pid={row.pid} refersTo={of.refers_to} />
        </div>
      ) : (
        <NoVerdict />
      )}
      <Verdicts of={of.verdicts} />
      <Settle of={of} />
      {of.versions.length > 1 && <Versions all={of.versions} />}
      <p class="dim small">
        {of.recalls.shown ? (
          <>
            Recalled {count(of.recalls.shown, 'time')}, cited {of.recalls.cited}
            {of.recalls.last_at && (
              <>
                , last <When at={of.recalls.last_at} />
              </>
            )}
            .
          </>
        ) : (
          'No recall has brought it lately.'
        )}
      </p>
      <section class="stack" aria-label="Neighbourhood">
        <h3>Beside it</h3>
        <Neighbourhood graph={of.graph} pid={row.pid} />
      </section>
    </>
  );
}

function Body({ of: { row, delta, artifact, input, confirmation } }: { of: MemoryShown }) {
  if (delta) return <Delta of={delta} />;
  if (input)
    return (
      <>
        <p>
          <InputClass is={input.class} />
        </p>
        <blockquote class="quote text">“{input.prompt_text}”</blockquote>
        {input.triggered_action && <Named name="while" text={input.triggered_action} />}
      </>
    );
  if (confirmation)
    return (
      <dl class="payload">
        <dt>verdict</dt>
        <dd>
          {confirmation.verdict}, {confirmation.directness}
        </dd>
        <dt>on</dt>
        <dd class="text">{confirmation.refers_to}</dd>
        <dt>by</dt>
        <dd>
          {confirmation.confirmed_by} via {confirmation.confirmed_via}
        </dd>
        {confirmation.notes && [
          <dt key="n">notes</dt>,
          <dd key="t" class="text">
            {confirmation.notes}
          </dd>,
        ]}
      </dl>
    );
  if (artifact) {
    const fields = Object.entries(artifact.fields ?? {});
    return (
      <>
        {artifact.body && <p class="text prose">{artifact.body}</p>}
        {fields.length > 0 && (
          <dl class="payload">
            {fields.map(([name, value]) => [
              <dt key={name}>{words(name)}</dt>,
              <dd key={`${name}-`} class="text">
                {plain(value)}
              </dd>,
            ])}
          </dl>
        )}
        {!artifact.body && fields.length === 0 && <p class="text prose">{row.text}</p>}
      </>
    );
  }
  return <p class="text prose">{row.text}</p>;
}

function plain(value: unknown): string {
  if (typeof value === 'string') return value;
  if (Array.isArray(value) && value.every((v) => typeof v === 'string')) return value.join('\n');
  return JSON.stringify(value, null, 1);
}

function Named({ name, text }: { name: string; text: string | null | undefined }) {
  if (!text) return null;
  return (
    <dl class="payload">
      <dt>{name}</dt>
      <dd class="text">{text}</dd>
    </dl>
  );
}

function Delta({ of }: { of: DeltaView }) {
  return (
    <>
      <p class="text prose">{of.summary}</p>
      {of.operator_visible_effect && (
        <p class="effect text">
          <span class="small">You see:</span> {of.operator_visible_effect}
        </p>
      )}
      <Named name="what you see now" text={of.operator_sees} />
      <Named name="what had to land together" text={of.pieces?.join('\n')} />
      <Named name="what would break it" text={of.would_break_it} />
      <Named name="next" text={of.next} />
      <Named name="open" text={of.open_loops?.join('\n')} />
      {of.tried_and_ruled_out?.map((r) => (
        <p key={r.approach} class="small">
          <Chip tone="bad">ruled out</Chip> {r.approach}: <span class="dim">{r.outcome}</span>
        </p>
      ))}
      {of.touched_files && of.touched_files.length > 0 && (
        <details>
          <summary>{count(of.touched_files.length, 'file')} touched</summary>
          <ul class="mono small">
            {of.touched_files.map((f) => (
              <li key={f}>{f}</li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

/** A todo that is open can be done, a postmortem resolved. */
function Settle({ of: { row } }: { of: MemoryShown }) {
  const act = useAct();
  const number = row.number ?? undefined;
  const over = ['done', 'dropped', 'resolved'].includes(row.status ?? '');
  if (number === undefined || over || (row.kind !== 'todo' && row.kind !== 'postmortem')) return null;
  const settle = () =>
    act.run(
      () =>
        row.kind === 'todo'
          ? call(row.pid, 'todo', { action: 'done', number })
          : call(row.pid, 'postmortem', { resolve: number }),
      row.pid,
      'memory',
    );
  return (
    <div class="acts">
      <button type="button" aria-disabled={act.busy} onClick={() => void settle()}>
        {row.kind === 'todo' ? 'Mark as done' : 'Mark as resolved'}
      </button>
      <Trouble problem={act.problem} />
    </div>
  );
}

function Versions({ all }: { all: VersionView[] }) {
  const [shown, show] = useState(all.length - 1);
  const version = all[shown];
  return (
    <section class="stack" aria-label="Versions">
      <div class="row wrap">
        <h3>Versions</h3>
        {all.map((v, i) => (
          <button
            key={v.version}
            type="button"
            class="plain"
            aria-pressed={i === shown}
            title={`${v.identity}, ${exact(v.created_at)}`}
            onClick={() => show(i)}
          >
            {v.version}
          </button>
        ))}
      </div>
      {version && (
        <div class="quote stack">
          <p class="small dim">
            {version.identity} · {version.status} · <When at={version.created_at} />
          </p>
          <p class="strong">{version.title}</p>
          <p class="text">{version.body}</p>
        </div>
      )}
    </section>
  );
}
