// The page's address: which page, and every filter on it, all behind the `#`, so that it holds under any path.
import { computed, signal } from '@preact/signals';

export const PAGES = ['Now', 'Signals', 'Story', 'Memory', 'Operator', 'Delivery', 'Gate', 'Settings'] as const;
export type Page = (typeof PAGES)[number];
export type Params = Record<string, string>;

interface Route {
  page: Page;
  params: Params;
}

function read(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const page = PAGES.find((p) => p.toLowerCase() === path.toLowerCase()) ?? 'Now';
  return { page, params: Object.fromEntries(new URLSearchParams(query)) };
}

/** A path that names a page is the same as its hash: `signals?state=waiting` becomes `#/signals?state=waiting`. */
function fromPath(): string {
  const base = new URL(document.baseURI).pathname;
  const named = location.pathname.startsWith(base) ? location.pathname.slice(base.length).split('/')[0] : '';
  if (!named || location.hash) return location.hash;
  const hash = `#/${named}${location.search}`;
  history.replaceState(null, '', base + hash);
  return hash;
}

export const route = signal<Route>(read(fromPath()));
export const page = computed(() => route.value.page);

window.addEventListener('hashchange', () => (route.value = read(location.hash)));

/** The address of a page with these filters; the project stays unless another is named. */
export function href(to: Page, params: Params = {}): string {
  const project = route.value.params['project'];
  const all: Params = project === undefined ? params : { project, ...params };
  const query = new URLSearchParams(Object.entries(all).filter(([, v]) => v !== '')).toString();
  return `#/${to.toLowerCase()}${query && `?${query}`}`;
}

export function go(to: Page, params: Params = {}): void {
  location.hash = href(to, params);
}

export function param(name: string): string {
  return route.value.params[name] ?? '';
}

/** Changes filters of this page. Typing replaces the address; a choice can be taken back with the Back button. */
export function setParams(changed: Params, how: 'push' | 'replace' = 'push'): void {
  const params = { ...route.value.params, ...changed };
  for (const [key, value] of Object.entries(params)) if (value === '') delete params[key];
  const query = new URLSearchParams(params).toString();
  const hash = `#/${page.value.toLowerCase()}${query && `?${query}`}`;
  if (hash === location.hash) return;
  if (how === 'push') {
    location.hash = hash;
  } else {
    history.replaceState(null, '', hash);
    route.value = read(hash);
  }
}
