import type { ComponentChildren, VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export interface Column<Item> {
  title: string;
  /** A track of the grid, such as `minmax(8rem, 2fr)`. */
  width: string;
  align?: "right";
  /** Left out where there is little room. */
  wide?: boolean;
  /** Has a line of its own where there is little room. The first column has one too. */
  line?: boolean;
  /** May take two lines, wherever it is. */
  two?: boolean;
  cell: (item: Item) => ComponentChildren;
}

interface RowsProps<Item> {
  label: string;
  items: readonly Item[];
  columns: readonly Column<Item>[];
  rowKey: (item: Item) => string;
  /** Where a row leads. */
  href?: (item: Item) => string;
  current?: (item: Item) => boolean;
}

const WIDE_ROW = 44;
const LINE = 28;
const SPARE = 12;

/** Two cells share a line of a card, unless one has a line of its own. */
function linesOf(columns: readonly { readonly line?: boolean; readonly two?: boolean }[]): number {
  let [lines, isHalf] = [0, false];
  for (const [i, { line, two }] of columns.entries()) {
    const isWhole = i === 0 || line === true;
    if (isWhole || !isHalf) lines += two === true ? 2 : 1;
    isHalf = !isWhole && !isHalf;
  }
  return lines;
}

/** How much of each side is beyond the window, in rows. */
function range(box: HTMLElement, rowHeight: number, length: number): { from: number; to: number } {
  const { top } = box.getBoundingClientRect();
  const from = Math.max(0, Math.floor(-top / rowHeight) - SPARE);
  const to = Math.min(length, Math.ceil((innerHeight - top) / rowHeight) + SPARE);
  return { from, to: Math.max(to, Math.min(length, from + SPARE)) };
}

/** A table of any length: only the rows that can be seen are there. On a narrow screen a row is a small card. */
export function Rows<Item>({ label, items, columns, rowKey, href, current }: RowsProps<Item>): VNode {
  const box = useRef<HTMLDivElement>(null);
  const narrow = useNarrow();
  const shown = narrow ? columns.filter(({ wide }) => wide !== true) : columns;
  const rowHeight = narrow ? LINE * linesOf(shown) + 20 : WIDE_ROW;
  const [{ from, to }, setRange] = useState({ from: 0, to: 40 });
  useEffect(() => {
    const update = (): void => {
      if (box.current === null) return;
      const next = range(box.current, rowHeight, items.length);
      setRange((before) => (before.from === next.from && before.to === next.to ? before : next));
    };
    update();
    addEventListener("scroll", update, { passive: true });
    addEventListener("resize", update);
    return () => {
      removeEventListener("scroll", update);
      removeEventListener("resize", update);
    };
  }, [items.length, rowHeight]);
  const tracks = shown.map(({ width }) => width).join(" ");
  const grid = narrow ? {} : { gridTemplateColumns: tracks };
  return (
    <div class={`rows ${narrow ? "cards" : ""}`} role="table" aria-label={label} aria-rowcount={items.length + 1}>
      <div class={narrow ? "unseen" : ""} role="rowgroup">
        <div class="row head" role="row" style={grid}>
          {shown.map(({ title, align }) => (
            <span key={title} role="columnheader" class={align ?? ""}>
              {title}
            </span>
          ))}
        </div>
      </div>
      <div
        ref={box}
        role="rowgroup"
        style={{
          paddingTop: `${from * rowHeight}px`,
          paddingBottom: `${Math.max(0, items.length - to) * rowHeight}px`,
        }}
      >
        {items.slice(from, to).map((item, i) => {
          const to = href?.(item);
          return (
            <div
              key={rowKey(item)}
              class={`row ${current?.(item) === true ? "current" : ""}`}
              role="row"
              aria-rowindex={from + i + 2}
              data-row
              style={{ ...grid, height: `${rowHeight}px` }}
            >
              {shown.map(({ title, align, line, two, cell }, n) => (
                <span
                  key={title}
                  role="cell"
                  class={`${align ?? ""} ${line === true ? "line" : ""} ${two === true ? "two" : ""}`}
                >
                  {narrow && title !== "do" ? (
                    <span class="cell-title" aria-hidden="true">
                      {title}
                    </span>
                  ) : null}
                  {n === 0 && to !== undefined ? <a href={to}>{cell(item)}</a> : cell(item)}
                </span>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}

const narrowQuery = matchMedia("(max-width: 719px)");

export function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(narrowQuery.matches);
  useEffect(() => {
    const update = (): void => setNarrow(narrowQuery.matches);
    narrowQuery.addEventListener("change", update);
    return () => narrowQuery.removeEventListener("change", update);
  }, []);
  return narrow;
}
