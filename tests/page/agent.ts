// An agent as a host runs one: `prism mcp` beside it, spoken to in MCP over its pipes.
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { BIN, cleanEnv, type Prism } from './prism';

interface Reply {
  id?: number;
  result?: { structuredContent?: unknown; isError?: boolean; content?: { text?: string }[] };
  error?: { message: string };
}

export class Agent {
  private readonly child: ChildProcess;
  private readonly waiting = new Map<number, (reply: Reply) => void>();
  private last = 0;

  private constructor(prism: Prism, identity: string, pid: string) {
    const env = {
      ...cleanEnv(prism.home),
      PRISM_AGENT_IDENTITY: identity,
      PRISM_AGENT_SURFACE: 'other',
      PRISM_PID: pid,
      PRISM_DOORBELL: 'none',
    };
    this.child = spawn(BIN, ['mcp'], {
      env,
      cwd: mkdtempSync(join(tmpdir(), 'prism-page-agent-')),
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    if (!this.child.stdout) throw new Error('prism mcp has no output');
    createInterface({ input: this.child.stdout }).on('line', (line) => {
      const reply = JSON.parse(line) as Reply;
      if (reply.id !== undefined) this.waiting.get(reply.id)?.(reply);
    });
  }

  static async start(prism: Prism, identity: string, pid: string): Promise<Agent> {
    const agent = new Agent(prism, identity, pid);
    await agent.request('initialize', {
      protocolVersion: '2025-06-18',
      capabilities: {},
      clientInfo: { name: 'page-tests', version: '1' },
    });
    agent.write({ jsonrpc: '2.0', method: 'notifications/initialized' });
    await agent.call('prism_start', {});
    return agent;
  }

  private write(message: object): void {
    this.child.stdin?.write(`${JSON.stringify(message)}\n`);
  }

  private request(method: string, params: object): Promise<Reply> {
    const id = ++this.last;
    return new Promise((done) => {
      this.waiting.set(id, done);
      this.write({ jsonrpc: '2.0', id, method, params });
    });
  }

  async call<T = Record<string, unknown>>(name: string, args: object): Promise<T> {
    const reply = await this.request('tools/call', { name, arguments: args });
    if (reply.error || reply.result?.isError)
      throw new Error(`${name}: ${reply.error?.message ?? reply.result?.content?.[0]?.text}`);
    return reply.result?.structuredContent as T;
  }

  async end(): Promise<void> {
    const ended = new Promise((done) => this.child.once('exit', done));
    this.child.stdin?.end();
    await ended;
  }
}
