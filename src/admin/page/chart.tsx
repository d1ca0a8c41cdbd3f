import type { VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { HistoryMark } from "../page-api.ts";

export interface Line {
  name: string;
  points: readonly (readonly [at: number, value: number])[];
}

interface ChartProps {
  title: string;
  lines: readonly Line[];
  marks: readonly HistoryMark[];
  since: number;
  until: number;
  format: (value: number) => string;
  bars?: boolean;
  /** Of a time without a point nothing is known; otherwise it is 0. */
  gaps?: boolean;
  /** Dead letters need a person. */
  alarm?: boolean;
}

const COLORS = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5"];
const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3], [3, 6]];
const MOST_LINES = 5;
const HEIGHT = 160;

/** Figures over time. It says the last and the highest in words as well. */
export function Chart({
  title,
  lines,
  marks,
  since,
  until,
  format,
  bars = false,
  gaps = false,
  alarm = false,
}: ChartProps): VNode {
  const box = useRef<HTMLDivElement>(null);
  const shown = lines.slice(0, MOST_LINES);
  const key = JSON.stringify(shown.map(({ name }) => name));
  const plot = useRef<uPlot | null>(null);
  const latest = useRef({ marks });
  latest.current = { marks };
  const data = aligned(shown, since, until, gaps);
  useEffect(() => {
    const { current } = box;
    if (current === null || shown.length === 0) return undefined;
    const make = (): void => {
      plot.current?.destroy();
      plot.current = new uPlot(
        options(current, shown, { format, bars, alarm, marks: () => latest.current.marks }),
        data,
        current,
      );
    };
    make();
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", make);
    const sizes = new ResizeObserver(() => plot.current?.setSize({ width: current.clientWidth, height: HEIGHT }));
    sizes.observe(current);
    return () => {
      scheme.removeEventListener("change", make);
      sizes.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [key]);
  useEffect(() => {
    plot.current?.setData(data);
  }, [data]);
  const [, ...plotted] = data;
  const most = Math.max(0, ...plotted.flatMap((line) => Array.from(line, (value) => value ?? 0)));
  const label = `${title}, last hour. Highest ${format(most)}.`;
  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title">{title}</span>
        <span class="faint">highest {format(most)}</span>
      </figcaption>
      {shown.length === 0 ? (
        <p class="faint chart-none">Nothing in the last hour</p>
      ) : (
        <div ref={box} role="img" aria-label={label} />
      )}
      <ul class="legend" aria-hidden="true">
        {shown.length < 2
          ? null
          : shown.map(({ name }, i) => (
              <li key={name} class={`line-${i + 1}`}>
                {name}
              </li>
            ))}
        {lines.length > shown.length ? <li class="faint">and {lines.length - shown.length} more</li> : null}
      </ul>
    </figure>
  );
}

/** All lines on one axis of ten seconds. */
function aligned(lines: readonly Line[], since: number, until: number, gaps: boolean): uPlot.AlignedData {
  const step = 10_000;
  const first = Math.floor(since / step);
  const length = Math.max(1, Math.floor(until / step) - first);
  const times = Array.from({ length }, (_, i) => ((first + i) * step) / 1000);
  const values = lines.map(({ points }) => {
    const line = Array.from({ length }, (): number | null => (gaps ? null : 0));
    for (const [at, value] of points) {
      const i = Math.floor(at / step) - first;
      if (i >= 0 && i < length) line[i] = Math.max(line[i] ?? 0, value);
    }
    return line;
  });
  return [times, ...values];
}

const clockFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });

function clock(seconds: number): string {
  return clockFormat.format(seconds * 1000);
}

function options(
  box: HTMLElement,
  lines: readonly Line[],
  {
    format,
    bars,
    alarm,
    marks,
  }: Pick<ChartProps, "format"> & { bars: boolean; alarm: boolean; marks: () => readonly HistoryMark[] },
): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const color = (name: string): string => style.getPropertyValue(name).trim();
  const axis = {
    stroke: color("--faint"),
    font: "11px system-ui, sans-serif",
    grid: { stroke: color("--rule"), width: 1 },
    ticks: { show: false },
  };
  return {
    width: box.clientWidth,
    height: HEIGHT,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    scales: { y: { range: (_, __, max) => [0, Math.max(max * 1.1, 1)] } },
    axes: [
      { ...axis, space: 70, size: 28, values: (_, splits) => splits.map(clock) },
      {
        ...axis,
        size: 56,
        splits: (_u, _i, _min, max) => [0, max / 2, max / 1.1],
        values: (_, splits) => splits.map(format),
      },
    ],
    series: [
      {},
      ...lines.map(({ name }, i): uPlot.Series => {
        const stroke = alarm ? color("--bad") : color(COLORS[i] ?? "--line-1");
        return {
          label: name,
          stroke,
          width: 1.5,
          dash: DASHES[i] ?? [],
          points: { show: false },
          ...(bars ? { paths: uPlot.paths.bars!({ size: [0.9, 40] }), fill: stroke, dash: [] } : {}),
        };
      }),
    ],
    hooks: {
      draw: [
        (u) => {
          const { ctx, bbox } = u;
          ctx.save();
          ctx.strokeStyle = color("--mark");
          ctx.setLineDash([2, 4]);
          ctx.lineWidth = 1;
          for (const { at } of marks()) {
            const x = Math.round(u.valToPos(at / 1000, "x", true)) + 0.5;
            if (x < bbox.left || x > bbox.left + bbox.width) continue;
            ctx.beginPath();
            ctx.moveTo(x, bbox.top);
            ctx.lineTo(x, bbox.top + bbox.height);
            ctx.stroke();
          }
          ctx.restore();
        },
      ],
    },
  };
}
