// Small drawings of figures. Series differ by pattern and mark as well as by colour, and each drawing is a table too.
import type { RefObject } from 'preact';
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Table } from '../csv';
import { Empty, Panel, Scroll } from './panel';

export interface Series {
  name: string;
  values: (number | null)[];
}

interface PlotProps {
  title: string;
  about?: string;
  name: string;
  /** One label a bucket, e.g. days. */
  buckets: string[];
  series: Series[];
  kind: 'bars' | 'line';
  format?: (value: number) => string;
  /** A line across, e.g. a target. */
  aim?: { value: number; label: string };
  max?: number;
  empty: { title: string; how: string };
  of?: string;
}

const [HEIGHT, LEFT, BOTTOM, TOP, RIGHT] = [180, 38, 20, 12, 6];
/** Pixels that a label below a bucket takes. */
const LABEL_PX = 56;

/** A panel that shows a drawing, or the same figures as a table. */
export function Plot(props: PlotProps) {
  const [asTable, setAsTable] = useState(false);
  const { title, about, name, buckets, series, empty, of } = props;
  const any = series.some((s) => s.values.some((v) => v !== null && v !== 0));
  const table = (): Table => ({
    columns: ['when', ...series.map((s) => s.name)],
    rows: buckets.map((b, i) => [b, ...series.map((s) => s.values[i] ?? null)]),
  });
  return (
    <Panel
      title={title}
      {...(of ? { of } : {})}
      {...(about ? { about } : {})}
      table={{ name, of: table }}
      tools={
        <button
          class="plain"
          type="button"
          aria-pressed={asTable}
          aria-label={`${title} as a table`}
          onClick={() => setAsTable(!asTable)}
        >
          Table
        </button>
      }
    >
      {!any ? (
        <Empty title={empty.title}>{empty.how}</Empty>
      ) : asTable ? (
        <Figures {...table()} {...props} />
      ) : (
        <Drawing {...props} />
      )}
    </Panel>
  );
}

