// Nothing is lost on the way: what was typed, what changed far below, what is long, and what comes all at once.
import type { Page } from '@playwright/test';
import { AWAY, excuse, expect, REFUSED, serve, test } from './prism';

const prism = serve({ demo: false, limits: 1_000_000 });
const PID = 'PID-LOST';
let operator = '';

const send = (to: string, category: string, summary: string, as?: string) =>
  prism.call<{ signal_id: string }>(
    PID,
    'signal',
    { to, category, signal_type: 'StatusUpdate', payload: { summary } },
    as,
  );

test.beforeAll(async () => {
  await prism.make(PID, 'Donna');
  await prism.make(PID, 'Texi');
  await prism.cli('key', 'mint', 'Donna', '--pid', PID);
  operator = (await prism.call<{ operator: string }>('*', 'settings', {})).operator;
});

test('what was typed outlives its row and a look at another page', async ({ context }) => {
  const { signal_id } = await send(operator, 'ASK', 'may the old ring go?', 'Donna');
  const page = await prism.open(context, 'now');
  const row = page.getByRole('region', { name: 'To you' }).getByRole('listitem').filter({ hasText: 'the old ring' });
  const field = row.getByRole('textbox', { name: 'Answer to Donna' });
  await field.pressSequentially('keep it until');
  await prism.go(page, 'gate');
  await expect(page.getByRole('heading', { level: 1, name: 'Gate' })).toBeVisible();
  await prism.go(page, 'now');
  await expect(field).toHaveValue('keep it until');
  await prism.call(PID, 'inbox_read', { signal_ids: [signal_id] });
  await expect(row.getByText('Answered elsewhere')).toBeVisible();
  await field.press('End');
  await field.pressSequentially(' Friday');
  await expect(field).toHaveValue('keep it until Friday');
  await row.getByRole('button', { name: 'Drop it' }).click();
  await expect(row).toHaveCount(0);
});

test('a row far below the head changes, and goes, like any other', async ({ context }) => {
  const first = await send('Texi', 'INFO', 'the deepest of all');
  for (let n = 1; n < 320; n += 20)
    await Promise.all(Array.from({ length: 20 }, (_, i) => send('Texi', 'INFO', `deep ${n + i}`)));
  const page = await prism.open(context, `signals?project=${PID}&state=waiting`);
  const rows = page.getByRole('list', { name: 'Signals' }).getByRole('listitem');
  const known = async () => Number(await rows.last().getAttribute('aria-setsize'));
  const toTheEnd = () => page.evaluate(() => window.scrollTo(0, document.documentElement.scrollHeight));
  await expect.poll(async () => (await toTheEnd(), known())).toBe(321);
  await toTheEnd();
  await expect(rows.filter({ hasText: 'the deepest of all' })).toBeVisible();
  await prism.call(PID, 'signal_recall', { signal_id: first.signal_id });
  await expect(rows.filter({ hasText: 'the deepest of all' })).toHaveCount(0);
  await expect.poll(known).toBe(320);
});

test('a flood is told as one', async ({ browser }) => {
  const context = await browser.newContext({ permissions: ['notifications'] });
  await context.addInitScript(() => {
    const told: string[] = [];
    Object.assign(window, { told });
    window.Notification = class extends EventTarget {
      static permission = 'granted';
      constructor(title: string, { tag }: { tag: string }) {
        super();
        told.push(tag === 'several' ? title : 'one');
      }
    } as unknown as typeof Notification;
  });
  const page = await prism.open(context, 'story');
  await Promise.all(Array.from({ length: 12 }, (_, n) => send(operator, 'ASK', `flood ${n}`, 'Donna')));
  const told = () => page.evaluate(() => (window as unknown as { told: string[] }).told);
  await expect.poll(async () => (await told()).at(-1)).toMatch(/^\d+ new$/);
  expect((await told()).filter((title) => title === 'one').length).toBeLessThanOrEqual(3);
  await context.close();
});

test('long words are drawn in part, and whole when asked', async ({ context }) => {
  const text = `begin ${'word '.repeat(9_000)}end`;
  await prism.call(
    PID,
    'operator_input',
    { class: 'correction', prompt_text: text, confidence: 'high' },
    'Donna',
  );
  const page = await prism.open(context, 'now');
  const row = page.getByRole('listitem').filter({ hasText: 'begin word' });
  await expect(row).toBeVisible();
  expect((await row.innerText()).length).toBeLessThan(1_500);
  await row.getByRole('button', { name: /^more/ }).click();
  await expect(row).toContainText('end”');
});

