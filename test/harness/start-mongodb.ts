import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { MongoClient } from "mongodb";
import { until, withDeadline } from "./deadline.ts";
import { freePort } from "./free-port.ts";
import { mongodBinary } from "./mongod-binary.ts";
import { freeze, guard, isAlive, signal, waitUntilGone } from "./processes.ts";

export interface MongodbOptions {
  /** A server that is no replica set: it has neither transactions nor change streams. */
  readonly standalone?: boolean;
  /** Start a private server though TXBOX_TEST_MONGODB_URL is set: for suites that kill or restart it. */
  readonly owned?: boolean;
  /** Default 0.5. */
  readonly cacheGb?: number;
  /** More arguments for mongod. */
  readonly args?: readonly string[];
  /** One of several members of a replica set that the caller initiates: ready when it listens. */
  readonly member?: boolean;
  readonly startTimeoutMs?: number;
}

export interface MongodbServer {
  readonly url: string;
  readonly port: number;
  /** Undefined while stopped, and for a server that is not ours. */
  readonly pid: number | undefined;
  /** True when the URL came from the environment: such a server can be neither killed nor restarted. */
  readonly external: boolean;
  log(): string;
  /** SIGKILL; returns when the process is gone. */
  kill(): Promise<void>;
  /** Starts it again on the same port and data, after a shutdown if it still runs; returns when it takes writes. */
  restart(): Promise<void>;
  /** SIGSTOP: it answers nothing, and its connections stay open. */
  pause(): void;
  resume(): void;
  /** Makes the primary step down; it is elected again after a moment. */
  stepDown(): Promise<void>;
  /** Shuts down and removes the data. */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export const REPLICA_SET = "rs0";

/** Starts a private one-node replica set, or wraps the one of TXBOX_TEST_MONGODB_URL. It ends when this process ends. */
export async function startMongodb(options: MongodbOptions = {}): Promise<MongodbServer> {
  const url = process.env["TXBOX_TEST_MONGODB_URL"];
  if (url !== undefined && url !== "" && options.owned !== true && options.standalone !== true) {
    return externalServer(url);
  }
  const binary = await mongodBinary();
  const folder = mkdtempSync(join(tmpdir(), "txbox-mongodb-"));
  mkdirSync(join(folder, "data"));
  try {
    for (let attempt = 1; ; attempt += 1) {
      const server = new LocalMongodb(binary, folder, await freePort(), options);
      try {
        await server.start();
        return server;
      } catch (error) {
        if (attempt === 5 || !server.log().includes("Address already in use")) throw error;
      }
    }
  } catch (error) {
    rmSync(folder, { recursive: true, force: true });
    throw error;
  }
}

class LocalMongodb implements MongodbServer {
  readonly port: number;
  readonly external = false;
  readonly #binary: string;
  readonly #folder: string;
  readonly #options: MongodbOptions;
  #child: ChildProcess | undefined;
  #exited: Promise<void> = Promise.resolve();
  #release: (() => void) | undefined;
  #initiated = false;

  constructor(binary: string, folder: string, port: number, options: MongodbOptions) {
    this.port = port;
    this.#binary = binary;
    this.#folder = folder;
    this.#options = options;
  }

