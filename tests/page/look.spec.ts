// How it looks and feels: axe on every page in light and dark, no sideways scrolling, the keyboard, long lists.
import { readFileSync } from 'node:fs';
import type { Page } from '@playwright/test';
import { expect, PAGES, serve, test, type Prism } from './prism';

const prism = serve();
const AXE = readFileSync(new URL('node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

interface Axe {
  run: (options: object) => Promise<{ violations: { id: string; nodes: { html: string }[] }[] }>;
}

/** Loads a view afresh: only then does the network's quiet say that everything was read. */
async function settled(prism: Prism, page: Page, at: string): Promise<void> {
  await page.goto('about:blank');
  await prism.go(page, at);
  await expect(page.getByRole('status')).toHaveText('live');
  await page.waitForLoadState('networkidle');
}

/** The deeper views of pages, beside the pages themselves. */
async function views(page: Page): Promise<string[]> {
  const first = async (call: string, ask: object): Promise<Record<string, never>> =>
    prism.call<Record<string, never>>('*', call, ask);
  const signal = (await first('signal_list', { state: 'waiting', limit: 1 }))['signals']?.[0] as
    { signal_id: string } | undefined;
  const row = (await first('memory_list', { kinds: ['spec'], limit: 1 }))['rows']?.[0] as { id: string } | undefined;
  await page.bringToFront();
  return [
    ...PAGES.map((p) => p.toLowerCase()),
    `signals?id=${signal?.signal_id}`,
    `memory?id=${row?.id}`,
    'memory?q=what+does+the+operator+see',
    'memory?view=recalls',
  ];
}

/** Within what a key may send at once. */
const ROWS = 400;

const SIZES = { phone: { width: 360, height: 740 }, wide: { width: 1680, height: 1000 } };

for (const colorScheme of ['light', 'dark'] as const)
  for (const [size, viewport] of Object.entries(SIZES))
    test(`axe is clean, and nothing is cut off: ${colorScheme}, ${size}`, async ({ browser }) => {
      test.setTimeout(180_000);
      const page = await prism.other(browser, '', { colorScheme, viewport });
      for (const at of await views(page)) {
        await settled(prism, page, at);
        await page.screenshot({
          path: `shots/${size}-${colorScheme}-${at.replace(/\W+/g, '-').slice(0, 24)}.png`,
          fullPage: true,
        });
        expect(
          await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth),
          `${at} scrolls sideways`,
        ).toBeLessThanOrEqual(0);
        // Playwright evaluates in the page without the page's policy having to allow it.
        const { violations } = (await page.evaluate(
          `(() => { ${AXE}; return window.axe.run({ resultTypes: ['violations'] }); })()`,
        )) as Awaited<ReturnType<Axe['run']>>;
        expect(
          violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 120)).join(' | ')}`),
          at,
        ).toEqual([]);
      }
    });

test('the keyboard is enough', async ({ context }) => {
  const page = await prism.open(context, 'now');
  await page.keyboard.press('?');
  const help = page.getByRole('dialog', { name: 'Keyboard' });
  await expect(help).toBeVisible();
  await page.keyboard.press('Escape');
  await expect(help).toBeHidden();
  await page.keyboard.press('g');
  await page.keyboard.press('s');
  await expect(page.getByRole('heading', { level: 1, name: 'Signals' })).toBeVisible();
  await expect(page.getByRole('list', { name: 'Signals' }).getByRole('listitem').first()).toBeVisible();
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('k');
  await page.keyboard.press('Enter');
  const shown = page.getByRole('complementary', { name: 'Signal' });
  await expect(shown).toBeVisible();
  await page.keyboard.press('Escape');
  await expect(shown).toBeHidden();
  await page.keyboard.press('/');
  await expect(page.getByRole('searchbox', { name: 'Search' })).toBeFocused();
  await page.keyboard.type('j?');
  await expect(page.getByRole('searchbox', { name: 'Search' })).toHaveValue('j?');
});

test('the theme is chosen and kept', async ({ context }) => {
  const page = await prism.open(context, 'now');
  const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const before = await ground();
  await page.getByRole('button', { name: 'Theme: system' }).click();
  await page.getByRole('button', { name: 'Theme: light' }).click();
  await expect(page.getByRole('button', { name: 'Theme: dark' })).toBeVisible();
  expect(await ground()).not.toBe(before);
  await page.reload();
  await expect(page.getByRole('button', { name: 'Theme: dark' })).toBeVisible();
});

test('a long history is in the document by a few rows at a time', async ({ context }) => {
  const { projects } = await prism.call<{ projects: string[] }>('*', 'projects', {});
  const { agents } = await prism.call<{ agents: { pid: string; identity: string; operator: boolean }[] }>(
    '*',
    'agents',
    {},
  );
  const to = agents.find((a) => !a.operator && projects.includes(a.pid));
  if (!to) throw new Error('the demonstration has no agent');
  for (let n = 0; n < ROWS; n += 50)
    await Promise.all(
      Array.from({ length: 50 }, (_, i) =>
        prism.call(to.pid, 'signal', {
          to: to.identity,
          signal_type: 'StatusUpdate',
          payload: { summary: `row ${n + i}` },
        }),
      ),
    );
  const page = await prism.open(context, 'signals');
  const rows = page.getByRole('list', { name: 'Signals' }).getByRole('listitem');
  await expect(rows.first()).toBeVisible();
  for (let turn = 0; turn < 12; turn++) {
    await page.mouse.wheel(0, 20_000);
    await expect.poll(() => rows.count()).toBeGreaterThan(0);
    expect(await rows.count()).toBeLessThan(80);
  }
  await expect.poll(async () => Number(await rows.last().getAttribute('aria-setsize'))).toBeGreaterThanOrEqual(ROWS);
});
