import { styleText } from "node:util";
import { isPrintable, printable, printableLines } from "../core/printable.ts";
import { UnavailableError } from "../core/errors.ts";
import type { Explanation } from "./explain-failure.ts";
import { jsonText } from "./json-text.ts";
import { Secrets } from "./secrets.ts";
import { UsageError } from "./usage-error.ts";

type Style = "bold" | "cyan" | "red" | "green";

export interface OutputStream {
  readonly isTTY?: boolean;
  readonly writable: boolean;
  write(text: string, done?: (error?: Error | null) => void): boolean;
}

export interface OutputOptions {
  readonly json: boolean;
  readonly verbose: boolean;
  readonly stdout?: OutputStream;
  readonly stderr?: OutputStream;
}

/**
 * The one place that prints. Results go to stdout, everything else to stderr; with `--json` stdout carries JSON and nothing
 * else. No control character of a message, a name or an error gets out, and no password of a failure.
 */
export class Output {
  readonly json: boolean;
  readonly verbose: boolean;
  readonly secrets: Secrets = new Secrets();
  readonly #stdout: OutputStream;
  readonly #stderr: OutputStream;

  constructor({ json, verbose, stdout = process.stdout, stderr = process.stderr }: OutputOptions) {
    this.json = json;
    this.verbose = verbose;
    this.#stdout = stdout;
    this.#stderr = stderr;
  }

  /** The command's result: one JSON document, or the text. Values within the text are made printable by its author. */
  result(value: unknown, text: () => string): void {
    if (this.json) this.#stdout.write(`${jsonText(value, 2)}\n`);
    else this.text(text());
  }

  /** A result that is a program, such as SQL: it is printed as it is or not at all. */
  program(value: unknown, text: string): void {
    if (!this.json && !isPrintable(text))
      throw new UsageError(
        "A name in it has control characters, which are not safe to print. Use --json, or other names",
      );
    this.result(value, () => text);
  }

  /** One line of NDJSON. */
  line(value: unknown): void {
    this.#stdout.write(`${jsonText(value)}\n`);
  }

  /** Lines of NDJSON; resolves when the other end of the pipe took them. */
  deliver(values: readonly unknown[]): Promise<void> {
    return this.#send(values.map((value) => `${jsonText(value)}\n`).join(""));
  }

  text(text: string): void {
    this.#stdout.write(printableLines(text));
  }

  /** A piece of a long result, as JSON or text with printable values; resolves when the other end of the pipe took it. */
  piece(text: string): Promise<void> {
    return this.#send(this.json ? text : printableLines(text));
  }

  #send(text: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#stdout.write(text, (error) => {
        if (error) reject(new UnavailableError("The reader of stdout has gone", { cause: error }));
        else resolve();
      });
    });
  }

  styled(style: Style, text: string): void {
    const stream = this.#stdout === process.stdout ? { stream: process.stdout } : { validateStream: false };
    this.#stdout.write(`${styleText(style, printable(text), stream)}\n`);
  }

  clearScreen(): void {
    if (this.#stdout.isTTY === true) this.#stdout.write("\u001B[H\u001B[J");
  }

  /** One line for the person at the terminal: progress, advice, warnings. */
  note(text: string): void {
    this.#stderr.write(`${printable(this.secrets.hide(text))}\n`);
  }

  /** Several lines for the person at the terminal; all but the first are indented, so that none can pass for another. */
  details(text: string): void {
    const [first = "", ...more] = printableLines(this.secrets.hide(text)).split("\n");
    const lines = [first, ...more.map((line) => (line.startsWith("    ") ? line : `    ${line}`))];
    this.#stderr.write(`${lines.join("\n")}\n`);
  }

  /** What a command that failed prints at its end. */
  failure({ code, message, advice, exitCode }: Explanation): void {
    if (this.json) {
      const whole = advice === undefined ? message : `${message}\n${advice}`;
      this.#stdout.write(`${jsonText({ error: { code, message: this.secrets.hide(whole), exitCode } })}\n`);
    }
    this.note(`txbox: ${message}`);
    if (advice !== undefined) this.note(advice);
  }

  /** Resolves when all was handed over, so that the process may end. */
  async flushed(): Promise<void> {
    const streams = [this.#stdout, this.#stderr].filter((stream) => stream.writable);
    await Promise.all(streams.map((stream) => new Promise<void>((resolve) => stream.write("", () => resolve()))));
  }
}