test('a title without a break stays on a small screen', async ({ browser }) => {
  await prism.call(PID, 'decide', { title: 'x'.repeat(150), context: 'c', decision: 'd', consequences: 'e' });
  const page = await prism.other(browser, 'memory', { viewport: { width: 360, height: 700 } });
  await expect(page.getByText('x'.repeat(150)).first()).toBeVisible();
  const wide = () => page.evaluate(() => document.documentElement.scrollWidth);
  expect(await wide()).toBeLessThanOrEqual(360);
  await prism.go(page, `memory?q=${'x'.repeat(150)}`);
  await expect(page.getByRole('region', { name: 'Results' })).toBeVisible();
  expect(await wide()).toBeLessThanOrEqual(360);
});

test('nonsense in the address is said', async ({ context }) => {
  excuse(REFUSED);
  const page = await prism.open(context, 'signals?range=fortnight');
  await expect(page.getByRole('alert').first()).toContainText('since');
  await prism.go(page, 'memory?view=nonsense');
  await expect(page.getByRole('alert').first()).toContainText('nonsense');
  await prism.go(page, 'operator?bucket=fortnight');
  await expect(page.getByRole('alert').first()).toContainText('bucket');
});

test('of more projects than are asked at once, the page says which were left out', async ({ context }) => {
  for (let n = 0; n < 9; n++) await prism.make(`PID-MANY-${n}`, 'Donna');
  const page = await prism.open(context, 'memory?q=ring');
  await expect(page.getByText(/Asked were the first 8 projects, and not the 2 others/)).toBeVisible();
  await prism.go(page, `memory?q=ring&project=${PID}`);
  await expect(page.getByText(/Nothing is remembered|Memory is/).first()).toBeVisible();
  await expect(page.getByText(/Asked were the first/)).toHaveCount(0);
});

test('two projects with the same names are kept apart', async ({ context }) => {
  const OTHER = 'PID-OTHER';
  await prism.make(OTHER, 'Donna');
  await prism.call(OTHER, 'signal', { to: 'Donna', signal_type: 'Question', payload: { summary: 'over there?' } });
  await prism.call(PID, 'signal', { to: 'Donna', signal_type: 'Question', payload: { summary: 'over here?' } });
  const page = await prism.open(context, `signals?project=${OTHER}`);
  const rows = page.getByRole('list', { name: 'Signals' }).getByRole('listitem');
  await expect(rows.filter({ hasText: 'over there?' })).toBeVisible();
  await expect(rows.filter({ hasText: 'over here?' })).toHaveCount(0);
  // The project stays while pages are changed, and everything on them is its own.
  await page.getByRole('link', { name: 'Now', exact: true }).click();
  await expect(page).toHaveURL(new RegExp(`project=${OTHER}`));
  await expect(page.getByText('over there?')).toBeVisible();
  await expect(page.getByText('over here?')).toHaveCount(0);
  await page.getByRole('combobox', { name: 'Project' }).selectOption('*');
  await expect(page.getByText('over here?')).toBeVisible();
  await expect(page.getByText('over there?')).toBeVisible();
  // Sending to one of two who are called alike reaches the one that was meant.
  await page.getByRole('link', { name: 'Signals', exact: true }).click();
  await page.getByRole('combobox', { name: 'To' }).selectOption({ label: `Donna · ${OTHER}` });
  await page.getByRole('textbox', { name: 'Summary' }).fill('for the other Donna');
  await page.getByRole('button', { name: 'Send', exact: true }).click();
  await expect(rows.filter({ hasText: 'for the other Donna' })).toContainText(OTHER);
});

const STRANGE = {
  'right to left': 'שלום עולם, זה כותרת ארוכה עם 123 ו-abc',
  emoji: '👩‍👩‍👧‍👦🏳️‍🌈'.repeat(60),
  marks: `Z${'\u0301\u0316'.repeat(200)}algo`,
  'one long word': 'w'.repeat(1_900),
  controls: 'bell\u0007 back\u0008 escape\u001b[31m turned\u202e end',
};

