// The shell around every page: navigation, project, connection, theme, help.
import { useEffect, useRef } from 'preact/hooks';
import { project, signedOut, versions } from './api';
import { HELP, helpOpen } from './keys';
import { crowded, gone, link } from './live';
import { Delivery } from './pages/delivery';
import { Gate } from './pages/gate';
import { Memory } from './pages/memory';
import { Now } from './pages/now';
import { Operator } from './pages/operator';
import { Settings } from './pages/settings';
import { Signals } from './pages/signals';
import { Story } from './pages/story';
import { SignIn } from './parts/signin';
import { useRead, type Read } from './read';
import { href, page, PAGES, setParams, type Page } from './route';
import { nextTheme, theme } from './theme';
import { useNotices } from './notices';
import { EVERYWHERE, type Now as Waiting } from './wire';

const ICONS: Record<Page, string> = {
  Now: 'M8 4v4l2.5 2M8 1.800a6.200 6.200 0 1 0 0 12.400A6.200 6.200 0 0 0 8 1.800Z',
  Signals: 'M2 4.500h12v8H2ZM2 5l6 4.500L14 5',
  Story: 'M3.500 2.500v11M3.500 5h4M3.500 11h6M10 5h3M12 11h1',
  Memory:
    'M8 2.500c3.300 0 6 1 6 2.200s-2.700 2.200-6 2.200-6-1-6-2.200 2.700-2.200 6-2.200ZM2 4.700v6.600c0 1.200 2.700 2.200 6 2.200s6-1 6-2.200V4.700M2 8c0 1.200 2.700 2.200 6 2.200S14 9.200 14 8',
  Operator:
    'M8 8a2.800 2.800 0 1 0 0-5.600A2.800 2.800 0 0 0 8 8ZM2.500 14c.6-2.800 2.800-4 5.500-4s4.900 1.200 5.500 4',
  Delivery: 'M1.500 9h3l2-5.500 3 9 2-5.500 1 2h2',
  Gate: 'M3 14V6a5 5 0 0 1 10 0v8M6 14V8M10 14V8M3 10.500h10',
  Settings: 'M2 4.500h7M12 4.500h2M2 11.500h2M7 11.500h7M10.500 2.800v3.400M5.500 9.800v3.400',
};

export function App() {
  if (signedOut.value) return <SignIn problem={signedOut.value} />;
  return <Shell />;
}

function Shell() {
  const waiting = useRead('now', {}, ['signal', 'session', 'memory', 'review', 'gate', 'settings'], { unseen: true });
  const known = useRead('projects', {}, ['settings'], { pid: EVERYWHERE });
  useNotices(waiting.data);
  useTitle(waiting.data);
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  useEffect(() => {
    // Whoever cannot see that the page changed is put at its beginning.
    if (!first.current) main.current?.focus({ preventScroll: true });
    first.current = false;
    window.scrollTo(0, 0);
  }, [page.value]);
  const projects = known.data?.projects ?? [];
  return (
    <div class="shell">
      <header class="side">
        <a class="brand" href={href('Now')} aria-label="Prism">
          <svg width="20" height="20" viewBox="0 0 32 32" aria-hidden="true">
            <path d="M16 3 30 28H2Z" fill="var(--accent)" opacity="0.55" />
            <path d="M16 3 23 28H9Z" fill="var(--accent)" />
          </svg>
          <span>Prism</span>
        </a>
        <div class="project">
          <select
            aria-label="Project"
            value={project.value}
            onChange={(e) =>
              setParams({ project: e.currentTarget.value === EVERYWHERE ? '' : e.currentTarget.value, id: '' })
            }
          >
            <option value={EVERYWHERE}>All projects</option>
            {projects.map((pid) => (
              <option key={pid} value={pid}>
                {pid}
              </option>
            ))}
            {project.value !== EVERYWHERE && !projects.includes(project.value) && (
              <option value={project.value}>{project.value}</option>
            )}
          </select>
        </div>
        <nav aria-label="Pages">
          <ul>
            {PAGES.map((name) => (
              <NavLink key={name} name={name} waiting={waiting.data} />
            ))}
          </ul>
        </nav>
        <div class="foot">
          <div class="link" data-state={link.value}>
            <span class="dot" aria-hidden="true" />
            <span role="status" aria-label="Connection">
              {link.value}
            </span>
          </div>
          <div class="row">
            <button
              class="plain"
              type="button"
              aria-label={`Theme: ${theme.value}`}
              title={`Theme: ${theme.value}`}
              onClick={nextTheme}
            >
              <svg
                width="16"
                height="16"
                viewBox="0 0 16 16"
                aria-hidden="true"
                fill="none"
                stroke="currentColor"
                stroke-width="1.4"
              >
                <circle cx="8" cy="8" r="5.500" />
                <path d="M8 2.500a5.500 5.500 0 0 1 0 11Z" fill="currentColor" />
              </svg>
              <span class="wide">{theme.value}</span>
            </button>
            <button
              class="plain"
              type="button"
              aria-label="Keyboard help"
              title="Keyboard help (?)"
              onClick={() => (helpOpen.value = true)}
            >
              ?
            </button>
          </div>
        </div>
      </header>
      <main ref={main} tabIndex={-1}>
        <div class="page" key={page.value}>
          <Newer />
          {crowded.value && (
            <div class="notice fair" role="alert">
              Too many pages are open, so this one does not change by itself. Close one of them; it is noticed here.
            </div>
          )}
          {gone.value !== '' && gone.value === project.value && (
            <div class="notice fair" role="alert">
              <span>
                There is no project {project.value} any more.{' '}
                <button class="plain" type="button" onClick={() => setParams({ project: '', id: '' })}>
                  Show all projects
                </button>
              </span>
            </div>
          )}
          <Current waiting={waiting} />
        </div>
      </main>
      <Help />
    </div>
  );
}

