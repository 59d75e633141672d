// One signal on a line, and the drawn way of one through its layers.
import { href } from '../route';
import { clock, exact } from '../time';
import { duration, milliseconds, short, words } from '../text';
import type { Receipt, SessionReceipt, SignalRow } from '../wire';
import { Category, Chip, When, type Tone } from './marks';

const TONES: Record<string, Tone> = {
  acted: 'good',
  drained: 'good',
  failed: 'bad',
  expired: 'bad',
  recalled: '',
  dismissed: '',
};

/** Where a signal stands, in words. */
export function Standing({ signal }: { signal: SignalRow }) {
  if (signal.stuck)
    return (
      <Chip tone="bad" title={signal.stuck.why}>
        stuck · {words(signal.state)}
      </Chip>
    );
  if (signal.leased) return <Chip>being read</Chip>;
  return (
    <Chip tone={TONES[signal.state] ?? ''} title={exact(signal.at)}>
      {signal.waiting ? `waiting · ${signal.state}` : signal.state}
    </Chip>
  );
}

export function FromTo({ signal }: { signal: SignalRow }) {
  return (
    <span class="strong">
      {signal.from_identity}{' '}
      <span class="dim" aria-label="to">
        →
      </span>{' '}
      {signal.to_identity}
    </span>
  );
}

export function SignalLine({ signal, showProject }: { signal: SignalRow; showProject?: boolean }) {
  return (
    <div class="line">
      <Category is={signal.category} />
      <FromTo signal={signal} />
      <span class="dim small">{signal.signal_type}</span>
      {showProject && <span class="dim small">{signal.pid}</span>}
      <When at={signal.created_at} />
    </div>
  );
}

export const signalHref = (id: string): string => href('Signals', { id });
export const memoryHref = (id: string): string => href('Memory', { id });

type Stops = 'queued' | 'pushed' | 'received' | 'rung' | 'rendered' | 'drained' | 'acted';
const STOPS: Stops[] = ['queued', 'pushed', 'received', 'rung', 'rendered', 'drained', 'acted'];
const MEANS: Record<Stops, string> = {
  queued: 'committed by the server',
  pushed: 'handed to the session’s socket',
  received: 'the shim has it',
  rung: 'the bell went to the host',
  rendered: 'the host showed that it took the bell',
  drained: 'the model read it',
  acted: 'answered or acknowledged as done',
};

/** The way to one session: a stop for each state that is a fact, an empty one for each that is not. */
export function Way({ receipt, session }: { receipt: Receipt; session: SessionReceipt | null }) {
  const queued = receipt.states['queued'];
  const at = (stop: Stops): string | null | undefined => {
    if (stop === 'queued' || stop === 'acted') return receipt.states[stop];
    return session ? session[stop] : receipt.states[stop];
  };
  return (
    <div class="way">
      <h3>
        {session ? `${session.surface} on ${session.machine_id}` : 'No session'}{' '}
        {session && (
          <span class="dim small mono" title={session.session_id}>
            {short(session.session_id)}
          </span>
        )}
      </h3>
      <ol>
        {STOPS.map((stop) => {
          const when = at(stop);
          return (
            <li
              key={stop}
              data-reached={when ? 'yes' : 'no'}
              title={when ? `${MEANS[stop]}: ${exact(when)}` : `not known: ${MEANS[stop]}`}
            >
              <i aria-hidden="true" />
              <span>{stop}</span>
              <small class="dim number">
                {when
                  ? stop === 'queued' || !queued
                    ? clock(when)
                    : `+${milliseconds(Date.parse(when) - Date.parse(queued))}`
                  : '–'}
              </small>
            </li>
          );
        })}
      </ol>
      {session && (session.strategy || session.via) && (
        <p class="dim small">
          {session.strategy && (
            <>
              Bell by {words(session.strategy)}
              {session.rendered_by && session.rendered_by !== session.strategy && (
                <>, taken by {words(session.rendered_by)}</>
              )}
              .{' '}
            </>
          )}
          {session.via && (
            <>
              It stood behind the bell of <a href={signalHref(session.via)}>{short(session.via)}</a>.
            </>
          )}
        </p>
      )}
    </div>
  );
}

export const until = (at: string): string => duration((Date.parse(at) - Date.now()) / 1000);
