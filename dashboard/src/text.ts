// Other people's text made safe to show: whole escape sequences, control and bidi characters go.

// CSI, OSC/DCS/SOS/PM/APC with their ends, and two-character escapes, 7-bit and 8-bit.
const ESCAPES =
  /(?:\u001b\[|\u009b)[\u0030-\u003f]*[\u0020-\u002f]*[\u0040-\u007e]?|(?:\u001b[\]PX^_]|[\u009d\u0090\u0098\u009e\u009f])[^\u0007\u001b\u009c]*(?:\u0007|\u001b\\|\u009c)?|\u001b[\u0020-\u002f]*[\u0030-\u007e]?/g;
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
const SUSPECT = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/;

export function clean(text: string): string {
  if (!SUSPECT.test(text)) return text;
  return text.replace(/\r\n?/g, '\n').replace(ESCAPES, '').replace(CONTROLS, '');
}

// What a JSON text looks like that may hold any of them; nearly none does, and then nothing is walked.
const SUSPECT_JSON =
  /\\u00[0189]|\\u(?:061c|200[ef]|202[a-e]|206[6-9]|feff)|\\[bfr]|[\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/i;

/** Reads an answer of the server. Every text in it is clean from here on, keys included. */
export function parseClean(json: string): unknown {
  if (!SUSPECT_JSON.test(json)) return JSON.parse(json);
  return walk(JSON.parse(json));
}

function walk(value: unknown): unknown {
  if (typeof value === 'string') return clean(value);
  if (Array.isArray(value)) return value.map(walk);
  if (value !== null && typeof value === 'object')
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [clean(k), walk(v)]));
  return value;
}

/** A plain word, by which a sentence begins; an id, a field or a name keeps its letters as they are. */
const BEGINS = /^(?![0-9a-f]{8,}\b)[a-z]+(?=[,;:.!?]?(?:\s|$)|[’'])/;

/** What a server said, as a sentence. */
export function sentence(text: string): string {
  const trimmed = text.trim();
  if (trimmed === '') return '';
  const begun = BEGINS.test(trimmed) ? trimmed.charAt(0).toUpperCase() + trimmed.slice(1) : trimmed;
  return begun + (/[.!?]$/.test(trimmed) ? '' : '.');
}

/** The first digits of an id, as people quote it. */
export const short = (id: string): string => id.slice(0, 8);

/** `direction_pivot` as people read it. */
export const words = (name: string): string => name.replaceAll('_', ' ');

export function count(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString('en')} ${n === 1 ? one : many}`;
}

export const percent = (share: number): string => `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)}%`;

export function milliseconds(ms: number): string {
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return duration(ms / 1000);
}

export function duration(seconds: number): string {
  const s = Math.max(0, seconds);
  if (s < 60) return `${s < 10 && s % 1 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 3600) return `${Math.round(s / 60)} min`;
  if (s < 86_400) return `${(s / 3600).toFixed(s < 36_000 ? 1 : 0).replace(/\.0$/, '')} h`;
  return `${(s / 86_400).toFixed(s < 864_000 ? 1 : 0).replace(/\.0$/, '')} d`;
}

export function bytes(n: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) [n, i] = [n / 1024, i + 1];
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

const BROWSERS: [RegExp, string][] = [
  [/Edg\/(\d+)/, 'Edge'],
  [/Firefox\/(\d+)/, 'Firefox'],
  [/(?:Headless)?Chrome\/(\d+)/, 'Chrome'],
  [/Version\/(\d+).*Safari/, 'Safari'],
];
const SYSTEMS: [RegExp, string][] = [
  [/Android/, 'Android'],
  [/iPhone|iPad/, 'iOS'],
  [/Windows/, 'Windows'],
  [/Mac OS/, 'macOS'],
  [/Linux/, 'Linux'],
];

/** A browser as people call it, from how it calls itself. */
export function browser(agent: string): string {
  for (const [mark, name] of BROWSERS) {
    const found = mark.exec(agent);
    const system = SYSTEMS.find(([sign]) => sign.test(agent))?.[1];
    if (found) return `${name} ${found[1]}${system ? ` on ${system}` : ''}`;
  }
  return agent;
}
