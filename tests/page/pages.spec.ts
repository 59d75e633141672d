// Every page shows the demonstration, by the names that people and screen readers rely on.
import { excuse, expect, PAGES, REFUSED, serve, test } from './prism';

const prism = serve();

test('each page is reached by its link and has its heading', async ({ context }) => {
  const page = await prism.open(context);
  for (const name of PAGES) {
    await page.getByRole('link', { name, exact: true }).click();
    await expect(page.getByRole('heading', { level: 1, name, exact: true })).toBeVisible();
    await expect(page).toHaveTitle(new RegExp(`${name} · Prism`));
  }
});

test('the demonstration fills what waits, and every agent is there', async ({ context }) => {
  const page = await prism.open(context, 'now');
  await expect(page.getByRole('region', { name: 'To you' }).getByRole('listitem').first()).toBeVisible();
  await expect(
    page
      .getByRole('region', { name: 'Your words to review' })
      .getByRole('button', { name: 'Accept', exact: true })
      .first(),
  ).toBeVisible();
  await expect(
    page.getByRole('region', { name: 'Warnings to judge' }).getByRole('button', { name: 'Right', exact: true }).first(),
  ).toBeVisible();
  await expect
    .poll(() => page.getByRole('region', { name: 'Everybody' }).getByRole('listitem').count())
    .toBeGreaterThanOrEqual(4);
});

test('a stuck signal says why, and what to do', async ({ context }) => {
  const page = await prism.open(context, 'signals?state=waiting');
  const row = page.getByRole('list', { name: 'Signals' }).getByRole('listitem').filter({ hasText: 'stuck' }).first();
  await row.click();
  const signal = page.getByRole('complementary', { name: 'Signal' });
  await expect(signal.getByText('queued', { exact: true }).first()).toBeVisible();
  await expect(signal.locator('.notice.bad')).toHaveText(/\S+/);
});

test('the history is searched and filtered, and the address keeps it', async ({ context }) => {
  const page = await prism.open(context, 'signals');
  const rows = page.getByRole('list', { name: 'Signals' }).getByRole('listitem');
  await expect(rows.first()).toBeVisible();
  await page.getByRole('combobox', { name: 'Category' }).selectOption('BLOCKER');
  await expect(page).toHaveURL(/category=BLOCKER/);
  await expect(rows.first()).toContainText('BLOCKER');
  await expect(rows.filter({ hasText: 'TASK' })).toHaveCount(0);
  await page.reload();
  await expect(page.getByRole('combobox', { name: 'Category' })).toHaveValue('BLOCKER');
  await page.getByRole('searchbox', { name: 'Search' }).fill('zzz-no-such-word');
  await expect(page.getByText(/No signal is like that|Looked back to/)).toBeVisible();
  await page.goBack();
  await expect(page.getByRole('combobox', { name: 'Category' })).toHaveValue('');
});

test('a story can be narrowed to one task and read from its beginning', async ({ context }) => {
  const page = await prism.open(context, 'story');
  await expect(page.locator('.event').first()).toBeVisible();
  for (const kind of ['signal', 'recall', 'delta', 'verdict', 'input'])
    await expect(page.locator(`.event[data-kind=${kind}]`).first()).toBeVisible();
  await page.getByRole('link', { name: 'Only this task' }).first().click();
  await expect(page.getByRole('region', { name: 'How it went' })).toBeVisible();
  await expect(page.locator('.event').first()).toHaveAttribute('data-kind', 'signal');
});

