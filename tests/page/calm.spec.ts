// Calm: nothing is said about waiting before a blink is over, nothing jumps, and ten thousand rows scroll.
import type { Page } from '@playwright/test';
import { expect, PAGES, serve, test, type Prism } from './prism';

const prism = serve();

/** What each page reads for itself, beside what the shell reads. */
const READS: Record<string, string> = {
  Signals: 'signal_list',
  Story: 'story',
  Memory: 'memory_list',
  Operator: 'metrics',
  Delivery: 'delivery',
  Gate: 'gate_list',
  Settings: 'settings',
};
/** Nothing is said before this (`SLOW_MS` of the page's `read.ts`). */
const BLINK_MS = 200;
/** The clock goes in such steps. */
const STEP_MS = 10;

for (const [name, call] of Object.entries(READS))
  test(`${name} says nothing about waiting for 200 ms, and then that it reads`, async ({ context }) => {
    const page = await context.newPage();
    await page.clock.install();
    await page.goto(await prism.link());
    await expect(page.getByRole('status')).toHaveText('live');
    let asked = 0;
    let let_go = (): void => undefined;
    const held = new Promise<void>((done) => (let_go = done));
    await page.route(`**/api/v1/*/${call}`, async (route) => {
      asked++;
      await held;
      await route.continue().catch(() => undefined);
    });
    await page.clock.pauseAt(Date.now() + 5_000);
    await page.getByRole('link', { name, exact: true }).click();
    const slow = page.locator('main .slow');
    await expect
      .poll(async () => {
        if (asked === 0) await page.clock.runFor(STEP_MS);
        return asked;
      })
      .toBeGreaterThan(0);
    await page.clock.runFor(BLINK_MS - 2 * STEP_MS);
    await expect(slow).toHaveCount(0);
    await page.clock.runFor(6 * STEP_MS);
    await expect(slow.first()).toBeVisible();
    let_go();
    await page.clock.resume();
    await expect(slow).toHaveCount(0);
  });

/** A page that adds up what moved without anybody having touched it. */
async function shifting(prism: Prism, page: Page): Promise<void> {
  await page.addInitScript(() => {
    const seen = { total: 0, worst: [] as string[] };
    Object.assign(window, { shifts: seen });
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries() as (PerformanceEntry & {
        value: number;
        hadRecentInput: boolean;
        sources?: { node?: Node }[];
      })[]) {
        if (entry.hadRecentInput) continue;
        seen.total += entry.value;
        const what = entry.sources?.map((s) => (s.node instanceof Element ? s.node.className || s.node.tagName : 'text'));
        seen.worst.push(`${entry.value.toFixed(3)} ${what?.join(', ')}`);
      }
    }).observe({ type: 'layout-shift', buffered: true });
  });
  await page.goto(await prism.link());
  await expect(page.getByRole('status')).toHaveText('live');
}

/** What a page may move by itself, as the share of the screen that browsers count; 0.1 is what they call good. */
const SHIFT_MAX = 0.05;

for (const [size, viewport] of Object.entries({
  phone: { width: 360, height: 740 },
  wide: { width: 1680, height: 1000 },
}))
  test(`nothing jumps while a page comes up: ${size}`, async ({ browser }) => {
    const context = await browser.newContext({ viewport, locale: 'en-GB', timezoneId: 'UTC' });
    const page = await context.newPage();
    await shifting(prism, page);
    const moved: Record<string, unknown> = {};
    for (const name of PAGES) {
      await page.goto('about:blank');
      await page.goto(`${prism.url}?${name}#/${name.toLowerCase()}`);
      await expect(page.getByRole('status')).toHaveText('live');
      await page.waitForLoadState('networkidle');
      const { total, worst } = await page.evaluate(
        () => (window as unknown as { shifts: { total: number; worst: string[] } }).shifts,
      );
      if (total >= SHIFT_MAX) moved[name] = { total, worst };
    }
    expect(moved).toEqual({});
    await context.close();
  });
