// Answering in place: one field and one button, for a reply to an agent.
import { signal } from '@preact/signals';
import { useRef, useState } from 'preact/hooks';
import { useAct } from '../act';
import { call, project } from '../api';
import { EVERYWHERE, type SignalRow } from '../wire';
import { Trouble } from './panel';

/** What an answer to a signal is called. */
const ANSWERS: Record<string, string> = {
  Question: 'Answer',
  ReviewRequested: 'ReviewCompleted',
  TaskAssigned: 'Acknowledgment',
};

/** What was typed and not sent, by signal: it outlives its row, and a look at another page. */
interface Draft {
  to: SignalRow;
  text: string;
  /** A second press of the button, or a retry after a lost answer, is the same reply; other words are another. */
  key: string;
}
const drafts = new Map<string, Draft>();
/** Counts up when one is dropped: a row that stood for its sake goes. */
const dropped = signal(0);

function drop(id: string): void {
  if (drafts.delete(id)) dropped.value++;
}

/** Whoever is stuck comes before whoever only tells. */
export const URGENCY = ['BLOCKER', 'ASK', 'TASK', 'INFO'] as const;
const urgency = (s: SignalRow): number => URGENCY.indexOf(s.category ?? 'INFO');

/** The rows, and those that left the list while somebody was answering them, each in its place. */
export function useDrafted(rows: SignalRow[], mine: boolean): { signal: SignalRow; left: boolean }[] {
  void dropped.value;
  const listed = new Set(rows.map((s) => s.signal_id));
  const left = [...drafts.values()].filter(
    ({ to }) =>
      // An answer to what has long been read is no business of this list.
      to.waiting &&
      to.to_operator === mine &&
      (mine || urgency(to) < 2) &&
      !listed.has(to.signal_id) &&
      (project.value === EVERYWHERE || project.value === to.pid),
  );
  const all = [
    ...rows.map((s) => ({ signal: s, left: false })),
    ...left.map(({ to }) => ({ signal: { ...to, waiting: false }, left: true })),
  ];
  if (left.length === 0) return all;
  return all.sort(
    (a, b) => urgency(a.signal) - urgency(b.signal) || b.signal.created_at.localeCompare(a.signal.created_at),
  );
}

/** Says of a row that stands for the sake of a draft why it does. */
export function AnsweredElsewhere({ signal: { signal_id } }: { signal: SignalRow }) {
  return (
    <p class="small row wrap" role="status">
      <span class="dim">Answered elsewhere, or read; what you typed is still here.</span>
      <button type="button" class="plain" onClick={() => drop(signal_id)}>
        Drop it
      </button>
    </p>
  );
}

export function Reply({ to, quiet }: { to: SignalRow; quiet?: boolean }) {
  const act = useAct();
  const field = useRef<HTMLInputElement>(null);
  const [sent, setSent] = useState('');
  const send = async () => {
    const summary = field.current?.value.trim() ?? '';
    if (summary === '') return field.current?.focus();
    const ask = {
      to: to.from_identity,
      signal_type: ANSWERS[to.signal_type] ?? 'StatusUpdate',
      payload: { summary },
      in_reply_to: to.signal_id,
      idempotency_key: drafts.get(to.signal_id)?.key ?? crypto.randomUUID(),
    };
    const answer = async () => {
      await call(to.pid, 'signal', ask);
      // Who answers has read it.
      if (to.to_operator && to.waiting) await call(to.pid, 'inbox_read', { signal_ids: [to.signal_id] });
    };
    if (await act.run(answer, to.pid, 'signal')) {
      drop(to.signal_id);
      if (field.current) field.current.value = '';
      setSent(summary);
    }
  };
  return (
    <>
      <form class="answer" onSubmit={(e) => (e.preventDefault(), void send())}>
        <input
          ref={field}
          data-key="c"
          aria-label={`Answer to ${to.from_identity}`}
          placeholder={`Answer ${to.from_identity}…`}
          maxLength={2000}
          autocomplete="off"
          defaultValue={drafts.get(to.signal_id)?.text ?? ''}
          onInput={(e) => {
            const text = e.currentTarget.value;
            if (text.trim() === '') drop(to.signal_id);
            else
              drafts.set(to.signal_id, {
                to: drafts.get(to.signal_id)?.to ?? to,
                text,
                key: crypto.randomUUID(),
              });
            if (sent) setSent('');
          }}
        />
        <button class={quiet ? '' : 'main'} type="submit" aria-disabled={act.busy}>
          Reply
        </button>
      </form>
      {sent && (
        <span class="dim small" aria-live="polite">
          Sent: {sent}
        </span>
      )}
      <Trouble problem={act.problem} />
    </>
  );
}

/** Says that the operator has read it, or has done what it asks: it leaves the inbox. */
export function Acknowledge({ signal }: { signal: SignalRow }) {
  const act = useAct();
  const { pid, signal_id } = signal;
  const read = () => act.run(() => call(pid, 'inbox_read', { signal_ids: [signal_id] }), pid, 'signal');
  const settle = async () => {
    await call(pid, 'signal_ack', { signal_id, state: 'model_acted' });
    // Who has done it has read it.
    if (signal.waiting) await call(pid, 'inbox_read', { signal_ids: [signal_id] });
  };
  const done = () => act.run(settle, pid, 'signal');
  return (
    <>
      <button
        type="button"
        aria-disabled={act.busy}
        title="It has been read; nothing more is to be done"
        onClick={() => void read()}
      >
        Seen
      </button>
      <button type="button" aria-disabled={act.busy} title="What it asks for is done" onClick={() => void done()}>
        Done
      </button>
      <Trouble problem={act.problem} />
    </>
  );
}
