// The page's clock: one tick for every relative time on screen.
import { signal } from '@preact/signals';

const TICK_MS = 5_000;

export const now = signal(Date.now());
setInterval(() => document.hidden || (now.value = Date.now()), TICK_MS);
document.addEventListener('visibilitychange', () => document.hidden || (now.value = Date.now()));

export function relative(at: number, from: number): string {
  const s = Math.round((from - at) / 1000);
  if (s < 0) return s > -5 ? 'just now' : `in ${span(-s)}`;
  return s < 5 ? 'just now' : `${span(s)} ago`;
}

function span(s: number): string {
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86_400)} d`;
}

/** How long something has lasted, for ages of what waits. */
export const age = (since: string, from: number): string =>
  span(Math.max(0, Math.round((from - Date.parse(since)) / 1000)));

const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });
const DAY = new Intl.DateTimeFormat(undefined, { weekday: 'long', day: 'numeric', month: 'long' });
const SHORT_DAY = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });

export const exact = (at: string): string => EXACT.format(Date.parse(at));
export const clock = (at: string): string => CLOCK.format(Date.parse(at));
export const day = (at: string): string => DAY.format(Date.parse(at));
export const shortDay = (at: string): string => SHORT_DAY.format(Date.parse(at));
