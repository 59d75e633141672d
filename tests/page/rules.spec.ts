// The page's rules that need no browser: what becomes of text, and of a table.
import { expect, test } from '@playwright/test';
import { csv } from '../../dashboard/src/csv';
import { browser, bytes, clean, duration, milliseconds, parseClean, percent, sentence } from '../../dashboard/src/text';

const CLEANED: [string, string, string][] = [
  ['plain text stays', 'naïve “quotes” 日本 🔔\n\ttab', 'naïve “quotes” 日本 🔔\n\ttab'],
  ['a colour goes whole', 'a\u001b[1;31mred\u001b[0mb', 'aredb'],
  ['a title goes with its text', 'a\u001b]0;evil\u0007b', 'ab'],
  ['a title ended by a string terminator too', 'a\u001b]0;evil\u001b\\b', 'ab'],
  ['eight-bit sequences go', 'a\u009b2Jb\u009d0;x\u009cc', 'abc'],
  ['a device string goes', 'a\u001bPevil\u001b\\b', 'ab'],
  ['a cut-off sequence takes nothing else with it', 'a\u001b', 'a'],
  ['bidi controls go', 'a\u202Eb\u2066c\u200Fd\u061Ce', 'abcde'],
  ['control characters go', 'a\u0000b\u0008c\u007fd\u0085e', 'abcde'],
  ['line ends of other systems are lines', 'a\r\nb\rc', 'a\nb\nc'],
];
for (const [rule, given, wanted] of CLEANED)
  test(`text: ${rule}`, () => {
    expect(clean(given)).toBe(wanted);
    expect(parseClean(JSON.stringify({ [given]: [given] }))).toEqual({ [wanted]: [wanted] });
    // A server may escape what this side does not have to.
    const escaped = JSON.stringify([given]).replace(
      /[\u007f-\uffff]/g,
      (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`,
    );
    expect(parseClean(escaped)).toEqual([wanted]);
  });

test('a table that a spreadsheet opens runs nothing and keeps its cells', () => {
  const rows = [
    ['=1+1', '+1', '-1', '@x'],
    ['a,b', 'say "x"', 'two\nlines', -5],
    [null, undefined, true, 0.5],
  ];
  expect(csv({ columns: ['a', 'b', 'c', 'd'], rows })).toBe(
    `a,b,c,d\r\n'=1+1,'+1,'-1,'@x\r\n"a,b","say ""x""","two\nlines",-5\r\n,,true,0.5\r\n`,
  );
});

test('figures are short', () => {
  expect([0.42, 9.96, 40, 999, 1500, 90_000].map(milliseconds)).toEqual([
    '0.4 ms',
    '10.0 ms',
    '40 ms',
    '999 ms',
    '1.5 s',
    '2 min',
  ]);
  expect([5, 3600, 5400, 90_000, 864_000].map(duration)).toEqual(['5 s', '1 h', '1.5 h', '1 d', '10 d']);
  expect([0, 0.004, 0.05, 0.5, 1].map(percent)).toEqual(['0%', '0.4%', '5.0%', '50%', '100%']);
  expect([0, 1023, 1024, 48_000_000].map(bytes)).toEqual(['0 B', '1023 B', '1.0 KB', '45.8 MB']);
});

test('a browser is called as people call it', () => {
  const agent = (rest: string): string => `Mozilla/5.0 ${rest}`;
  expect(
    browser(agent('(X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/148.0.0.0 Safari/537.36')),
  ).toBe('Chrome 148 on Linux');
  expect(
    browser(
      agent(
        '(Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/148.0 Safari/537.36 Edg/148.0',
      ),
    ),
  ).toBe('Edge 148 on Windows');
  expect(
    browser(
      agent(
        '(Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/19.1 Safari/605.1.15',
      ),
    ),
  ).toBe('Safari 19 on macOS');
  expect(browser('FirstBrowser/1.0')).toBe('FirstBrowser/1.0');
});

test('a refusal is a sentence, and what it quotes keeps its letters', () => {
  for (const [said, shown] of [
    ['the row is gone', 'The row is gone.'],
    ['since: must be before `until`', 'Since: must be before `until`.'],
    ['fd4d1895 begins the id of more than one signal', 'fd4d1895 begins the id of more than one signal.'],
    ['beadcafe begins the id of more than one signal', 'beadcafe begins the id of more than one signal.'],
    ['0a1b2c3d-0000-4000-8000-000000000000 is gone', '0a1b2c3d-0000-4000-8000-000000000000 is gone.'],
    ['signal_ids must be 1 to 1000 ids', 'signal_ids must be 1 to 1000 ids.'],
    ['`prism up` starts it', '`prism up` starts it.'],
    ['prism.toml is not there', 'prism.toml is not there.'],
    ['what now?', 'What now?'],
    ['  ', ''],
  ] as const)
    expect(sentence(said)).toBe(shown);
});