test('memory shows its kinds, versions and neighbours', async ({ context }) => {
  const page = await prism.open(context, 'memory');
  const { agents } = await prism.call<{ agents: { pid: string }[] }>('*', 'agents', {});
  await prism.call(agents[0]?.pid ?? '', 'plan', { action: 'create', title: 'The week after', body: 'Yen first.' });
  const views = {
    Narratives: 'integration narrative',
    Decisions: 'decision',
    Specs: 'spec',
    Plans: 'plan',
    Todos: 'todo',
    Postmortems: 'postmortem',
  };
  for (const [view, kind] of Object.entries(views)) {
    await page.getByRole('button', { name: view, exact: true }).click();
    await expect(
      page.getByRole('region', { name: 'Rows' }).getByRole('listitem').first().locator('.chip').first(),
    ).toHaveText(new RegExp(`^${kind}( \\d+)?$`));
  }
  await page.getByRole('button', { name: 'Decisions', exact: true }).click();
  await page.getByRole('region', { name: 'Rows' }).getByRole('listitem').first().getByRole('link').first().click();
  await expect(
    page.getByRole('complementary', { name: 'Row' }).getByRole('heading', { name: 'Beside it' }),
  ).toBeVisible();
  await page.getByRole('button', { name: 'What agents asked' }).click();
  await expect(page.getByRole('region', { name: 'Recalls' }).getByRole('listitem').first()).toBeVisible();
});

test('every panel of the operator shows figures, and gives them as a table and a file', async ({ context }) => {
  const page = await prism.open(context, 'operator');
  for (const panel of [
    'Unreviewed',
    'Confirmation rate',
    'Misclassification by agent',
    'Corrections by what was being done',
    'Repeat corrections',
    'Confirmations against corrections',
    'Dead ends',
    'Recalls',
    'Memory in use',
  ]) {
    const region = page.getByRole('region', { name: panel, exact: true });
    await expect(region, panel).toBeVisible();
    await expect(region.locator('.empty'), panel).toHaveCount(0);
  }
  const rate = page.getByRole('region', { name: 'Confirmation rate', exact: true });
  await rate.getByRole('button', { name: 'Confirmation rate as a table' }).click();
  await expect(rate.getByRole('columnheader', { name: 'works' })).toBeVisible();
  const saved = page.waitForEvent('download');
  await rate.getByRole('button', { name: 'confirmations as CSV' }).click();
  expect((await saved).suggestedFilename()).toBe('prism-confirmations.csv');
});

test('delivery shows a drop, the gate its precision, settings what is kept', async ({ context }) => {
  const page = await prism.open(context, 'delivery');
  await expect(page.getByRole('region', { name: /^Arrival/ }).first()).toBeVisible();
  await expect(
    page
      .getByRole('region', { name: 'Runs' })
      .getByText(/partial|timeout/)
      .first(),
  ).toBeVisible();
  await prism.go(page, 'gate');
  await expect(page.getByRole('region', { name: 'Precision' })).toContainText('0.7');
  await expect(page.getByRole('region', { name: 'Warned and satisfied' }).getByRole('img')).toBeVisible();
  await prism.go(page, 'settings');
  await expect(page.getByText('demonstration').first()).toBeVisible();
  await expect(
    page
      .getByRole('region', { name: 'Keys' })
      .getByText(/Chrom\w+ \d+ on Linux/)
      .first(),
  ).toBeVisible();
  await expect(
    page
      .getByRole('region', { name: 'What is kept' })
      .getByText(/signals/i)
      .first(),
  ).toBeVisible();
});

test('a path that names a page is that page', async ({ context }) => {
  const page = await prism.open(context);
  await page.goto(`${prism.url}signals?state=waiting`);
  await expect(page.getByRole('heading', { level: 1, name: 'Signals' })).toBeVisible();
  await expect(page.getByRole('combobox', { name: 'State' })).toHaveValue('waiting');
});

test('nonsense in the address, and a row that is gone, are said plainly', async ({ context }) => {
  excuse(REFUSED);
  const page = await prism.open(context, 'signals?category=NONSENSE');
  await expect(page.getByRole('alert')).toContainText(/category/i);
  await prism.go(page, 'signals?id=00000000-0000-4000-8000-000000000000');
  await expect(page.getByRole('complementary', { name: 'Signal' }).getByRole('alert')).toHaveText(/\S+/);
  await prism.go(page, 'no-such-page');
  await expect(page.getByRole('heading', { level: 1, name: 'Now' })).toBeVisible();
});
