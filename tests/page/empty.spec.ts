// Before anything has happened: each page says what will stand there and how to make it appear; and so does a filter
// that leaves nothing.
import { expect, serve, test } from './prism';

const prism = serve({ demo: false });

/** Pages, what will stand there, and what makes it appear. */
const EMPTY: [string, RegExp, RegExp][] = [
  ['now', /Nothing waits on you/, /prism send .* prism demo/],
  ['now', /No agent has joined yet/, /prism connect/],
  ['signals', /No signal has been sent yet/, /prism send/],
  ['story', /Nothing has happened here/, /as soon as agents work.*prism demo/s],
  ['memory', /Nothing of this kind is kept yet/, /prism note/],
  ['memory?view=postmortems', /Nothing of this kind is kept yet/, /prism import/],
  ['memory?view=recalls', /No agent has asked yet/, /semantic_recall/],
  ['operator', /Everything is reviewed/, /prism_operator_input/],
  ['operator', /No verdict in this time/, /prism confirm/],
  ['operator', /No correction in this time/, /stop most often/],
  ['operator', /No correction was typed twice/, /say the same thing again/],
  ['operator', /No dead end was noted/, /tried_and_ruled_out/],
  ['operator', /No agent looked anything up/, /semantic_recall/],
  ['delivery', /No agent has been here in this time/, /prism coder/],
  ['delivery', /No probe has run here/, /prism loopback-test/],
  ['gate', /Nothing has been noticed here/, /acknowledges a task or adds a todo/],
  ['gate', /Nothing in this time/, /began with a recall/],
  ['settings', /No host has been seen/, /prism connect/],
];

test('every empty place says what will appear and how', async ({ context }) => {
  const page = await prism.open(context);
  for (const [at, what, how] of EMPTY) {
    await prism.go(page, at);
    const empty = page.locator('main .empty').filter({ hasText: what }).first();
    await expect(empty, `${at} ${what}`).toBeVisible();
    await expect(empty, `${at} ${what}`).toHaveText(how);
  }
});

test('what the first page tells to type does what it says', async ({ context }) => {
  const page = await prism.open(context, 'now');
  await expect(page.getByText('Nothing waits on you.')).toBeVisible();
  const { operator } = await prism.call<{ operator: string }>('*', 'settings', {});
  await prism.make('PID-FIRST', 'Donna');
  await prism.cli('key', 'mint', 'Donna', '--pid', 'PID-FIRST');
  await prism.cli('send', operator, 'a question', '--type', 'Question', '--as', 'Donna', '--pid', 'PID-FIRST');
  await expect(page.getByRole('region', { name: 'To you' })).toContainText('a question');
});

test('filters that leave nothing say so, and are cleared by a button', async ({ context }) => {
  await prism.make('PID-FIRST', 'Texi');
  await prism.call('PID-FIRST', 'note', { text: 'something is kept' });
  await prism.call('PID-FIRST', 'signal', {
    to: 'Texi',
    signal_type: 'StatusUpdate',
    payload: { summary: 'something was sent' },
  });
  const page = await prism.open(context);
  for (const [at, shown] of [
    ['signals?category=BLOCKER', 'something was sent'],
    ['story?identity=Nobody', 'something was sent'],
    ['memory?identity=Nobody', 'something is kept'],
  ] as const) {
    await prism.go(page, at);
    await expect(page.getByText(/(Nothing|No signal) is like that/), at).toBeVisible();
    await expect(page.getByText(shown).first(), at).toBeHidden();
    await page.getByRole('button', { name: 'Clear the filters' }).click();
    await expect(page.getByText(shown).first(), at).toBeVisible();
    await expect(page).not.toHaveURL(/\?/);
  }
  for (const at of ['memory?view=recalls&cited=yes', 'gate?outcome=warned', 'delivery?outcome=timeout']) {
    await prism.go(page, at);
    await expect(page.getByText('Nothing is like that.').first(), at).toBeVisible();
  }
});
