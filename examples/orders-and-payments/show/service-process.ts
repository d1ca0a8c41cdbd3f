import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type NodeProcess, spawnNode } from "../../../test/harness/index.ts";

const FROM_SOURCE = fileURLToPath(new URL("../../from-source.ts", import.meta.url));

// Processes start all the time: without a cache most of the work would be compiling them.
const compiled = mkdtempSync(join(tmpdir(), "txbox-compiled-"));
process.once("exit", () => rmSync(compiled, { recursive: true, force: true }));

export interface ServiceOptions {
  name: string;
  /** Beside the folder of the show. */
  file: string;
  env: Record<string, string>;
  verbose: boolean;
}

/** A process as somebody deployed it: it can be killed and started again. Ending by itself is a crash. */
export class ServiceProcess {
  readonly name: string;
  readonly crashes: string[] = [];
  kills = 0;
  readonly #options: ServiceOptions;
  #child: NodeProcess | undefined;
  #expected = false;

  constructor(options: ServiceOptions) {
    this.name = options.name;
    this.#options = options;
  }

  start(): void {
    const { file, env, verbose } = this.#options;
    const child = spawnNode(fileURLToPath(new URL(`../${file}`, import.meta.url)), [], {
      env: { ...env, NODE_COMPILE_CACHE: compiled },
      nodeArgs: ["--import", FROM_SOURCE],
      echo: verbose,
      timeoutMs: 10_000,
    });
    this.#child = child;
    this.#expected = false;
    void child.exited.then(({ code, signal }) => {
      if (this.#child !== child || this.#expected) return;
      const said = [...child.stdout.slice(-5), ...child.stderr.slice(-15)].join("\n");
      this.crashes.push(`${this.name} ended by itself (${code ?? signal})\n${said}`);
    });
  }

  /** Resolves when the process has printed this. */
  async said(word: string): Promise<void> {
    await this.#child?.waitForLine(word, { timeoutMs: 60_000 });
  }

  /** Resolves when it is up, or has had so long for it. */
  async up(timeoutMs: number): Promise<void> {
    await this.#child?.waitForLine(/^(ready|subscribed)/, { timeoutMs }).catch(() => undefined);
  }

  /** SIGKILL: no time to finish anything. */
  async kill(): Promise<void> {
    this.#expected = true;
    this.kills++;
    await this.#child?.kill("SIGKILL");
  }

  async stop(): Promise<void> {
    this.#expected = true;
    const child = this.#child;
    if (child === undefined || !child.running) return;
    child.signal("SIGTERM");
    await child.waitForExit().catch(() => child.kill("SIGKILL"));
  }
}
