// Behind a proxy, under a path, with TLS and without: links, cookie, calls and socket all stay under it. And through a
// tunnel that ends at another port.
import type { Browser, BrowserContext, Page } from '@playwright/test';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, request, type IncomingMessage, type RequestOptions, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { connect, createServer as createTcpServer, type AddressInfo, type Server as TcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, PAGES, Prism, test } from './prism';

const UNDER = '/ops/prism';

/** What the proxy asks of the server for what was asked of it. */
const passedOn = (asked: IncomingMessage, port: number): RequestOptions => ({
  host: '127.0.0.1',
  port,
  method: asked.method,
  path: (asked.url ?? '').slice(UNDER.length) || '/',
  headers: asked.headers,
});

/** A certificate for this machine, signed by itself. */
function certificate(): { key: Buffer; cert: Buffer } {
  const folder = mkdtempSync(join(tmpdir(), 'prism-page-tls-'));
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
  const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1'];
  const names = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'];
  execFileSync('openssl', ['req', '-x509', ...kind, ...names, '-keyout', key, '-out', cert], { stdio: 'ignore' });
  const made = { key: readFileSync(key), cert: readFileSync(cert) };
  rmSync(folder, { recursive: true });
  return made;
}

/** A proxy that takes its path off and passes everything on, sockets included. */
function proxyTo(prism: Prism, scheme: 'http' | 'https'): Server {
  const pass = (asked: IncomingMessage, answer: import('node:http').ServerResponse): void => {
    if (!asked.url?.startsWith(`${UNDER}/`)) return void answer.writeHead(404).end();
    const on = request(passedOn(asked, prism.port), (got) => {
      answer.writeHead(got.statusCode ?? 502, got.rawHeaders);
      got.pipe(answer);
    });
    on.on('error', () => answer.destroy());
    asked.pipe(on);
  };
  const proxy = scheme === 'https' ? createTlsServer(certificate(), pass) : createServer(pass);
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
  return proxy;
}

const listens = (server: TcpServer): Promise<number> =>
  new Promise((done) => server.listen(0, '127.0.0.1', () => done((server.address() as AddressInfo).port)));

/** What is sent elsewhere comes in by the socket, and what is done here gets there. */
async function live(prism: Prism, page: Page): Promise<void> {
  const { agents } = await prism.call<{ agents: { identity: string; operator: boolean }[] }>('PID-DEMO', 'agents', {});
  const to = agents.find((a) => !a.operator)?.identity ?? '';
  await page.getByRole('link', { name: 'Signals', exact: true }).click();
  const rows = page.getByRole('list', { name: 'Signals' }).getByRole('listitem');
  await expect(rows.first()).toBeVisible();
  await prism.call('PID-DEMO', 'signal', { to, signal_type: 'StatusUpdate', payload: { summary: 'through the wall' } });
  await expect(rows.filter({ hasText: 'through the wall' })).toBeVisible();
  await page.getByRole('textbox', { name: 'Summary' }).fill('and back again');
  await page.getByRole('button', { name: 'Send', exact: true }).click();
  await expect(rows.filter({ hasText: 'and back again' })).toBeVisible();
}

const signedIn = (browser: Browser): Promise<BrowserContext> =>
  browser.newContext({ ignoreHTTPSErrors: true, locale: 'en-GB', timezoneId: 'UTC' });

for (const scheme of ['http', 'https'] as const)
  test.describe(`behind a proxy, by ${scheme}`, () => {
    const prism = new Prism();
    let proxy: Server;
    let at = '';

    test.beforeAll(async () => {
      proxy = proxyTo(prism, scheme);
      at = `${scheme}://localhost:${await listens(proxy)}`;
      await prism.start('--public-url', at + UNDER);
      await prism.cli('demo');
    });
    test.afterAll(async () => {
      proxy.closeAllConnections();
      proxy.close();
      await prism.end();
    });

    test('every page works under the path, and nothing is asked outside of it', async ({ browser }) => {
      const context = await signedIn(browser);
      const asked: string[] = [];
      context.on('request', (one) => asked.push(one.url()));
      const page = await prism.open(context);
      page.on('websocket', (socket) => asked.push(socket.url().replace(/^ws/, 'http')));
      expect(page.url()).toBe(`${at}${UNDER}/`);
      for (const name of PAGES) {
        await page.getByRole('link', { name, exact: true }).click();
        await expect(page.getByRole('heading', { level: 1, name, exact: true })).toBeVisible();
      }
      await live(prism, page);
      // The socket goes there, too.
      await page.reload();
      await expect(page.getByRole('status')).toHaveText('live');
      expect(asked.some((url) => url.includes('/api/v1/watch'))).toBe(true);
      expect(asked.filter((url) => !url.startsWith(`${at}${UNDER}/`) && !url.startsWith('blob:'))).toEqual([]);
      const [cookie] = await context.cookies();
      expect(cookie).toMatchObject({ path: `${UNDER}/`, secure: scheme === 'https', httpOnly: true, sameSite: 'Strict' });
      await context.close();
    });

    test('a page of another origin has no use of the cookie', async ({ browser }) => {
      const context = await signedIn(browser);
      await prism.open(context);
      const [cookie] = await context.cookies();
      const answer = await fetch(`${prism.url}api/v1/*/now`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          cookie: `${cookie?.name}=${cookie?.value}`,
          origin: `${scheme}://localhost:1`,
        },
        body: '{}',
      });
      expect(answer.status).toBe(403);
      await context.close();
    });
  });

test.describe('through a tunnel', () => {
  const prism = new Prism();
  let tunnel: TcpServer;

  test.beforeAll(async () => {
    await prism.start();
    await prism.cli('demo');
    tunnel = createTcpServer((near) => {
      const far = connect(prism.port, '127.0.0.1');
      near.pipe(far).pipe(near);
      for (const end of [near, far]) end.on('error', () => (near.destroy(), far.destroy()));
    });
  });
  test.afterAll(async () => {
    tunnel.close();
    await prism.end();
  });

  test('a printed link opens the page at the tunnel’s own end', async ({ browser }) => {
    const port = await listens(tunnel);
    const link = (await prism.link()).replace(`:${prism.port}/`, `:${port}/`);
    const context = await signedIn(browser);
    const page = await context.newPage();
    await page.goto(link);
    await expect(page.getByRole('status')).toHaveText('live');
    expect(new URL(page.url()).port).toBe(String(port));
    await live(prism, page);
    await context.close();
  });
});
