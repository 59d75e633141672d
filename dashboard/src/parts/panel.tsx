// The frame of a page and of what stands on it: head, panel, empty, trouble.
import type { ComponentChildren } from 'preact';
import type { Problem } from '../api';
import { saveCsv, type Table } from '../csv';
import type { Page } from '../route';

export function Head({ name, lead, children }: { name: Page; lead: string; children?: ComponentChildren }) {
  return (
    <header class="head">
      <div>
        <h1>{name}</h1>
        <p>{lead}</p>
      </div>
      {children}
    </header>
  );
}

interface PanelProps {
  title: string;
  about?: string;
  tools?: ComponentChildren;
  /** What the button beside the title saves. */
  table?: { name: string; of: () => Table };
  children: ComponentChildren;
  bare?: boolean;
  /** What tells it from others of the same title, for those who do not see where it stands. */
  of?: string;
}

export function Panel({ title, about, tools, table, children, bare, of }: PanelProps) {
  return (
    <section class="panel" aria-label={of ? `${title}, ${of}` : title}>
      <header>
        <h2>{title}</h2>
        <div class="tools">
          {tools}
          {table && <SaveCsv {...table} />}
        </div>
        {about && <p>{about}</p>}
      </header>
      {bare ? children : <div class="inside">{children}</div>}
    </section>
  );
}

export function SaveCsv({ name, of }: { name: string; of: () => Table }) {
  return (
    <button class="plain" type="button" aria-label={`${name} as CSV`} onClick={() => saveCsv(name, of())}>
      CSV
    </button>
  );
}

/** Says what will stand here and how to make it appear. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <strong>{title}</strong>
      {children}
    </div>
  );
}

/** A sentence of the server, in which `this` is something to type. */
export function Said({ text }: { text: string }) {
  return <>{text.split('`').map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}</>;
}

/** Says what went wrong and what to do next. */
export function Trouble({ problem, again }: { problem: Problem | undefined; again?: () => void }) {
  if (!problem) return null;
  return (
    <div class="trouble" role="alert">
      <span>
        <strong>
          <Said text={problem.message} />
        </strong>
        {problem.hint && (
          <>
            {' '}
            <Said text={problem.hint} />
          </>
        )}
      </span>
      {again && (
        <button type="button" class="plain" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

/** What stands below something that is still being read is not shown yet: it would be pushed down. */
export function Below({ reads, children }: { reads: { data: unknown; problem: unknown }[]; children: ComponentChildren }) {
  const come = reads.every((read) => read.data !== undefined || read.problem !== undefined);
  return <div class={come ? 'below' : 'below not-yet'}>{children}</div>;
}

/** Something wide that scrolls by itself, by keyboard too. */
export function Scroll({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={label}>
      {children}
    </div>
  );
}

export function Figure({
  name,
  children,
  note,
}: {
  name: string;
  children: ComponentChildren;
  note?: ComponentChildren;
}) {
  return (
    <div class="figure">
      <dt>{name}</dt>
      <dd>
        {children}
        {note !== undefined && <small>{note}</small>}
      </dd>
    </div>
  );
}
