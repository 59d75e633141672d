// A list of any length of which only what can be seen is in the document.
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';

/** Rows above and below the window that are drawn all the same, so that a quick scroll or `j` finds them. */
const SPARE = 10;
/** How near the end more rows are asked for. */
const NEAR_END = 20;

interface Props<T> {
  rows: T[];
  /** Pixels; every row has the same. */
  height: number;
  idOf: (row: T) => string;
  draw: (row: T) => ComponentChildren;
  onEnd?: () => void;
  label: string;
}

export function Virtual<T>({ rows, height, idOf, draw, onEnd, label }: Props<T>) {
  const list = useRef<HTMLUListElement>(null);
  const [range, setRange] = useState({ from: 0, to: 40 });
  const first = useRef<string | undefined>(undefined);

  useLayoutEffect(() => {
    const look = () => {
      const top = list.current?.getBoundingClientRect().top ?? 0;
      const from = Math.max(0, Math.floor(-top / height) - SPARE);
      const to = Math.min(rows.length, Math.ceil((window.innerHeight - top) / height) + SPARE);
      setRange((r) => (r.from === from && r.to === to ? r : { from, to: Math.max(to, from) }));
      if (onEnd && to > rows.length - NEAR_END) onEnd();
    };
    look();
    window.addEventListener('scroll', look, { passive: true });
    window.addEventListener('resize', look);
    return () => {
      window.removeEventListener('scroll', look);
      window.removeEventListener('resize', look);
    };
  }, [rows, height, onEnd]);

  // What comes in above does not push away what is being read.
  useLayoutEffect(() => {
    const before = first.current;
    first.current = rows[0] && idOf(rows[0]);
    if (before === undefined || before === first.current) return;
    const top = list.current?.getBoundingClientRect().top ?? 0;
    if (top >= 0) return;
    const came = rows.findIndex((row) => idOf(row) === before);
    if (came > 0) window.scrollBy(0, came * height);
  }, [rows]);

  return (
    <ul ref={list} class="virtual rows" aria-label={label} style={{ height: `${rows.length * height}px` }}>
      {rows.slice(range.from, range.to).map((row, i) => (
        <li
          key={idOf(row)}
          aria-setsize={rows.length}
          aria-posinset={range.from + i + 1}
          style={{ height: `${height}px`, transform: `translateY(${(range.from + i) * height}px)` }}
        >
          {draw(row)}
        </li>
      ))}
    </ul>
  );
}
