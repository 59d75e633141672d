// What agents write is text, whatever it looks like; and only the operator's own browser comes in.
import type { Page } from '@playwright/test';
import { Agent } from './agent';
import { expect, PAGES, serve, test } from './prism';

const prism = serve({ demo: false });
const PID = 'PID-SAFE';
const EVIL =
  '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>\u001b[31mred\u001b]0;title\u0007\u009b2J\u202Egnp.exe\u2066 "\'><svg onload=window.pwned=1> {{7*7}} javascript:window.pwned=1';
/** What is left of it: the text, without what would command a terminal or turn a line around. */
const LEFT = '<script>window.pwned=1</script>red';
let agent: Agent;

test.beforeAll(async () => {
  agent = await Agent.start(prism, 'Donna', PID);
  const { operator } = await prism.call<{ operator: string }>('*', 'settings', {});
  await agent.call('prism_signal', {
    to: operator,
    signal_type: 'Question',
    payload: { summary: EVIL, body: EVIL, [EVIL]: EVIL, list: [EVIL] },
  });
  const delta = await agent.call<{ delta_id: string }>('prism_checkpoint', {
    summary: EVIL,
    next: EVIL,
    open_loops: [EVIL],
    touched_files: [EVIL],
    operator_visible_effect: EVIL,
    tried_and_ruled_out: [{ approach: EVIL, outcome: EVIL }],
    asked_as: [EVIL],
  });
  await agent.call('prism_remember', {
    kind: 'integration_narrative',
    body: EVIL,
    subject: EVIL,
    tags: [EVIL.slice(0, 40)],
    operator_sees: EVIL,
    pieces: [`delta:${delta.delta_id}`],
    would_break_it: EVIL,
  });
  await agent.call('prism_remember', { kind: 'fact', body: EVIL, subject: EVIL });
  await agent.call('prism_note', { text: EVIL });
  await agent.call('prism_journal', { title: EVIL, body: EVIL });
  await agent.call('prism_retro', { went_well: EVIL, went_badly: EVIL, change: EVIL });
  await agent.call('prism_postmortem', { title: EVIL, what_happened: EVIL, choice_point: EVIL, prevention: EVIL });
  await agent.call('prism_decide', { title: EVIL, context: EVIL, decision: EVIL, consequences: EVIL });
  for (const verb of ['prism_spec', 'prism_plan']) {
    await agent.call(verb, { action: 'create', title: EVIL, body: EVIL });
    await agent.call(verb, { action: 'update', number: 1, body: `${EVIL} again` });
  }
  await agent.call('prism_todo', { action: 'add', title: EVIL, body: EVIL, paths: ['docs/adrs/x.md'] });
  await agent.call('prism_operator_input', {
    class: 'correction',
    prompt_text: EVIL,
    triggered_action: EVIL,
    reverses_delta: delta.delta_id,
    confidence: 'low',
  });
  await agent.call('prism_confirm', { refers_to: `delta:${delta.delta_id}`, verdict: 'broken', notes: EVIL });
  await agent.call('semantic_recall', { query: EVIL });
});
test.afterAll(() => agent.end());

/** No script ran, no element came of it, and no character that commands is on the page. */
async function harmless(page: Page, where: string): Promise<void> {
  const found = await page.evaluate(() => ({
    ran: 'pwned' in window,
    elements: document.querySelectorAll('img, script:not([src]), svg[onload], [onerror]').length,
    controls: (
      document.documentElement.outerHTML.match(
        /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
      ) ?? []
    ).length,
  }));
  expect(found, where).toEqual({ ran: false, elements: 0, controls: 0 });
}

test('script, escapes and turned text stay text on every page', async ({ context }) => {
  const page = await prism.open(context);
  for (const name of PAGES) {
    await prism.go(page, `${name.toLowerCase()}?project=${PID}`);
    await expect(page.getByRole('heading', { level: 1, name })).toBeVisible();
    await page.waitForLoadState('networkidle');
    await harmless(page, name);
  }
  await prism.go(page, 'now');
  await expect(page.getByText(LEFT).first()).toBeVisible();
});