function Figures({ columns, rows, format = String }: Table & PlotProps) {
  return (
    <Scroll label="Figures">
      <table>
        <thead>
          <tr>
            {columns.map((c, i) => (
              <th key={c} scope="col" class={i ? 'n' : ''}>
                {c}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, y) => (
            <tr key={y}>
              {row.map((cell, i) => (
                <td key={i} class={i ? 'n' : ''}>
                  {typeof cell === 'number' ? format(cell) : (cell ?? '–')}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

const nice = (max: number): number => {
  if (max <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(max));
  return ([1, 2, 4, 6, 8, 10].find((step) => step * power >= max) ?? 10) * power;
};

const plain = (value: number): string => value.toLocaleString('en', { maximumFractionDigits: 2 });

/** As wide as there is room, so that letters keep their size. */
function useWidth(): [RefObject<HTMLElement | null>, number] {
  const ref = useRef<HTMLElement>(null);
  const [width, setWidth] = useState(480);
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return;
    const look = () => setWidth(Math.max(200, Math.round(element.clientWidth)));
    look();
    const watcher = new ResizeObserver(look);
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);
  return [ref, width];
}

function Drawing({ title, buckets, series, kind, format = plain, aim, max }: PlotProps) {
  const id = useId();
  const [figure, WIDTH] = useWidth();
  const totals = buckets.map((_, i) =>
    kind === 'bars'
      ? series.reduce((sum, s) => sum + (s.values[i] ?? 0), 0)
      : Math.max(0, ...series.map((s) => s.values[i] ?? 0)),
  );
  const top = max ?? nice(Math.max(aim?.value ?? 0, ...totals));
  const y = (v: number) => TOP + (1 - v / top) * (HEIGHT - TOP - BOTTOM);
  const step = (WIDTH - LEFT - RIGHT) / Math.max(1, buckets.length);
  const x = (i: number) => LEFT + (i + 0.5) * step;
  const every = Math.ceil((buckets.length * LABEL_PX) / (WIDTH - LEFT - RIGHT));
  const latest = series.map((s) => `${s.name} ${format(s.values.findLast((v) => v !== null) ?? 0)}`).join(', ');
  return (
    <figure class="plot" ref={figure}>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        role="img"
        aria-label={`${title}: ${buckets.length} points, latest ${latest}`}
      >
        <Patterns id={id} />
        {(kind === 'bars' && top < 2 ? [0, top] : [0, top / 2, top]).map((v) => (
          <g key={v}>
            <line class="axis" x1={LEFT} x2={WIDTH - RIGHT} y1={y(v)} y2={y(v)} />
            <text x={LEFT - 6} y={y(v) + 4} text-anchor="end">
              {format(v)}
            </text>
          </g>
        ))}
        {aim && (
          <g>
            <line class="aim" x1={LEFT} x2={WIDTH - RIGHT} y1={y(aim.value)} y2={y(aim.value)} />
            <text x={WIDTH - RIGHT} y={y(aim.value) - 4} text-anchor="end">
              {aim.label}
            </text>
          </g>
        )}
        {buckets.map(
          (b, i) =>
            i % every === 0 && (
              <text key={i} x={x(i)} y={HEIGHT - 4} text-anchor="middle">
                {b}
              </text>
            ),
        )}
        {kind === 'bars' ? (
          <Bars {...{ buckets, series, x, y, step, id, format }} />
        ) : (
          <Lines {...{ buckets, series, x, y, format }} />
        )}
      </svg>
      {series.length > 1 && (
        <figcaption class="legend">
          {series.map((s, n) => (
            <span key={s.name}>
              <svg viewBox="0 0 22 16" class={`s${n % 3}`} aria-hidden="true">
                {kind === 'bars' ? (
                  <rect width="22" height="16" rx="3" fill={fill(id, n)} stroke="currentColor" />
                ) : (
                  <>
                    <path class="line" d="M0 8H22" stroke-dasharray={DASH[n % 3]} />
                    <Mark n={n} x={11} y={8} />
                  </>
                )}
              </svg>
              {s.name}
            </span>
          ))}
        </figcaption>
      )}
    </figure>
  );
}

const DASH = ['none', '6 4', '2 3'];
const fill = (id: string, n: number): string => (n % 3 === 0 ? 'currentColor' : `url(#${id}-${n % 3})`);

function Patterns({ id }: { id: string }) {
  return (
    <defs>
      <pattern
        id={`${id}-1`}
        width="6"
        height="6"
        patternUnits="userSpaceOnUse"
        patternTransform="rotate(45)"
        class="s1"
      >
        <rect width="6" height="6" fill="currentColor" opacity="0.25" />
        <rect width="3" height="6" fill="currentColor" />
      </pattern>
      <pattern id={`${id}-2`} width="5" height="5" patternUnits="userSpaceOnUse" class="s2">
        <rect width="5" height="5" fill="currentColor" opacity="0.2" />
        <circle cx="2.5" cy="2.5" r="1.3" fill="currentColor" />
      </pattern>
    </defs>
  );
}

interface Drawn {
  buckets: string[];
  series: Series[];
  x: (i: number) => number;
  y: (v: number) => number;
  format: (v: number) => string;
}

function Bars({ buckets, series, x, y, step, id, format }: Drawn & { step: number; id: string }) {
  const width = Math.min(28, step * 0.7);
  return (
    <>
      {buckets.map((b, i) => {
        let below = 0;
        return series.map((s, n) => {
          const value = s.values[i] ?? 0;
          if (value === 0) return null;
          const from = below;
          below += value;
          return (
            <rect
              key={`${i}-${n}`}
              class={`s${n % 3}`}
              x={x(i) - width / 2}
              width={width}
              y={y(below)}
              height={Math.max(0.5, y(from) - y(below) - 1)}
              fill={fill(id, n)}
              stroke="currentColor"
              stroke-width="0.75"
              rx="1.5"
            >
              <title>{`${b}: ${s.name} ${format(value)}`}</title>
            </rect>
          );
        });
      })}
    </>
  );
}

function Lines({ buckets, series, x, y, format }: Drawn) {
  return (
    <>
      {series.map((s, n) => {
        const points = s.values.map((v, i) => (v === null ? null : ([x(i), y(v), i, v] as const)));
        let pen = 'M';
        const path = points
          .map((p) => {
            if (p === null) return ((pen = 'M'), '');
            const at = `${pen}${p[0].toFixed(1)} ${p[1].toFixed(1)}`;
            pen = 'L';
            return at;
          })
          .join('');
        return (
          <g key={s.name} class={`s${n % 3}`}>
            <path class="line" d={path} stroke-dasharray={DASH[n % 3]} />
            {points.map(
              (p) =>
                p && (
                  <g key={p[2]}>
                    <Mark n={n} x={p[0]} y={p[1]} />
                    <title>{`${buckets[p[2]]}: ${s.name} ${format(p[3])}`}</title>
                  </g>
                ),
            )}
          </g>
        );
      })}
    </>
  );
}

function Mark({ n, x, y }: { n: number; x: number; y: number }) {
  if (n % 3 === 0) return <circle cx={x} cy={y} r="3" fill="currentColor" />;
  if (n % 3 === 1) return <rect x={x - 3} y={y - 3} width="6" height="6" fill="currentColor" />;
  return <path d={`M${x} ${y - 4}L${x + 4} ${y + 3}H${x - 4}Z`} fill="currentColor" />;
}

/** Things by how many, longest first. */
export function Ranked({ rows }: { rows: { name: string; n: number; note?: string }[] }) {
  const most = Math.max(1, ...rows.map((r) => r.n));
  return (
    <ul class="bars">
      {rows.map((r) => (
        <li key={r.name}>
          <span class="text">{r.name}</span>
          <span class="number">{r.note ?? r.n}</span>
          <span class="track">
            <i style={{ width: `${(100 * r.n) / most}%` }} />
          </span>
        </li>
      ))}
    </ul>
  );
}