test('strange texts stay in their rows, on a phone too', async ({ browser }) => {
  for (const text of Object.values(STRANGE)) {
    await send(operator, 'ASK', text, 'Donna');
    await send('Texi', 'ASK', text, 'Donna');
    await prism.call(PID, 'note', { text }, 'Donna');
    await prism.call(PID, 'operator_input', { class: 'correction', prompt_text: text, confidence: 'high' }, 'Donna');
    await prism.call(PID, 'plan', { action: 'create', title: text.slice(0, 60), body: text }, 'Donna');
  }
  for (const width of [360, 1280]) {
    const page = await prism.other(browser, '', { viewport: { width, height: 800 } });
    for (const at of ['now', 'signals', 'story', 'memory', 'memory?view=plans', 'operator', 'gate', 'settings']) {
      await page.goto('about:blank');
      await prism.go(page, `${at}${at.includes('?') ? '&' : '?'}project=${PID}`);
      await expect(page.getByRole('status')).toHaveText('live');
      await page.waitForLoadState('networkidle');
      const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      expect(over, `${at} at ${width}`).toBeLessThanOrEqual(0);
      // Nothing is drawn over its neighbours: each row lies below the one before.
      const overlaps = await page.locator('main .rows > li, main ul.agents > li').evaluateAll((rows) => {
        const boxes = rows.map((r) => [r.parentElement, r.getBoundingClientRect()] as const);
        return boxes.filter(([list, box], i) => {
          const before = boxes[i - 1];
          return before && before[0] === list && box.top < before[1].bottom - 1 && box.left < before[1].right - 1;
        }).length;
      });
      expect(overlaps, `${at} at ${width}`).toBe(0);
    }
  }
});

test('nonsense in the address breaks no page, and the way back is there', async ({ context }) => {
  excuse(REFUSED, AWAY);
  const page = await prism.open(context);
  for (const at of [
    'signals?project=..%2F..%2Fetc',
    'signals?project=%00',
    `now?project=${'x'.repeat(3_000)}`,
    'memory?id=%22%3E%3Cscript%3E',
    'memory?node=%F0%9F%94%94&project=PID-LOST',
    'memory?q=%25%27%22%5C%00*%28',
    'signals?q=%25_%27%22%5C',
    'signals?id=fd4d1895',
    'story?signal=12345678',
    'story?signal=x',
    'operator?review=lost',
    'operator?class=%00',
    'delivery?outcome=lost',
    'delivery?range=-1',
    'gate?label=lost&outcome=lost',
    '?=&&=%',
    'signals?a=b?c=d#e',
    '%E0%A4%A',
  ]) {
    await page.goto('about:blank');
    await prism.go(page, at);
    await expect(page.getByRole('heading', { level: 1 }), at).toBeVisible();
    await page.getByRole('link', { name: 'Gate', exact: true }).click();
    await expect(page.getByRole('heading', { level: 1, name: 'Gate' }), at).toBeVisible();
  }
});

test('a button that is pressed again and again does it once', async ({ context }) => {
  const { signal_id } = await send(operator, 'ASK', 'once or twice?', 'Donna');
  const page = await prism.open(context, `now?project=${PID}`);
  const row = page.getByRole('region', { name: 'To you' }).getByRole('listitem').filter({ hasText: 'once or twice?' });
  await row.getByRole('textbox').fill('once');
  const reply = row.getByRole('button', { name: 'Reply', exact: true });
  await reply.evaluate((button: HTMLElement) => {
    for (let n = 0; n < 8; n++) button.click();
  });
  await expect(row).toHaveCount(0);
  const { thread } = await prism.call<{ thread: { summary: string }[] }>(PID, 'signal_show', { signal_id });
  expect(thread.filter((s) => s.summary === 'once')).toHaveLength(1);
});

test('two who judge the same thing at once are both told what stands', async ({ browser }) => {
  const { id } = await prism.call<{ id: string }>(
    PID,
    'operator_input',
    { class: 'correction', prompt_text: 'judged by two', confidence: 'high' },
    'Donna',
  );
  // The second of them is refused.
  excuse(REFUSED);
  const at = `operator?project=${PID}`;
  const [here, there] = [await prism.other(browser, at), await prism.other(browser, at)];
  const row = (page: Page) =>
    page.getByRole('region', { name: 'Unreviewed' }).getByRole('listitem').filter({ hasText: 'judged by two' });
  await Promise.all([here, there].map((page) => expect(row(page)).toBeVisible()));
  await Promise.all([
    row(here).getByRole('button', { name: 'Accept', exact: true }).click(),
    row(there).getByRole('button', { name: 'Reject', exact: true }).click(),
  ]);
  const { inputs } = await prism.call<{ inputs: { id: string; operator_review: string }[] }>(PID, 'input_list', {});
  const stands = inputs.find((i) => i.id === id)?.operator_review;
  expect(['accepted', 'rejected']).toContain(stands);
  // Whoever looks afresh sees what stands, and can take it back.
  await prism.go(here, `${at}&review=${stands}`);
  const shown = here.getByRole('region', { name: 'Inputs' }).getByRole('listitem').filter({ hasText: 'judged by two' });
  await shown.getByRole('button', { name: 'Undo' }).click();
  await expect
    .poll(async () => {
      const { inputs } = await prism.call<{ inputs: { id: string }[] }>(PID, 'input_list', { review: 'unreviewed' });
      return inputs.some((i) => i.id === id);
    })
    .toBe(true);
});
