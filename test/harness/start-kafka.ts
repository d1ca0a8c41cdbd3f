import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until, withDeadline } from "./deadline.ts";
import { freePort } from "./free-port.ts";
import { kafkaJars } from "./kafka-jars.ts";
import { freeze, guard, isAlive, signal, waitUntilGone } from "./processes.ts";
import { requireCommand } from "./require-command.ts";
import { mustRun } from "./run-command.ts";

export interface KafkaOptions {
  /** Start a private server though TXBOX_TEST_KAFKA_BROKERS is set: for suites that kill, pause or restart it. */
  readonly owned?: boolean;
  /** Added to server.properties; they win over the defaults. */
  readonly settings?: Readonly<Record<string, string>>;
}

export interface KafkaServer {
  readonly brokers: string[];
  /** A listener that wants user `txbox` with password `secret` (SASL PLAIN); none for a server that is not ours. */
  readonly saslBrokers: string[];
  /** True when it came from the environment: such a server can be neither killed nor restarted. */
  readonly external: boolean;
  log(): string;
  /** Where the records of a partition are. For a server of our own, between `kill` and `restart`. */
  logFolder(topic: string, partition: number): string;
  /** SIGKILL. What was acknowledged survives: it is in the page cache of a machine that goes on. */
  kill(): Promise<void>;
  /** Starts it again on the same ports and data, after a SIGKILL if it still runs. */
  restart(): Promise<void>;
  /** SIGSTOP: it keeps its connections and answers nothing. */
  pause(): void;
  resume(): void;
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

const JAVA_FLAGS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"];

/** Starts a private Kafka (KRaft, one node), or wraps the one of TXBOX_TEST_KAFKA_BROKERS. It ends when this process ends. */
export async function startKafka(options: KafkaOptions = {}): Promise<KafkaServer> {
  const brokers = process.env["TXBOX_TEST_KAFKA_BROKERS"];
  if (brokers !== undefined && brokers !== "" && options.owned !== true) return externalServer(brokers.split(","));
  const java = await requireCommand("java", { apt: "default-jre-headless" });
  const jars = await kafkaJars();
  for (let attempt = 1; ; attempt += 1) {
    const ports = [await freePort(), await freePort(), await freePort()] as const;
    const server = new LocalKafka(java, jars, ports, options);
    try {
      await server.format();
      await server.start();
      return server;
    } catch (error) {
      const portTaken = server.log().includes("Address already in use");
      await server.stop();
      if (!portTaken || attempt === 5) throw error;
    }
  }
}

/** One node of a cluster whose controllers are named in `controller.quorum.voters`. */
export async function startKafkaNode(
  clusterId: string,
  controllerPort: number,
  settings: Readonly<Record<string, string>>,
): Promise<KafkaServer> {
  const java = await requireCommand("java", { apt: "default-jre-headless" });
  const ports = [await freePort(), controllerPort, await freePort()] as const;
  const node = new LocalKafka(java, await kafkaJars(), ports, { settings });
  try {
    await node.format(clusterId);
    await node.start();
    return node;
  } catch (error) {
    await node.stop();
    throw error;
  }
}

class LocalKafka implements KafkaServer {
  readonly brokers: string[];
  readonly saslBrokers: string[];
  readonly external = false;
  readonly #java: string;
  readonly #classPath: string;
  readonly #folder = mkdtempSync(join(tmpdir(), "txbox-kafka-"));
  #child: ChildProcess | undefined;
  #exited: Promise<void> | undefined;
  #release: (() => void) | undefined;

