// A real server in a home of its own, and a browser that is signed in to it.
import { test as base, expect, type Browser, type BrowserContext, type Page } from '@playwright/test';
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
export const BIN = process.env['PRISM_BIN'] ?? '';

/** What the test process itself was started in must not leak into the server and its commands. */
export function cleanEnv(home: string): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(
    ([name]) => !name.startsWith('PRISM_') && !name.startsWith('CLAUDE') && !name.startsWith('CODEX'),
  );
  const page = process.env['PRISM_PAGE_DIR'];
  return {
    ...Object.fromEntries(kept),
    // The hosts of whoever runs this are none of a test's business.
    HOME: home,
    PRISM_HOME: home,
    PRISM_AUTOSTART: '0',
    ...(page ? { PRISM_PAGE_DIR: page } : {}),
  };
}

const freePort = (): Promise<number> =>
  new Promise((done, failed) => {
    const probe = createServer();
    probe.once('error', failed);
    probe.listen(0, '127.0.0.1', () => {
      const at = probe.address();
      probe.close(() => (at !== null && typeof at === 'object' ? done(at.port) : failed(new Error('no port'))));
    });
  });

export class Prism {
  readonly home = mkdtempSync(join(tmpdir(), 'prism-page-'));
  private child: ChildProcess | null = null;
  port = 0;
  private log = '';

  get url(): string {
    return `http://127.0.0.1:${this.port}/`;
  }

  /** Starts it; a second time on the same port, so that an open page finds it again. */
  async start(...args: string[]): Promise<void> {
    this.port ||= await freePort();
    const child = spawn(BIN, ['serve', '--port', String(this.port), ...args], {
      env: cleanEnv(this.home),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.child = child;
    for (const stream of [child.stdout, child.stderr])
      stream?.on('data', (data: Buffer) => (this.log += data.toString()));
    const file = join(this.home, 'server.json');
    await expect
      .poll(
        () => {
          if (child.exitCode !== null) throw new Error(`prism serve ended:\n${this.log}`);
          return existsSync(file) && (JSON.parse(readFileSync(file, 'utf8')) as { pid: number }).pid === child.pid;
        },
        { timeout: 30_000 },
      )
      .toBe(true);
  }

  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    const child = this.child;
    if (!child || child.exitCode !== null) return;
    const ended = new Promise((done) => child.once('exit', done));
    child.kill(signal);
    await ended;
    this.child = null;
  }

  async end(): Promise<void> {
    await this.stop();
    rmSync(this.home, { recursive: true, force: true });
  }

  async cli(...args: string[]): Promise<string> {
    const { stdout } = await run(BIN, args, { env: cleanEnv(this.home), cwd: this.home, maxBuffer: 64 << 20 });
    return stdout;
  }

  async json<T>(...args: string[]): Promise<T> {
    return JSON.parse(await this.cli(...args, '--json')) as T;
  }

  /** A call as an agent or the operator makes it, with the key that its home keeps. */
  async call<T = Record<string, unknown>>(
    pid: string,
    verb: string,
    body: object,
    as?: string,
    headers: Record<string, string> = {},
  ): Promise<T> {
    const key = as
      ? readFileSync(join(this.home, 'keys', `${as}.key`), 'utf8').trim()
      : (/prk_[A-Za-z0-9_-]+/.exec(readFileSync(join(this.home, 'config.toml'), 'utf8'))?.[0] ?? '');
    const answer = await fetch(`${this.url}api/v1/${pid}/${verb}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
    const said = (await answer.json()) as T;
    if (!answer.ok) throw new Error(`${verb}: ${JSON.stringify(said)}`);
    return said;
  }

  /** A project with somebody in it, without starting them. */
  async make(pid: string, identity: string): Promise<void> {
    await this.call(pid, 'persona_add', { identity }, undefined, { 'prism-create-project': 'true' });
  }

  /** Lets keys send as much as a test has to, before the first start. */
  allow(requests: number): void {
    const key = Array.from({ length: 40 }, () => Math.floor(Math.random() * 36).toString(36)).join('');
    const limits = `[limits]\nrequests_per_second = ${requests}\nrequests_burst = ${requests}\n`;
    writeFileSync(join(this.home, 'config.toml'), `operator = "frank"\napi_key = "prk_${key}"\n${limits}`, {
      mode: 0o600,
    });
  }

  async link(): Promise<string> {
    const link = /https?:\/\/\S+/.exec(await this.cli('dashboard', '--print'))?.[0];
    if (!link) throw new Error('prism dashboard --print printed no link');
    return link;
  }

  /** Signs a context in and opens a page of it. */
  async open(context: BrowserContext, at = ''): Promise<Page> {
    const page = await context.newPage();
    watch(page);
    await page.goto(await this.link());
    await expect(page.getByRole('status')).toHaveText('live');
    if (at) await this.go(page, at);
    return page;
  }

  async go(page: Page, at: string): Promise<void> {
    await page.goto(`${this.url}#/${at}`);
  }

  /** Another browser, with cookies of its own. */
  async other(browser: Browser, at = '', options: Parameters<Browser['newContext']>[0] = {}): Promise<Page> {
    const context = await browser.newContext({ locale: 'en-GB', timezoneId: 'UTC', ...options });
    opened.push(context);
    return this.open(context, at);
  }
}

/** What the browser complained of, by page: any of it fails the test. */
const complaints = new Map<Page, string[]>();

/** Further browsers of a test: they end with it. */
const opened: BrowserContext[] = [];

/** What a test brings about on purpose: a server that is away, a call that is refused. */
const excused: RegExp[] = [];
export const excuse = (...what: RegExp[]): number => excused.push(...what);
export const AWAY = /net::ERR_|WebSocket connection/;
export const REFUSED = /server responded with a status of 4\d\d/;

function watch(page: Page): void {
  const list: string[] = [];
  complaints.set(page, list);
  page.on('console', (message) => message.type() === 'error' && list.push(message.text()));
  page.on('pageerror', (error) => list.push(`uncaught: ${error.message}`));
  page.on('dialog', (dialog) => (list.push(`dialog: ${dialog.message()}`), void dialog.dismiss()));
}

export const test = base.extend<{ watched: void }>({
  watched: [
    async ({}, use) => {
      complaints.clear();
      excused.length = 0;
      await use();
      await Promise.all(opened.splice(0).map((context) => context.close()));
      const all = [...complaints.values()].flat().filter((text) => !excused.some((what) => what.test(text)));
      expect(all, 'what the browser complained of').toEqual([]);
    },
    { auto: true },
  ],
});

/** One server for a file, with the demonstration in it unless told otherwise. */
export function serve({ demo = true, limits = 0 } = {}): Prism {
  const prism = new Prism();
  test.beforeAll(async () => {
    if (limits) prism.allow(limits);
    await prism.start();
    if (demo) await prism.cli('demo');
  });
  test.afterAll(() => prism.end());
  return prism;
}

export { expect };
export const PAGES = ['Now', 'Signals', 'Story', 'Memory', 'Operator', 'Delivery', 'Gate', 'Settings'] as const;
