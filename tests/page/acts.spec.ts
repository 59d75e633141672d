// Everything that can be done from the page is done, and the command line sees it.
import { Agent } from './agent';
import { AWAY, excuse, expect, REFUSED, serve, test } from './prism';

const prism = serve({ demo: false });
const PID = 'PID-ACTS';
let donna: Agent;
let texi: Agent;

test.beforeAll(async () => {
  donna = await Agent.start(prism, 'Donna', PID);
  texi = await Agent.start(prism, 'Texi', PID);
  for (const n of [1, 2, 3, 4])
    await donna.call('prism_operator_input', {
      class: 'correction',
      prompt_text: `stop, not the title bar ${n}`,
      triggered_action: 'editing the title watcher',
      confidence: 'high',
    });
});
test.afterAll(() => Promise.all([donna.end(), texi.end()]));

const operator = async (): Promise<string> => (await prism.call<{ operator: string }>('*', 'settings', {})).operator;

test('an input is accepted, rejected and undone, by click and by key', async ({ context }) => {
  const page = await prism.open(context, 'operator');
  const row = page.getByRole('region', { name: 'Unreviewed' }).getByRole('listitem').filter({ hasText: 'title bar 1' });
  await row.getByRole('button', { name: 'Accept', exact: true }).click();
  await expect(row.getByText('accepted', { exact: true })).toBeVisible();
  await row.getByRole('button', { name: 'Undo', exact: true }).click();
  await expect(row.getByRole('button', { name: 'Reject', exact: true })).toBeVisible();
  await row.getByRole('button', { name: 'Reject', exact: true }).click();
  await expect(row).toContainText('Donna is told at its next start');
  expect(await prism.cli('review', '--help')).toContain('--undo');

  const other = page
    .getByRole('region', { name: 'Unreviewed' })
    .getByRole('listitem')
    .filter({ hasText: 'title bar 2' });
  await other.focus();
  await page.keyboard.press('a');
  await expect(other.getByText('accepted', { exact: true })).toBeVisible();
  await other.focus();
  await page.keyboard.press('u');
  await expect(other.getByRole('button', { name: 'Accept', exact: true })).toBeVisible();
  const { inputs } = await prism.call<{ inputs: { prompt_text: string; operator_review?: string }[] }>(
    PID,
    'input_list',
    {},
  );
  expect(inputs.find((i) => i.prompt_text.endsWith('1'))?.operator_review).toBe('rejected');
  expect(inputs.find((i) => i.prompt_text.endsWith('2'))?.operator_review ?? null).toBeNull();
});

test('several inputs are accepted at once, and taken back at once', async ({ context }) => {
  const page = await prism.open(context, 'operator');
  const region = page.getByRole('region', { name: 'Unreviewed' });
  for (const n of ['3', '4'])
    await region
      .getByRole('listitem')
      .filter({ hasText: `title bar ${n}` })
      .getByRole('checkbox')
      .check();
  await page.getByRole('button', { name: 'Accept 2' }).click();
  await expect(region.getByRole('listitem').getByText('accepted', { exact: true })).toHaveCount(2);
  for (const n of ['3', '4'])
    await region
      .getByRole('listitem')
      .filter({ hasText: `title bar ${n}` })
      .getByRole('checkbox')
      .check();
  const left = async () => {
    const { inputs } = await prism.call<{ inputs: { prompt_text: string }[] }>(PID, 'input_list', {
      review: 'unreviewed',
    });
    return inputs.map((i) => i.prompt_text.slice(-1)).filter((n) => n === '3' || n === '4');
  };
  expect(await left()).toEqual([]);
  await page.getByRole('button', { name: 'Undo 2' }).click();
  await expect(region.getByRole('listitem').getByText('accepted', { exact: true })).toHaveCount(0);
  expect((await left()).sort()).toEqual(['3', '4']);
  for (const n of ['3', '4'])
    await region
      .getByRole('listitem')
      .filter({ hasText: `title bar ${n}` })
      .getByRole('checkbox')
      .check();
  await page.getByRole('button', { name: 'Reject 2' }).click();
  await expect(region.getByText('Donna is told at its next start')).toHaveCount(2);
  for (const n of ['3', '4'])
    await region
      .getByRole('listitem')
      .filter({ hasText: `title bar ${n}` })
      .getByRole('checkbox')
      .check();
  await page.getByRole('button', { name: 'Undo 2' }).click();
  await expect(region.getByText('Donna is told at its next start')).toHaveCount(0);
  expect((await left()).sort()).toEqual(['3', '4']);
});