  constructor(java: string, jars: string, ports: readonly [number, number, number], { settings = {} }: KafkaOptions) {
    this.#java = java;
    this.#classPath = join(jars, "*");
    const [port, controllerPort, saslPort] = ports;
    this.brokers = [`127.0.0.1:${port}`];
    this.saslBrokers = [`127.0.0.1:${saslPort}`];
    const listeners = `PLAINTEXT://127.0.0.1:${port},CONTROLLER://127.0.0.1:${controllerPort},SASL://127.0.0.1:${saslPort}`;
    const all = { ...DEFAULTS, "log.dirs": join(this.#folder, "logs"), listeners, ...settings };
    const isAlone = settings["controller.quorum.voters"] === undefined;
    const properties = {
      ...all,
      "advertised.listeners": listeners,
      ...(isAlone ? { "controller.quorum.bootstrap.servers": `127.0.0.1:${controllerPort}` } : {}),
    };
    const lines = Object.entries(properties).map(([name, value]) => `${name}=${value}`);
    writeFileSync(this.#properties, `${lines.join("\n")}\n`);
  }

  log(): string {
    try {
      return readFileSync(join(this.#folder, "log"), "utf8");
    } catch {
      return "";
    }
  }

  logFolder(topic: string, partition: number): string {
    return join(this.#folder, "logs", `${topic}-${partition}`);
  }

  /** As a part of that cluster, or as one of its own. */
  async format(cluster?: string): Promise<void> {
    const id = cluster ?? randomBytes(16).toString("base64url").replace(/^-/, "A");
    const alone = cluster === undefined ? ["--standalone"] : [];
    const args = ["format", ...alone, "-t", id, "-c", this.#properties];
    await mustRun(this.#java, ["-Xmx256m", ...JAVA_FLAGS, "-cp", this.#classPath, "kafka.tools.StorageTool", ...args], {
      cwd: this.#folder,
    });
  }

  async start(): Promise<void> {
    const log = openSync(join(this.#folder, "log"), "a");
    const child = spawn(
      this.#java,
      ["-Xms128m", "-Xmx512m", ...JAVA_FLAGS, "-cp", this.#classPath, "kafka.Kafka", this.#properties],
      { cwd: this.#folder, stdio: ["ignore", log, log], detached: true },
    );
    closeSync(log);
    child.unref();
    const failed = new Promise<never>((_, reject) => child.once("error", reject));
    failed.catch(() => undefined);
    this.#child = child;
    if (child.pid === undefined) return failed;
    this.#release = guard(child.pid, { signal: "SIGKILL", folder: this.#folder });
    this.#exited = new Promise((resolve) => {
      child.once("exit", () => {
        if (this.#child === child) this.#child = undefined;
        resolve();
      });
    });
    const ready = (): Promise<boolean> => {
      if (child.exitCode !== null || child.signalCode !== null) throw new Error("Kafka ended while starting");
      return isReady(this.brokers[0] ?? "");
    };
    try {
      await until(ready, { what: "start of Kafka", timeoutMs: 60_000, intervalMs: 50 });
    } catch (error) {
      throw new Error(`${(error as Error).message}\n${this.log().slice(-4000)}`, { cause: error });
    }
  }

  async kill(): Promise<void> {
    const pid = this.#child?.pid;
    if (pid !== undefined && isAlive(pid)) {
      signal(pid, "SIGKILL");
      await waitUntilGone([pid], 10_000);
      await withDeadline(this.#exited ?? Promise.resolve(), 5000, "end of Kafka");
    }
    this.#release?.();
    this.#release = undefined;
    this.#child = undefined;
  }

  async restart(): Promise<void> {
    await this.kill();
    await this.start();
  }

  pause(): void {
    if (this.#child?.pid !== undefined) freeze(this.#child.pid);
  }

  resume(): void {
    if (this.#child?.pid !== undefined) signal(this.#child.pid, "SIGCONT");
  }

  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  get #properties(): string {
    return join(this.#folder, "server.properties");
  }
}

/** Metadata, version 1, no topics: at least one broker in the answer means that it is open for all. */
const METADATA = {
  request: "0000000e0003000100000001ffff00000000",
  yes: (a: Buffer) => a.length >= 12 && a.readInt32BE(8) > 0,
};
/** InitProducerId, version 0, no transaction: an answer without an error means that it can number producers. */
const PRODUCER_ID = {
  request: "000000100016000000000001ffffffff0000ea60",
  yes: (a: Buffer) => a.length >= 14 && a.readInt16BE(12) === 0,
};

async function isReady(broker: string): Promise<boolean> {
  return (await ask(broker, METADATA)) && ask(broker, PRODUCER_ID);
}

function ask(broker: string, { request, yes }: typeof METADATA): Promise<boolean> {
  const [host = "", port = ""] = broker.split(":");
  return new Promise((resolve) => {
    const socket = connect({ host, port: Number(port), timeout: 500 });
    const end = (ready: boolean): void => {
      socket.destroy();
      resolve(ready);
    };
    socket.once("connect", () => socket.write(Buffer.from(request, "hex")));
    socket.once("data", (answer) => end(Buffer.isBuffer(answer) && yes(answer)));
    for (const failure of ["error", "timeout", "close"]) socket.once(failure, () => end(false));
  });
}

const DEFAULTS = {
  "process.roles": "broker,controller",
  "node.id": "1",
  "controller.listener.names": "CONTROLLER",
  "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
  "sasl.enabled.mechanisms": "PLAIN",
  "listener.name.sasl.plain.sasl.jaas.config":
    'org.apache.kafka.common.security.plain.PlainLoginModule required user_txbox="secret";',
  // A topic that is missing must be missed.
  "auto.create.topics.enable": "false",
  "num.partitions": "4",
  // One node, and no time to lose.
  "offsets.topic.num.partitions": "1",
  "offsets.topic.replication.factor": "1",
  "transaction.state.log.num.partitions": "1",
  "transaction.state.log.replication.factor": "1",
  "transaction.state.log.min.isr": "1",
  "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
  "share.coordinator.state.topic.replication.factor": "1",
  "share.coordinator.state.topic.min.isr": "1",
  // A killed broker may come back once its session has run out.
  "broker.session.timeout.ms": "1500",
  "broker.heartbeat.interval.ms": "300",
  "group.initial.rebalance.delay.ms": "0",
  "group.min.session.timeout.ms": "500",
};

function externalServer(brokers: string[]): KafkaServer {
  const refuse = (what: string): never => {
    throw new Error(`cannot ${what} the server of TXBOX_TEST_KAFKA_BROKERS; use startKafka({ owned: true })`);
  };
  return {
    brokers,
    saslBrokers: [],
    external: true,
    log: () => "",
    logFolder: () => refuse("touch the files of"),
    kill: async () => refuse("kill"),
    restart: async () => refuse("restart"),
    pause: () => refuse("pause"),
    resume: () => refuse("resume"),
    stop: () => Promise.resolve(),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}
