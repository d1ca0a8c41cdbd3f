import { printable } from "../../core/printable.ts";
import { type Column, formatTable } from "../format-table.ts";
import type { Output } from "../output.ts";

/** Tells the demo in chapters; silent when only the figures are wanted. */
export class DemoStory {
  readonly #output: Output;
  #chapter = 0;

  constructor(output: Output) {
    this.#output = output;
  }

  title(text: string): void {
    this.#styled("bold", text);
  }

  chapter(text: string): void {
    this.#chapter++;
    this.#write("\n");
    this.#styled("cyan", `${this.#chapter}. ${text}`);
  }

  say(...lines: readonly string[]): void {
    for (const line of lines) this.#write(`   ${printable(line)}\n`);
  }

  table<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): void {
    this.#write(`\n${formatTable(rows, columns).replaceAll(/^(?=.)/gm, "     ")}\n`);
  }

  verdict(good: boolean, text: string): void {
    this.#write("\n");
    this.#styled(good ? "green" : "red", text);
  }

  #write(text: string): void {
    if (!this.#output.json) this.#output.text(text);
  }

  #styled(style: "bold" | "cyan" | "green" | "red", text: string): void {
    if (!this.#output.json) this.#output.styled(style, text);
  }
}
