// The one door to the server's calls: typed by the server's own types, every text in an answer clean.
import { computed, signal } from '@preact/signals';
import { route } from './route';
import { parseClean, sentence } from './text';
import { EVERYWHERE, type Calls, type Refusal } from './wire';

export interface Problem {
  code: string;
  message: string;
  hint: string;
}

export const AWAY: Problem = {
  code: 'unreachable',
  message: 'The server does not answer.',
  hint: 'It may be starting again; this page tries by itself. `prism up` starts it.',
};

export class Refused extends Error {
  constructor(
    readonly problem: Problem,
    readonly status: number,
  ) {
    super(problem.message);
  }
}

/** Nobody is signed in any more, in this browser. */
export const signedOut = signal<Problem | null>(null);

/** The version of the server that this page came from, and the one that answers now. */
export const versions = signal<{ page: string; server: string } | null>(null);

function met(version: string | null): void {
  if (version === null || version === versions.value?.server) return;
  versions.value = { page: versions.value?.page ?? version, server: version };
}

/** The project that is looked at, or all of them. */
export const project = computed(() => route.value.params['project'] || EVERYWHERE);

export const address = (path: string): URL => new URL(path, document.baseURI);

export type Verb = keyof Calls;
export type Ask<V extends Verb> = Calls[V]['ask'];
export type Answer<V extends Verb> = Calls[V]['answer'];

export async function call<V extends Verb>(pid: string, verb: V, ask: Ask<V>, abort?: AbortSignal): Promise<Answer<V>> {
  let response: Response;
  try {
    response = await fetch(address(`api/v1/${encodeURIComponent(pid)}/${verb}`), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(ask),
      credentials: 'same-origin',
      cache: 'no-store',
      signal: abort ?? null,
    });
  } catch (error) {
    if (abort?.aborted) throw error;
    throw new Refused(AWAY, 0);
  }
  met(response.headers.get('prism-version'));
  const text = await response.text();
  if (response.ok) return parseClean(text) as Answer<V>;
  const refused = new Refused(refusal(text, response.status), response.status);
  if (response.status === 401) signedOut.value = refused.problem;
  throw refused;
}

function refusal(text: string, status: number): Problem {
  try {
    const { error } = parseClean(text) as Refusal;
    return { code: error.code, message: sentence(error.message), hint: sentence(error.hint) };
  } catch {
    return {
      code: `http_${status}`,
      message: `The server answered ${status}.`,
      hint: 'Look at `prism logs`, then try again.',
    };
  }
}

export function problemOf(error: unknown): Problem {
  if (error instanceof Refused) return error.problem;
  return { code: 'page', message: error instanceof Error ? error.message : String(error), hint: 'Reload the page.' };
}
