// Now: what waits on the operator, each answerable in place, and what everybody is at.
import { useAct } from '../act';
import { call, project } from '../api';
import { Acknowledge, AnsweredElsewhere, Reply, URGENCY, useDrafted } from '../parts/answer';
import { InputItem, useJudged } from '../parts/input';
import { Age, CATEGORIES, Category, Chip, When } from '../parts/marks';
import { Below, Empty, Head, Panel, Said, Trouble } from '../parts/panel';
import { memoryHref, SignalLine, signalHref } from '../parts/signal';
import { WarningItem } from '../parts/warning';
import { allowed, askLeave } from '../notices';
import { useRead, type Read } from '../read';
import { href } from '../route';
import { count, words } from '../text';
import { EVERYWHERE, type AgentView, type Now as Waiting, type SessionRow, type SignalRow } from '../wire';

const MARKS: Record<string, string> = {
  live: '●',
  idle: '◐',
  stale: '◌',
  offline: '○',
  never_started: '○',
  operator: '◆',
  released: '○',
};

export function Now({ waiting }: { waiting: Read<Waiting> }) {
  return (
    <>
      <Head name="Now" lead="What waits on you, and what everybody is at.">
        {allowed.value === 'default' && (
          <button
            type="button"
            onClick={() => void askLeave()}
            title="A browser notification when an ASK or a BLOCKER comes in"
          >
            Notify me
          </button>
        )}
      </Head>
      <Trouble problem={waiting.problem} again={waiting.again} />
      {waiting.slow && <p class="slow">Reading…</p>}
      {waiting.data ? <WaitsOnYou all={waiting.data} /> : !waiting.problem && <div class="waiting" />}
      <Below reads={[waiting]}>
        <Everybody />
      </Below>
    </>
  );
}

function WaitsOnYou({ all }: { all: Waiting }) {
  const everywhere = project.value === EVERYWHERE;
  const [inputs, judged] = useJudged(all.inputs);
  const toMe = useDrafted(all.to_me, true);
  const unread = useDrafted(all.unread, false);
  const nothing =
    !toMe.length && !unread.length && !all.waiting.length && !inputs.length && !all.warnings.length;
  if (nothing)
    return (
      <section class="panel">
        <Empty title="Nothing waits on you.">
          Signals to you, agents that ask for a permission, and unread questions between agents stand here as they come.
          Try it: <code>prism send {'<you>'} "a question" --type Question --as Donna</code>, or <code>prism demo</code>{' '}
          for a week of examples.
        </Empty>
      </section>
    );
  return (
    <>
      {toMe.length > 0 && (
        <Panel title="To you" bare tools={<More n={all.to_me_more} of={all.to_me_left} to="Signals" />}>
          <ul class="rows">
            {toMe.map(({ signal, left }) => (
              <ToMe key={signal.signal_id} signal={signal} left={left} showProject={everywhere} />
            ))}
          </ul>
        </Panel>
      )}
      {all.waiting.length > 0 && (
        <Panel title="Waiting at their terminal" bare about="Their hosts say that they go on once you answer there.">
          <ul class="rows">
            {all.waiting.map((s) => (
              <AtTerminal key={s.session_id} session={s} />
            ))}
          </ul>
        </Panel>
      )}
      {unread.length > 0 && (
        <Panel
          title="Unread between agents"
          bare
          about="Blockers, then questions, that nobody has read, the newest first."
          tools={<More n={all.unread_more} of={all.unread_left} to="Signals" />}
        >
          <ul class="rows">
            {unread.map(({ signal, left }) => (
              <Unread key={signal.signal_id} signal={signal} left={left} showProject={everywhere} />
            ))}
          </ul>
        </Panel>
      )}
      {inputs.length > 0 && (
        <Panel title="Your words to review" bare tools={<More n={all.inputs_more} to="Operator" />}>
          <ul class="rows">
            {inputs.map((i) => (
              <InputItem key={i.id} input={i} onJudged={judged} showProject={everywhere} />
            ))}
          </ul>
        </Panel>
      )}
      {all.warnings.length > 0 && (
        <Panel title="Warnings to judge" bare tools={<More n={all.warnings_more} to="Gate" />}>
          <ul class="rows">
            {all.warnings.map((w) => (
              <WarningItem key={w.id} event={w} showProject={everywhere} />
            ))}
          </ul>
        </Panel>
      )}
    </>
  );
}

interface MoreProps {
  n: number | undefined;
  of?: Waiting['to_me_left'];
  to: 'Signals' | 'Operator' | 'Gate';
}

function More({ n, of, to }: MoreProps) {
  const which = of
    ? URGENCY.filter((c) => of[c] > 0).map((c) => `${of[c]} ${c}`)
    : [];
  return (
    <a class="small" href={href(to, { state: to === 'Signals' ? 'waiting' : '' })}>
      {n ? `${n} more${which.length ? `: ${which.join(', ')}` : ''}` : 'All'}
      <span class="hidden"> on {to}</span>
    </a>
  );
}

interface RowProps {
  signal: SignalRow;
  /** It no longer waits, and stands here for what was typed in answer. */
  left: boolean;
  showProject: boolean;
}

function ToMe({ signal, left, showProject }: RowProps) {
  return (
    <li class="item" data-row tabIndex={0} aria-label={`${signal.category ?? 'signal'} from ${signal.from_identity}`}>
      <SignalLine signal={signal} showProject={showProject} />
      <p class="text">
        <a class="quiet" data-open href={signalHref(signal.signal_id)}>
          {signal.summary}
        </a>
      </p>
      <div class="acts">
        <Reply to={signal} />
        {!left && <Acknowledge signal={signal} />}
      </div>
      {left && <AnsweredElsewhere signal={signal} />}
    </li>
  );
}

