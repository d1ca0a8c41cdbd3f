import { type ChildProcess, spawn } from "node:child_process";
import { chmodSync, chownSync, closeSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until, withDeadline } from "./deadline.ts";
import { freePort } from "./free-port.ts";
import { type PostgresBinaries, type PostgresSource, postgresBinaries } from "./postgres-binaries.ts";
import { childPids, freeze, guard, isAlive, signal, waitUntilGone } from "./processes.ts";
import { mustRun } from "./run-command.ts";
import { type ServerUser, serverUser } from "./server-user.ts";

export interface PostgresOptions {
  /** Off by default: fast. Benchmarks and crash tests turn it on. */
  readonly fsync?: boolean;
  readonly port?: number;
  /** Server settings, as in postgresql.conf; they win over the defaults. */
  readonly settings?: Readonly<Record<string, string>>;
  readonly binaries?: PostgresSource;
  /** Start a private server though TXBOX_TEST_POSTGRES_URL is set: for suites that kill or restart it. */
  readonly owned?: boolean;
  readonly startTimeoutMs?: number;
}

export interface PostgresServer {
  readonly url: string;
  readonly port: number;
  /** The postmaster; undefined while stopped, and for a server that is not ours. */
  readonly pid: number | undefined;
  /** True when the URL came from the environment: such a server can be neither killed nor restarted. */
  readonly external: boolean;
  /** What the server wrote to its log so far. */
  log(): string;
  /** SIGKILL to the postmaster; returns when its children are gone too, so that a restart finds no shared memory. */
  kill(): Promise<void>;
  /** Starts it again on the same port and data, after a fast shutdown if it still runs. */
  restart(): Promise<void>;
  /** Shuts down and removes the data. */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

const DEFAULT_SETTINGS = {
  listen_addresses: "127.0.0.1",
  // Sockets live in folders whose paths may be too long; everything here goes through loopback.
  unix_socket_directories: "",
  max_connections: "200",
  max_prepared_transactions: "64",
  wal_level: "logical",
  max_wal_senders: "20",
  max_replication_slots: "20",
  timezone: "UTC",
};

/** Starts a private PostgreSQL, or wraps the one named by TXBOX_TEST_POSTGRES_URL. It ends when this process ends. */
export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  const url = process.env["TXBOX_TEST_POSTGRES_URL"];
  if (url !== undefined && url !== "" && options.owned !== true) return externalServer(url);

  const user = await serverUser();
  const folder = mkdtempSync(join(tmpdir(), "txbox-postgres-"));
  chmodSync(folder, 0o755);
  if (user.uid !== undefined && user.gid !== undefined) chownSync(folder, user.uid, user.gid);
  try {
    const binaries = await postgresBinaries(options.binaries, user, folder);
    await initialise(binaries, folder, user);
    return await startOnFreePort(binaries, folder, user, options);
  } catch (error) {
    rmSync(folder, { recursive: true, force: true });
    throw error;
  }
}

