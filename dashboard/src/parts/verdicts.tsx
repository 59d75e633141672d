// The operator's verdict on a row of memory: works, broken, partial.
import { useState } from 'preact/hooks';
import { useAct } from '../act';
import { call } from '../api';
import { exact } from '../time';
import type { VerdictView } from '../wire';
import { Verdict } from './marks';
import { Trouble } from './panel';

const CHOICES = [
  ['Works', 'works', 'good', 'w'],
  ['Broken', 'broken', 'bad', 'b'],
  ['Partial', 'partial', 'fair', 'p'],
] as const;

export function Judge({ pid, refersTo }: { pid: string; refersTo: string }) {
  const act = useAct();
  const [said, setSaid] = useState('');
  const judge = async (verdict: string) => {
    // From the page it is the operator's own hand.
    const ask = { refers_to: refersTo, verdict, direct: true };
    if (await act.run(() => call(pid, 'confirm', ask), pid, 'memory')) setSaid(verdict);
  };
  return (
    <>
      <div class="acts" role="group" aria-label="Your verdict">
        {CHOICES.map(([label, verdict, tone, key]) => (
          <button
            key={verdict}
            class={tone}
            type="button"
            data-key={key}
            aria-pressed={said === verdict}
            aria-disabled={act.busy}
            onClick={() => void judge(verdict)}
          >
            {label}
          </button>
        ))}
      </div>
      <Trouble problem={act.problem} />
    </>
  );
}

/** Said where a verdict cannot refer to a row. */
export const NoVerdict = () => (
  <p class="small dim">
    No verdict can stand on this: verdicts stand on work, signals, specs and commits. Judge the work that came of it.
  </p>
);

/** The same above a list, once, where it holds such rows. */
export function SomeWithoutVerdict({ of }: { of: (string | null)[] }) {
  if (!of.includes(null)) return null;
  return (
    <p class="small dim">
      Verdicts stand on work, signals, specs and commits; what has no buttons here is none of these.
    </p>
  );
}

export function Verdicts({ of }: { of: VerdictView[] }) {
  if (of.length === 0) return null;
  return (
    <ul class="row wrap" aria-label="Verdicts">
      {of.map((v) => (
        <li key={v.id} class="row small">
          <Verdict is={v.verdict} title={`${v.confirmed_by} by ${v.confirmed_via}, ${v.directness}, ${exact(v.at)}`} />
          <span class="dim">
            {v.directness}
            {v.on ? `, on ${v.on}` : ''}
            {v.notes ? `: ${v.notes}` : ''}
          </span>
        </li>
      ))}
    </ul>
  );
}
