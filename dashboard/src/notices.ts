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
    for (const s of fresh) {
      const notice = new Notification(`${s.category}: ${s.from_identity} → ${s.to_identity}`, {
        body: s.summary,
        tag: s.signal_id,
      });
      notice.onclick = () => (window.focus(), go('Signals', { id: s.signal_id }));
    }
  }, [waiting]);
}
