// Answering in place: one field and one button, for a reply to an agent.
import { useRef, useState } from 'preact/hooks';
import { useAct } from '../act';
import { call } from '../api';
import type { SignalRow } from '../wire';
import { Trouble } from './panel';

/** What an answer to a signal is called. */
const ANSWERS: Record<string, string> = {
  Question: 'Answer',
  ReviewRequested: 'ReviewCompleted',
  TaskAssigned: 'Acknowledgment',
};

export function Reply({ to, quiet }: { to: SignalRow; quiet?: boolean }) {
  const act = useAct();
  const field = useRef<HTMLInputElement>(null);
  const [sent, setSent] = useState('');
  // A second press of the button, or a retry after a lost answer, is the same reply; other words are another.
  const key = useRef(crypto.randomUUID());
  const send = async () => {
    const summary = field.current?.value.trim() ?? '';
    if (summary === '') return field.current?.focus();
    const ask = {
      to: to.from_identity,
      signal_type: ANSWERS[to.signal_type] ?? 'StatusUpdate',
      payload: { summary },
      in_reply_to: to.signal_id,
      idempotency_key: key.current,
    };
    const answer = async () => {
      await call(to.pid, 'signal', ask);
      // Who answers has read it.
      if (to.to_operator && to.waiting) await call(to.pid, 'inbox_read', { signal_ids: [to.signal_id] });
    };
    if (await act.run(answer, to.pid, 'signal')) {
      key.current = crypto.randomUUID();
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
          onInput={() => {
            key.current = crypto.randomUUID();
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
  const done = () => act.run(() => call(pid, 'signal_ack', { signal_id, state: 'model_acted' }), pid, 'signal');
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
