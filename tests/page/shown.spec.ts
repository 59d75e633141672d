// What is shown is what the server says: times and where they are exact, the way of a signal, versions, and every file.
import { readFileSync } from 'node:fs';
import type { Page } from '@playwright/test';
import { expect, PAGES, serve, test } from './prism';

const prism = serve();
const PID = 'PID-DEMO';

/** A moment as the page writes it where it is exact. */
const exact = (page: Page, at: string): Promise<string> =>
  page.evaluate(
    (when) =>
      new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' }).format(Date.parse(when)),
    at,
  );

for (const name of PAGES)
  test(`times are relative and exact on hover: ${name}`, async ({ context }) => {
    const page = await prism.open(context, name.toLowerCase());
    await expect(page.locator('main time').first()).toBeVisible();
    await page.waitForLoadState('networkidle');
    const wrong = await page.locator('main time').evaluateAll((times) => {
      const format = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
      return times
        .map((t) => ({
          text: t.textContent ?? '',
          title: t.getAttribute('title') ?? '',
          exact: format.format(Date.parse(t.getAttribute('datetime') ?? '')),
        }))
        .filter(
          ({ text, title, exact }) =>
            !/^(just now|(in )?\d+ (s|min|h|d)( ago)?)$/.test(text.trim()) || title.replace(/^since /, '') !== exact,
        );
    });
    expect(wrong).toEqual([]);
  });

interface Shown {
  signal: { signal_id: string; created_at: string };
  receipt: { states: Record<string, string>; sessions: (Record<string, string> & { session_id: string })[] };
  timeline: { observed_at: string; state: string }[];
}

const STOPS = ['queued', 'pushed', 'received', 'rung', 'rendered', 'drained', 'acted'];

test('the way of a signal has each state that is a fact, with its time, and no other', async ({ context }) => {
  const page = await prism.open(context);
  const { signals } = await prism.call<{ signals: { signal_id: string; state: string }[] }>(PID, 'signal_list', {});
  // One that was acted on, one that got nowhere, and one that stopped half way.
  const states = new Map(signals.map((s) => [s.state, s.signal_id]));
  expect(states.size).toBeGreaterThanOrEqual(3);
  for (const id of states.values()) {
    const shown = await prism.call<Shown>(PID, 'signal_show', { signal_id: id });
    await prism.go(page, `signals?id=${id}`);
    const aside = page.getByRole('complementary', { name: 'Signal' });
    await expect(aside.getByText(id.slice(0, 8)).first()).toBeVisible();
    const sessions = shown.receipt.sessions.length ? shown.receipt.sessions : [null];
    await expect(aside.locator('.way')).toHaveCount(sessions.length);
    for (const [n, session] of sessions.entries()) {
      const way = aside.locator('.way').nth(n);
      await expect(way.locator('li > span')).toHaveText(STOPS);
      const queued = shown.receipt.states['queued'] ?? '';
      for (const stop of STOPS) {
        const own = stop === 'queued' || stop === 'acted' || session === null;
        const at = own ? shown.receipt.states[stop] : session?.[stop];
        const drawn = way.locator('li').filter({ has: page.getByText(stop, { exact: true }) });
        await expect(drawn, `${stop} of ${id}`).toHaveAttribute('data-reached', at ? 'yes' : 'no');
        if (!at) {
          await expect(drawn).toContainText('–');
          continue;
        }
        await expect(drawn).toHaveAttribute('title', new RegExp(`: ${await exact(page, at)}$`));
        const clock = at.slice(11, 16);
        if (stop === 'queued') await expect(drawn.locator('small')).toHaveText(clock);
        else {
          const ms = Date.parse(at) - Date.parse(queued);
          const said = await drawn.locator('small').innerText();
          expect(said).toMatch(/^\+\d/);
          if (ms < 1000) expect(said).toContain('ms');
        }
      }
    }
    await aside.locator('details').evaluate((details: HTMLDetailsElement) => (details.open = true));
    const rows = aside.getByRole('group', { name: 'Observations' }).getByRole('row');
    await expect(rows).toHaveCount(shown.timeline.length + 1);
    for (const [n, event] of shown.timeline.entries()) {
      await expect(rows.nth(n + 1).getByRole('cell').first()).toHaveText(await exact(page, event.observed_at));
      await expect(rows.nth(n + 1)).toContainText(event.state.replaceAll('_', ' '));
    }
  }
});