test('a signal is sent, followed, and taken back', async ({ context }) => {
  const page = await prism.open(context, 'signals');
  await page.getByRole('combobox', { name: 'To' }).selectOption({ label: `Texi · ${PID}` });
  await page.getByRole('combobox', { name: 'Kind' }).selectOption('Question');
  await page.getByRole('textbox', { name: 'Summary' }).fill('which ring file is read after a rename?');
  await page.getByRole('button', { name: 'Send', exact: true }).click();
  const row = page.getByRole('list', { name: 'Signals' }).getByRole('listitem').filter({ hasText: 'which ring file' });
  await expect(row).toContainText('ASK');
  await row.click();
  const shown = page.getByRole('complementary', { name: 'Signal' });
  await expect(shown.getByText('other on')).toBeVisible();
  await shown.getByRole('button', { name: 'Take back' }).click();
  await expect(shown.getByText('recalled', { exact: true }).first()).toBeVisible();
  const { signals } = await texi.call<{ signals: { payload: { summary: string } }[] }>('prism_signals_pending', {});
  expect(signals.map((s) => s.payload.summary)).not.toContain('which ring file is read after a rename?');
});

test('what an agent asks is answered where it stands', async ({ context }) => {
  const page = await prism.open(context, 'now');
  await donna.call('prism_signal', {
    to: await operator(),
    signal_type: 'Question',
    payload: { summary: 'keep the old rows?' },
  });
  const ask = page
    .getByRole('region', { name: 'To you' })
    .getByRole('listitem')
    .filter({ hasText: 'keep the old rows?' });
  await expect(ask).toContainText('ASK');
  await expect(page).toHaveTitle(/^\(\d+\) Now/);
  await ask.getByRole('textbox').fill('yes, keep them');
  await ask.getByRole('button', { name: 'Reply', exact: true }).click();
  await expect(ask).toHaveCount(0);
  const { signals } = await donna.call<{ signals: { signal_type: string; payload: { summary: string } }[] }>(
    'prism_signals_pending',
    {},
  );
  expect(signals.find((s) => s.payload.summary === 'yes, keep them')?.signal_type).toBe('Answer');
});

test('what is only to be known is marked as seen', async ({ context }) => {
  await donna.call('prism_signal', {
    to: await operator(),
    signal_type: 'StatusUpdate',
    payload: { summary: 'tests are green' },
  });
  const page = await prism.open(context, 'now');
  const row = page.getByRole('region', { name: 'To you' }).getByRole('listitem').filter({ hasText: 'tests are green' });
  await row.getByRole('button', { name: 'Seen' }).click();
  await expect(row).toHaveCount(0);
});

test('a row is recalled, judged and walked from', async ({ context }) => {
  await donna.call('prism_checkpoint', {
    summary: 'The prompt shows persona and project, read from core/src/ring.rs',
    operator_visible_effect: 'The prompt names persona and project',
    touched_files: ['core/src/ring.rs'],
  });
  const page = await prism.open(context, `memory?project=${PID}`);
  await page.getByRole('searchbox', { name: 'Recall' }).fill('what does the prompt show');
  const hit = page
    .getByRole('region', { name: 'Results' })
    .getByRole('listitem')
    .filter({ hasText: 'persona and project' })
    .first();
  await expect(hit.getByRole('list', { name: 'Why it is here' })).toHaveText(/\S+/);
  await hit.getByRole('button', { name: 'Works', exact: true }).click();
  await expect(hit.getByRole('list', { name: 'Verdicts' })).toContainText('direct');
  await hit.getByRole('link').first().click();
  const row = page.getByRole('complementary', { name: 'Row' });
  await expect(row.getByText('You see:')).toBeVisible();
  await expect(row.getByRole('list', { name: 'Points here' })).toContainText('confirms');
  await row.getByRole('button', { name: 'Partial', exact: true }).click();
  await expect(row.getByRole('list', { name: 'Verdicts' })).toContainText('partial');
  const { events } = await prism.call<{ events: unknown[] }>(PID, 'recall_list', {});
  expect(events, 'a look at the page is no recall of an agent').toEqual([]);
});

