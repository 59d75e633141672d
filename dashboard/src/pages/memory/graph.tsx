// What stands beside a row: the row in the middle, what points to it on the left, what it points to on the right.
import { href } from '../../route';
import { words } from '../../text';
import type { GraphAnswer, GraphEdge } from '../../wire';

const STEP = 46;
const SIDE_MAX = 12;

function nodeHref(edge: GraphEdge): string | null {
  const { id, kind } = edge.node;
  if (kind === 'signal' || id.startsWith('signal:')) return href('Signals', { id: id.replace(/^signal:/, '') });
  return /^[0-9a-f]{8}-[0-9a-f-]{27}$/.test(id) ? href('Memory', { id }) : null;
}

const says = (edge: GraphEdge): string => words(edge.kind.toLowerCase());

function Side({ edges, side }: { edges: GraphEdge[]; side: 'in' | 'out' }) {
  return (
    <ul class={`side-of ${side}`} aria-label={side === 'in' ? 'Points here' : 'Points from here'}>
      {edges.slice(0, SIDE_MAX).map((edge, i) => {
        const to = nodeHref(edge);
        const text = edge.node.title || edge.node.id;
        return (
          <li key={`${edge.kind}${edge.node.id}${i}`} style={{ height: `${STEP}px` }}>
            <small class="dim">{says(edge)} · {words(edge.node.kind)}</small>
            {to ? <a class="one-line" href={to} title={text}>{text}</a> : <span class="one-line" title={text}>{text}</span>}
          </li>
        );
      })}
      {edges.length > SIDE_MAX && <li class="dim small">and {edges.length - SIDE_MAX} more</li>}
    </ul>
  );
}

function Lines({ n, height, flip }: { n: number; height: number; flip: boolean }) {
  const middle = height / 2;
  const [from, to] = flip ? [28, 0] : [0, 28];
  return (
    <svg class="lines" width="28" height={height} viewBox={`0 0 28 ${height}`} aria-hidden="true">
      {Array.from({ length: Math.min(n, SIDE_MAX) }, (_, i) => {
        const y = (height - Math.min(n, SIDE_MAX) * STEP) / 2 + (i + 0.5) * STEP;
        return <path key={i} d={`M${from} ${middle}C14 ${middle} 14 ${y} ${to} ${y}`} />;
      })}
    </svg>
  );
}

export function Neighbourhood({ graph }: { graph: GraphAnswer }) {
  const into = graph.edges.filter((e) => !e.out);
  const out = graph.edges.filter((e) => e.out);
  const height = Math.max(1, Math.min(SIDE_MAX, into.length), Math.min(SIDE_MAX, out.length)) * STEP;
  return (
    <div class="graph">
      {into.length > 0 && <><Side edges={into} side="in" /><Lines n={into.length} height={height} flip={true} /></>}
      <div class="centre"><small class="dim">{words(graph.node.kind)}</small><span>{graph.node.title || 'this row'}</span></div>
      {out.length > 0 && <><Lines n={out.length} height={height} flip={false} /><Side edges={out} side="out" /></>}
    </div>
  );
}
