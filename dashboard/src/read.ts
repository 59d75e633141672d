// Reading for what is on screen: read once, again when the socket says that it changed, and never in a crowd.
import { batch, signal } from '@preact/signals';
import type { RefObject } from 'preact';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { call, problemOf, project, Refused, type Answer, type Ask, type Problem, type Verb } from './api';
import { onChanges } from './live';
import type { Change } from './wire';

type Changed = Change['what'];

/** Nothing is said about waiting before this. */
const SLOW_MS = 200;
/** Changes that come together are read together; the server has collected them already. */
const SOON_MS = 20;
/** The shortest time between two reads of the same thing that changes caused; it doubles while they keep coming. */
const AGAIN_MS = 250;
const AGAIN_MS_MAX = 700;
/** The same for what is counted over weeks. */
export const CALM_MS = 3_000;
/** Without a change for so long, the next one is read at once again. */
const QUIET_MS = 2_000;
/** What is about to be scrolled into sight counts as seen. */
const NEAR: IntersectionObserverInit = { rootMargin: '300px' };
/** Answers kept for coming back to a page. */
const KEPT = 60;

const kept = new Map<string, unknown>();

function keep(key: string, value: unknown): void {
  kept.delete(key);
  kept.set(key, value);
  const oldest = kept.keys().next().value;
  if (kept.size > KEPT && oldest !== undefined) kept.delete(oldest);
}

/** One thing that is read, and read again. */
class Reader<T> {
  readonly data = signal<T | undefined>(undefined);
  readonly problem = signal<Problem | undefined>(undefined);
  readonly slow = signal(false);
  private abort: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private last = 0;
  private streak = 0;
  private dirty = false;

  constructor(
    readonly key: string,
    private readonly calm: number,
    private readonly read: (abort: AbortSignal, before: T | undefined) => Promise<T>,
  ) {
    this.data.value = kept.get(key) as T | undefined;
  }

  readonly again = async (): Promise<void> => {
    clearTimeout(this.timer);
    if (this.abort) {
      this.dirty = true;
      return;
    }
    const abort = (this.abort = new AbortController());
    const slow = setTimeout(() => (this.slow.value = true), SLOW_MS);
    this.last = performance.now();
    try {
      const data = await this.read(abort.signal, this.data.value);
      if (abort.signal.aborted) return;
      keep(this.key, data);
      batch(() => ((this.data.value = data), (this.problem.value = undefined)));
    } catch (error) {
      if (!abort.signal.aborted) this.failed(error);
    } finally {
      clearTimeout(slow);
      this.slow.value = false;
      if (this.abort === abort) this.abort = null;
      if (this.dirty && !abort.signal.aborted) {
        this.dirty = false;
        this.soon();
      }
    }
  };

  private failed(error: unknown): void {
    // A row that was there and is gone is worth saying; a server that is away shows in the connection's state.
    const away = error instanceof Refused && error.status === 0;
    if (!away || this.data.value === undefined) this.problem.value = problemOf(error);
  }

  soon(): void {
    clearTimeout(this.timer);
    const since = performance.now() - this.last;
    if (since > QUIET_MS) this.streak = 0;
    const apart = Math.max(this.calm, Math.min(AGAIN_MS_MAX, AGAIN_MS * 2 ** this.streak));
    this.timer = setTimeout(() => (this.streak++, void this.again()), Math.max(SOON_MS, apart - since));
  }

  /** Puts in place what an act is known to have changed, until it is read again. */
  patch(change: (data: T) => T): void {
    if (this.data.value !== undefined) this.data.value = change(this.data.value);
  }

  stop(): void {
    clearTimeout(this.timer);
    this.abort?.abort();
    this.abort = null;
  }
}

export interface Read<T> {
  data: T | undefined;
  problem: Problem | undefined;
  /** Nothing to show yet, and it takes longer than a blink. */
  slow: boolean;
  /** What is shown belongs to the filters of before. */
  stale: boolean;
  again: () => void;
  patch: (change: (data: T) => T) => void;
}

interface How {
  /** Another project than the one that is looked at. */
  pid?: string;
  /** Milliseconds between two reads, at least. */
  calm?: number;
  /** Also while nobody looks: its news are told outside the page. */
  unseen?: boolean;
  /** Where it is shown: while that is off the screen, it is not read again. */
  at?: RefObject<Element | null>;
}