function Unread({ signal, left, showProject }: RowProps) {
  const act = useAct();
  const takeBack = () =>
    act.run(() => call(signal.pid, 'signal_recall', { signal_id: signal.signal_id }), signal.pid, 'signal');
  return (
    <li
      class="item"
      data-row
      tabIndex={0}
      aria-label={`${signal.category ?? 'signal'} unread by ${signal.to_identity}`}
    >
      <SignalLine signal={signal} showProject={showProject} />
      <p class="text">
        <a class="quiet" data-open href={signalHref(signal.signal_id)}>
          {signal.summary}
        </a>
      </p>
      <p class="small" hidden={left}>
        <span class="strong">{signal.from_identity}</span> has waited <Age since={signal.created_at} /> for{' '}
        {signal.to_identity}.{' '}
        {signal.stuck && (
          <span>
            <Said text={signal.stuck.why} />{' '}
            <span class="dim">
              <Said text={signal.stuck.what_to_do} />
            </span>
          </span>
        )}
      </p>
      <div class="acts">
        <Reply to={signal} quiet />
        {!left && (
          <button
            type="button"
            aria-disabled={act.busy}
            title="It leaves the inbox of whoever has not read it"
            onClick={() => void takeBack()}
          >
            Take back
          </button>
        )}
      </div>
      {left && <AnsweredElsewhere signal={signal} />}
      <Trouble problem={act.problem} />
    </li>
  );
}

function AtTerminal({ session }: { session: SessionRow }) {
  return (
    <li class="item" data-row tabIndex={0}>
      <div class="line">
        <Chip tone="fair">
          <span aria-hidden="true">‖</span> {session.waits_for ?? 'waits'}
        </Chip>
        <span class="strong">{session.identity}</span>
        <span class="small">
          {session.waits_for === 'permission' ? 'asks for a permission' : 'asks a question'} in {words(session.surface)}{' '}
          on {session.machine_id}
          {session.name ? ` (${session.name})` : ''}
        </span>
        {session.waits_since && (
          <span class="dim small">
            for <Age since={session.waits_since} />
          </span>
        )}
        {session.process_pid > 0 && <span class="dim small mono">process {session.process_pid}</span>}
      </div>
    </li>
  );
}

function Everybody() {
  const read = useRead('agents', {}, ['session', 'signal', 'memory', 'settings']);
  const agents = read.data?.agents.filter((a) => !a.operator);
  return (
    <Panel title="Everybody" bare>
      <Trouble problem={read.problem} again={read.again} />
      {agents?.length === 0 && (
        <Empty title="No agent has joined yet.">
          <code>prism connect</code> puts Prism into the agents you use; <code>prism coder --as Donna -- claude</code>{' '}
          starts one with its name.
        </Empty>
      )}
      <ul class="agents">
        {agents?.map((a) => (
          <Agent key={`${a.pid}/${a.identity}`} agent={a} />
        ))}
      </ul>
    </Panel>
  );
}

function Agent({ agent }: { agent: AgentView }) {
  const session = agent.sessions[0];
  const unread = CATEGORIES.map((c) => [c, agent.unread[c]] as const).filter(([, n]) => n > 0);
  return (
    <li class="agent" data-row tabIndex={0} aria-label={agent.identity}>
      <div class="line">
        <span class={`state ${agent.state}`} aria-hidden="true">
          {MARKS[agent.state] ?? '○'}
        </span>
        <a class="strong quiet" data-open href={href('Story', { project: agent.pid, identity: agent.identity })}>
          {agent.identity}
        </a>
        <span class="dim small">
          {words(agent.state)}
          {session ? ` · ${words(session.surface)} on ${session.machine_id}` : ''}
        </span>
        {project.value === EVERYWHERE && <span class="dim small">{agent.pid}</span>}
        {session?.waits_for && <Chip tone="fair">waits for you: {session.waits_for}</Chip>}
        <span class="row push">
          {unread.map(([c, n]) => (
            <Category key={c} is={c} n={n} />
          ))}
          {unread.length === 0 && <span class="dim small">nothing unread</span>}
        </span>
      </div>
      {agent.task && (
        <p class="small one-line">
          <span class="dim">task</span>{' '}
          <a class="quiet" href={signalHref(agent.task.signal_id)}>
            {agent.task.summary}
          </a>
        </p>
      )}
      {agent.last_delta ? (
        <p class="small one-line">
          <span class="dim">{words(agent.last_delta.kind)}</span>{' '}
          <a class="quiet" href={memoryHref(agent.last_delta.id)}>
            {agent.last_delta.summary || agent.last_delta.operator_visible_effect || 'no words'}
          </a>{' '}
          <When at={agent.last_delta.at} />
        </p>
      ) : (
        <p class="small dim">has written nothing down yet</p>
      )}
      <p class="small dim">
        {agent.reachable ? (
          <>
            last proven: {words(agent.reachable.state)}
            {agent.reachable.evidence ? ` (${agent.reachable.evidence})` : ''} <When at={agent.reachable.at} />
          </>
        ) : (
          'never proven to be reached'
        )}
        {agent.sessions.length > 1 && <> · {count(agent.sessions.length + (agent.sessions_more ?? 0), 'session')}</>}
      </p>
    </li>
  );
}
