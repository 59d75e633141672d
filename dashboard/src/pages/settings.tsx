// Settings: projects and their folders, personas, keys, surfaces, retention, and what is stored.
import { useState } from 'preact/hooks';
import { useAct } from '../act';
import { address, AWAY, call, Refused } from '../api';
import { Chip, When } from '../parts/marks';
import { Empty, Figure, Head, Panel, Said, Trouble } from '../parts/panel';
import { Sure } from '../parts/sure';
import { number, Table } from '../parts/table';
import { CALM_MS, useRead } from '../read';
import { browser, bytes, count, short, words } from '../text';
import { exact } from '../time';
import { EVERYWHERE, type KeyView, type ProjectSettings, type Settings as Shown } from '../wire';

export function Settings() {
  const read = useRead('settings', {}, ['settings', 'session'], { pid: EVERYWHERE, calm: CALM_MS });
  return (
    <>
      <Head name="Settings" lead="Who may take part, where, and what is kept." />
      <Trouble problem={read.problem} again={read.again} />
      {read.slow && <p class="slow">Reading…</p>}
      {read.data && <All of={read.data} />}
    </>
  );
}

function All({ of }: { of: Shown }) {
  return (
    <>
      <Panel title="This server" tools={<SignOut />}>
        <dl class="figures">
          <Figure
            name="Version"
            note={
              <>
                started <When at={of.started_at} />
              </>
            }
          >
            {of.server_version}
          </Figure>
          <Figure name="Operator" note={of.public_url ?? 'on this machine'}>
            {of.operator}
          </Figure>
          <Figure name="Recall by meaning" note={<Said text={of.embedder_off ?? 'the model is in use'} />}>
            {of.embedder_off ? 'off' : 'on'}
          </Figure>
          <Figure name="Gate" note="PRISM_RECALLGATE_MODE">
            {of.gate_mode}
          </Figure>
          <Figure name="Open pages" note={`${of.watchers_max} at most`}>
            {of.watchers}
          </Figure>
        </dl>
      </Panel>
      {of.projects.length === 0 && (
        <section class="panel">
          <Empty title="No project yet.">
            The first agent that starts in a folder makes one; <code>prism connect</code> sets that up.
          </Empty>
        </section>
      )}
      {of.projects.map((p) => (
        <Project key={p.pid} of={p} operator={of.operator} />
      ))}
      <Keys of={of} />
      <Hosts of={of} />
      <div class="columns">
        <Surfaces of={of} />
        <Kept of={of} />
      </div>
    </>
  );
}

function SignOut() {
  const act = useAct();
  const leave = async () => {
    await fetch(address('sign-out'), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{}',
      credentials: 'same-origin',
    }).catch(() => {
      throw new Refused(AWAY, 0);
    });
    location.reload();
  };
  return (
    <>
      <button type="button" aria-disabled={act.busy} onClick={() => void act.run(leave, EVERYWHERE)}>
        Sign out
      </button>
      <Trouble problem={act.problem} />
    </>
  );
}

function Project({ of, operator }: { of: ProjectSettings; operator: string }) {
  return (
    <Panel
      title={of.pid}
      tools={
        of.demo ? (
          <Chip tone="fair" title="prism demo --remove takes it away">
            demonstration
          </Chip>
        ) : null
      }
      about={`${count(of.memory_rows, 'row')} of memory, since ${exact(of.created_at)}.`}
    >
      <div class="columns">
        <section class="stack" aria-label={`Personas of ${of.pid}`}>
          <h3>Personas</h3>
          <ul class="stack small">
            {of.personas.map((p) => (
              <li key={p.identity} class="row wrap">
                <span class="strong">{p.identity}</span>
                {p.operator && <Chip>operator</Chip>}
                {!p.operator && !p.started && <Chip>never started</Chip>}
                <span class="dim">
                  since <When at={p.since} />
                </span>
                {!p.operator && <MintKey pid={of.pid} identity={p.identity} />}
              </li>
            ))}
          </ul>
          <AddPersona pid={of.pid} />
        </section>
        <section class="stack" aria-label={`Folders of ${of.pid}`}>
          <h3>Folders</h3>
          {of.folders.length === 0 && (
            <p class="small dim">
              No folder yet. <code>prism project allow {of.pid}</code> in one lets its sessions in.
            </p>
          )}
          <ul class="stack small">
            {of.folders.map((f) => (
              <li key={`${f.machine_id}${f.folder}`} class="row wrap">
                <span class="mono text">{f.folder}</span>
                <span class="dim">
                  on {f.machine_id}, {f.allowed ? 'allowed' : 'first used here'} <When at={f.since} />
                </span>
                <Forget pid={of.pid} machine_id={f.machine_id} folder={f.folder} />
              </li>
            ))}
          </ul>
        </section>
      </div>
      {of.demo && (
        <p class="small dim">
          Made by <code>prism demo</code> for {operator} to look around in; <code>prism demo --remove</code> takes it
          away.
        </p>
      )}
    </Panel>
  );
}

