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
    this.#write(`${this.#output.style("bold", text)}\n`);
  }

  chapter(text: string): void {
    this.#chapter++;
    this.#write(`\n${this.#output.style("cyan", `${this.#chapter}. ${text}`)}\n`);
  }

  say(...lines: readonly string[]): void {
    for (const line of lines) this.#write(`   ${line}\n`);
  }

  table<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): void {
    this.#write(`\n${formatTable(rows, columns).replaceAll(/^(?=.)/gm, "     ")}\n`);
  }

  verdict(good: boolean, text: string): void {
    this.#write(`\n${this.#output.style(good ? "green" : "red", text)}\n`);
  }

  #write(text: string): void {
    if (!this.#output.json) this.#output.write(text);
  }
}
