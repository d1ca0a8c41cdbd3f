import { best, median, middle } from "./stats.ts";

export interface Figure {
  /** Throughput: the best of the rounds. */
  value: number;
  unit: string;
  /** Of the same rounds. */
  median?: number;
  rounds?: number[];
  note?: string;
}

export interface Ratio {
  value: number;
  /** The same from the medians. */
  ofMedians?: number;
  goal?: string;
}

/** Everything measured in one run. Names are `section_what`; they are the keys of the JSON file as well. */
export class Report {
  readonly figures = new Map<string, Figure>();
  readonly ratios = new Map<string, Ratio>();
  readonly #ratioNote: string;

  constructor(ratioNote = "of the best rounds, enqueue: the middle of its slices; of the medians beside it") {
    this.#ratioNote = ratioNote;
  }

  figure(name: string, value: number, unit: string, note?: string): void {
    this.figures.set(name, { value, unit, ...(note === undefined ? {} : { note }) });
  }

  /** A rate measured in several rounds. */
  rate(name: string, rounds: number[], unit: string, note?: string): void {
    const figure = { value: best(rounds), unit, median: median(rounds), rounds };
    this.figures.set(name, note === undefined ? figure : { ...figure, note });
  }

  /** Says nothing when one side was not measured. */
  ratio(name: string, of: string, to: string, goal?: string): void {
    const [a, b] = [this.figures.get(of), this.figures.get(to)];
    if (a === undefined || b === undefined) return;
    const medians = a.median === undefined || b.median === undefined ? {} : { ofMedians: a.median / b.median };
    this.ratios.set(name, { value: a.value / b.value, ...medians, ...(goal === undefined ? {} : { goal }) });
  }

  /** Of rounds that took turns; for differences of a few percent, where the best rounds say less. */
  ratioOfMedians(name: string, of: readonly number[], to: readonly number[], goal?: string): void {
    const value = median(of) / median(to);
    this.ratios.set(name, { value, ofMedians: value, ...(goal === undefined ? {} : { goal }) });
  }

  /** The middle of ratios that were taken side by side, slice by slice. */
  pairedRatio(name: string, of: readonly number[], to: readonly number[], goal?: string): number {
    const value = median(of.map((rate, i) => rate / to[i]!));
    this.ratios.set(name, { value, ofMedians: median(of) / median(to), ...(goal === undefined ? {} : { goal }) });
    return value;
  }

  /**
   * The medians of two commits and their ratio, this one's to the other's. Where less is better it is turned round: above 1
   * always means that this one is better.
   */
  compared(name: string, present: number[], older: number[], scale: { unit: string; lessIsBetter?: boolean }): void {
    const { unit, lessIsBetter = false } = scale;
    const [a, b] = [middle(present), middle(older)];
    this.figures.set(`${name}_this`, { value: a, unit, rounds: present, note: lessIsBetter ? "less is better" : "" });
    this.figures.set(`${name}_ref`, { value: b, unit, rounds: older });
    this.ratios.set(`against_${name}`, { value: lessIsBetter ? b / a : a / b, goal: "≥ 0.97" });
  }

  print(): void {
    table(
      ["figure", "value", "median", "unit", "note"],
      Array.from(this.figures, ([name, { value, median: middle, unit, note }]) => [
        name,
        readable(value),
        middle === undefined ? "" : readable(middle),
        unit,
        note ?? "",
      ]),
    );
    if (this.ratios.size === 0) return;
    console.log(`\nRatios (${this.#ratioNote})`);
    table(
      ["ratio", "value", "of medians", "goal"],
      Array.from(this.ratios, ([name, { value, ofMedians, goal }]) => [
        name,
        value.toFixed(2),
        ofMedians?.toFixed(2) ?? "",
        goal ?? "",
      ]),
    );
  }

  toJSON(): object {
    const ratios = Array.from(this.ratios, ([name, { value }]) => [name, rounded(value)]);
    const medians = Array.from(this.ratios).flatMap(([name, { ofMedians }]) =>
      ofMedians === undefined ? [] : [[name, rounded(ofMedians)]],
    );
    return {
      ratios: Object.fromEntries(ratios),
      ratios_of_medians: Object.fromEntries(medians),
      figures: Object.fromEntries(this.figures),
    };
  }
}

function rounded(value: number): number {
  return Number(value.toPrecision(4));
}

function readable(value: number): string {
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en-US");
  return value.toFixed(Math.abs(value) >= 100 ? 0 : 2).replace(/\.00$/, "");
}

function table(head: string[], rows: string[][]): void {
  const widths = head.map((title, column) => Math.max(title.length, ...rows.map((row) => row[column]?.length ?? 0)));
  const numeric = head.map((title) => title === "value" || title.includes("median"));
  const line = (cells: string[]): string =>
    cells
      .map((cell, i) => (numeric[i] === true ? cell.padStart(widths[i] ?? 0) : cell.padEnd(widths[i] ?? 0)))
      .join("  ")
      .trimEnd();
  console.log(line(head));
  console.log(widths.map((width) => "─".repeat(width)).join("  "));
  for (const row of rows) console.log(line(row));
}
