// What can be seen and done in the demonstration, to its end.
import { AWAY, excuse, expect, REFUSED, serve, test } from './prism';

const prism = serve();

test('a verdict stands on a signal, and where none can stand the page says so', async ({ context }) => {
  const { signals } = await prism.call<{ signals: { pid: string; signal_id: string }[] }>('*', 'signal_list', {
    category: 'TASK',
    limit: 1,
  });
  const signal = signals[0];
  if (!signal) throw new Error('the demonstration has no task');
  const page = await prism.open(context, `signals?id=${signal.signal_id}`);
  const works = page.getByRole('complementary', { name: 'Signal' }).getByRole('button', { name: 'Works', exact: true });
  await works.click();
  await expect(works).toHaveAttribute('aria-pressed', 'true');
  const said = await prism.call<{ items: { kind: string; what: string; links: { id: string }[] }[] }>(
    signal.pid,
    'story',
    { signal_id: signal.signal_id },
  );
  const verdict = said.items.find((i) => i.kind === 'verdict' && i.links.some((l) => l.id === signal.signal_id));
  expect(verdict?.what).toBe('works');
  await prism.go(page, 'memory?view=plans');
  await expect(page.getByText(/what has no buttons here is none of these/)).toBeVisible();
  const plan = page.getByRole('region', { name: 'Rows' }).getByRole('listitem').first();
  await expect(plan.getByRole('button', { name: 'Works' })).toHaveCount(0);
  await plan.getByRole('link').click();
  await expect(page.getByText(/No verdict can stand on this/)).toBeVisible();
  await prism.go(page, 'memory?view=specs');
  await expect(page.getByRole('button', { name: 'Works' }).first()).toBeVisible();
  await expect(page.getByText(/what has no buttons here/)).toHaveCount(0);
});

test('the gate asks for its own numbers alone', async ({ context }) => {
  const page = await prism.open(context);
  const asked: unknown[] = [];
  page.on('request', (r) => r.url().endsWith('/metrics') && asked.push((r.postDataJSON() as { only: unknown }).only));
  await prism.go(page, 'gate');
  await expect(page.getByRole('region', { name: 'Precision' })).toBeVisible();
  expect(asked).toEqual([['gate']]);
});

test('a project that goes while it is looked at is said plainly', async ({ context }) => {
  excuse(AWAY, REFUSED);
  const page = await prism.open(context, 'signals?project=PID-DEMO');
  await expect(page.getByRole('list', { name: 'Signals' }).getByRole('listitem').first()).toBeVisible();
  await prism.cli('demo', '--remove');
  await expect(page.getByText('There is no project PID-DEMO any more.')).toBeVisible();
  await expect(page.getByRole('status')).toHaveText('live');
  await page.getByRole('button', { name: 'Show all projects' }).click();
  await expect(page.getByText('There is no project PID-DEMO any more.')).toBeHidden();
  await prism.cli('demo');
});
