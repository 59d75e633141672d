// Filters that live in the page's address: a choice, a search, a range of time.
import { effect } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { useRead } from '../read';
import { page, param, setParams } from '../route';
import { Empty } from './panel';

/** Typing is searched for after a pause this long. */
const PAUSE_MS = 180;

/** A row of filters; on a small screen all but the search wait behind a button. */
export function Filters({ search, children }: { search?: ComponentChildren; children: ComponentChildren }) {
  const [open, setOpen] = useState(false);
  return (
    <div class="filters">
      {search}
      <button class="toggle" type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        Filters
      </button>
      <div class={`rest ${open ? 'open' : ''}`}>{children}</div>
    </div>
  );
}

export function Choice({
  name,
  label,
  options,
  all = 'any',
}: {
  name: string;
  label: string;
  options: readonly (string | readonly [string, string])[];
  all?: string;
}) {
  const value = param(name);
  const pairs = options.map((o) => (typeof o === 'string' ? ([o, o.replaceAll('_', ' ')] as const) : o));
  return (
    <label class="field">
      {label}
      <select value={value} onChange={(e) => setParams({ [name]: e.currentTarget.value })}>
        <option value="">{all}</option>
        {pairs.map(([v, text]) => (
          <option key={v} value={v}>
            {text}
          </option>
        ))}
        {value !== '' && !pairs.some(([v]) => v === value) && <option value={value}>{value}</option>}
      </select>
    </label>
  );
}

/** Whose: one of those who are known here. */
export function Who() {
  const agents = useRead('agents', {}, ['settings']);
  const names = [...new Set(agents.data?.agents.map((a) => a.identity))];
  return <Choice name="identity" label="Agent" options={names.map((name) => [name, name] as const)} />;
}

export function SearchBox({ name, label, placeholder }: { name: string; label: string; placeholder: string }) {
  const field = useRef<HTMLInputElement>(null);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const value = param(name);
  useEffect(() => {
    if (field.current && document.activeElement !== field.current) field.current.value = value;
  }, [value]);
  const search = (text: string, pause: number) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setParams({ [name]: text.trim() }, 'replace'), pause);
  };
  return (
    <form
      class="field wide"
      role="search"
      aria-label={label}
      onSubmit={(e) => (e.preventDefault(), search(field.current?.value ?? '', 0))}
    >
      <label for={`search-${name}`}>{label}</label>
      <input
        ref={field}
        id={`search-${name}`}
        type="search"
        placeholder={placeholder}
        defaultValue={value}
        maxLength={400}
        autocomplete="off"
        spellcheck={false}
        onInput={(e) => search(e.currentTarget.value, PAUSE_MS)}
      />
    </form>
  );
}

const RANGES: [string, string, number][] = [
  ['1h', 'last hour', 3600],
  ['1d', 'last day', 86_400],
  ['7d', 'last 7 days', 604_800],
  ['28d', 'last 28 days', 2_419_200],
  ['90d', 'last 90 days', 7_776_000],
];

export function Range({ all = 'any time' }: { all?: string }) {
  return <Choice name="range" label="When" all={all} options={RANGES.map(([key, text]) => [key, text] as const)} />;
}

/** Where each range began when this page was opened: a list that is being read does not lose its end by the minute. */
const began = new Map<string, string>();
effect(() => (page.value, began.clear()));

/** Since when, by the range in the address. */
export function since(fallback = ''): string | undefined {
  const asked = param('range') || fallback;
  const range = RANGES.find(([key]) => key === asked);
  // What is no range is refused by the server, like any other nonsense.
  if (!range) return asked || undefined;
  const [key, , seconds] = range;
  const at = began.get(key) ?? new Date(Date.now() - seconds * 1000).toISOString();
  began.set(key, at);
  return at;
}

/** Said of an empty list: that nothing is like the filters, where there are any; else what will stand here. */
export function NothingHere({ filters, children }: { filters: readonly string[]; children: ComponentChildren }) {
  if (filters.every((name) => param(name) === '')) return <>{children}</>;
  return (
    <Empty title="Nothing is like that.">
      <button
        type="button"
        class="plain"
        onClick={() => setParams(Object.fromEntries(filters.map((name) => [name, ''])))}
      >
        Clear the filters
      </button>
    </Empty>
  );
}

/** Leaves out what is not filtered by. */
export function asked<T extends Record<string, string | undefined>>(filters: T): { [K in keyof T]?: string } {
  return Object.fromEntries(Object.entries(filters).filter(([, v]) => v !== undefined && v !== '')) as {
    [K in keyof T]?: string;
  };
}