function useReader<T>(
  key: string,
  topics: readonly Changed[],
  read: (abort: AbortSignal, before: T | undefined) => Promise<T>,
  how: How = {},
): Read<T> {
  const reader = useMemo(() => new Reader<T>(key, how.calm ?? 0, read), [key]);
  const before = useRef<T | undefined>(undefined);
  useEffect(() => {
    void reader.again();
    let missed = false;
    let onScreen = true;
    const seen = () => (!document.hidden && onScreen) || how.unseen === true;
    const off = onChanges((changes) => {
      if (changes !== 'all' && !changes.some((c) => topics.includes(c.what))) return;
      if (seen()) reader.soon();
      else missed = true;
    });
    const looked = () => {
      if (missed && seen()) {
        missed = false;
        reader.soon();
      }
    };
    document.addEventListener('visibilitychange', looked);
    const place = how.at?.current;
    const watched = place
      ? new IntersectionObserver((entries) => ((onScreen = entries.at(-1)?.isIntersecting ?? true), looked()), NEAR)
      : undefined;
    if (place) watched?.observe(place);
    return () => {
      off();
      document.removeEventListener('visibilitychange', looked);
      watched?.disconnect();
      reader.stop();
    };
  }, [reader]);
  const own = reader.data.value;
  if (own !== undefined) before.current = own;
  const problem = reader.problem.value;
  return {
    data: own ?? (problem ? undefined : before.current),
    problem,
    slow: reader.slow.value && own === undefined && before.current === undefined,
    stale: own === undefined && problem === undefined && before.current !== undefined,
    again: () => void reader.again(),
    patch: (change) => reader.patch(change),
  };
}

/** One answer of a call, for the project that is looked at unless another is named. */
export function useRead<V extends Verb>(
  verb: V,
  ask: Ask<V>,
  topics: readonly Changed[],
  how: How = {},
): Read<Answer<V>> {
  const pid = how.pid ?? project.value;
  return useReader(JSON.stringify([pid, verb, ask]), topics, (abort) => call(pid, verb, ask, abort), how);
}

const PAGE_ROWS = 100;
const PAGE_ROWS_MAX = 200;
/** A search looks back in steps; so many are taken without being asked. */
const STEPS = 5;

interface Listed<Row> {
  rows: Row[];
  /** What was read below the head, piece by piece, and the cursor that each begins at. */
  below: { from: string; rows: Row[] }[];
  next: string | undefined;
  lookedBackTo: string | undefined;
}

export interface List<Row> extends Read<Listed<Row>> {
  more: () => void;
}

interface Paged<Row> {
  rows: Row[];
  next?: string | null | undefined;
  looked_back_to?: string | null | undefined;
}

/** The ids of what changed since a list was read; so many, or one that is not known, mean everything. */
type Since = Set<string> | 'all';
const SINCE_MAX = 1_000;

/** A list by cursor. Its head is read again, and of what was read further down the pieces in which something changed. */
export function useList<V extends Verb, Row>(
  verb: V,
  ask: Ask<V>,
  topics: readonly Changed[],
  rowsOf: (answer: Answer<V>) => Row[],
  idOf: (row: Row) => string,
): List<Row> {
  const pid = project.value;
  const page = async (limit: number, cursor: string | undefined, abort?: AbortSignal): Promise<Paged<Row>> => {
    const answer = await call(pid, verb, { ...(ask as object), limit, ...(cursor ? { cursor } : {}) } as Ask<V>, abort);
    return { ...(answer as object), rows: rowsOf(answer) };
  };
  const key = JSON.stringify([pid, verb, ask, 'list']);
  // What is kept from an earlier visit may be old all the way down.
  const changed = useMemo((): { since: Since } => ({ since: 'all' }), [key]);
  useEffect(
    () =>
      onChanges((changes) => {
        const all = changes === 'all' || changed.since === 'all';
        if (!all) for (const { id } of changes) if (id) (changed.since as Set<string>).add(id);
        if (all || (changed.since as Set<string>).size > SINCE_MAX) changed.since = 'all';
      }),
    [changed],
  );
  const read = useReader<Listed<Row>>(key, topics, async (abort, before) => {
    const since = changed.since;
    changed.since = new Set();
    try {
      const head = await steps((cursor) =>
        page(Math.min(PAGE_ROWS_MAX, Math.max(PAGE_ROWS, before?.rows.length ?? 0)), cursor, abort),
      );
      if (!before) return head;
      return await readBelow(joined(head, before, idOf), since, idOf, (cursor) => page(PAGE_ROWS_MAX, cursor, abort));
    } catch (error) {
      changed.since = 'all';
      throw error;
    }
  });
  const asking = useRef(false);
  const more = async () => {
    const at = read.data;
    if (asking.current || read.stale || at?.next === undefined) return;
    asking.current = true;
    try {
      const found = await steps((cursor) => page(PAGE_ROWS_MAX, cursor ?? at.next));
      read.patch((now) => {
        const known = new Set(now.rows.map(idOf));
        const rows = found.rows.filter((row) => !known.has(idOf(row)));
        const below = [...now.below, { from: at.next as string, rows }];
        return { ...found, below, rows: [...now.rows, ...rows] };
      });
    } catch {
      // The next scroll asks again.
    } finally {
      asking.current = false;
    }
  };
  return { ...read, more: () => void more() };
}

