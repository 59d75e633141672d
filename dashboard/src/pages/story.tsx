// Story: one line through time for a project, from a message to what the operator made of it.
import { project } from '../api';
import { asked, NothingHere, Range, since, Who } from '../parts/filters';
import { Category, Chip, InputClass, Verdict, When } from '../parts/marks';
import { Empty, Head, SaveCsv, Trouble } from '../parts/panel';
import { memoryHref, signalHref } from '../parts/signal';
import { useList } from '../read';
import { href, param, setParams } from '../route';
import { count, duration, words } from '../text';
import { clock, day } from '../time';
import { EVERYWHERE, type AskStory, type StoryItem, type StoryLink } from '../wire';

type StoryKind = StoryItem['kind'];
type StoryWhy = StoryLink['why'];

const WHY: Record<StoryWhy, [string, string]> = {
  replies_to: ['an answer to', 'answered by'],
  looked_up_for: ['looked up for', 'looked up'],
  done_for: ['done for', 'done'],
  built_on: ['built on', 'led to'],
  verdict_on: ['verdict on', 'verdict'],
  said_of: ['said of', 'the operator said'],
  reverses: ['takes back', 'taken back by'],
};
const KIND: Record<StoryKind, string> = {
  signal: 'message',
  recall: 'recall',
  delta: 'work',
  verdict: 'verdict',
  input: 'your words',
};
const MARK: Record<StoryKind, string> = {
  signal: 'M2 4h12v8H2ZM2 4.500l6 4.500 6-4.500',
  recall: 'M7 2.500a4.500 4.500 0 1 0 0 9 4.500 4.500 0 0 0 0-9ZM10.300 10.300 14 14',
  delta: 'M3 13V3h10v10ZM5.500 8l2 2 3.500-4',
  verdict: 'M8 2l1.800 4 4.200.400-3.200 2.900.9 4.200L8 11.300l-3.700 2.200.9-4.200L2 6.400 6.200 6Z',
  input: 'M2.500 3h11v7.500H7L4 13.500v-3H2.500Z',
};

interface Linked extends StoryItem {
  /** What follows from it, on this page. */
  next: { link: StoryLink; item: StoryItem }[];
  from: { link: StoryLink; item: StoryItem | undefined }[];
}

/** Draws each link from both of its ends. */
function linked(items: StoryItem[]): Linked[] {
  const byId = new Map(items.map((i) => [i.id, { ...i, next: [], from: [] } as Linked]));
  for (const item of byId.values())
    for (const link of item.links) {
      const other = byId.get(link.id);
      item.from.push({ link, item: other });
      other?.next.push({ link, item });
    }
  return [...byId.values()];
}

export function Story() {
  const task = param('signal');
  const ask = asked({ signal_id: task, identity: param('identity'), since: since() }) as AskStory;
  const list = useList(
    'story',
    ask,
    ['signal', 'recall', 'memory', 'review'],
    (a) => a.items,
    (i) => i.id,
  );
  const newest = linked(list.data?.rows ?? []);
  // One task is read from its beginning; everything is read from now.
  const items = task ? newest.toReversed() : newest;
  return (
    <>
      <Head name="Story" lead="What was asked, looked up and done, and what you made of it." />
      <div class="filters">
        <Who />
        <Range />
        {task && (
          <button type="button" onClick={() => setParams({ signal: '' })}>
            Only one task ✕
          </button>
        )}
        <SaveCsv
          name="story"
          of={() => ({
            columns: ['at', 'project', 'kind', 'what', 'who', 'to', 'text', 'effect'],
            rows: items.map((i) => [i.at, i.pid, i.kind, i.what, i.identity, i.to, i.text, i.effect]),
          })}
        />
      </div>
      <Trouble problem={list.problem} again={list.again} />
      {list.slow && <p class="slow">Reading…</p>}
      {task && items.length > 0 && <HowItWent items={items} />}
      {list.data && items.length === 0 && (
        <section class="panel">
          <NothingHere filters={['identity', 'range', 'signal']}>
            <Empty title="Nothing has happened here.">
              A message, what was looked up for it, what was done and your verdict stand here as one line, as soon as
              agents work.
              <code> prism demo</code> shows a week.
            </Empty>
          </NothingHere>
        </section>
      )}
      {items.length > 0 && (
        <ol class={`story ${list.stale ? 'stale' : ''}`}>
          {items.map((item, i) => (
            <Item key={item.id} item={item} newDay={i === 0 || day(items[i - 1]?.at ?? '') !== day(item.at)} />
          ))}
        </ol>
      )}
      {list.data?.next && (
        <p class="empty">
          <button type="button" onClick={list.more}>
            Earlier
          </button>
        </p>
      )}
    </>
  );
}

