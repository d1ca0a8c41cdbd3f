import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { until, withDeadline } from "./deadline.ts";
import { freeze, guard, isAlive, signal, waitUntilGone } from "./processes.ts";
import { requireCommand } from "./require-command.ts";
import { mustRun } from "./run-command.ts";
import type { RabbitmqOptions, RabbitmqServer } from "./start-rabbitmq.ts";

/** What the private server refuses: RabbitMQ 4's default, 3.x has 128 MiB. */
export const RABBITMQ_MAX_MESSAGE_BYTES: number = 16 * 1024 * 1024;

// The one in PATH switches to a user of its own, who cannot read our folder.
const INNER_SCRIPTS = "/usr/lib/rabbitmq/bin";

export interface RabbitmqPorts {
  readonly port: number;
  readonly distribution: number;
  readonly epmd: number;
}

/** What the nodes of a cluster share. */
export interface ClusterMembership {
  readonly cookie: string;
  /** One of them starts the name server of all. */
  readonly startsEpmd: boolean;
}

/** A RabbitMQ node of this machine, with its data in `folder`. */
export class LocalRabbitmq implements RabbitmqServer {
  readonly url: string;
  readonly port: number;
  readonly nodeName: string;
  readonly external = false;
  readonly #folder: string;
  readonly #env: NodeJS.ProcessEnv;
  readonly #epmdPort: number;
  readonly #startsEpmd: boolean;
  readonly #startTimeoutMs: number;
  #epmd: Running | undefined;
  #server: Running | undefined;