  get url(): string {
    const direct = `mongodb://127.0.0.1:${this.port}/`;
    return this.#options.standalone === true ? direct : `${direct}?replicaSet=${REPLICA_SET}`;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  log(): string {
    try {
      return readFileSync(join(this.#folder, "log"), "utf8");
    } catch {
      return "";
    }
  }

  async start(): Promise<void> {
    const { standalone = false, cacheGb = 0.5, args = [], startTimeoutMs = 60_000 } = this.#options;
    const log = openSync(join(this.#folder, "log"), "a");
    const flags = ["--dbpath", join(this.#folder, "data"), "--port", String(this.port), "--bind_ip", "127.0.0.1"];
    const more = [
      "--nounixsocket",
      "--wiredTigerCacheSizeGB",
      String(cacheGb),
      ...(standalone ? [] : ["--replSet", REPLICA_SET]),
    ];
    const child = spawn(this.#binary, [...flags, ...more, ...args], {
      cwd: "/",
      stdio: ["ignore", log, log],
      detached: true,
    });
    closeSync(log);
    child.unref();
    this.#child = child;
    this.#exited = new Promise((resolve, reject) => {
      child.once("error", reject);
      child.once("exit", () => {
        if (this.#child === child) this.#child = undefined;
        resolve();
      });
    });
    this.#exited.catch(() => undefined);
    if (child.pid === undefined) return this.#exited;
    this.#release = guard(child.pid, { signal: "SIGTERM", folder: this.#folder });
    try {
      await until(() => this.#isReady(child), { what: "start of MongoDB", timeoutMs: startTimeoutMs, intervalMs: 20 });
    } catch (error) {
      this.#release();
      signal(child.pid, "SIGKILL");
      throw new Error(`${(error as Error).message}\n${this.log().slice(-4000)}`, { cause: error });
    }
  }

  async kill(): Promise<void> {
    const pid = this.pid;
    if (pid !== undefined) {
      signal(pid, "SIGKILL");
      await waitUntilGone([pid], 5000);
      await withDeadline(this.#exited, 5000, "end of MongoDB");
    }
    this.#forget();
  }

  async restart(): Promise<void> {
    await this.#shutDown();
    await this.start();
  }

  pause(): void {
    if (this.pid !== undefined) freeze(this.pid);
  }

  resume(): void {
    if (this.pid !== undefined) signal(this.pid, "SIGCONT");
  }

  async stepDown(): Promise<void> {
    await this.#admin((admin) => admin.command({ replSetStepDown: 1, force: true })).catch(() => undefined);
    await until(() => this.#isPrimary(), { what: "a primary after the step-down", timeoutMs: 60_000 });
  }

  async stop(): Promise<void> {
    await this.#shutDown();
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #shutDown(): Promise<void> {
    const pid = this.pid;
    if (pid !== undefined && isAlive(pid)) {
      signal(pid, "SIGCONT");
      signal(pid, "SIGTERM");
      await waitUntilGone([pid], 15_000).catch(() => this.kill());
      await withDeadline(this.#exited, 5000, "end of MongoDB");
    }
    this.#forget();
  }

  #forget(): void {
    this.#release?.();
    this.#release = undefined;
    this.#child = undefined;
  }

  async #isReady(child: ChildProcess): Promise<boolean> {
    if (child.exitCode !== null || child.signalCode !== null) throw new Error("MongoDB ended while starting");
    if (!this.log().includes("Waiting for connections")) return false;
    if (this.#options.member === true) return true;
    if (this.#options.standalone !== true && !this.#initiated) {
      const members = [{ _id: 0, host: `127.0.0.1:${this.port}` }];
      await this.#admin((admin) => admin.command({ replSetInitiate: { _id: REPLICA_SET, members } }));
      this.#initiated = true;
    }
    return this.#isPrimary();
  }

  async #isPrimary(): Promise<boolean> {
    try {
      const hello = await this.#admin((admin) => admin.command({ hello: 1 }));
      return hello["isWritablePrimary"] === true;
    } catch {
      return false;
    }
  }

  async #admin<T>(run: (admin: ReturnType<MongoClient["db"]>) => Promise<T>): Promise<T> {
    const url = `mongodb://127.0.0.1:${this.port}/?directConnection=true`;
    const client = new MongoClient(url, { serverSelectionTimeoutMS: 1000 });
    try {
      return await run(client.db("admin"));
    } finally {
      await client.close();
    }
  }
}

function externalServer(url: string): MongodbServer {
  const refusal = (what: string): Error =>
    new Error(`cannot ${what} the server of TXBOX_TEST_MONGODB_URL; use startMongodb({ owned: true })`);
  const refuse = (what: string): Promise<never> => Promise.reject(refusal(what));
  return {
    url,
    port: Number(new URL(url).port || 27_017),
    pid: undefined,
    external: true,
    log: () => "",
    kill: () => refuse("kill"),
    restart: () => refuse("restart"),
    pause() {
      throw refusal("pause");
    },
    resume() {
      throw refusal("resume");
    },
    stepDown: () => refuse("step down"),
    stop: () => Promise.resolve(),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}
