// How soon the page is useful and how soon a change is on screen, beside an empty page of the same server in the same run.
import type { Page } from '@playwright/test';
import { Agent } from './agent';
import { excuse, expect, REFUSED, serve, test } from './prism';

const prism = serve();
const TIMES = 20;

/** A line that `prism bench dashboard` reads. */
const said = (name: string, ms: number[]): void => console.log(`\nFIGURE ${JSON.stringify({ name, ms })}`);

/** Milliseconds from the navigation to the first frame that has this on it. */
async function shown(page: Page, url: string, selector: string): Promise<number> {
  await page.goto('about:blank');
  await page.goto(url, { waitUntil: 'commit' });
  return page.evaluate(
    (wanted) =>
      new Promise<number>((done) => {
        const look = () =>
          document.querySelector(wanted)
            ? requestAnimationFrame(() => done(performance.now()))
            : requestAnimationFrame(look);
        look();
      }),
    selector,
  );
}

test('first useful paint', async ({ context }) => {
  // The empty page has no icon.
  excuse(REFUSED);
  const page = await prism.open(context);
  const [empty, useful, cold]: [number[], number[], number[]] = [[], [], []];
  for (let i = 0; i < TIMES; i++) {
    empty.push(await shown(page, `${prism.url}healthz`, 'body'));
    useful.push(await shown(page, `${prism.url}?${i}#/now`, '.agent'));
  }
  const session = await context.newCDPSession(page);
  await session.send('Network.setCacheDisabled', { cacheDisabled: true });
  for (let i = 0; i < TIMES; i++) cold.push(await shown(page, `${prism.url}?${i}#/now`, '.agent'));
  said('first paint of an empty page', empty);
  said('first useful paint of Now', useful);
  said('first useful paint of Now, without a cache', cold);
});

test('a live change on screen', async ({ context }) => {
  const donna = await Agent.start(prism, 'Donna', 'PID-FIGURES');
  const page = await prism.open(context, 'signals?project=PID-FIGURES');
  await prism.call('PID-FIGURES', 'signal', {
    to: 'Donna',
    signal_type: 'StatusUpdate',
    payload: { summary: 'the first' },
  });
  await expect(page.getByText('the first')).toBeVisible();
  const [change, call]: [number[], number[]] = [[], []];
  for (let i = 0; i < TIMES; i++) {
    const summary = `change ${i} ${Math.random()}`;
    const seen = page.evaluate(
      (text) =>
        new Promise<number>((done) => {
          const look = () =>
            document.body.textContent?.includes(text)
              ? requestAnimationFrame(() => done(Date.now()))
              : requestAnimationFrame(look);
          look();
        }),
      summary,
    );
    const from = Date.now();
    await prism.call('PID-FIGURES', 'signal', { to: 'Donna', signal_type: 'StatusUpdate', payload: { summary } });
    call.push(Date.now() - from);
    change.push((await seen) - from);
    await expect(page.getByText(summary)).toBeVisible();
    await page.waitForTimeout(2_500);
  }
  said('a send alone, from the same process', call);
  said('a send until it is on an open page', change);
  await donna.end();
});
