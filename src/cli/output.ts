import { styleText } from "node:util";
import { jsonText } from "./json-text.ts";

type Style = "bold" | "dim" | "red" | "green" | "yellow" | "cyan";

/** Results go to stdout, everything else to stderr; with `--json` stdout carries JSON and nothing else. */
export class Output {
  readonly json: boolean;
  readonly verbose: boolean;

  constructor({ json, verbose }: { json: boolean; verbose: boolean }) {
    this.json = json;
    this.verbose = verbose;
  }

  /** The command's result: one JSON document, or the text. */
  result(value: unknown, text: () => string): void {
    this.write(this.json ? `${jsonText(value, 2)}\n` : text());
  }

  /** One line of NDJSON. */
  line(value: unknown): void {
    this.write(`${jsonText(value)}\n`);
  }

  write(text: string): void {
    process.stdout.write(text);
  }

  /** For the person at the terminal: progress, advice, warnings. */
  note(text: string): void {
    process.stderr.write(`${text}\n`);
  }

  style(style: Style, text: string): string {
    return styleText(style, text, { stream: process.stdout });
  }

  /** Resolves when all was handed over, so that the process may end. */
  async flushed(): Promise<void> {
    const streams = [process.stdout, process.stderr].filter((stream) => stream.writable);
    await Promise.all(streams.map((stream) => new Promise<void>((resolve) => stream.write("", () => resolve()))));
  }
}
