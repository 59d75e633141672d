// What an agent captured of the operator's words, and the operator's judgement of it.
import { useState } from 'preact/hooks';
import { useAct } from '../act';
import { call } from '../api';
import { count } from '../text';
import type { InputRow } from '../wire';
import { Chip, InputClass, When } from './marks';
import { Trouble } from './panel';
import { memoryHref } from './signal';

type Action = 'accept' | 'reject' | 'undo';

const after = (input: InputRow, action: Action): InputRow => ({
  ...input,
  operator_review: action === 'undo' ? null : `${action}ed`,
});

/** What was judged a moment ago stays where it was, with its Undo, although the list no longer has it. */
export function useJudged(rows: InputRow[]): [InputRow[], (row: InputRow) => void] {
  const [judged, setJudged] = useState<Map<string, { row: InputRow; over: InputRow[] }>>(new Map());
  const listed = new Set(rows.map((r) => r.id));
  // What was taken back is in no list until it is read again; meanwhile it keeps its place, and the focus.
  const left = [...judged.values()]
    .filter(({ row, over }) => !listed.has(row.id) && (row.operator_review || over === rows))
    .map((j) => j.row);
  // Until the list is read again, what was said counts; after that, what the list says.
  const current = rows.map((row) => (judged.get(row.id)?.over === rows ? (judged.get(row.id)?.row ?? row) : row));
  const all = left.length ? [...current, ...left].sort((a, b) => b.captured_at.localeCompare(a.captured_at)) : current;
  return [all, (row) => setJudged((m) => new Map(m).set(row.id, { row, over: rows }))];
}

interface Props {
  input: InputRow;
  onJudged: (row: InputRow) => void;
  showProject?: boolean;
  selected?: boolean;
  onSelect?: (on: boolean) => void;
}

export function InputItem({ input, onJudged, showProject, selected, onSelect }: Props) {
  const act = useAct();
  const { pid, id, operator_review: review } = input;
  const judge = async (action: Action) => {
    if (await act.run(() => call(pid, 'review', { ids: [id], action }), pid, 'review', 'memory'))
      onJudged(after(input, action));
  };
  return (
    <li
      class={`item beside-acts ${review ? 'done' : ''}`}
      data-row
      tabIndex={0}
      aria-label={`${input.class} captured by ${input.captured_via}`}
    >
      <div class="line">
        {onSelect && (
          <input
            type="checkbox"
            data-key="x"
            aria-label="Select"
            checked={selected ?? false}
            onChange={(e) => onSelect(e.currentTarget.checked)}
          />
        )}
        <InputClass is={input.class} />
        {input.confidence === 'low' && (
          <Chip title="The agent was not sure; it counts once you accept it">not sure</Chip>
        )}
        <span class="small">
          captured by <span class="strong">{input.captured_via}</span>
          {input.surface && <span class="dim"> in {input.surface}</span>}
        </span>
        {showProject && <span class="dim small">{pid}</span>}
        <When at={input.captured_at} />
        {review && <Chip tone={review === 'rejected' ? 'bad' : 'good'}>{review}</Chip>}
      </div>
      <Words of={input} />
      {input.reverses_delta && (
        <p class="small">
          <span class="dim">takes back</span> <a href={memoryHref(input.reverses_delta)}>what was done</a>
        </p>
      )}
      {review === 'rejected' && (
        <p class="small dim">
          {input.captured_via} is told at its next start that this was no {input.class.replace('_', ' ')}.
        </p>
      )}
      <div class="acts">
        {review ? (
          <button type="button" data-key="u" aria-disabled={act.busy} onClick={() => void judge('undo')}>
            Undo
          </button>
        ) : (
          <>
            <button
              class="good"
              type="button"
              data-key="a"
              aria-disabled={act.busy}
              onClick={() => void judge('accept')}
            >
              Accept
            </button>
            <button
              class="bad"
              type="button"
              data-key="r"
              aria-disabled={act.busy}
              onClick={() => void judge('reject')}
            >
              Reject
            </button>
          </>
        )}
      </div>
      <Trouble problem={act.problem} />
    </li>
  );
}

/** What was said, and while doing what; a list has the beginning of long words, and the rest is read when asked for. */
function Words({ of }: { of: InputRow }) {
  const act = useAct();
  const [whole, setWhole] = useState<{ prompt_text: string; triggered_action?: string | null | undefined }>();
  const [open, setOpen] = useState(false);
  const read = async () => setWhole((await call(of.pid, 'memory_show', { id: of.id })).input ?? of);
  const turn = async () => setOpen(!open && (whole !== undefined || (await act.run(read, of.pid))));
  const shown = open && whole ? whole : of;
  return (
    <>
      <blockquote class="quote text">“{shown.prompt_text}”</blockquote>
      {shown.triggered_action && (
        <p class="small text">
          <span class="dim">while:</span> {shown.triggered_action}
        </p>
      )}
      {of.more ? (
        <button type="button" class="plain small" aria-expanded={open} onClick={() => void turn()}>
          {open ? 'less' : `more (${count(of.more, 'character')})`}
        </button>
      ) : null}
      <Trouble problem={act.problem} />
    </>
  );
}

/** Inputs that are judged in one call. */
const AT_ONCE = 500;

/** The same judgement for several at once. */
export function Batch({
  inputs,
  onJudged,
  onDone,
}: {
  inputs: InputRow[];
  onJudged: (row: InputRow) => void;
  onDone: () => void;
}) {
  const act = useAct();
  const judge = async (action: Action) => {
    for (const pid of new Set(inputs.map((i) => i.pid))) {
      const all = inputs.filter((i) => i.pid === pid);
      for (let from = 0; from < all.length; from += AT_ONCE) {
        const some = all.slice(from, from + AT_ONCE);
        const ids = some.map((i) => i.id);
        if (!(await act.run(() => call(pid, 'review', { ids, action }), pid, 'review', 'memory'))) return;
        some.forEach((i) => onJudged(after(i, action)));
      }
    }
    onDone();
  };
  return (
    <div class="notice" role="group" aria-label="Selected inputs">
      <span>{count(inputs.length, 'input')} selected</span>
      <button class="good" type="button" onClick={() => void judge('accept')}>
        Accept {inputs.length}
      </button>
      <button class="bad" type="button" onClick={() => void judge('reject')}>
        Reject {inputs.length}
      </button>
      <button type="button" onClick={() => void judge('undo')}>
        Undo {inputs.length}
      </button>
      <button class="plain push" type="button" onClick={onDone}>
        Clear
      </button>
      <Trouble problem={act.problem} />
    </div>
  );
}
