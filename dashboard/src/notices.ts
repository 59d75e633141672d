// The browser's own notice when somebody comes to need the operator, where the operator allowed it.
import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { project } from './api';
import { go } from './route';
import type { Now, SignalRow } from './wire';

const supported = 'Notification' in window;

export const allowed = signal<NotificationPermission | 'unsupported'>(
  supported ? Notification.permission : 'unsupported',
);

export async function askLeave(): Promise<void> {
  if (supported) allowed.value = await Notification.requestPermission();
}

const pressing = (waiting: Now): SignalRow[] =>
  [...waiting.to_me, ...waiting.unread].filter((s) => s.category === 'ASK' || s.category === 'BLOCKER');

/** So many are told one by one within so long; what comes on top of them is told as one. */
const SINGLY = 3;
const WITHIN_MS = 10_000;
/** When the last few were told, and what came since that was not told by itself. */
let told: number[] = [];
let crowd: SignalRow[] = [];

function tell(fresh: SignalRow[]): void {
  const at = Date.now();
  told = told.filter((then) => at - then < WITHIN_MS);
  if (told.length === 0) crowd = [];
  if (fresh.length === 0) return;
  if (crowd.length === 0 && told.length + fresh.length <= SINGLY) {
    for (const s of fresh) {
      told.push(at);
      const title = `${s.category}: ${s.from_identity} → ${s.to_identity}`;
      const notice = new Notification(title, { body: s.summary, tag: s.signal_id });
      notice.onclick = () => (window.focus(), go('Signals', { id: s.signal_id }));
    }
    return;
  }
  crowd.push(...fresh);
  told.push(at);
  const stuck = crowd.filter((s) => s.category === 'BLOCKER').length;
  const title = `${crowd.length} new${stuck ? `, ${stuck} BLOCKER` : ''}`;
  // The same tag takes the place of the one before.
  const notice = new Notification(title, { body: crowd.at(-1)?.summary ?? '', tag: 'several' });
  notice.onclick = () => (window.focus(), go('Now'));
}

export function useNotices(waiting: Now | undefined): void {
  const known = useRef<Set<string> | null>(null);
  const of = useRef(project.value);
  useEffect(() => {
    if (!waiting) return;
    // What waits in other projects is not new because they are looked at now.
    if (of.current !== project.value) known.current = null;
    of.current = project.value;
    const now = pressing(waiting);
    // What waited before the page was opened is on the page; only what comes in is told.
    const fresh = known.current ? now.filter((s) => !known.current?.has(s.signal_id)) : [];
    known.current = new Set([...(known.current ?? []), ...now.map((s) => s.signal_id)]);
    if (allowed.value !== 'granted') return;
    tell(fresh);
  }, [waiting]);
}