test('a row of each kind, opened, is text', async ({ context }) => {
  const page = await prism.open(context);
  const { rows } = await prism.call<{ rows: { id: string; kind: string }[] }>(PID, 'memory_list', { limit: 200 });
  const kinds = new Map(rows.map((r) => [r.kind, r.id]));
  expect([...kinds.keys()]).toEqual(
    expect.arrayContaining([
      'checkpoint',
      'integration_narrative',
      'decision',
      'spec',
      'plan',
      'todo',
      'journal',
      'retro',
      'postmortem',
      'fact',
      'operator_input',
      'confirmation',
    ]),
  );
  for (const [kind, id] of kinds) {
    await prism.go(page, `memory?project=${PID}&id=${id}`);
    await expect(page.getByRole('complementary', { name: 'Row' }).getByText('pwned').first(), kind).toBeVisible();
    await harmless(page, kind);
  }
  await prism.go(page, `memory?project=${PID}&q=${encodeURIComponent('window pwned script')}`);
  await expect(page.getByRole('region', { name: 'Results' }).getByRole('listitem').first()).toBeVisible();
  await harmless(page, 'results');
});

test('a signal, opened, is text, and a file of rows runs nothing', async ({ context }) => {
  const page = await prism.open(context, `signals?project=${PID}`);
  await page.getByRole('list', { name: 'Signals' }).getByRole('listitem').first().click();
  await expect(page.getByRole('complementary', { name: 'Signal' }).getByText(LEFT).first()).toBeVisible();
  await harmless(page, 'signal');
  await prism.call(PID, 'signal', {
    to: 'Donna',
    signal_type: 'StatusUpdate',
    payload: { summary: '=HYPERLINK("http://x","y")' },
  });
  await expect(page.getByText('=HYPERLINK').first()).toBeVisible();
  const saved = page.waitForEvent('download');
  await page.getByRole('button', { name: 'signals as CSV' }).click();
  const path = await (await saved).path();
  const { readFileSync } = await import('node:fs');
  expect(readFileSync(path, 'utf8')).toContain(`"'=HYPERLINK`);
});

test('nothing is loaded from elsewhere, and the policy allows no inline script or style', async ({ context }) => {
  const asked: string[] = [];
  context.on('request', (request) => asked.push(request.url()));
  const page = await prism.open(context, 'operator');
  await page.waitForLoadState('networkidle');
  expect(asked.filter((url) => !url.startsWith(prism.url) && !url.startsWith('blob:'))).toEqual([]);
  const answer = await page.request.get(prism.url);
  const policy = answer.headers()['content-security-policy'] ?? '';
  expect(policy).toContain("default-src 'none'");
  expect(policy).not.toContain('unsafe');
});

test('a link opens one browser, once', async ({ browser }) => {
  const link = await prism.link();
  const [first, second] = [await browser.newContext(), await browser.newContext()];
  const page = await first.newPage();
  await page.goto(link);
  await expect(page.getByRole('heading', { level: 1, name: 'Now' })).toBeVisible();
  expect(page.url(), 'no key stays in the address').not.toMatch(/prk_|sign-in|token/);
  const late = await second.newPage();
  const answer = await late.goto(link);
  expect(answer?.status()).toBe(401);
  await expect(late.getByText(/prism dashboard/).first()).toBeVisible();
  const [cookie] = await first.cookies();
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: 'Strict' });
});

test('without a session the page says how to get one, and has no data', async ({ browser }) => {
  const page = await (await browser.newContext()).newPage();
  const answer = await page.goto(prism.url);
  expect(answer?.status()).toBe(401);
  await expect(page.getByText(/prism dashboard/).first()).toBeVisible();
  expect(await page.content()).not.toContain(PID);
});

test('first-load assets are small', async ({ context }) => {
  const sizes: number[] = [];
  context.on(
    'response',
    (response) =>
      void response
        .request()
        .sizes()
        .then((s) => /assets\/|\/$/.test(new URL(response.url()).pathname) && sizes.push(s.responseBodySize))
        .catch(() => undefined),
  );
  const page = await prism.open(context);
  await page.waitForLoadState('networkidle');
  const total = sizes.reduce((a, b) => a + b, 0);
  expect(sizes.length).toBeGreaterThanOrEqual(3);
  expect(total).toBeLessThan(120 * 1024);
});