function Forget({ pid, machine_id, folder }: { pid: string; machine_id: string; folder: string }) {
  const act = useAct();
  return (
    <>
      <Sure
        label="Forget"
        sure="Forget this folder"
        busy={act.busy}
        run={() => void act.run(() => call(pid, 'project_forget', { machine_id, folder }), pid, 'settings')}
      />
      <Trouble problem={act.problem} />
    </>
  );
}

function AddPersona({ pid }: { pid: string }) {
  const act = useAct();
  const [name, setName] = useState('');
  const add = async () => {
    if (await act.run(() => call(pid, 'persona_add', { identity: name.trim() }), pid, 'settings')) setName('');
  };
  return (
    <>
      <form class="answer" onSubmit={(e) => (e.preventDefault(), name.trim() && void add())}>
        <input
          aria-label={`New persona in ${pid}`}
          placeholder="A new name"
          value={name}
          maxLength={32}
          onInput={(e) => setName(e.currentTarget.value)}
        />
        <button type="submit" aria-disabled={act.busy}>
          Add persona
        </button>
      </form>
      <Trouble problem={act.problem} />
    </>
  );
}

function MintKey({ pid, identity }: { pid: string; identity: string }) {
  const act = useAct();
  const [key, setKey] = useState('');
  const mint = () => act.run(async () => setKey((await call(pid, 'key_mint', { identity })).key), pid, 'settings');
  return (
    <>
      {key === '' ? (
        <button
          class="plain"
          type="button"
          aria-label={`New key for ${identity}`}
          aria-disabled={act.busy}
          onClick={() => void mint()}
        >
          New key
        </button>
      ) : (
        <span class="secret">
          <span class="dim">
            Shown once, for <code>PRISM_API_KEY</code> on another machine:
          </span>{' '}
          <code>{key}</code>
          <button class="plain" type="button" onClick={() => void navigator.clipboard?.writeText(key)}>
            Copy
          </button>
          <button class="plain" type="button" onClick={() => setKey('')}>
            Hide
          </button>
        </span>
      )}
      <Trouble problem={act.problem} />
    </>
  );
}

function Keys({ of }: { of: Shown }) {
  const live = of.keys.filter((k) => !k.revoked_at);
  const gone = of.keys.length - live.length;
  return (
    <Panel
      title="Keys"
      about="Each is shown once, when it is made; the server keeps only a hash. A browser that signed in is a key too."
    >
      <Table
        label="Keys"
        columns={['Whose', { name: 'Begins with', cell: 'mono' }, 'Made', 'Ends', { name: 'Revoke', unseen: true }]}
        rows={live.map((k) => ({
          key: k.key_id,
          cells: [
            k.browser ? <span title={k.browser}>{browser(k.browser)}</span> : k.operator ? 'operator' : k.identity,
            k.prefix || short(k.key_id),
            <When at={k.created_at} />,
            k.expires_at ? <When at={k.expires_at} /> : <span class="dim small">when revoked</span>,
            <Revoke of={k} />,
          ],
        }))}
      />
      {gone > 0 && <p class="small dim">{count(gone, 'more key')} revoked.</p>}
    </Panel>
  );
}

