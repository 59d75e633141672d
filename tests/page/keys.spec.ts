// The keyboard on every page: going there, moving, opening, doing, and coming back.
import type { Page } from '@playwright/test';
import { Agent } from './agent';
import { expect, PAGES, serve, test } from './prism';

const prism = serve();
const PID = 'PID-KEYS';
let donna: Agent;

test.beforeAll(async () => {
  donna = await Agent.start(prism, 'Donna', PID);
});
test.afterAll(() => donna.end());

const LETTERS: Record<string, string> = {
  Now: 'n',
  Signals: 's',
  Story: 't',
  Memory: 'm',
  Operator: 'o',
  Delivery: 'd',
  Gate: 'g',
  Settings: 'e',
};

const press = async (page: Page, ...keys: string[]): Promise<void> => {
  for (const key of keys) await page.keyboard.press(key);
};

/** Goes down the rows until the focus is on one with this text. */
async function down(page: Page, to: RegExp): Promise<void> {
  await expect(page.locator('main [data-row]').filter({ hasText: to }).first()).toBeVisible();
  await expect
    .poll(async () => {
      const at = await page.evaluate(() => document.activeElement?.closest('[data-row]')?.textContent ?? '');
      if (to.test(at)) return true;
      await page.keyboard.press('j');
      return false;
    })
    .toBe(true);
}

test('each page is two keys away, from each other', async ({ context }) => {
  const page = await prism.open(context, 'settings');
  for (const name of [...PAGES, ...[...PAGES].reverse()]) {
    await press(page, 'g', LETTERS[name] ?? '');
    await expect(page.getByRole('heading', { level: 1, name, exact: true })).toBeVisible();
  }
});

for (const name of PAGES)
  test(`everything on ${name} can be reached by the keyboard, and the focus is seen`, async ({ context }) => {
    const page = await prism.open(context, name.toLowerCase());
    await expect(page.getByRole('heading', { level: 1, name, exact: true })).toBeVisible();
    await page.waitForLoadState('networkidle');
    const out = await page
      .locator('a[href], button, input, select, textarea, summary')
      .evaluateAll((all) =>
        all
          .filter((e) => (e as HTMLElement).offsetParent !== null && (e as HTMLElement).tabIndex < 0)
          .map((e) => e.outerHTML.slice(0, 120)),
      );
    expect(out).toEqual([]);
    for (let n = 0; n < 25; n++) {
      await page.keyboard.press('Tab');
      const seen = await page.evaluate(() => {
        const at = document.activeElement;
        if (!at || at === document.body) return 'nothing';
        const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(at);
        const drawn = (outlineStyle !== 'none' && outlineWidth !== '0px') || boxShadow !== 'none';
        return drawn ? '' : at.outerHTML.slice(0, 120);
      });
      if (seen === 'nothing') break;
      expect(seen).toBe('');
    }
  });

test('a question on Now is answered without a mouse', async ({ context }) => {
  const { operator } = await prism.call<{ operator: string }>('*', 'settings', {});
  await donna.call('prism_signal', { to: operator, signal_type: 'Question', payload: { summary: 'which key is it?' } });
  const page = await prism.open(context, `now?project=${PID}`);
  await down(page, /which key is it/);
  await press(page, 'c');
  const field = page.getByRole('textbox', { name: 'Answer to Donna' });
  await expect(field).toBeFocused();
  // What is typed is typed: none of the letters does anything else.
  await page.keyboard.type('j k g s ? the c key');
  await expect(field).toHaveValue('j k g s ? the c key');
  await press(page, 'Escape');
  await expect(field).not.toBeFocused();
  await press(page, 'c', 'Enter');
  await expect(page.getByText('which key is it?')).toHaveCount(0);
  const { signals } = await donna.call<{ signals: { payload: { summary: string } }[] }>('prism_signals_pending', {});
  expect(signals.map((s) => s.payload.summary)).toContain('j k g s ? the c key');
});