async function initialise(binaries: PostgresBinaries, folder: string, user: ServerUser): Promise<void> {
  const args = ["-D", join(folder, "data"), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"];
  // Losing a fresh, empty cluster to a power failure costs nothing, so this is safe with fsync on as well.
  await mustRun(binaries.initdb, [...args, "--no-sync"], { ...user, cwd: "/", env: serverEnv() });
}

async function startOnFreePort(
  binaries: PostgresBinaries,
  folder: string,
  user: ServerUser,
  options: PostgresOptions,
): Promise<PostgresServer> {
  for (let attempt = 1; ; attempt += 1) {
    const port = options.port ?? (await freePort());
    const server = new LocalPostgres(binaries, folder, user, port, options);
    try {
      await server.start();
      return server;
    } catch (error) {
      const portTaken = options.port === undefined && server.log().includes("could not bind");
      if (!portTaken || attempt === 5) throw error;
    }
  }
}

class LocalPostgres implements PostgresServer {
  readonly url: string;
  readonly port: number;
  readonly external = false;
  #child: ChildProcess | undefined;
  /** Until it is reaped, a new server takes the dead one for alive. */
  #exited: Promise<void> | undefined;
  #release: (() => void) | undefined;
  readonly #postgres: string;
  readonly #folder: string;
  readonly #user: ServerUser;
  readonly #options: PostgresOptions;

  constructor(binaries: PostgresBinaries, folder: string, user: ServerUser, port: number, options: PostgresOptions) {
    this.url = `postgres://postgres@127.0.0.1:${port}/postgres`;
    this.port = port;
    this.#postgres = binaries.postgres;
    this.#folder = folder;
    this.#user = user;
    this.#options = options;
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
    const { fsync = false, settings = {}, startTimeoutMs = 60_000 } = this.#options;
    const all = { ...DEFAULT_SETTINGS, fsync: fsync ? "on" : "off", ...settings, port: String(this.port) };
    const flags = Object.entries(all).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
    const log = openSync(join(this.#folder, "log"), "a");
    // A session of its own: Ctrl-C in the terminal is for us to handle, not for the server.
    const child = spawn(this.#postgres, ["-D", this.#data, ...flags], {
      ...this.#user,
      cwd: "/",
      env: serverEnv(),
      stdio: ["ignore", log, log],
      detached: true,
    });
    closeSync(log);
    child.unref();
    const failed = new Promise<never>((_, reject) => child.once("error", reject));
    failed.catch(() => undefined);
    this.#child = child;
    if (child.pid === undefined) return failed;
    this.#release = guard(child.pid, { signal: "SIGQUIT", folder: this.#folder });
    this.#exited = new Promise((resolve) => {
      child.once("exit", () => {
        if (this.#child === child) this.#child = undefined;
        resolve();
      });
    });
    try {
      await until(() => this.#isReady(child), {
        what: "start of PostgreSQL",
        timeoutMs: startTimeoutMs,
        intervalMs: 10,
      });
    } catch (error) {
      this.#release();
      signal(child.pid, "SIGKILL");
      throw new Error(`${(error as Error).message}\n${this.log().slice(-4000)}`, { cause: error });
    }
  }

  async kill(): Promise<void> {
    const pid = this.pid;
    if (pid === undefined) return;
    // Stopped first, so that no child is born between the listing and the kill.
    freeze(pid);
    const children = childPids(pid);
    signal(pid, "SIGKILL");
    await waitUntilGone([pid, ...children], 5000).catch(async () => {
      for (const child of children) signal(child, "SIGKILL");
      await waitUntilGone([pid, ...children], 5000);
    });
    await withDeadline(this.#exited ?? Promise.resolve(), 5000, "end of PostgreSQL");
    this.#forget();
  }

  async restart(): Promise<void> {
    await this.#shutDown();
    await this.start();
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
      signal(pid, "SIGINT");
      await waitUntilGone([pid], 10_000).catch(() => this.kill());
      await withDeadline(this.#exited ?? Promise.resolve(), 5000, "end of PostgreSQL");
    }
    this.#forget();
  }

  #forget(): void {
    this.#release?.();
    this.#release = undefined;
    this.#child = undefined;
  }

  get #data(): string {
    return join(this.#folder, "data");
  }

  #isReady(child: ChildProcess): boolean {
    if (child.exitCode !== null || child.signalCode !== null) throw new Error("PostgreSQL ended while starting");
    try {
      // The eighth line says "ready"; a file left by a killed server carries another pid.
      const lines = readFileSync(join(this.#data, "postmaster.pid"), "utf8").split("\n");
      return Number(lines[0]) === child.pid && lines[7]?.trim() === "ready";
    } catch {
      return false;
    }
  }
}

function externalServer(url: string): PostgresServer {
  const refuse = (what: string): Promise<never> =>
    Promise.reject(
      new Error(`cannot ${what} the server of TXBOX_TEST_POSTGRES_URL; use startPostgres({ owned: true })`),
    );
  return {
    url,
    port: Number(new URL(url).port || 5432),
    pid: undefined,
    external: true,
    log: () => "",
    kill: () => refuse("kill"),
    restart: () => refuse("restart"),
    stop: () => Promise.resolve(),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

// PGDATA, PGPORT and the like of the developer's shell must not reach a private server.
function serverEnv(): NodeJS.ProcessEnv {
  const entries = Object.entries(process.env).filter(([name]) => !name.startsWith("PG"));
  return { ...Object.fromEntries(entries), LC_ALL: "C" };
}