test('a spec is readable in each of its versions', async ({ context }) => {
  const { rows } = await prism.call<{ rows: { id: string; number: number }[] }>(PID, 'memory_list', {
    kinds: ['spec'],
    limit: 1,
  });
  const spec = rows[0];
  if (!spec) throw new Error('the demonstration has no spec');
  const before = await prism.call<{ versions: { version: number; body: string }[] }>(PID, 'memory_show', {
    id: spec.id,
  });
  const old = before.versions.at(-1);
  const body = 'The second body, which says otherwise.';
  await prism.call(PID, 'spec', { action: 'update', number: spec.number, body });
  const page = await prism.open(context, `memory?id=${spec.id}`);
  const versions = page.getByRole('region', { name: 'Versions' });
  await expect(versions.getByRole('button')).toHaveCount(before.versions.length + 1);
  const newest = versions.getByRole('button', { name: String((old?.version ?? 0) + 1), exact: true });
  await expect(newest).toHaveAttribute('aria-pressed', 'true');
  await expect(versions).toContainText(body);
  await versions.getByRole('button', { name: String(old?.version), exact: true }).click();
  await expect(versions).toContainText(old?.body ?? '');
  await expect(versions).not.toContainText(body);
  await expect(newest).toHaveAttribute('title', /\d\d:\d\d:\d\d/);
});

/** The rows of a file: cells may hold commas, quotes and lines. */
function cells(csv: string): string[][] {
  const rows: string[][] = [[]];
  let cell = '';
  let quoted = false;
  for (let i = 0; i < csv.length; i++) {
    const c = csv[i] ?? '';
    if (quoted) {
      if (c === '"' && csv[i + 1] === '"') [cell, i] = [cell + '"', i + 1];
      else if (c === '"') quoted = false;
      else cell += c;
    } else if (c === '"') quoted = true;
    else if (c === ',') {
      rows.at(-1)?.push(cell);
      cell = '';
    } else if (c === '\r' && csv[i + 1] === '\n') {
      rows.at(-1)?.push(cell);
      [cell, i] = ['', i + 1];
      rows.push([]);
    } else cell += c;
  }
  expect(cell, 'the last line ends').toBe('');
  return rows.slice(0, -1);
}

/** Saves a file by its button, and gives its rows by the names of its columns. */
async function saved(page: Page, name: string, within = page.locator('main')): Promise<Record<string, string>[]> {
  const button = within.getByRole('button', { name: `${name} as CSV`, exact: true }).first();
  await expect(button).toBeVisible();
  const coming = page.waitForEvent('download');
  await button.click();
  const file = await coming;
  expect(file.suggestedFilename()).toBe(`prism-${name}.csv`);
  const [columns = [], ...rows] = cells(readFileSync(await file.path(), 'utf8'));
  return rows.map((row) => {
    expect(row).toHaveLength(columns.length);
    return Object.fromEntries(columns.map((column, i) => [column, row[i] ?? '']));
  });
}

type Row = Record<string, unknown>;
const text = (value: unknown): string => (value === null || value === undefined ? '' : String(value));