test('a warning is labelled, and can be labelled otherwise', async ({ context }) => {
  const sent = await prism.call<{ signal_id: string }>(PID, 'signal', {
    to: 'Texi',
    signal_type: 'TaskAssigned',
    payload: { summary: 'implement docs/specs/SPEC-060.md', tags: ['architecture'] },
  });
  await texi.call('prism_signals_pending', {});
  await texi.call('prism_signal_ack', { signal_id: sent.signal_id });
  const page = await prism.open(context, 'gate');
  const row = page
    .getByRole('region', { name: 'What the gate noticed' })
    .getByRole('listitem')
    .filter({ hasText: 'SPEC-060' })
    .first();
  await row.getByRole('button', { name: 'Right', exact: true }).click();
  await expect(row.getByRole('button', { name: 'Right', exact: true })).toHaveAttribute('aria-pressed', 'true');
  await row.getByRole('button', { name: 'False alarm', exact: true }).click();
  await expect(row.getByRole('button', { name: 'False alarm', exact: true })).toHaveAttribute('aria-pressed', 'true');
  await expect(page.getByRole('region', { name: 'Precision' })).toContainText('1 judged warning');
});

test('a probe runs from the page', async ({ context }) => {
  const page = await prism.open(context, 'delivery');
  const session = page
    .getByRole('region', { name: /^Open sessions/ })
    .getByRole('listitem')
    .filter({ hasText: 'Donna' });
  await session.getByRole('button', { name: 'Run probe', exact: true }).click();
  await expect(session.getByText('received by the shim')).toBeVisible();
  await expect(page.getByRole('region', { name: 'Runs' }).getByRole('row').filter({ hasText: 'Donna' })).toHaveCount(1);
});

test('personas and keys: added, shown once, revoked', async ({ context }) => {
  const page = await prism.open(context, 'settings');
  const project = page.getByRole('region', { name: PID, exact: true });
  await project.getByRole('textbox', { name: `New persona in ${PID}` }).fill('Harvey');
  await project.getByRole('button', { name: 'Add persona' }).click();
  await expect(project.getByText('Harvey', { exact: true })).toBeVisible();
  await project.getByRole('button', { name: 'New key for Harvey' }).click();
  await expect(project.getByText(/^prk_/)).toBeVisible();
  await page.reload();
  await expect(page.getByText(/^prk_[A-Za-z0-9_-]{20,}/)).toHaveCount(0);
  const key = page.getByRole('region', { name: 'Keys' }).getByRole('row').filter({ hasText: 'Harvey' });
  await key.getByRole('button', { name: 'Revoke' }).click();
  await key.getByRole('button', { name: /Revoke Harvey/ }).click();
  await expect(key).toHaveCount(0);
});

test('a session is released', async ({ context }) => {
  const mike = await Agent.start(prism, 'Mike', PID);
  const page = await prism.open(context, 'delivery');
  const session = page
    .getByRole('region', { name: /^Open sessions/ })
    .getByRole('listitem')
    .filter({ hasText: 'Mike' });
  await session.getByRole('button', { name: 'Release' }).click();
  await session.getByRole('button', { name: 'End Mike’s session' }).click();
  await expect(session).toHaveCount(0);
  await mike.end();
});

test('a todo is done, a postmortem resolved, and what an agent asks for is marked as done', async ({ context }) => {
  await donna.call('prism_todo', { action: 'add', title: 'sweep the deck' });
  await donna.call('prism_postmortem', {
    title: 'the mast fell',
    what_happened: 'it fell',
    choice_point: 'the rope',
    prevention: 'another rope',
  });
  const page = await prism.open(context);
  for (const [view, title, button, status] of [
    ['todos', 'sweep the deck', 'Mark as done', 'done'],
    ['postmortems', 'the mast fell', 'Mark as resolved', 'resolved'],
  ] as const) {
    await prism.go(page, `memory?project=${PID}&view=${view}`);
    await page.getByRole('region', { name: 'Rows' }).getByRole('link').filter({ hasText: title }).click();
    const row = page.getByRole('complementary', { name: 'Row' });
    await row.getByRole('button', { name: button }).click();
    await expect(row.getByRole('button', { name: button })).toHaveCount(0);
    await expect(row.getByText(status, { exact: true })).toBeVisible();
  }
  const { signal_id } = await donna.call<{ signal_id: string }>('prism_signal', {
    to: await operator(),
    signal_type: 'TaskAssigned',
    payload: { summary: 'please sign the log' },
  });
  await prism.go(page, 'now');
  const row = page.getByRole('region', { name: 'To you' }).getByRole('listitem').filter({ hasText: 'sign the log' });
  await row.getByRole('button', { name: 'Done', exact: true }).click();
  await expect(row).toHaveCount(0);
  const { signal } = await prism.call<{ signal: { state: string } }>(PID, 'signal_show', { signal_id });
  expect(signal.state).toBe('acted');
});

