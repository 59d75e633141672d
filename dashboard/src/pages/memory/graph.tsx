// What stands beside a row or a thing: it in the middle, what points to it on the left, what it points to on the right.
import { Empty, Trouble } from '../../parts/panel';
import { useRead } from '../../read';
import { href, setParams } from '../../route';
import { words } from '../../text';
import type { GraphAnswer, GraphEdge, GraphNode } from '../../wire';

const STEP = 46;
const SIDE_MAX = 12;

/** Rows and signals have pages of their own; from other things the walk goes on here. */
function nodeHref({ id, kind }: GraphNode, pid: string): string {
  if (kind === 'signal' || id.startsWith('signal:')) return href('Signals', { id: id.replace(/^signal:/, '') });
  if (/^[0-9a-f]{8}-[0-9a-f-]{27}$/.test(id)) return href('Memory', { id });
  return href('Memory', { project: pid, node: id });
}

const says = (edge: GraphEdge): string => words(edge.kind.toLowerCase());

function Side({ edges, side, pid }: { edges: GraphEdge[]; side: 'in' | 'out'; pid: string }) {
  return (
    <ul class={`side-of ${side}`} aria-label={side === 'in' ? 'Points here' : 'Points from here'}>
      {edges.slice(0, SIDE_MAX).map((edge, i) => {
        const text = edge.node.title || edge.node.id;
        return (
          <li key={`${edge.kind}${edge.node.id}${i}`} style={{ height: `${STEP}px` }}>
            <small class="dim">
              {says(edge)} · {words(edge.node.kind)}
            </small>
            <a class="one-line" href={nodeHref(edge.node, pid)} title={text}>
              {text}
            </a>
          </li>
        );
      })}
      {edges.length > SIDE_MAX && <li class="dim small">and {edges.length - SIDE_MAX} more</li>}
    </ul>
  );
}

function Lines({ n, height, flip }: { n: number; height: number; flip: boolean }) {
  const [middle, shown] = [height / 2, Math.min(n, SIDE_MAX)];
  const [from, to] = flip ? [28, 0] : [0, 28];
  return (
    <svg class="lines" width="28" height={height} viewBox={`0 0 28 ${height}`} aria-hidden="true">
      {Array.from({ length: shown }, (_, i) => {
        const y = (height - shown * STEP) / 2 + (i + 0.5) * STEP;
        return <path key={i} d={`M${from} ${middle}C14 ${middle} 14 ${y} ${to} ${y}`} />;
      })}
    </svg>
  );
}

export function Neighbourhood({ graph, pid }: { graph: GraphAnswer; pid: string }) {
  const into = graph.edges.filter((e) => !e.out);
  const out = graph.edges.filter((e) => e.out);
  if (graph.edges.length === 0)
    return (
      <Empty title="Nothing stands beside it yet.">Verdicts, dead ends, replies and what it names appear here.</Empty>
    );
  const height = Math.max(1, Math.min(SIDE_MAX, into.length), Math.min(SIDE_MAX, out.length)) * STEP;
  return (
    <div class="graph">
      {into.length > 0 && (
        <>
          <Side edges={into} side="in" pid={pid} />
          <Lines n={into.length} height={height} flip={true} />
        </>
      )}
      <div class="centre">
        <small class="dim">{words(graph.node.kind)}</small>
        <span>{graph.node.title || graph.node.id}</span>
      </div>
      {out.length > 0 && (
        <>
          <Lines n={out.length} height={height} flip={false} />
          <Side edges={out} side="out" pid={pid} />
        </>
      )}
    </div>
  );
}

/** A thing that rows name, such as a file, a spec or a commit, and every row that names it. */
export function ThingDetail({ node, pid }: { node: string; pid: string }) {
  const read = useRead('graph', { id: node }, ['memory'], { pid });
  return (
    <aside class="beside panel" aria-label="Thing">
      <header>
        <h2>{node}</h2>
        <div class="tools">
          <button class="plain" type="button" onClick={() => setParams({ node: '' })}>
            Close
          </button>
        </div>
      </header>
      <div class="inside stack">
        <Trouble problem={read.problem} again={read.again} />
        {read.data && <Neighbourhood graph={read.data} pid={pid} />}
      </div>
    </aside>
  );
}