/** Each list, what it is read from, and which column holds which field. */
const LISTS: [string, string, string, object, string, Record<string, string>][] = [
  [
    'signals',
    'signals',
    'signal_list',
    {},
    'signals',
    {
      signal_id: 'signal_id',
      project: 'pid',
      sent: 'created_at',
      type: 'signal_type',
      category: 'category',
      from: 'from_identity',
      to: 'to_identity',
      summary: 'summary',
      state: 'state',
      at: 'at',
    },
  ],
  [
    'story',
    'story',
    'story',
    {},
    'items',
    { at: 'at', project: 'pid', kind: 'kind', what: 'what', who: 'identity', to: 'to', text: 'text', effect: 'effect' },
  ],
  [
    'memory',
    'memory',
    'memory_list',
    {},
    'rows',
    {
      id: 'id',
      project: 'pid',
      at: 'created_at',
      kind: 'kind',
      number: 'number',
      title: 'title',
      status: 'status',
      verdict: 'verdict',
      by: 'identity',
      text: 'text',
    },
  ],
  [
    'memory?view=recalls',
    'recalls',
    'recall_list',
    {},
    'events',
    { id: 'id', project: 'pid', at: 'at', who: 'identity', surface: 'surface', question: 'query', ms: 'latency_ms' },
  ],
  [
    'operator?review=all',
    'inputs',
    'input_list',
    { review: 'all' },
    'inputs',
    {
      id: 'id',
      project: 'pid',
      at: 'captured_at',
      class: 'class',
      words: 'prompt_text',
      while: 'triggered_action',
      by: 'captured_via',
      surface: 'surface',
      confidence: 'confidence',
      review: 'operator_review',
    },
  ],
  [
    'gate',
    'gate',
    'gate_list',
    {},
    'events',
    {
      id: 'id',
      project: 'pid',
      at: 'occurred_at',
      outcome: 'outcome',
      class: 'task_class',
      trigger: 'trigger',
      agent: 'persona',
      surface: 'surface',
      recalls: 'recall_count',
      right: 'right',
    },
  ],
  [
    'delivery',
    'probes',
    'probe_list',
    {},
    'runs',
    {
      loopback_id: 'loopback_id',
      project: 'pid',
      started: 'started_at',
      identity: 'identity',
      surface: 'surface',
      machine: 'machine_id',
      outcome: 'outcome',
    },
  ],
];

