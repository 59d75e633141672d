// Sending a signal as the operator: one line, more on demand.
import { useRef, useState } from 'preact/hooks';
import { useAct } from '../../act';
import { call, project } from '../../api';
import { Trouble } from '../../parts/panel';
import { useRead } from '../../read';
import { EVERYWHERE } from '../../wire';
import { CATEGORIES } from '../../parts/marks';
import { signalHref } from '../../parts/signal';

const KINDS = [
  ['TaskAssigned', 'Task'],
  ['Question', 'Question'],
  ['ReviewRequested', 'Review'],
  ['StatusUpdate', 'Update'],
] as const;

export function Compose() {
  const act = useAct();
  const agents = useRead('agents', {}, ['session', 'settings']);
  const [to, setTo] = useState('');
  const [kind, setKind] = useState<string>('TaskAssigned');
  const [category, setCategory] = useState('');
  const [body, setBody] = useState('');
  const [more, setMore] = useState(false);
  const [sent, setSent] = useState<{ id: string; said: string } | null>(null);
  const key = useRef(crypto.randomUUID());
  const summary = useRef<HTMLInputElement>(null);
  const others = agents.data?.agents.filter((a) => !a.operator) ?? [];
  const chosen = others.find((a) => `${a.pid}/${a.identity}` === to) ?? others[0];

  const send = async () => {
    const line = summary.current?.value.trim() ?? '';
    if (line === '') return summary.current?.focus();
    if (!chosen) return;
    const payload = { summary: line, ...(body.trim() ? { body: body.trim() } : {}) };
    const ask = {
      to: chosen.identity,
      signal_type: kind,
      payload,
      idempotency_key: key.current,
      ...(category ? { category } : {}),
    };
    await act.run(
      async () => {
        const answer = await call(chosen.pid, 'signal', ask);
        setSent({ id: answer.signal_id, said: `${chosen.identity} is ${answer.recipient_state.replace('_', ' ')}` });
        key.current = crypto.randomUUID();
        setBody('');
        if (summary.current) summary.current.value = '';
      },
      chosen.pid,
      'signal',
    );
  };

  return (
    <section class="panel" aria-label="Send a signal">
      <form class="compose" onSubmit={(e) => (e.preventDefault(), void send())}>
        <label class="field">
          To
          <select
            value={chosen ? `${chosen.pid}/${chosen.identity}` : ''}
            onChange={(e) => setTo(e.currentTarget.value)}
          >
            {others.length === 0 && <option value="">nobody has joined yet</option>}
            {others.map((a) => (
              <option key={`${a.pid}/${a.identity}`} value={`${a.pid}/${a.identity}`}>
                {a.identity}
                {project.value === EVERYWHERE ? ` · ${a.pid}` : ''}
              </option>
            ))}
          </select>
        </label>
        <label class="field">
          Kind
          <select value={kind} onChange={(e) => setKind(e.currentTarget.value)}>
            {KINDS.map(([type, name]) => (
              <option key={type} value={type}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <label class="field wide">
          Summary
          <input
            ref={summary}
            maxLength={2000}
            autocomplete="off"
            placeholder="One line that says what you want"
            onInput={() => sent && setSent(null)}
          />
        </label>
        <button class="plain" type="button" aria-expanded={more} onClick={() => setMore(!more)}>
          More
        </button>
        <button class="main" type="submit" aria-disabled={act.busy || !chosen}>
          Send
        </button>
        {more && (
          <div class="further">
            <label class="field">
              Category
              <select value={category} onChange={(e) => setCategory(e.currentTarget.value)}>
                <option value="">by its kind</option>
                {CATEGORIES.map((c) => (
                  <option key={c} value={c}>
                    {c}
                  </option>
                ))}
              </select>
            </label>
            <label class="field wide">
              Details
              <textarea value={body} maxLength={20_000} onInput={(e) => setBody(e.currentTarget.value)} />
            </label>
          </div>
        )}
      </form>
      <Trouble problem={act.problem} />
      {sent && (
        <p class="told small" aria-live="polite">
          Sent; {sent.said}. <a href={signalHref(sent.id)}>See how far it gets</a>
        </p>
      )}
    </section>
  );
}
