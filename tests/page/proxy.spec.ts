// Behind a proxy, under a path: links, cookie, calls and socket all stay under it.
import { createServer, request, type IncomingMessage, type RequestOptions, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, PAGES, Prism, test } from './prism';

const prism = new Prism();
const UNDER = '/ops/prism';
let proxy: Server;

/** What the proxy asks of the server for what was asked of it. */
const passedOn = (asked: IncomingMessage, port: number): RequestOptions => ({
  host: '127.0.0.1',
  port,
  method: asked.method,
  path: (asked.url ?? '').slice(UNDER.length) || '/',
  headers: asked.headers,
});

test.beforeAll(async () => {
  proxy = createServer((asked, answer) => {
    if (!asked.url?.startsWith(`${UNDER}/`)) return void answer.writeHead(404).end();
    const on = request(passedOn(asked, prism.port), (got) => {
      answer.writeHead(got.statusCode ?? 502, got.rawHeaders);
      got.pipe(answer);
    });
    on.on('error', () => answer.destroy());
    asked.pipe(on);
  });
  proxy.on('upgrade', (asked, socket) => {
    const on = request(passedOn(asked, prism.port));
    on.on('upgrade', (got, other, first) => {
      const head = got.rawHeaders.flatMap((name, i, all) => (i % 2 ? [] : [`${name}: ${all[i + 1]}`]));
      socket.write(`HTTP/1.1 101 Switching Protocols\r\n${head.join('\r\n')}\r\n\r\n`);
      // The server's first words may have come with its yes.
      socket.write(first);
      other.pipe(socket).pipe(other);
      for (const end of [socket, other]) end.on('error', () => (socket.destroy(), other.destroy()));
    });
    on.on('response', () => socket.destroy());
    on.on('error', () => socket.destroy());
    on.end();
  });
  await new Promise<void>((done) => proxy.listen(0, '127.0.0.1', done));
  await prism.start('--public-url', `http://127.0.0.1:${(proxy.address() as AddressInfo).port}${UNDER}`);
  await prism.cli('demo');
});
test.afterAll(async () => {
  proxy.closeAllConnections();
  proxy.close();
  await prism.end();
});

test('every page works under the path, and nothing is asked outside of it', async ({ context }) => {
  const asked: string[] = [];
  context.on('request', (one) => asked.push(new URL(one.url()).pathname));
  const page = await prism.open(context);
  expect(new URL(page.url()).pathname).toBe(`${UNDER}/`);
  for (const name of PAGES) {
    await page.getByRole('link', { name, exact: true }).click();
    await expect(page.getByRole('heading', { level: 1, name, exact: true })).toBeVisible();
  }
  await page.waitForLoadState('networkidle');
  expect(asked.filter((path) => !path.startsWith(`${UNDER}/`))).toEqual([]);
  const [cookie] = await context.cookies();
  expect(cookie?.path).toBe(`${UNDER}/`);
});
