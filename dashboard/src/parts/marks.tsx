// Small marks: a category with its shape, a time, a verdict, the text of a state. None depends on colour alone.
import type { ComponentChildren } from 'preact';
import { age, exact, now, relative } from '../time';
import { words } from '../text';

// ASK a ring with a gap to fill, BLOCKER an octagon, TASK an arrow, INFO a dot.
const SHAPES: Record<string, string> = {
  ASK: 'M8 1.5a6.500 6.500 0 1 0 0 13a6.500 6.500 0 1 0 0-13Zm0 2.600a3 3 0 0 1 1.100 5.800v1.100H6.900V8.500h.9a1.200 1.200 0 1 0-1.200-1.200H4.900A3 3 0 0 1 8 4.100ZM6.900 11.700h2.200v1.400H6.900Z',
  BLOCKER: 'M5.200 1h5.600L15 5.200v5.600L10.800 15H5.200L1 10.800V5.200ZM4 7v2h8V7Z',
  TASK: 'M3 2.500 14 8 3 13.500Z',
  INFO: 'M8 4.500a3.500 3.500 0 1 0 0 7a3.500 3.500 0 1 0 0-7Z',
};

export function Category({ is, n }: { is: string | null | undefined; n?: number }) {
  if (!is) return null;
  return (
    <span class="category" data-is={is}>
      <svg viewBox="0 0 16 16" fill="currentColor" fill-rule="evenodd" aria-hidden="true">
        <path d={SHAPES[is] ?? SHAPES['INFO']} />
      </svg>
      {is}
      {n === undefined ? null : <span class="number">{n}</span>}
    </span>
  );
}

export const CATEGORIES = ['ASK', 'BLOCKER', 'TASK', 'INFO'] as const;

export function When({ at }: { at: string | null | undefined }) {
  if (!at) return <span class="dim">never</span>;
  return (
    <time class="dim small" dateTime={at} title={exact(at)}>
      {relative(Date.parse(at), now.value)}
    </time>
  );
}

/** How long something has lasted. */
export function Age({ since }: { since: string }) {
  return (
    <time dateTime={since} title={`since ${exact(since)}`}>
      {age(since, now.value)}
    </time>
  );
}

export type Tone = 'good' | 'fair' | 'bad' | '';

export function Chip({ tone = '', title, children }: { tone?: Tone; title?: string; children: ComponentChildren }) {
  return (
    <span class={`chip ${tone}`} title={title}>
      {children}
    </span>
  );
}

const VERDICTS: Record<string, [string, Tone]> = { works: ['✓', 'good'], broken: ['✗', 'bad'], partial: ['◐', 'fair'] };

export function Verdict({ is, title }: { is: string; title?: string }) {
  const [mark, tone] = VERDICTS[is] ?? ['·', ''];
  return (
    <Chip tone={tone} {...(title ? { title } : {})}>
      <span aria-hidden="true">{mark}</span> {is}
    </Chip>
  );
}

const CLASSES: Record<string, [string, Tone]> = {
  correction: ['↺', 'bad'],
  confirmation: ['✓', 'good'],
  direction_pivot: ['↗', 'fair'],
};

export function InputClass({ is }: { is: string }) {
  const [mark, tone] = CLASSES[is] ?? ['·', ''];
  return (
    <Chip tone={tone}>
      <span aria-hidden="true">{mark}</span> {words(is)}
    </Chip>
  );
}
