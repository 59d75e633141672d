// Ten thousand rows: a few of them are in the document, and each of them can be scrolled to.
import { expect, serve, test } from './prism';

/** Nobody types as fast as this writes. */
const prism = serve({ demo: false, limits: 1_000_000 });
const PID = 'PID-LONG';
const ROWS = 10_000;
/** An inbox takes ten thousand at most. */
const READERS = ['Quill', 'Tamsin', 'Bram'];
const AT_ONCE = 100;
/** Rows in the document, at any place. */
const DRAWN_MAX = 80;

test('ten thousand signals scroll, and only what is seen is in the document', async ({ context }) => {
  test.setTimeout(300_000);
  for (const name of READERS) await prism.make(PID, name);
  for (let n = 0; n < ROWS; n += AT_ONCE)
    await Promise.all(
      Array.from({ length: AT_ONCE }, (_, i) =>
        prism.call(PID, 'signal', {
          to: READERS[(n + i) % READERS.length],
          signal_type: 'StatusUpdate',
          payload: { summary: `row ${n + i}` },
        }),
      ),
    );
  const page = await prism.open(context, `signals?project=${PID}`);
  const rows = page.getByRole('list', { name: 'Signals' }).getByRole('listitem');
  // Those that were sent at once came in any order.
  await expect(rows.first()).toContainText(/row 99\d\d/);
  const known = async () => Number(await rows.last().getAttribute('aria-setsize'));
  // To the end, as often as there is more.
  for (let turn = 0; turn < 200 && (await known()) < ROWS; turn++) {
    const before = await known();
    await page.evaluate(() => window.scrollTo(0, document.documentElement.scrollHeight));
    await expect.poll(known).toBeGreaterThan(before);
    expect(await rows.count()).toBeLessThan(DRAWN_MAX);
  }
  expect(await known()).toBe(ROWS);
  await page.evaluate(() => window.scrollTo(0, document.documentElement.scrollHeight));
  await expect(rows.last()).toContainText(/row \d\d?\D/);
  // Wherever it is scrolled to, the very next frame has rows where the eye is.
  const bare = await page.evaluate(async () => {
    const frame = () => new Promise(requestAnimationFrame);
    let empty = 0;
    for (let step = 0; step < 60; step++) {
      window.scrollTo(0, (document.documentElement.scrollHeight * ((step * 37) % 60)) / 60);
      await frame();
      await frame();
      const list = document.querySelector('.virtual')?.getBoundingClientRect();
      const middle = window.innerHeight / 2;
      if (!list || list.top > middle || list.bottom < middle) continue;
      const x = list.left + list.width / 2;
      if (!document.elementFromPoint(x, middle)?.closest('.virtual > li')) empty++;
    }
    return empty;
  });
  expect(bare).toBe(0);
  expect(await rows.count()).toBeLessThan(DRAWN_MAX);
});