  constructor(folder: string, ports: RabbitmqPorts, options: RabbitmqOptions, membership?: ClusterMembership) {
    this.url = `amqp://guest:guest@127.0.0.1:${ports.port}`;
    this.port = ports.port;
    this.#folder = folder;
    this.nodeName = `t${ports.port}@localhost`;
    this.#epmdPort = ports.epmd;
    this.#startsEpmd = membership?.startsEpmd ?? true;
    this.#startTimeoutMs = options.startTimeoutMs ?? 120_000;
    this.#env = environment(folder, ports);
    const settings = {
      "listeners.tcp.1": `127.0.0.1:${ports.port}`,
      loopback_users: "none",
      max_message_size: String(RABBITMQ_MAX_MESSAGE_BYTES),
      "disk_free_limit.absolute": "50MB",
      ...options.settings,
    };
    const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}\n`);
    writeFileSync(join(folder, "rabbitmq.conf"), lines.join(""));
    writeFileSync(join(folder, "enabled_plugins"), "[].");
    if (membership) writeFileSync(join(folder, ".erlang.cookie"), membership.cookie, { mode: 0o400 });
    mkdirSync(join(folder, "log"));
  }

  get pid(): number | undefined {
    return this.#server?.pid;
  }

  log(): string {
    try {
      return readFileSync(join(this.#folder, "output"), "utf8");
    } catch {
      return "";
    }
  }

  async start(): Promise<void> {
    // Started by us, so that it ends with us; RabbitMQ would leave a daemon behind.
    if (this.#startsEpmd) {
      this.#epmd ??= this.#run("epmd", ["-port", String(this.#epmdPort), "-address", "127.0.0.1"]);
    }
    const server = this.#run(await script("rabbitmq-server"), []);
    this.#server = server;
    try {
      await until(
        () => {
          if (!isAlive(server.pid)) throw new Error("RabbitMQ ended while starting");
          return answers(this.port);
        },
        { what: "start of RabbitMQ", timeoutMs: this.#startTimeoutMs, intervalMs: 50 },
      );
    } catch (error) {
      const output = this.log().slice(-4000);
      await this.kill();
      throw new Error(`${(error as Error).message}\n${output}`, { cause: error });
    }
  }

  async saveTopology(): Promise<void> {
    await this.ctl("eval", "dumped = mnesia:dump_log(), [ok = dets:sync(T) || T <- dets:all()].");
  }

  async kill(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    await server?.end("SIGKILL");
  }

  async restart(): Promise<void> {
    await this.kill();
    await this.start();
  }

  pause(): void {
    if (this.pid !== undefined) freeze(this.pid);
  }

  resume(): void {
    if (this.pid !== undefined) signal(this.pid, "SIGCONT");
  }

  async ctl(...args: string[]): Promise<string> {
    return (await mustRun(await script("rabbitmqctl"), args, { env: this.#env, timeoutMs: 120_000 })).stdout;
  }

  async stop(): Promise<void> {
    await this.kill();
    await this.#epmd?.end("SIGKILL");
    this.#epmd = undefined;
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #run(command: string, args: readonly string[]): Running {
    const log = openSync(join(this.#folder, "output"), "a");
    const child = spawn(command, args, {
      cwd: this.#folder,
      env: this.#env,
      stdio: ["ignore", log, log],
      detached: true,
    });
    closeSync(log);
    return new Running(child, this.#folder);
  }
}

async function script(name: string): Promise<string> {
  const found = await requireCommand(name, { apt: "rabbitmq-server" });
  const inner = join(INNER_SCRIPTS, name);
  return existsSync(inner) ? inner : found;
}

/** A child that ends when this process ends. */
class Running {
  readonly pid: number;
  readonly #exited: Promise<unknown>;
  readonly #release: () => void;

  constructor(child: ChildProcess, folder: string) {
    child.unref();
    this.#exited = new Promise((resolve) => {
      child.once("exit", resolve);
      child.once("error", resolve);
    });
    if (child.pid === undefined) throw new Error(`could not run ${child.spawnfile}`);
    this.pid = child.pid;
    this.#release = guard(child.pid, { signal: "SIGKILL", folder });
  }

  async end(how: NodeJS.Signals): Promise<void> {
    signal(this.pid, how);
    await waitUntilGone([this.pid], 10_000);
    await withDeadline(this.#exited, 5000, `end of process ${this.pid}`);
    this.#release();
  }
}

function environment(folder: string, { port, distribution, epmd }: RabbitmqPorts): NodeJS.ProcessEnv {
  return {
    ...process.env,
    HOME: folder,
    // Run Erlang in place of the script: its process is the one to kill.
    RUNNING_UNDER_SYSTEMD: "true",
    RABBITMQ_NODENAME: `t${port}@localhost`,
    RABBITMQ_NODE_IP_ADDRESS: "127.0.0.1",
    RABBITMQ_NODE_PORT: String(port),
    RABBITMQ_DIST_PORT: String(distribution),
    RABBITMQ_MNESIA_BASE: join(folder, "mnesia"),
    RABBITMQ_LOG_BASE: join(folder, "log"),
    RABBITMQ_LOGS: "-",
    RABBITMQ_ENABLED_PLUGINS_FILE: join(folder, "enabled_plugins"),
    RABBITMQ_CONF_ENV_FILE: "/dev/null",
    RABBITMQ_CONFIG_FILE: join(folder, "rabbitmq.conf"),
    RABBITMQ_PID_FILE: join(folder, "pid"),
    RABBITMQ_GENERATED_CONFIG_DIR: join(folder, "generated"),
    RABBITMQ_FEATURE_FLAGS_FILE: join(folder, "feature_flags"),
    ERL_EPMD_PORT: String(epmd),
    ERL_EPMD_ADDRESS: "127.0.0.1",
    ERL_CRASH_DUMP: "/dev/null",
  };
}

/** The listener is there before it serves: only a greeting counts. */
function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    const settle = (yes: boolean): void => {
      socket.destroy();
      resolve(yes);
    };
    socket.setTimeout(1000, () => settle(false));
    socket.once("connect", () => socket.write("AMQP\0\0\u0009\u0001"));
    socket.once("data", () => settle(true));
    socket.once("error", () => settle(false));
    socket.once("close", () => settle(false));
  });
}