test('inputs are judged, chosen and taken back on Operator, and on Now', async ({ context }) => {
  for (const n of [1, 2])
    await donna.call('prism_operator_input', {
      class: 'correction',
      prompt_text: `by keys alone ${n}`,
      confidence: 'high',
    });
  const page = await prism.open(context, `operator?project=${PID}`);
  const row = (n: number) => page.getByRole('listitem').filter({ hasText: `by keys alone ${n}` });
  await down(page, /by keys alone 1/);
  await press(page, 'r');
  await expect(row(1).getByText('rejected', { exact: true })).toBeVisible();
  await down(page, /by keys alone 1/);
  await press(page, 'u', 'x');
  await expect(row(1).getByRole('checkbox')).toBeChecked();
  await press(page, 'x');
  await expect(row(1).getByRole('checkbox')).not.toBeChecked();
  await prism.go(page, `now?project=${PID}`);
  await down(page, /by keys alone 2/);
  await press(page, 'a');
  await expect(row(2).getByText('accepted', { exact: true })).toBeVisible();
  await press(page, 'u');
  await expect(row(2).getByRole('button', { name: 'Accept', exact: true })).toBeVisible();
});

test('a row of Memory is opened, judged and closed', async ({ context }) => {
  await donna.call('prism_note', { text: 'a row for the keys' });
  const page = await prism.open(context, `memory?project=${PID}`);
  await down(page, /a row for the keys/);
  await press(page, 'Enter');
  const shown = page.getByRole('complementary', { name: 'Row' });
  await expect(shown).toContainText('a row for the keys');
  await press(page, 'Escape');
  await expect(shown).toBeHidden();
  await down(page, /a row for the keys/);
  const row = page.getByRole('listitem').filter({ hasText: 'a row for the keys' });
  for (const [key, verdict] of [
    ['w', 'works'],
    ['p', 'partial'],
    ['b', 'broken'],
  ] as const) {
    await press(page, key);
    await expect(row.locator('.chip').filter({ hasText: verdict })).toBeVisible();
  }
  await press(page, '/');
  await expect(page.getByRole('searchbox', { name: 'Recall' })).toBeFocused();
});

test('an event of Story is opened where it stands', async ({ context }) => {
  const page = await prism.open(context, 'story?project=PID-DEMO');
  await expect(page.locator('.event').first()).toBeVisible();
  await press(page, 'j', 'j');
  const kind = await page.evaluate(() => document.activeElement?.getAttribute('data-kind'));
  expect(kind).not.toBeNull();
  await press(page, 'Enter');
  await expect(page.getByRole('heading', { level: 1, name: kind === 'signal' ? 'Signals' : 'Memory' })).toBeVisible();
});

test('a warning of Gate is labelled, and labelled otherwise', async ({ context }) => {
  const page = await prism.open(context, 'gate?project=PID-DEMO&outcome=warned&label=open');
  const first = page.locator('main [data-row]').first();
  await expect(first).toBeVisible();
  await prism.go(page, 'gate?project=PID-DEMO&outcome=warned');
  await expect(page.locator('main [data-row]').first()).toBeVisible();
  await press(page, 'j', 'y');
  const row = page.locator('main [data-row]').first();
  await expect(row.getByRole('button', { name: 'Right', exact: true })).toHaveAttribute('aria-pressed', 'true');
  await press(page, 'f');
  await expect(row.getByRole('button', { name: 'False alarm', exact: true })).toHaveAttribute('aria-pressed', 'true');
});

test('a probe is run from Delivery, and a persona added on Settings, without a mouse', async ({ context }) => {
  const page = await prism.open(context, `delivery?project=${PID}`);
  await down(page, /Donna/);
  await press(page, 'Tab', 'Tab');
  await expect(page.getByRole('button', { name: 'Run probe' })).toBeFocused();
  await press(page, 'Enter');
  await expect(page.getByText('received by the shim').first()).toBeVisible();
  await prism.go(page, 'settings');
  await page.getByRole('textbox', { name: `New persona in ${PID}` }).focus();
  await page.keyboard.type('Keys');
  await press(page, 'Enter');
  await expect(page.getByRole('region', { name: PID, exact: true }).getByText('Keys', { exact: true })).toBeVisible();
});
