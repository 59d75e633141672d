// What one browser does, another sees; a server that goes away shows, and comes back.
import type { Page } from '@playwright/test';
import { Agent } from './agent';
import { AWAY, excuse, expect, REFUSED, serve, test } from './prism';

const prism = serve({ demo: false });
const PID = 'PID-LIVE';
let donna: Agent;

test.beforeAll(async () => {
  donna = await Agent.start(prism, 'Donna', PID);
});
test.afterAll(() => donna.end());

test('one browser acts, the other sees it', async ({ browser }) => {
  const [here, there] = [
    await prism.other(browser, 'operator'),
    await prism.other(browser, 'operator?review=accepted'),
  ];
  await donna.call('prism_operator_input', {
    class: 'confirmation',
    prompt_text: 'perfect, just like that',
    confidence: 'high',
  });
  const row = here.getByRole('listitem').filter({ hasText: 'just like that' });
  await row.getByRole('button', { name: 'Accept', exact: true }).click();
  const seen = there.getByRole('listitem').filter({ hasText: 'just like that' });
  await expect(seen).toBeVisible();
  await seen.getByRole('button', { name: 'Undo', exact: true }).click();
  await expect(row.getByRole('button', { name: 'Accept', exact: true })).toBeVisible();
});

test('what the gate notices, a label, a probe and a verdict are seen in another browser', async ({ browser }) => {
  const texi = await Agent.start(prism, 'Texi', PID);
  const [here, there] = [await prism.other(browser, 'gate'), await prism.other(browser, 'gate')];
  const sent = await prism.call<{ signal_id: string }>(PID, 'signal', {
    to: 'Texi',
    signal_type: 'TaskAssigned',
    payload: { summary: 'implement docs/specs/SPEC-060.md', tags: ['architecture'] },
  });
  await texi.call('prism_signals_pending', {});
  await texi.call('prism_signal_ack', { signal_id: sent.signal_id });
  const noticed = (page: Page) =>
    page.getByRole('region', { name: 'What the gate noticed' }).getByRole('listitem').filter({ hasText: 'SPEC-060' });
  await expect(noticed(there)).toHaveCount(1);
  await noticed(here).getByRole('button', { name: 'Right', exact: true }).click();
  await expect(noticed(there).getByRole('button', { name: 'Right', exact: true })).toHaveAttribute(
    'aria-pressed',
    'true',
  );
  await expect(there.getByRole('region', { name: 'Precision' })).toContainText('1 judged warning');

  await Promise.all([here, there].map((page) => prism.go(page, 'delivery')));
  const runs = (page: Page) =>
    page.getByRole('region', { name: 'Runs' }).getByRole('row').filter({ hasText: 'Texi' });
  const session = here.getByRole('region', { name: /^Open sessions/ }).getByRole('listitem').filter({ hasText: 'Texi' });
  await expect(there.getByRole('region', { name: /^Open sessions/ })).toContainText('Texi');
  await expect(runs(there)).toHaveCount(0);
  await session.getByRole('button', { name: 'Run probe', exact: true }).click();
  await expect(runs(there)).toHaveCount(1);

  await texi.call('prism_note', { text: 'a note that both look at' });
  await Promise.all([here, there].map((page) => prism.go(page, 'memory')));
  const note = (page: Page) => page.getByRole('listitem').filter({ hasText: 'a note that both look at' });
  await note(here).getByRole('button', { name: 'Partial', exact: true }).click();
  await expect(note(there).locator('.chip').filter({ hasText: 'partial' })).toBeVisible();
  await texi.end();
  await Promise.all([here, there].map((page) => prism.go(page, 'delivery')));
  await expect(there.getByRole('region', { name: /^Open sessions/ })).not.toContainText('Texi');
});

test('what one browser answers leaves the other, and what waits at a terminal comes and goes', async ({ browser }) => {
  const { operator } = await prism.call<{ operator: string }>('*', 'settings', {});
  const [here, there] = [await prism.other(browser, 'now'), await prism.other(browser, 'now')];
  await donna.call('prism_signal', { to: operator, signal_type: 'Question', payload: { summary: 'is it one?' } });
  const ask = (page: Page) =>
    page.getByRole('region', { name: 'To you' }).getByRole('listitem').filter({ hasText: 'is it one?' });
  await expect(ask(there)).toBeVisible();
  await ask(here).getByRole('textbox').fill('it is');
  await ask(here).getByRole('button', { name: 'Reply', exact: true }).click();
  await expect(ask(there)).toHaveCount(0);
});

test('a signal and each of its states come in by themselves', async ({ browser }) => {
  const page = await prism.other(browser, 'signals');
  const sent = await prism.call<{ signal_id: string }>(PID, 'signal', {
    to: 'Donna',
    signal_type: 'TaskAssigned',
    payload: { summary: 'follow me' },
  });
  const row = page.getByRole('list', { name: 'Signals' }).getByRole('listitem').filter({ hasText: 'follow me' });
  await expect(row).toContainText('waiting');
  await donna.call('prism_signals_pending', {});
  await expect(row).toContainText('drained');
  await donna.call('prism_signal_ack', { signal_id: sent.signal_id, state: 'model_acted' });
  await expect(row).toContainText('acted');
});