function NavLink({ name, waiting }: { name: Page; waiting: Waiting | undefined }) {
  const n = tally(name, waiting);
  const self = useRef<HTMLAnchorElement>(null);
  const current = page.value === name;
  // On a small screen the names do not all fit: the current one is in sight.
  useEffect(() => void (current && self.current?.scrollIntoView({ block: 'nearest', inline: 'center' })), [current]);
  return (
    <li>
      <a ref={self} href={href(name)} aria-current={current ? 'page' : undefined}>
        <svg
          width="16"
          height="16"
          viewBox="0 0 16 16"
          fill="none"
          stroke="currentColor"
          stroke-width="1.4"
          stroke-linecap="round"
          stroke-linejoin="round"
          aria-hidden="true"
        >
          <path d={ICONS[name]} />
        </svg>
        {name}
        {n > 0 && (
          <span class={`tally ${name === 'Now' ? '' : 'quiet'}`} aria-hidden="true">
            {n > 99 ? '99+' : n}
          </span>
        )}
      </a>
    </li>
  );
}

function tally(name: Page, waiting: Waiting | undefined): number {
  if (!waiting) return 0;
  if (name === 'Now') return urgent(waiting);
  if (name === 'Operator') return waiting.inputs.length + (waiting.inputs_more ?? 0);
  if (name === 'Gate') return waiting.warnings.length + (waiting.warnings_more ?? 0);
  return 0;
}

/** What somebody is stuck on: not what can be reviewed some day. */
export function urgent(waiting: Waiting): number {
  return (
    waiting.to_me.length +
    (waiting.to_me_more ?? 0) +
    waiting.unread.length +
    (waiting.unread_more ?? 0) +
    waiting.waiting.length
  );
}

function useTitle(waiting: Waiting | undefined): void {
  const n = waiting ? urgent(waiting) : 0;
  document.title = `${n > 0 ? `(${n}) ` : ''}${page.value} · Prism`;
}

function Current({ waiting }: { waiting: Read<Waiting> }) {
  switch (page.value) {
    case 'Now':
      return <Now waiting={waiting} />;
    case 'Signals':
      return <Signals />;
    case 'Story':
      return <Story />;
    case 'Memory':
      return <Memory />;
    case 'Operator':
      return <Operator />;
    case 'Delivery':
      return <Delivery />;
    case 'Gate':
      return <Gate />;
    case 'Settings':
      return <Settings />;
  }
}

function Newer() {
  const seen = versions.value;
  if (!seen || seen.page === seen.server) return null;
  return (
    <div class="notice fair" role="alert">
      <span>
        This page is of Prism {seen.page}; the server is now {seen.server}. Reload it, so that both speak of the same.
      </span>
      <button class="main push" type="button" onClick={() => location.reload()}>
        Reload
      </button>
    </div>
  );
}

function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  const open = helpOpen.value;
  useEffect(() => {
    if (open) dialog.current?.showModal();
  }, [open]);
  return (
    <dialog
      ref={dialog}
      aria-labelledby="help"
      onClose={() => (helpOpen.value = false)}
      onClick={(e) => e.target === dialog.current && dialog.current?.close()}
    >
      {open && (
        <>
          <div class="row between">
            <h2 id="help">Keyboard</h2>
            <button type="button" onClick={() => dialog.current?.close()}>
              Close
            </button>
          </div>
          <dl>
            {HELP.map(([key, what]) => [
              <dt key={key}>
                <kbd>{key}</kbd>
              </dt>,
              <dd key={what}>{what}</dd>,
            ])}
          </dl>
        </>
      )}
    </dialog>
  );
}
