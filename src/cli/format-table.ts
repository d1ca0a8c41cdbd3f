import { printable } from "../core/printable.ts";

export interface Column<Row> {
  readonly title: string;
  readonly align?: "right";
  /** Longer texts are cut. */
  readonly max?: number;
  value(row: Row): string | number | bigint | null | undefined;
}

/** Plain columns with a ruled head; wide enough for what is in them and no wider. */
export function formatTable<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): string {
  const cells = rows.map((row) => columns.map((column) => cut(textOf(column.value(row)), column.max)));
  const widths = columns.map(({ title }, i) =>
    cells.reduce((width, line) => Math.max(width, widthOf(line[i] ?? "")), title.length),
  );
  const lineOf = (line: readonly string[]): string =>
    line
      .map((text, i) => pad(text, widths[i] ?? 0, columns[i]?.align === "right"))
      .join("  ")
      .trimEnd();
  const head = lineOf(columns.map(({ title }) => title));
  const rule = widths.map((width) => "─".repeat(width)).join("  ");
  return [head, rule, ...cells.map(lineOf)].map((line) => `${line}\n`).join("");
}

function textOf(value: string | number | bigint | null | undefined): string {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "string") return printable(value);
  return value.toLocaleString("en-US");
}

function cut(text: string, max = Number.POSITIVE_INFINITY): string {
  return text.length > max ? `${text.slice(0, max - 1).toWellFormed()}…` : text;
}

function widthOf(text: string): number {
  return Array.from(text).length;
}

function pad(text: string, width: number, right: boolean): string {
  const space = " ".repeat(Math.max(0, width - widthOf(text)));
  return right ? space + text : text + space;
}
