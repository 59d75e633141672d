// A table that scrolls by itself: names above, numbers to the right.
import type { ComponentChildren } from 'preact';
import { Scroll } from './panel';

interface Column {
  name: string;
  /** Its cells are numbers. */
  n?: boolean;
  /** Its name is only read out. */
  unseen?: boolean;
  /** The class of its cells. */
  cell?: string;
}

interface Props {
  label: string;
  columns: (string | Column)[];
  /** What tells a row from others, and its cells. */
  rows: { key: string; cells: ComponentChildren[] }[];
}

export function Table({ label, columns, rows }: Props) {
  const all = columns.map((c): Column => (typeof c === 'string' ? { name: c } : c));
  const classOf = (c: Column | undefined) => (c?.n ? 'n' : c?.cell);
  return (
    <Scroll label={label}>
      <table>
        <thead>
          <tr>
            {all.map((c) => (
              <th key={c.name} scope="col" class={c.n ? 'n' : undefined}>
                {c.unseen ? <span class="hidden">{c.name}</span> : c.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ key, cells }) => (
            <tr key={key}>
              {cells.map((cell, i) => (
                <td key={i} class={classOf(all[i])}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

/** A column of numbers. */
export const number = (name: string): Column => ({ name, n: true });