for (const [at, name, verb, ask, rows, columns] of LISTS)
  test(`the file of ${name} holds every row as the server has it`, async ({ context }) => {
    const page = await prism.open(context, at);
    await expect(page.locator('main [data-row], main tbody tr').first()).toBeVisible();
    await page.waitForLoadState('networkidle');
    const file = await saved(page, name);
    const answer = await prism.call<Record<string, Row[]>>('*', verb, { ...ask, limit: 200 });
    const listed = (answer[rows] ?? []).slice(0, 100);
    expect(listed.length).toBeGreaterThan(0);
    expect(file).toHaveLength(listed.length);
    for (const [n, row] of listed.entries())
      for (const [column, field] of Object.entries(columns))
        expect(file[n]?.[column]?.replace(/^'(?=[=+\-@])/, ''), `${column} of row ${n}`).toBe(text(row[field]));
  });

const total = (rows: Record<string, string>[], column: string): number =>
  rows.reduce((sum, row) => sum + Number(row[column]), 0);
const sum = (values: number[]): number => values.reduce((a, b) => a + b, 0);

interface Metrics {
  buckets: string[];
  confirmations: { total: number; series: { verdict: string; confirmed_via: string; total: number }[] };
  misclassification: { agent: string; captured: number; reviewed: number; rejected: number; rate?: number }[];
  corrections: { label: string; total: number; agents: string[] }[];
  surfaces: { surface: string; confirmations: number; corrections: number; direction_pivots: number }[];
  repeats: { weeks: { corrections: number; rate?: number }[] };
  dead_ends: { total: number; again_total: number };
  recall: { total: number; cited_total: number };
  gate: { warned: number[]; satisfied: number[] };
}

test('the files of what is counted hold what the metrics say', async ({ context }) => {
  const page = await prism.open(context, 'operator');
  await expect(page.getByRole('region', { name: 'Memory in use' })).toBeVisible();
  const m = await prism.call<Metrics>('*', 'metrics', { bucket: 'day' });
  const by = (verdict: string) =>
    sum(m.confirmations.series.filter((s) => s.verdict === verdict).map((s) => s.total));
  const confirmations = await saved(page, 'confirmations');
  expect(confirmations).toHaveLength(m.buckets.length);
  for (const verdict of ['works', 'broken', 'partial']) expect(total(confirmations, verdict)).toBe(by(verdict));
  const via = await saved(page, 'verdicts-by-via');
  expect(via.map((r) => `${r['via']} ${r['verdict']} ${r['n']}`)).toEqual(
    m.confirmations.series.map((s) => `${s.confirmed_via} ${s.verdict} ${s.total}`),
  );
  const agents = await saved(page, 'misclassification');
  expect(agents.map((r) => Object.values(r).join(' '))).toEqual(
    m.misclassification.map((a) => [a.agent, a.captured, a.reviewed, a.rejected, a.rate ?? ''].join(' ')),
  );
  const corrections = await saved(page, 'corrections');
  expect(corrections.map((r) => [r['what'], r['n'], r['agents']].join('|'))).toEqual(
    m.corrections.map((c) => [c.label, c.total, c.agents.join(' ')].join('|')),
  );
  const surfaces = await saved(page, 'surfaces');
  expect(surfaces.map((r) => [r['surface'], r['confirmations'], r['corrections'], r['pivots']].join(' '))).toEqual(
    m.surfaces.map((s) => [s.surface, s.confirmations, s.corrections, s.direction_pivots].join(' ')),
  );
  const repeats = await saved(page, 'repeat-corrections');
  expect(repeats.map((r) => r['typed again'])).toEqual(m.repeats.weeks.map((w) => text(w.rate)));
  const ends = await saved(page, 'dead-ends');
  expect(total(ends, 'new') + total(ends, 'again')).toBe(m.dead_ends.total);
  expect(total(ends, 'again')).toBe(m.dead_ends.again_total);
  const recalls = await saved(page, 'recalls');
  expect(total(recalls, 'cited')).toBe(m.recall.cited_total);
  expect(total(recalls, 'cited') + total(recalls, 'not cited')).toBe(m.recall.total);
  await prism.go(page, 'gate');
  const gate = await saved(page, 'gate-over-time');
  expect([total(gate, 'warned'), total(gate, 'satisfied')]).toEqual([sum(m.gate.warned), sum(m.gate.satisfied)]);
});

interface Place {
  surface: string;
  machine_id: string;
  runs: number;
  complete: number;
  layers: { layer: string; observed: number; missing: number }[];
  signals: { state: string; n: number }[];
}

test('the files of delivery and of what is kept hold what the server says', async ({ context }) => {
  const page = await prism.open(context, 'delivery');
  const { places } = await prism.call<{ places: Place[] }>('*', 'delivery', {});
  expect(places.length).toBeGreaterThan(1);
  for (const place of places) {
    const where = `${place.surface.replaceAll('_', ' ')} on ${place.machine_id}`;
    const section = page.getByRole('region', { name: where, exact: true });
    const layers = await saved(page, `delivery-${place.surface}`, section);
    expect(layers.map((r) => `${r['what']} ${r['seen']} ${r['missing']}`.trim())).toEqual([
      ...place.layers.map((l) => `${l.layer} ${l.observed} ${l.missing}`),
      ...place.signals.map((s) => `${s.state} ${s.n}`),
    ]);
    const probes = await saved(page, `probes-${place.surface}`, section);
    expect(total(probes, 'complete')).toBe(place.complete);
    expect(total(probes, 'not complete')).toBe(place.runs - place.complete);
  }
  await prism.go(page, 'settings');
  const kept = await saved(page, 'retention');
  const { retention } = await prism.call<{ retention: { kind: string; days: number }[] }>('*', 'settings', {});
  expect(kept.map((r) => `${r['kind']} ${r['days']}`)).toEqual(retention.map((r) => `${r.kind} ${r.days}`));
});

interface Agents {
  agents: {
    pid: string;
    identity: string;
    operator: boolean;
    state: string;
    unread: Record<string, number>;
    last_delta?: { summary: string };
    task?: { summary: string };
    reachable?: { state: string };
  }[];
}

test('everybody is there with state, what they do, what waits for them and what last reached them', async ({
  context,
}) => {
  const page = await prism.open(context, `now?project=${PID}`);
  const { agents } = await prism.call<Agents>(PID, 'agents', {});
  const others = agents.filter((a) => !a.operator);
  const everybody = page.getByRole('region', { name: 'Everybody' });
  await expect(everybody.getByRole('listitem')).toHaveCount(others.length);
  for (const agent of others) {
    const row = everybody.getByRole('listitem', { name: agent.identity, exact: true });
    await expect(row).toContainText(agent.state.replaceAll('_', ' '));
    for (const [category, n] of Object.entries(agent.unread))
      if (n > 0) await expect(row.locator(`.category[data-is=${category}]`)).toHaveText(`${category}${n}`);
      else await expect(row.locator(`.category[data-is=${category}]`)).toHaveCount(0);
    if (agent.task) await expect(row).toContainText(agent.task.summary);
    if (agent.last_delta) await expect(row).toContainText(agent.last_delta.summary);
    await expect(row).toContainText(
      agent.reachable ? `last proven: ${agent.reachable.state.replaceAll('_', ' ')}` : 'never proven',
    );
  }
  expect(others.some((a) => a.task) && others.some((a) => a.last_delta) && others.some((a) => a.reachable)).toBe(true);
});

interface Waiting {
  unread: { from_identity: string; to_identity: string; summary: string; stuck?: { why: string; what_to_do: string } }[];
  waiting: { identity: string; waits_for: string }[];
}

test('who is stuck is said with whom they wait for, how long, why, and what to do', async ({ context }) => {
  const page = await prism.open(context, `now?project=${PID}`);
  const now = await prism.call<Waiting>(PID, 'now', {});
  const unread = page.getByRole('region', { name: 'Unread between agents' });
  for (const signal of now.unread) {
    const row = unread.getByRole('listitem').filter({ hasText: signal.summary });
    await expect(row).toContainText(`${signal.from_identity} has waited`);
    await expect(row).toContainText(`for ${signal.to_identity}`);
    if (!signal.stuck) continue;
    await expect(row).toContainText(signal.stuck.why.replaceAll('`', ''));
    await expect(row).toContainText(signal.stuck.what_to_do.replaceAll('`', ''));
  }
  expect(now.unread.some((s) => s.stuck)).toBe(true);
  const terminal = page.getByRole('region', { name: 'Waiting at their terminal' });
  for (const session of now.waiting) {
    const row = terminal.getByRole('listitem').filter({ hasText: session.identity });
    await expect(row).toContainText(`asks for a ${session.waits_for}`);
    await expect(row.locator('time')).toHaveAttribute('title', /^since /);
  }
  expect(now.waiting.length).toBeGreaterThan(0);
});

test('a conversation is whole beside each of its signals, and its story is linked', async ({ context }) => {
  const { signals } = await prism.call<{ signals: { signal_id: string; in_reply_to?: string }[] }>(
    PID,
    'signal_list',
    {},
  );
  const reply = signals.find((s) => s.in_reply_to);
  if (!reply?.in_reply_to) throw new Error('the demonstration has no answer');
  const page = await prism.open(context);
  for (const id of [reply.signal_id, reply.in_reply_to]) {
    const { thread } = await prism.call<{ thread: { summary: string }[] }>(PID, 'signal_show', { signal_id: id });
    await prism.go(page, `signals?id=${id}`);
    const rows = page.getByRole('region', { name: 'Thread' }).getByRole('listitem');
    await expect(rows).toHaveCount(thread.length);
    for (const [n, { summary }] of thread.entries()) await expect(rows.nth(n)).toContainText(summary);
    await expect(page.getByRole('region', { name: 'Thread' }).locator('[aria-current=true]')).toHaveCount(1);
  }
  await page.getByRole('link', { name: 'The story of this' }).click();
  await expect(page.getByRole('region', { name: 'How it went' })).toBeVisible();
  for (const why of ['an answer to', 'done for', 'looked up for', 'verdict on'])
    await expect(page.locator('.event .chip').filter({ hasText: `↑ ${why}` }).first(), why).toBeVisible();
  for (const why of ['answered by', 'done', 'verdict'])
    await expect(page.locator('.event .chip').filter({ hasText: `↓ ${why}` }).first(), why).toBeVisible();
  await expect(page.getByText('You see:').first()).toBeVisible();
});

test('from a row one walks to what stands beside it, and on to what names the same thing', async ({ context }) => {
  const { rows } = await prism.call<{ rows: { id: string }[] }>(PID, 'memory_list', { kinds: ['wrap', 'checkpoint'] });
  const page = await prism.open(context);
  interface Beside {
    graph: { edges: { node: { id: string; kind: string; title: string } }[] };
  }
  const shown = await Promise.all(
    rows.map(async ({ id }) => ({ id, of: await prism.call<Beside>(PID, 'memory_show', { id }) })),
  );
  const things = (of: Beside) => of.graph.edges.filter((e) => !/^[0-9a-f]{8}-/.test(e.node.id));
  const start = shown.find(({ of }) => things(of).length > 0);
  if (!start) throw new Error('no row of the demonstration names a thing');
  await prism.go(page, `memory?project=${PID}&id=${start.id}`);
  const beside = page.getByRole('region', { name: 'Neighbourhood' });
  await expect(beside.getByRole('listitem')).toHaveCount(Math.min(24, start.of.graph.edges.length));
  const thing = things(start.of)[0]?.node;
  await beside
    .getByRole('link', { name: thing?.title || thing?.id, exact: true })
    .first()
    .click();
  const there = page.getByRole('complementary', { name: /Thing|Signal/ });
  await expect(there).toBeVisible();
  await page.goBack();
  await expect(beside).toBeVisible();
});

/** Pages with choices above their lists. */
const FILTERED = ['signals', 'story', 'memory', 'memory?view=recalls', 'operator', 'delivery', 'gate'];

for (const at of FILTERED)
  test(`each choice of ${at} stands in the address, holds on reload and is taken back`, async ({ context }) => {
    const page = await prism.open(context, at);
    await page.waitForLoadState('networkidle');
    const choices = page.locator('main .filters select');
    await expect(choices.first()).toBeVisible();
    for (let n = 0; n < (await choices.count()); n++) {
      const choice = choices.nth(n);
      const option = await choice.locator('option').nth(1).getAttribute('value');
      if (!option) continue;
      const before = page.url();
      await choice.selectOption(option);
      await expect.poll(() => decodeURIComponent(page.url())).toContain(`=${option}`);
      await page.reload();
      await expect(choices.nth(n)).toHaveValue(option);
      await page.goto(before);
      await expect(choices.nth(n)).toHaveValue('');
    }
  });

test('what a plot tells apart by colour it tells apart by pattern, and as a table', async ({ context }) => {
  const page = await prism.open(context, 'operator');
  await expect(page.getByRole('region', { name: 'Memory in use' })).toBeVisible();
  const alike = await page.locator('figure.plot').evaluateAll((plots) =>
    plots.flatMap((plot) => {
      const legend = [...plot.querySelectorAll('figcaption svg')].map((svg) => svg.querySelector('rect, path.line'));
      const marks = legend.map((e) => `${e?.getAttribute('fill')} ${e?.getAttribute('stroke-dasharray')}`);
      return new Set(marks).size === marks.length ? [] : [marks.join(' | ')];
    }),
  );
  expect(alike).toEqual([]);
  for (const button of await page.getByRole('button', { name: /as a table$/ }).all()) {
    await button.click();
    await expect(button).toHaveAttribute('aria-pressed', 'true');
  }
  await expect(page.locator('figure.plot')).toHaveCount(0);
  await expect(page.getByRole('group', { name: 'Figures' }).first()).toBeVisible();
});
