import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "./deadline.ts";
import { freePort } from "./free-port.ts";
import { freeze, guard, signal, waitUntilGone } from "./processes.ts";
import { requireCommand } from "./require-command.ts";

export interface NatsOptions {
  /** Start a private server though TXBOX_TEST_NATS_URL is set: for suites that kill, pause or configure it. */
  readonly owned?: boolean;
  /** More lines of nats-server's configuration, such as `max_payload: 16MB`. */
  readonly config?: string;
}

export interface NatsServer {
  readonly url: string;
  /** Undefined while stopped, and for a server that is not ours. */
  readonly pid: number | undefined;
  log(): string;
  /** SIGKILL; returns when the process is gone. */
  kill(): Promise<void>;
  /** Starts it again on the same port and data; returns when it takes connections. */
  restart(): Promise<void>;
  /** Holds it up: connections stay open and nothing is answered. */
  pause(): void;
  resume(): void;
  /** Ends it and removes the data. */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Starts a private nats-server with JetStream in files, or wraps the one of TXBOX_TEST_NATS_URL. It ends with this process. */
export async function startNats(options: NatsOptions = {}): Promise<NatsServer> {
  const url = process.env["TXBOX_TEST_NATS_URL"];
  if (url !== undefined && url !== "" && options.owned !== true && options.config === undefined) return external(url);
  const command = await requireCommand("nats-server", { apt: "nats-server" });
  for (let attempt = 1; ; attempt++) {
    const server = new LocalNats(command, await freePort(), options.config ?? "");
    try {
      await server.restart();
      return server;
    } catch (error) {
      const log = server.log();
      await server.stop();
      if (attempt === 5 || !log.includes("address already in use")) throw error;
    }
  }
}

class LocalNats implements NatsServer {
  readonly url: string;
  readonly #port: number;
  readonly #command: string;
  readonly #folder: string;
  #child: ChildProcess | undefined;
  #release: (() => void) | undefined;

  constructor(command: string, port: number, config: string) {
    this.#command = command;
    this.#port = port;
    this.url = `nats://127.0.0.1:${port}`;
    this.#folder = mkdtempSync(join(tmpdir(), "txbox-nats-"));
    const lines = [`listen: "127.0.0.1:${port}"`, `jetstream { store_dir: "${join(this.#folder, "data")}" }`, config];
    writeFileSync(join(this.#folder, "nats.conf"), lines.join("\n"));
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  log(): string {
    return readFileSync(join(this.#folder, "log"), "utf8");
  }

  async restart(): Promise<void> {
    if (this.#child !== undefined) await this.kill();
    const log = openSync(join(this.#folder, "log"), "a");
    const child = spawn(this.#command, ["-c", join(this.#folder, "nats.conf")], {
      cwd: "/",
      stdio: ["ignore", log, log],
      detached: true,
    });
    closeSync(log);
    child.unref();
    child.once("error", () => undefined);
    if (child.pid === undefined) throw new Error(`could not run ${this.#command}`);
    this.#child = child;
    this.#release = guard(child.pid, { signal: "SIGKILL", folder: this.#folder });
    const listening = (): Promise<boolean> => {
      if (child.exitCode !== null) throw new Error(`nats-server ended while starting\n${this.log()}`);
      return greets(this.#port);
    };
    await until(listening, { what: "start of nats-server", timeoutMs: 60_000, intervalMs: 10 });
  }

  async kill(): Promise<void> {
    const pid = this.#child?.pid;
    this.#release?.();
    this.#child = undefined;
    if (pid === undefined) return;
    signal(pid, "SIGKILL");
    await waitUntilGone([pid], 5000);
  }

  pause(): void {
    if (this.pid !== undefined) freeze(this.pid);
  }

  resume(): void {
    if (this.pid !== undefined) signal(this.pid, "SIGCONT");
  }

  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

function external(url: string): NatsServer {
  const refuse = (): never => {
    throw new Error("the server of TXBOX_TEST_NATS_URL is not ours to stop; ask for { owned: true }");
  };
  const stop = (): Promise<void> => Promise.resolve();
  return {
    url,
    pid: undefined,
    log: () => "",
    kill: async () => refuse(),
    restart: async () => refuse(),
    pause: refuse,
    resume: refuse,
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

/** A server that is ready says so by itself. */
function greets(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    const settle = (ready: boolean): void => {
      socket.destroy();
      resolve(ready);
    };
    socket.setTimeout(1000, () => settle(false));
    socket.once("data", (data) => settle(data.toString().startsWith("INFO ")));
    socket.once("error", () => settle(false));
    socket.once("close", () => resolve(false));
  });
}