function HowItWent({ items }: { items: Linked[] }) {
  const first = items[0];
  const work = items.filter((i) => i.kind === 'delta');
  const said = items.filter((i) => i.kind === 'verdict' || i.kind === 'input');
  const last = work.at(-1);
  const recalls = items.filter((i) => i.kind === 'recall');
  return (
    <section class="panel" aria-label="How it went">
      <div class="inside stack">
        <h2>{first?.text || 'One task'}</h2>
        <div class="row wrap small">
          <Chip>{count(items.filter((i) => i.kind === 'signal').length, 'message')}</Chip>
          <Chip tone={recalls.length ? 'good' : 'fair'}>
            {recalls.length ? count(recalls.length, 'recall') : 'nothing looked up'}
          </Chip>
          <Chip tone={work.length ? 'good' : ''}>
            {work.length ? `${count(work.length, 'piece')} of work` : 'no work yet'}
          </Chip>
          {first && last && (
            <Chip>{duration((Date.parse(last.at) - Date.parse(first.at)) / 1000)} to the last of it</Chip>
          )}
          {said.map((s) =>
            s.kind === 'verdict' ? <Verdict key={s.id} is={s.what} /> : <InputClass key={s.id} is={s.what} />,
          )}
          {said.length === 0 && <Chip>you have said nothing yet</Chip>}
        </div>
      </div>
    </section>
  );
}

function hrefOf(kind: StoryKind, id: string): string {
  if (kind === 'signal') return signalHref(id);
  if (kind === 'recall') return href('Memory', { view: 'recalls', recall: id });
  return memoryHref(id);
}

function Item({ item, newDay }: { item: Linked; newDay: boolean }) {
  return (
    <li>
      {newDay && <h2 class="day">{day(item.at)}</h2>}
      <article
        class="event"
        data-kind={item.kind}
        data-row
        tabIndex={0}
        id={`event-${item.id}`}
        aria-label={`${KIND[item.kind]} by ${item.identity}`}
      >
        <span class="mark" aria-hidden="true">
          <svg
            width="16"
            height="16"
            viewBox="0 0 16 16"
            fill="none"
            stroke="currentColor"
            stroke-width="1.300"
            stroke-linejoin="round"
            stroke-linecap="round"
          >
            <path d={MARK[item.kind]} />
          </svg>
        </span>
        <div class="stack tight">
          <div class="line row wrap">
            <span class="dim small number">{clock(item.at)}</span>
            <span class="strong">
              {item.identity}
              {item.to && (
                <>
                  {' '}
                  <span class="dim">→</span> {item.to}
                </>
              )}
            </span>
            <Said item={item} />
            {project.value === EVERYWHERE && <span class="dim small">{item.pid}</span>}
            <When at={item.at} />
            {item.kind === 'signal' && param('signal') === '' && (
              <a class="small push" href={href('Story', { project: item.pid, signal: item.id })}>
                Only this task
              </a>
            )}
          </div>
          <a class="quiet text" data-open href={hrefOf(item.kind, item.id)}>
            {item.kind === 'recall' || item.kind === 'input' ? `“${item.text}”` : item.text}
          </a>
          {item.effect && (
            <p class="effect text">
              <span class="small">You see:</span> {item.effect}
            </p>
          )}
          <Links item={item} />
        </div>
      </article>
    </li>
  );
}

function Said({ item }: { item: StoryItem }) {
  switch (item.kind) {
    case 'signal':
      return (
        <>
          <Category is={item.category} />
          <span class="dim small">
            {item.what}
            {item.state ? `, ${item.state}` : ''}
          </span>
        </>
      );
    case 'recall':
      return (
        <span class="dim small">
          looked up, {count(item.results ?? 0, 'result')}
          {item.cited ? `, ${item.cited} cited` : ', none cited'}
        </span>
      );
    case 'delta':
      return <span class="dim small">{words(item.what)}</span>;
    case 'verdict':
      return <Verdict is={item.what} />;
    case 'input':
      return (
        <>
          <InputClass is={item.what} />
          {item.review && <Chip tone={item.review === 'rejected' ? 'bad' : 'good'}>{item.review}</Chip>}
        </>
      );
  }
}

const jump = (id: string): boolean => {
  const there = document.getElementById(`event-${id}`);
  there?.scrollIntoView({ block: 'center', behavior: 'smooth' });
  there?.focus({ preventScroll: true });
  return there !== null;
};

function Links({ item }: { item: Linked }) {
  if (item.from.length + item.next.length === 0) return null;
  const chip = (key: string, word: string, kind: StoryKind, id: string, text: string) => (
    <a key={key} class="chip" href={hrefOf(kind, id)} onClick={(e) => jump(id) && e.preventDefault()} title={text}>
      {word}
      {text && `: ${text.slice(0, 48)}${text.length > 48 ? '…' : ''}`}
    </a>
  );
  return (
    <div class="row wrap small">
      {item.from.map(({ link, item: other }) =>
        chip(`f${link.why}${link.id}`, `↑ ${WHY[link.why][0]}`, link.kind, link.id, other?.text ?? ''),
      )}
      {item.next.map(({ link, item: other }) =>
        chip(
          `n${link.why}${other.id}`,
          `↓ ${WHY[link.why][1]}`,
          other.kind,
          other.id,
          other.kind === 'verdict' ? other.what : other.text,
        ),
      )}
    </div>
  );
}