test('an ASK that comes in is told by the browser, where that is allowed', async ({ browser }) => {
  const context = await browser.newContext({ permissions: ['notifications'] });
  await context.addInitScript(() => {
    const told: string[] = [];
    Object.assign(window, { told });
    window.Notification = class extends EventTarget {
      static permission = 'granted';
      constructor(title: string, { body }: { body: string }) {
        super();
        told.push(`${title} | ${body}`);
      }
    } as unknown as typeof Notification;
  });
  const page = await prism.open(context, 'story');
  const { operator } = await prism.call<{ operator: string }>('*', 'settings', {});
  await donna.call('prism_signal', {
    to: operator,
    signal_type: 'StatusUpdate',
    payload: { summary: 'only to be known' },
  });
  await donna.call('prism_signal', { to: operator, signal_type: 'Question', payload: { summary: 'may I drop it?' } });
  await expect
    .poll(() => page.evaluate(() => (window as unknown as { told: string[] }).told))
    .toEqual([`ASK: Donna → ${operator} | may I drop it?`]);
});

test('a page outlives a restart of its server, and has what came meanwhile', async ({ browser }) => {
  excuse(AWAY);
  const page = await prism.other(browser, 'now');
  await prism.stop('SIGKILL');
  await expect(page.getByRole('status')).toHaveText(/reconnecting|offline/);
  await expect(page.getByRole('heading', { level: 1, name: 'Now' })).toBeVisible();
  await prism.start();
  const operator = (await prism.call<{ operator: string }>('*', 'settings', {})).operator;
  await prism.call(PID, 'signal', {
    to: operator,
    signal_type: 'Question',
    payload: { summary: 'sent while it was away' },
  });
  await expect(page.getByRole('status')).toHaveText('live', { timeout: 20_000 });
  await expect(page.getByText('sent while it was away')).toBeVisible();
});

test('a server that stays away is offline, in words', async ({ browser }) => {
  excuse(AWAY);
  const page = await prism.other(browser, 'signals');
  await prism.stop();
  await expect(page.getByRole('status')).toHaveText('offline', { timeout: 20_000 });
  await prism.start();
  await expect(page.getByRole('status')).toHaveText('live', { timeout: 20_000 });
});

test('a page of another version says so', async ({ browser }) => {
  const page = await prism.other(browser, 'now');
  await page.route('**/api/v1/**', async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, headers: { ...answer.headers(), 'prism-version': '99.0.0' } });
  });
  await page.getByRole('link', { name: 'Gate', exact: true }).click();
  await expect(page.getByRole('alert')).toContainText('99.0.0');
  await expect(page.getByRole('button', { name: 'Reload' })).toBeVisible();
  // A call that is still under way when the page closes is nobody's fault.
  await page.unrouteAll({ behavior: 'ignoreErrors' });
});

test('a browser that is signed out in another one is told how to come back', async ({ browser }) => {
  excuse(AWAY, REFUSED);
  const [page, other] = [
    await prism.other(browser, 'now', { userAgent: 'FirstBrowser/1.0' }),
    await prism.other(browser, 'settings'),
  ];
  const key = other.getByRole('region', { name: 'Keys' }).getByRole('row').filter({ hasText: 'FirstBrowser' });
  await key.getByRole('button', { name: 'Revoke' }).click();
  await key.getByRole('button', { name: 'Sign that browser out' }).click();
  await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible({ timeout: 15_000 });
  await expect(page.getByText('prism dashboard', { exact: true })).toBeVisible();
  await page.reload();
  await expect(page.getByText(/prism dashboard/).first()).toBeVisible();
});

test('what was being done when the server went is said, kept, and done once when it is back', async ({ browser }) => {
  excuse(AWAY);
  const page = await prism.other(browser, `signals?project=${PID}`);
  const summary = page.getByRole('textbox', { name: 'Summary' });
  await summary.fill('sent into the dark');
  await prism.stop('SIGKILL');
  await page.getByRole('button', { name: 'Send', exact: true }).click();
  const compose = page.getByRole('region', { name: 'Send a signal' });
  await expect(compose.getByRole('alert')).toContainText('does not answer');
  await expect(compose.getByRole('alert')).toContainText('prism up');
  await expect(summary).toHaveValue('sent into the dark');
  await prism.start();
  await expect(page.getByRole('status')).toHaveText('live', { timeout: 20_000 });
  await page.getByRole('button', { name: 'Send', exact: true }).click();
  await expect(summary).toHaveValue('');
  const sent = page.getByRole('list', { name: 'Signals' }).getByRole('listitem').filter({ hasText: 'into the dark' });
  await expect(sent).toHaveCount(1);
});

test('an answer whose sender was signed out meanwhile is there again after signing in', async ({ browser }) => {
  excuse(AWAY, REFUSED);
  const { operator } = await prism.call<{ operator: string }>('*', 'settings', {});
  await donna.call('prism_signal', { to: operator, signal_type: 'Question', payload: { summary: 'still there?' } });
  const page = await prism.other(browser, 'now');
  const row = page.getByRole('region', { name: 'To you' }).getByRole('listitem').filter({ hasText: 'still there?' });
  const field = row.getByRole('textbox', { name: 'Answer to Donna' });
  await field.pressSequentially('yes, as before');
  const { keys } = await prism.call<{ keys: { key_id: string; browser?: string; revoked_at?: string }[] }>(
    '*',
    'key_list',
    {},
  );
  for (const key of keys.filter((k) => k.browser && !k.revoked_at)) await prism.cli('key', 'revoke', key.key_id);
  await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible({ timeout: 15_000 });
  await page.getByRole('button', { name: 'I have done that' }).click();
  await expect(page.getByRole('alert')).toContainText('prism dashboard');
  // Another tab of the same browser signs in; this one goes on where it was.
  await prism.open(page.context());
  await page.bringToFront();
  await page.getByRole('button', { name: 'I have done that' }).click({ timeout: 2_000 }).catch(() => undefined);
  await expect(page.getByRole('status')).toHaveText('live');
  await expect(field).toHaveValue('yes, as before');
  await row.getByRole('button', { name: 'Reply', exact: true }).click();
  await expect(row).toHaveCount(0);
});
