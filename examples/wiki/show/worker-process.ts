import { fileURLToPath } from "node:url";
import { type NodeProcess, spawnNode } from "../../../test/harness/index.ts";

const FROM_SOURCE = fileURLToPath(new URL("../../from-source.ts", import.meta.url));

/** A process of the example that is started again whenever it is killed. */
export class Worker {
  /** How it ended when nobody had killed it. */
  readonly crashes: string[] = [];
  readonly #file: string;
  readonly #url: string;
  #process: NodeProcess;
  #expected = false;
  #stopping = false;

  constructor(file: string, url: string) {
    this.#file = fileURLToPath(new URL(`../${file}`, import.meta.url));
    this.#url = url;
    this.#process = this.#start();
  }

  async ready(): Promise<void> {
    await this.#process.waitForLine("ready", { timeoutMs: 60_000 });
  }

  async kill(): Promise<void> {
    this.#expected = true;
    await this.#process.kill("SIGKILL");
  }

  pause(ms: number): void {
    const child = this.#process;
    child.pause();
    setTimeout(() => child.resume(), ms);
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    this.#expected = true;
    this.#process.resume();
    this.#process.signal("SIGTERM");
    await this.#process.waitForExit({ timeoutMs: 15_000 }).catch(() => this.#process.kill("SIGKILL"));
  }

  #start(): NodeProcess {
    const child = spawnNode(this.#file, [], { nodeArgs: ["--import", FROM_SOURCE], env: { MONGODB_URL: this.#url } });
    void child.exited.then(({ code, signal }) => {
      if (!this.#expected)
        this.crashes.push(`${this.#file} ended (${code ?? signal}): ${child.stderr.slice(-20).join("\n")}`);
      if (this.#stopping) return;
      this.#expected = false;
      this.#process = this.#start();
    });
    return child;
  }
}
