// What one browser does, another sees; a server that goes away shows, and comes back.
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
  // A call that is still under way when the page closes is nobody's fault.
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  await expect(page.getByRole('button', { name: 'Reload' })).toBeVisible();
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