async function steps<Row>(page: (cursor: string | undefined) => Promise<Paged<Row>>): Promise<Listed<Row>> {
  const rows: Row[] = [];
  let cursor: string | undefined;
  for (let step = 1; ; step++) {
    const found = await page(cursor);
    rows.push(...found.rows);
    cursor = found.next ?? undefined;
    if (cursor === undefined || rows.length >= PAGE_ROWS / 2 || step === STEPS)
      return { rows, below: [], next: cursor, lookedBackTo: found.looked_back_to ?? undefined };
  }
}

/** The head as it is now, and below it what was read before, unless so much came that the two no longer meet. */
function joined<Row>(head: Listed<Row>, before: Listed<Row>, idOf: (row: Row) => string): Listed<Row> {
  const fresh = new Set(head.rows.map(idOf));
  const meet = before.rows.findLastIndex((row) => fresh.has(idOf(row)));
  const from = head.next;
  if (from === undefined || meet < 0) return head;
  if (meet === before.rows.length - 1) return head;
  // Where the pieces of before begin among its rows; what the head pushed down becomes a piece of its own.
  let begins = before.rows.length - before.below.reduce((n, part) => n + part.rows.length, 0);
  const pushed = before.rows.slice(meet + 1, Math.max(begins, meet + 1));
  const below: Listed<Row>['below'] = [];
  for (const part of before.below) {
    const left = part.rows.slice(Math.max(0, meet + 1 - begins));
    begins += part.rows.length;
    if (left.length > 0) below.push({ from: left.length < part.rows.length ? from : part.from, rows: left });
  }
  const first = below[0];
  if (pushed.length > 0 && first && pushed.length + first.rows.length <= PAGE_ROWS_MAX)
    below[0] = { from, rows: [...pushed, ...first.rows] };
  else if (pushed.length > 0) below.unshift({ from, rows: pushed });
  return { ...before, below, rows: [...head.rows, ...below.flatMap((part) => part.rows)] };
}

/** Reads the pieces again in which something changed. More than a few of them are dropped, to be scrolled to again. */
async function readBelow<Row>(
  list: Listed<Row>,
  since: Since,
  idOf: (row: Row) => string,
  page: (cursor: string) => Promise<Paged<Row>>,
): Promise<Listed<Row>> {
  const head = list.rows.slice(0, list.rows.length - list.below.reduce((n, part) => n + part.rows.length, 0));
  const below: Listed<Row>['below'] = [];
  let { next, lookedBackTo } = list;
  let reads = 0;
  for (const [i, part] of list.below.entries()) {
    if (since !== 'all' && !part.rows.some((row) => since.has(idOf(row)))) {
      below.push(part);
      continue;
    }
    if (reads++ === STEPS) {
      [next, lookedBackTo] = [part.from, undefined];
      break;
    }
    const found = await page(part.from);
    const later = new Set(list.below.slice(i + 1).flatMap((p) => p.rows.map(idOf)));
    const end = found.rows.findIndex((row) => later.has(idOf(row)));
    const fresh = end < 0 ? found.rows : found.rows.slice(0, end);
    // A page may end before the piece does.
    const known = new Set(fresh.map(idOf));
    const meet = part.rows.findLastIndex((row) => known.has(idOf(row)));
    const rest = found.next && end < 0 && meet >= 0 ? part.rows.slice(meet + 1) : [];
    const cut = rest.filter((row) => since !== 'all' && !since.has(idOf(row)));
    below.push({ from: part.from, rows: [...fresh, ...cut] });
    if (!found.next) {
      [next, lookedBackTo] = [undefined, undefined];
      break;
    }
    if (i === list.below.length - 1 && cut.length === 0)
      [next, lookedBackTo] = [found.next, found.looked_back_to ?? undefined];
  }
  const rows = new Map([...head, ...below.flatMap((part) => part.rows)].map((row) => [idOf(row), row]));
  return { rows: [...rows.values()], below, next, lookedBackTo };
}
