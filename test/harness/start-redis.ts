import { spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "./deadline.ts";
import { freePort } from "./free-port.ts";
import { freeze, guard, signal, waitUntilGone } from "./processes.ts";
import { requireCommand } from "./require-command.ts";

export interface RedisOptions {
  /** Start a private server though TXBOX_TEST_REDIS_URL is set: for suites that kill, pause or configure it. */
  readonly owned?: boolean;
  /** "always" (default): what was confirmed survives SIGKILL of the server, and of the machine. */
  readonly appendfsync?: "always" | "everysec" | "no";
  /** False: nothing survives a restart. */
  readonly durable?: boolean;
  readonly settings?: Readonly<Record<string, string>>;
  /** Start a sentinel instead, with these lines in its configuration. */
  readonly sentinel?: readonly string[];
}

export interface RedisServer {
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  /** SIGKILL: no time to finish anything. */
  kill(): Promise<void>;
  /** Starts it again on its data. */
  start(): Promise<void>;
  /** SIGKILL and start. */
  restart(): Promise<void>;
  /** It takes connections and answers nothing until `resume`. */
  pause(): void;
  resume(): void;
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A private Redis, durable and on loopback, or the one of TXBOX_TEST_REDIS_URL. Throws ServerUnavailableError when there is no such command. */
export async function startRedis(options: RedisOptions = {}): Promise<RedisServer> {
  const external = process.env["TXBOX_TEST_REDIS_URL"];
  if (external && options.owned !== true) return externalServer(external);
  const command = await requireCommand("redis-server", { apt: "redis-server" });
  const port = await freePort();
  const folder = mkdtempSync(join(tmpdir(), "txbox-redis-"));
  const { durable = true, appendfsync = "always" } = options;
  const settings = {
    port: String(port),
    bind: "127.0.0.1",
    dir: folder,
    save: "",
    appendonly: durable ? "yes" : "no",
    appendfsync,
    "enable-debug-command": "local",
    ...options.settings,
  };
  let args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, ...value.split(" ")]);
  if (options.sentinel !== undefined) {
    // It writes what it learns into this file.
    const file = join(folder, "sentinel.conf");
    writeFileSync(file, [`port ${port}`, "bind 127.0.0.1", `dir ${folder}`, ...options.sentinel, ""].join("\n"));
    args = [file, "--sentinel"];
  }
  let running: { pid: number; release: () => void } | undefined;

  async function start(): Promise<void> {
    const log = openSync(join(folder, "log"), "a");
    const child = spawn(command, args, { cwd: folder, stdio: ["ignore", log, log], detached: true });
    closeSync(log);
    child.unref();
    child.once("error", () => undefined);
    const { pid } = child;
    if (pid === undefined) throw new Error(`could not run ${command}`);
    running = { pid, release: guard(pid, { signal: "SIGTERM", folder }) };
    const listening = (): Promise<boolean> => {
      if (child.exitCode !== null)
        throw new Error(`Redis ended while starting\n${readFileSync(join(folder, "log"), "utf8")}`);
      return answers(port);
    };
    await until(listening, { what: "start of Redis", timeoutMs: 60_000, intervalMs: 10 });
  }

  async function end(how: NodeJS.Signals): Promise<void> {
    if (running === undefined) return;
    const { pid, release } = running;
    running = undefined;
    signal(pid, how);
    signal(pid, "SIGCONT");
    await waitUntilGone([pid], 5000).catch(() => signal(pid, "SIGKILL"));
    release();
  }

  async function stop(): Promise<void> {
    await end("SIGKILL");
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  }

  await start();
  return {
    url: `redis://127.0.0.1:${port}`,
    port,
    get pid() {
      return running?.pid ?? 0;
    },
    kill: () => end("SIGKILL"),
    start,
    async restart() {
      await end("SIGKILL");
      await again(start);
    },
    pause: () => running && freeze(running.pid),
    resume: () => running && signal(running.pid, "SIGCONT"),
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

/** A connection that goes out from this machine may hold the port for a moment. */
async function again(start: () => Promise<void>): Promise<void> {
  for (let left = 20; ; left--) {
    try {
      return await start();
    } catch (error) {
      if (left === 0 || !String(error).includes("Address already in use")) throw error;
      await new Promise((resolve) => setTimeout(resolve, 250));
    }
  }
}

function externalServer(url: string): RedisServer {
  const not = (): never => {
    throw new Error("The Redis of TXBOX_TEST_REDIS_URL is not ours; ask for { owned: true }");
  };
  const stop = (): Promise<void> => Promise.resolve();
  const port = Number(new URL(url).port || 6379);
  const no = { kill: not, start: not, restart: not, pause: not, resume: not };
  return { url, port, pid: 0, ...no, stop, [Symbol.asyncDispose]: stop };
}

/** True once it has read its data: before that it answers PING with LOADING. */
function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => socket.write("PING\r\n"));
    const settle = (up: boolean): void => {
      socket.destroy();
      resolve(up);
    };
    socket.setTimeout(500, () => settle(false));
    socket.once("error", () => settle(false));
    socket.once("data", (data) => settle(/^(?:\+PONG|-NOAUTH)/.test(data.toString())));
  });
}
