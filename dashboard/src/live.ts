// The one socket: it says what changed, never what it is now. A lost one shows, comes back and has everything read again.
import { effect, signal } from '@preact/signals';
import { address, call, project, signedOut } from './api';
import { parseClean } from './text';
import { EVERYWHERE, type Change, type WatchFrame } from './wire';

/** The server beats every 15 s; a socket that is silent for longer than two beats is dead. */
const SILENT_MS = 40_000;
/** A socket that says nothing at first is none. */
const HELLO_MS = 8_000;
const RETRY_MS_MIN = 300;
const RETRY_MS_MAX = 5_000;
/** Failed tries after which it is no hiccup. */
const OFFLINE_AFTER = 4;
/** The server has as many watchers as it takes. */
const TOO_MANY = 4029;

export const link = signal<'live' | 'reconnecting' | 'offline'>('reconnecting');

/** This page is not told of changes because too many others are. */
export const crowded = signal(false);

/** The project that is looked at and is not there any more. */
export const gone = signal('');

type Listener = (changes: Change[] | 'all') => void;
const listeners = new Set<Listener>();

export function onChanges(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** Says that something changed without waiting for the socket to say so: after one's own act. */
export const tell = (changes: Change[] | 'all'): void => listeners.forEach((listener) => listener(changes));

let socket: WebSocket | null = null;
let failures = 0;
let retry: ReturnType<typeof setTimeout> | undefined;
let silence: ReturnType<typeof setTimeout> | undefined;

function heard(frame: WatchFrame): void {
  clearTimeout(silence);
  silence = setTimeout(() => socket?.close(), SILENT_MS);
  switch (frame.kind) {
    case 'hello':
      failures = 0;
      crowded.value = false;
      link.value = 'live';
      // Only what is read after a hello, together with what the socket says from then on, is whole.
      return tell('all');
    case 'changed':
      return tell(frame.changes);
    case 'behind':
      return tell('all');
  }
}

function open(): void {
  clearTimeout(retry);
  const url = address('api/v1/watch');
  url.protocol = url.protocol.replace('http', 'ws');
  // Of a project that is gone nothing changes; that the page is connected shows all the same.
  url.searchParams.set('pid', gone.value === project.value ? EVERYWHERE : project.value);
  const mine = (socket = new WebSocket(url));
  clearTimeout(silence);
  silence = setTimeout(() => mine.close(), HELLO_MS);
  mine.onmessage = (event) => mine === socket && heard(parseClean(String(event.data)) as WatchFrame);
  mine.onclose = (event) => mine === socket && lost(event.code);
}

function lost(code: number): void {
  crowded.value = code === TOO_MANY;
  clearTimeout(silence);
  socket = null;
  failures++;
  link.value = failures >= OFFLINE_AFTER || !navigator.onLine ? 'offline' : 'reconnecting';
  // A socket does not say why it was refused; a call does, and notices the end of the sign-in.
  void call(EVERYWHERE, 'projects', {})
    .then(({ projects }) => {
      const pid = project.value;
      gone.value = pid !== EVERYWHERE && !projects.includes(pid) ? pid : '';
    })
    .catch(() => undefined);
  const wait = Math.min(RETRY_MS_MAX, RETRY_MS_MIN * 2 ** Math.min(failures - 1, 8));
  retry = setTimeout(open, wait * (0.75 + Math.random() / 2));
}

function atOnce(): void {
  if (socket === null && !signedOut.value && !document.hidden) open();
}

export function connect(): void {
  let watched: string | null = null;
  effect(() => {
    const pid = project.value;
    if (signedOut.value) {
      clearTimeout(retry);
      const old = socket;
      socket = null;
      old?.close();
      watched = null;
      return;
    }
    if (pid === watched) return;
    watched = pid;
    const old = socket;
    socket = null;
    old?.close();
    open();
  });
  window.addEventListener('online', atOnce);
  document.addEventListener('visibilitychange', atOnce);
}