function Revoke({ of }: { of: KeyView }) {
  const act = useAct();
  return (
    <>
      {(!of.operator || of.browser) && (
        <Sure
          label="Revoke"
          sure={of.browser ? 'Sign that browser out' : `Revoke ${of.identity}’s key`}
          busy={act.busy}
          run={() => void act.run(() => call(EVERYWHERE, 'key_revoke', { key_id: of.key_id }), EVERYWHERE, 'settings')}
        />
      )}
      <Trouble problem={act.problem} />
    </>
  );
}

function Hosts({ of }: { of: Shown }) {
  return (
    <Panel title="Connected hosts" about="What prism connect has put into the hosts of the server’s machine.">
      {of.hosts?.length ? (
        <Table
          label="Hosts"
          columns={['Host', 'Prism', number('hooks'), 'Status line', 'What is wrong']}
          rows={of.hosts.map((h) => ({
            key: h.host,
            cells: [
              h.host,
              h.connected ? <Chip tone="good">connected</Chip> : <span class="dim">not connected</span>,
              h.connected ? `${h.hooks} of ${h.hooks + h.hooks_missing}` : '–',
              h.statusline ?? '–',
              <span class="text">
                {h.problems.length ? (
                  <Said text={h.problems.join('; ')} />
                ) : h.connected && !h.server ? (
                  'only hooks, no tools'
                ) : (
                  ''
                )}
              </span>,
            ],
          }))}
        />
      ) : (
        <Empty title="No host is installed on the server’s machine.">
          Claude Code, Codex, Cursor, VS Code, Gemini CLI and OpenCode are looked for.
        </Empty>
      )}
      <p class="small dim">
        <code>prism connect</code> puts Prism into a host, <code>prism connect --check</code> says more, also of a
        project’s own files and of other machines.
      </p>
    </Panel>
  );
}

function Surfaces({ of }: { of: Shown }) {
  return (
    <Panel title="Seen at work" about="Which hosts had sessions, on which machine.">
      {of.surfaces.length === 0 ? (
        <Empty title="No host has been seen.">
          A host shows here once an agent has started in it; <code>prism connect</code> sets that up.
        </Empty>
      ) : (
        <Table
          label="Hosts seen"
          columns={['Host', { name: 'Machine', cell: 'text' }, number('open'), 'Seen']}
          rows={of.surfaces.map((s) => ({
            key: s.surface + s.machine_id,
            cells: [words(s.surface), s.machine_id, s.open, <When at={s.last_seen_at} />],
          }))}
        />
      )}
    </Panel>
  );
}

function Kept({ of }: { of: Shown }) {
  const later = Date.parse(of.retention_begins_at) > Date.now();
  return (
    <Panel
      title="What is kept"
      about={`Memory is never pruned. ${later ? `Nothing of the rest goes before ${exact(of.retention_begins_at)}. ` : ''}Days are set under [retention] in config.toml.`}
      table={{
        name: 'retention',
        of: () => ({
          columns: ['kind', 'days', 'rows', 'oldest', 'going'],
          rows: of.retention.map((r) => [r.kind, r.days, r.rows, r.oldest, r.going]),
        }),
      }}
    >
      <dl class="figures">
        <Figure name="Database" note={`${bytes(of.stored.journal_bytes)} of journal`}>
          {bytes(of.stored.database_bytes)}
        </Figure>
        {Object.entries(of.stored.rows).map(([kind, n]) => (
          <Figure key={kind} name={words(kind)}>
            {of.stored.at_most?.includes(kind) ? '≤ ' : ''}
            {n.toLocaleString('en')}
          </Figure>
        ))}
      </dl>
      <Table
        label="Retention"
        columns={['What', number('days'), number('rows'), 'Oldest', number('going next')]}
        rows={of.retention.map((r) => ({
          key: r.kind,
          cells: [
            words(r.kind),
            r.days || 'for ever',
            `${r.at_most ? '≤ ' : ''}${r.rows.toLocaleString('en')}`,
            r.oldest ? <When at={r.oldest} /> : '–',
            r.going,
          ],
        }))}
      />
    </Panel>
  );
}