test('a signal between others is taken back from Now', async ({ context }) => {
  await donna.call('prism_signal', { to: 'Texi', signal_type: 'Question', payload: { summary: 'is it you, Texi?' } });
  const page = await prism.open(context, 'now');
  const row = page.getByRole('region', { name: 'Unread between agents' }).getByRole('listitem').filter({ hasText: 'is it you' });
  await row.getByRole('button', { name: 'Take back' }).click();
  await expect(row).toHaveCount(0);
});

test('a folder is shown with its project, and forgotten', async ({ context }) => {
  await prism.cli('project', 'allow', PID);
  const page = await prism.open(context, 'settings');
  const folders = page.getByRole('region', { name: `Folders of ${PID}` });
  await expect(folders).toContainText(prism.home);
  const folder = folders.getByRole('listitem').filter({ hasText: prism.home });
  await folder.getByRole('button', { name: 'Forget', exact: true }).click();
  await folder.getByRole('button', { name: 'Forget this folder' }).click();
  await expect(folders).not.toContainText(prism.home);
});

test('settings say what this server is, has and keeps', async ({ context }) => {
  const page = await prism.open(context, 'settings');
  interface Settings {
    server_version: string;
    operator: string;
    gate_mode: string;
    watchers_max: number;
    surfaces: { surface: string; machine_id: string }[];
    stored: { rows: Record<string, number> };
    retention: { kind: string }[];
  }
  const of = await prism.call<Settings>('*', 'settings', {});
  const server = page.getByRole('region', { name: 'This server' });
  for (const text of [of.server_version, of.operator, of.gate_mode, `${of.watchers_max} at most`])
    await expect(server).toContainText(text);
  for (const { surface, machine_id } of of.surfaces)
    await expect(
      page.getByRole('region', { name: 'Seen at work' }).getByRole('row').filter({ hasText: surface }),
    ).toContainText(machine_id);
  expect(of.surfaces.length).toBeGreaterThan(0);
  const kept = page.getByRole('region', { name: 'What is kept' });
  await expect(kept).toContainText(/\d+(\.\d+)? [KM]B/);
  for (const { kind } of of.retention) await expect(kept.getByRole('table')).toContainText(kind.replaceAll('_', ' '));
  for (const kind of Object.keys(of.stored.rows)) await expect(kept).toContainText(kind.replaceAll('_', ' '));
});

test('signing out ends the session and its key', async ({ browser }) => {
  excuse(AWAY, REFUSED);
  const page = await prism.other(browser, 'settings', { userAgent: 'LeavingBrowser/1.0' });
  const keys = async () => (await prism.cli('key', 'list')).includes('LeavingBrowser');
  expect(await keys()).toBe(true);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await expect(page.getByText(/prism dashboard/).first()).toBeVisible();
  const answer = await page.goto(prism.url);
  expect(answer?.status()).toBe(401);
  const { keys: all } = await prism.call<{ keys: { browser?: string; revoked_at?: string }[] }>('*', 'key_list', {});
  expect(all.filter((k) => k.browser?.includes('LeavingBrowser') && !k.revoked_at)).toEqual([]);
});

test('a refusal says what to do', async ({ context }) => {
  excuse(REFUSED);
  const page = await prism.open(context, 'settings');
  const project = page.getByRole('region', { name: PID, exact: true });
  await project.getByRole('textbox', { name: `New persona in ${PID}` }).fill('no spaces allowed');
  await project.getByRole('button', { name: 'Add persona' }).click();
  await expect(project.getByRole('alert')).toHaveText(/\S+/);
});
