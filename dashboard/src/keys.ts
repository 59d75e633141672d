// The keyboard: moving between pages and rows, and pressing a row's buttons by one letter each.
import { signal } from '@preact/signals';
import { go, setParams, type Page } from './route';

export const helpOpen = signal(false);

export const GO: [string, Page][] = [
  ['n', 'Now'],
  ['s', 'Signals'],
  ['t', 'Story'],
  ['m', 'Memory'],
  ['o', 'Operator'],
  ['d', 'Delivery'],
  ['g', 'Gate'],
  ['e', 'Settings'],
];

/** What the help says; the letters of rows are those of their buttons' `data-key`. */
export const HELP: [string, string][] = [
  ['?', 'this help'],
  ['/', 'the page’s search'],
  ['j / k', 'next / previous row'],
  ['Enter', 'open the row'],
  ['Esc', 'close what is open, leave a field'],
  ['g then a letter', GO.map(([key, page]) => `${key} ${page}`).join(', ')],
  ['a, r, u', 'Accept, Reject, Undo an input'],
  ['x', 'select an input, for several at once'],
  ['w, b, p', 'Works, Broken, Partial on a memory row'],
  ['y, f', 'Right, False alarm on a warning'],
  ['c', 'answer the row'],
];

const GO_WITHIN_MS = 1500;
let goUntil = 0;

const rows = (): HTMLElement[] =>
  [...document.querySelectorAll<HTMLElement>('main [data-row]')].filter((e) => e.offsetParent !== null);

function currentRow(): HTMLElement | null {
  return document.activeElement?.closest<HTMLElement>('[data-row]') ?? null;
}

function move(by: 1 | -1): void {
  const all = rows();
  const at = currentRow();
  const from = at ? all.indexOf(at) : by === 1 ? -1 : all.length;
  const to = all[from + by];
  to?.focus({ preventScroll: true });
  to?.scrollIntoView({ block: 'nearest' });
}

const isField = (element: HTMLElement): boolean => element.matches('input:not([type=checkbox]), textarea, select');

function isTyping(target: EventTarget | null): target is HTMLElement {
  return target instanceof HTMLElement && isField(target);
}

function pressed(event: KeyboardEvent): boolean {
  const { key } = event;
  if (performance.now() < goUntil) {
    goUntil = 0;
    const to = GO.find(([letter]) => letter === key);
    if (to) return (go(to[1]), true);
  }
  switch (key) {
    case '?':
      return (helpOpen.value = true);
    case 'g':
      goUntil = performance.now() + GO_WITHIN_MS;
      return true;
    case 'j':
      return (move(1), true);
    case 'k':
      return (move(-1), true);
    case '/': {
      const search = document.querySelector<HTMLInputElement>('main input[type=search]');
      search?.focus();
      search?.select();
      return search !== null;
    }
    case 'Escape':
      setParams({ id: '', node: '' });
      return false;
  }
  const row = currentRow();
  if (!row) return false;
  if (key === 'Enter' && document.activeElement === row) {
    const open = row.querySelector<HTMLElement>('[data-open]');
    open?.click();
    return open !== null;
  }
  const act = row.querySelector<HTMLElement>(`[data-key="${CSS.escape(key)}"]`);
  if (!act) return false;
  if (isField(act)) act.focus();
  else act.click();
  return true;
}

export function listen(): void {
  window.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || helpOpen.value) return;
    if (isTyping(event.target)) {
      if (event.key === 'Escape') (event.target.closest<HTMLElement>('[data-row]') ?? event.target).focus();
      if (event.key === 'Escape' && !event.target.closest('[data-row]')) event.target.blur();
      return;
    }
    if (pressed(event)) event.preventDefault();
  });
}
