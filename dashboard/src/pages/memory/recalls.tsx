// What agents asked memory, what it showed them, and what they used of it.
import { project } from '../../api';
import { asked, Choice, NothingHere, Range, SearchBox, since } from '../../parts/filters';
import { Chip, When } from '../../parts/marks';
import { Empty, SaveCsv, Trouble } from '../../parts/panel';
import { memoryHref } from '../../parts/signal';
import { useList } from '../../read';
import { param } from '../../route';
import { count, milliseconds, words } from '../../text';
import { EVERYWHERE, type ListRecalls, type RecallRow } from '../../wire';

export function Recalls() {
  const cited = param('cited');
  const ask = {
    ...asked({ words: param('words'), since: since() }),
    ...(cited ? { cited: cited === 'yes' } : {}),
  } as ListRecalls;
  const list = useList(
    'recall_list',
    ask,
    ['recall', 'memory'],
    (a) => a.events,
    (e) => e.id,
  );
  const rows = list.data?.rows ?? [];
  return (
    <>
      <div class="filters">
        <SearchBox name="words" label="Words in the question" placeholder="as it was asked" />
        <Choice
          name="cited"
          label="Used"
          options={[
            ['yes', 'something cited'],
            ['no', 'nothing cited'],
          ]}
        />
        <Range />
        <SaveCsv
          name="recalls"
          of={() => ({
            columns: ['id', 'project', 'at', 'who', 'surface', 'question', 'results', 'cited', 'ms'],
            rows: rows.map((r) => [
              r.id,
              r.pid,
              r.at,
              r.identity,
              r.surface,
              r.query,
              r.results.length,
              r.results.filter((x) => x.cited).length,
              r.latency_ms,
            ]),
          })}
        />
      </div>
      <Trouble problem={list.problem} again={list.again} />
      {list.slow && <p class="slow">Reading…</p>}
      {list.data && (
        <section class="panel" aria-label="Recalls">
          {rows.length === 0 ? (
            <NothingHere filters={['words', 'cited', 'range']}>
              <Empty title="No agent has asked yet.">
                Every <code>semantic_recall</code> stands here with what it brought and what was cited.
              </Empty>
            </NothingHere>
          ) : (
            <ul class="rows">
              {rows.map((r) => (
                <Recall key={r.id} event={r} />
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

function Recall({ event }: { event: RecallRow }) {
  const cited = event.results.filter((r) => r.cited).length;
  return (
    <li class="item" data-row tabIndex={0} aria-current={param('recall') === event.id ? 'true' : undefined}>
      <div class="line">
        <span class="strong">{event.identity}</span>
        <span class="dim small">
          {words(event.surface)} · {milliseconds(event.latency_ms)} · about {event.tokens} tokens
        </span>
        {project.value === EVERYWHERE && <span class="dim small">{event.pid}</span>}
        <When at={event.at} />
        <Chip tone={cited ? 'good' : ''}>{cited ? `${cited} cited` : 'none cited'}</Chip>
      </div>
      <p class="text">“{event.query}”</p>
      <details open={param('recall') === event.id}>
        <summary>{count(event.results.length, 'result')}</summary>
        <ol class="shown">
          {event.results.map((r) => (
            <li key={r.id}>
              {r.kind ? <a href={memoryHref(r.id)}>{r.title ?? words(r.kind)}</a> : <span class="dim">gone since</span>}
              {r.cited && <Chip tone="good">cited{r.cited_for ? `: ${r.cited_for}` : ''}</Chip>}
            </li>
          ))}
        </ol>
      </details>
    </li>
  );
}
