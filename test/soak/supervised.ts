import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type NodeProcess, spawnNode } from "../harness/spawn-node.ts";

// Processes start all the time: without a cache most of the work would be compiling them.
const compileCache = mkdtempSync(join(tmpdir(), "txbox-compiled-"));

export interface SupervisedOptions {
  name: string;
  /** Arguments of the nth start. */
  args: (start: number) => string[];
  file: string;
  onLine?: (line: string) => void;
}

/** Removes what the processes of this run had in common. */
export function forgetCompiled(): void {
  rmSync(compileCache, { recursive: true, force: true });
}

/** A process that is started again whenever it is killed. Ending by itself counts as a crash of ours. */
export class Supervised {
  readonly name: string;
  /** How it ended when the test had not killed it. */
  readonly crashes: string[] = [];
  readonly #options: SupervisedOptions;
  #process: NodeProcess | undefined;
  #starts = 0;
  #expected = false;
  #stopping = false;
  #paused = false;

  constructor(options: SupervisedOptions) {
    this.name = options.name;
    this.#options = options;
    this.#start();
  }

  get paused(): boolean {
    return this.#paused;
  }

  get running(): boolean {
    return this.#process?.running === true;
  }

  /** Resolves when the process has said that it started. */
  async started(): Promise<void> {
    await this.#process?.waitForLine("started", { timeoutMs: 30_000 });
  }

  async kill(): Promise<void> {
    this.#expected = true;
    this.#paused = false;
    await this.#process?.kill("SIGKILL");
  }

  /** As by a deployment: it may finish what it has in hand, and the next one starts at once. */
  async replace(): Promise<void> {
    this.#expected = true;
    await this.#end("SIGTERM");
  }

  pause(ms: number): void {
    const child = this.#process;
    if (child === undefined || this.#paused) return;
    this.#paused = true;
    child.pause();
    setTimeout(() => {
      if (this.#process === child) this.#paused = false;
      child.resume();
    }, ms);
  }

  /** Ends it for good; a process that does not stop by itself is killed. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.#expected = true;
    this.#process?.resume();
    await this.#end("SIGTERM");
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#process;
    if (child === undefined) return;
    child.signal(signal);
    await child.waitForExit({ timeoutMs: 8000 }).catch(() => child.kill("SIGKILL"));
  }

  #start(): void {
    const file = fileURLToPath(new URL(this.#options.file, import.meta.url));
    const child = spawnNode(file, this.#options.args(++this.#starts), { env: { NODE_COMPILE_CACHE: compileCache } });
    this.#process = child;
    this.#paused = false;
    this.#expected = false;
    let read = 0;
    const listen = setInterval(() => {
      for (; read < child.stdout.length; read++) this.#options.onLine?.(child.stdout[read] ?? "");
    }, 100);
    void child.exited.then(({ code, signal }) => {
      clearInterval(listen);
      for (; read < child.stdout.length; read++) this.#options.onLine?.(child.stdout[read] ?? "");
      if (!this.#expected)
        this.crashes.push(`${this.name} ended (${code ?? signal}): ${child.stderr.slice(-30).join("\n")}`);
      if (!this.#stopping) this.#start();
    });
  }
}
