// One signal: what it says, the way it took to each session, why it is stuck, its thread.
import { useAct } from '../../act';
import { call } from '../../api';
import { Acknowledge, Reply } from '../../parts/answer';
import { Category, When } from '../../parts/marks';
import { Said, Scroll, Trouble } from '../../parts/panel';
import { FromTo, signalHref, Standing, until, Way } from '../../parts/signal';
import { Judge } from '../../parts/verdicts';
import { useRead } from '../../read';
import { href, setParams } from '../../route';
import { exact } from '../../time';
import { short, words } from '../../text';
import type { SignalRow, SignalShown, TraceEvent } from '../../wire';

export function SignalDetail({ id }: { id: string }) {
  const read = useRead('signal_show', { signal_id: id }, ['signal']);
  return (
    <aside class="beside panel" aria-label="Signal">
      <header>
        <h2>{read.data && !read.stale ? read.data.signal.signal_type : 'Signal'}</h2>
        <span class="dim small mono">{short(id)}</span>
        <div class="tools">
          <button class="plain" type="button" onClick={() => setParams({ id: '' })}>
            Close
          </button>
        </div>
      </header>
      <div class="inside stack">
        <Trouble problem={read.problem} again={read.again} />
        {read.slow && <p class="slow">Reading…</p>}
        {read.data && (
          <div class={`stack ${read.stale ? 'stale' : ''}`}>
            <Shown of={read.data} />
          </div>
        )}
      </div>
    </aside>
  );
}

function Shown({ of }: { of: SignalShown }) {
  const { signal, receipt } = of;
  const body = Object.entries(of.payload).filter(([name]) => name !== 'summary' && name !== 'shape');
  return (
    <>
      <div class="line row wrap">
        <Category is={signal.category} />
        <FromTo signal={signal} />
        <Standing signal={signal} />
        <When at={signal.created_at} />
      </div>
      <p class="text lead">{signal.summary}</p>
      {body.length > 0 && (
        <dl class="payload">
          {body.map(([name, value]) => [
            <dt key={name}>{words(name)}</dt>,
            <dd key={`${name}-`} class="text">
              {typeof value === 'string' ? value : JSON.stringify(value, null, 1)}
            </dd>,
          ])}
        </dl>
      )}
      {signal.stuck && (
        <div class="notice bad">
          <span>
            <strong>
              <Said text={signal.stuck.why} />
            </strong>{' '}
            <Said text={signal.stuck.what_to_do} />
          </span>
        </div>
      )}
      {receipt.sessions.length === 0 ? (
        <Way receipt={receipt} session={null} />
      ) : (
        receipt.sessions.map((s) => <Way key={s.session_id} receipt={receipt} session={s} />)
      )}
      <Acts of={of} />
      {signal.signal_type !== 'Loopback' && (
        <div data-row>
          <Judge pid={signal.pid} refersTo={`signal:${signal.signal_id}`} />
        </div>
      )}
      <p class="small dim">
        {signal.waiting ? (
          <>
            Kept until {exact(of.expires_at)} (in {until(of.expires_at)}).{' '}
          </>
        ) : null}
        {of.delivery_class}, {words(of.publish_path)}.{' '}
        <a href={href('Story', { project: signal.pid, signal: signal.signal_id })}>The story of this</a>
      </p>
      {of.thread.length > 1 && <Thread rows={of.thread} at={signal.signal_id} more={of.thread_more ?? 0} />}
      <details>
        <summary>Every observation ({of.timeline.length})</summary>
        <Timeline events={of.timeline} />
      </details>
    </>
  );
}

function Acts({ of: { signal, can_take_back } }: { of: SignalShown }) {
  const act = useAct();
  const takeBack = () =>
    act.run(() => call(signal.pid, 'signal_recall', { signal_id: signal.signal_id }), signal.pid, 'signal');
  return (
    <div class="acts row wrap" data-row>
      <Reply to={signal} />
      {signal.to_operator && signal.state !== 'acted' && <Acknowledge signal={signal} />}
      {can_take_back && (
        <button type="button" aria-disabled={act.busy} onClick={() => void takeBack()}>
          Take back
        </button>
      )}
      <Trouble problem={act.problem} />
    </div>
  );
}

function Thread({ rows, at, more }: { rows: SignalRow[]; at: string; more: number }) {
  return (
    <section class="stack" aria-label="Thread">
      <h3>Thread</h3>
      <ol class="thread">
        {rows.map((s) => (
          <li key={s.signal_id} aria-current={s.signal_id === at ? 'true' : undefined}>
            <span class="row wrap small">
              <Category is={s.category} /> <FromTo signal={s} /> <Standing signal={s} /> <When at={s.created_at} />
            </span>
            <a class="quiet text" href={signalHref(s.signal_id)}>
              {s.summary || s.signal_type}
            </a>
          </li>
        ))}
      </ol>
      {more > 0 && <p class="dim small">and {more} more</p>}
    </section>
  );
}

function Timeline({ events }: { events: TraceEvent[] }) {
  return (
    <Scroll label="Observations">
      <table>
        <thead>
          <tr>
            <th scope="col">When</th>
            <th scope="col">What</th>
            <th scope="col">Layer</th>
            <th scope="col">Session</th>
          </tr>
        </thead>
        <tbody>
          {events.map((e, i) => (
            <tr key={i}>
              <td class="n">{exact(e.observed_at)}</td>
              <td>
                {words(e.state)}
                {e.detail && <div class="dim small text">{e.detail}</div>}
              </td>
              <td>{words(e.layer)}</td>
              <td class="mono">{e.session_id ? short(e.session_id) : ''}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}
