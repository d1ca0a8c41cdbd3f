import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { withDeadline } from "./deadline.ts";
import { mavenJars } from "./maven-jars.ts";
import { guard } from "./processes.ts";
import { requireCommand } from "./require-command.ts";

const VERSION = "3.6.1.Final";
const ENGINE = fileURLToPath(new URL("debezium-engine.groovy", import.meta.url));
const JAVA_FLAGS = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"];

/** A record as Kafka Connect would send it. */
export interface ConnectRecord {
  readonly topic: string;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: readonly (readonly [string, Buffer | null])[];
}

/** Debezium's embedded engine with one connector, in a process of its own. */
export interface DebeziumEngine {
  /** What it emitted, in order, over all its starts. */
  readonly records: readonly ConnectRecord[];
  readonly running: boolean;
  /** What it wrote to its log since the first start. */
  log(): string;
  start(): void;
  /** SIGKILL: what it has emitted and not noted as done comes again. */
  kill(): Promise<void>;
  /** Ends it and forgets how far it was. */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface DebeziumOptions {
  /** Of the connector, as one gives it to Kafka Connect. */
  readonly config: Readonly<Record<string, string>>;
}

/** The folder with Debezium and all it needs (46 MB). */
export async function debeziumJars(): Promise<string> {
  await requireCommand("java", { apt: "default-jre-headless" });
  return mavenJars(`debezium-${VERSION}`, [
    `io.debezium:debezium-embedded:${VERSION}`,
    `io.debezium:debezium-connector-postgres:${VERSION}`,
    "org.apache.groovy:groovy:4.0.28",
    "org.slf4j:slf4j-simple:1.7.36",
  ]);
}

/** Starts the engine; it ends when this process ends. */
export async function startDebezium({ config }: DebeziumOptions): Promise<DebeziumEngine> {
  const engine = new EmbeddedEngine(
    await requireCommand("java", { apt: "default-jre-headless" }),
    await debeziumJars(),
  );
  engine.configure(config);
  engine.start();
  return engine;
}

class EmbeddedEngine implements DebeziumEngine {
  readonly records: ConnectRecord[] = [];
  readonly #java: string;
  readonly #classPath: string;
  readonly #folder = mkdtempSync(join(tmpdir(), "txbox-debezium-"));
  #child: ChildProcess | undefined;
  #exited: Promise<void> = Promise.resolve();

  constructor(java: string, jars: string) {
    this.#java = java;
    this.#classPath = join(jars, "*");
  }

  get running(): boolean {
    return this.#child !== undefined;
  }

  log(): string {
    return readFileSync(join(this.#folder, "log"), "utf8");
  }

  /** Kafka Connect has the name from elsewhere, and keeps offsets in a topic. They are written after each batch. */
  configure(config: Readonly<Record<string, string>>): void {
    const own = {
      name: "txbox",
      "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
      "offset.storage.file.filename": join(this.#folder, "offsets"),
      "offset.flush.interval.ms": "0",
    };
    writeFileSync(this.#config, JSON.stringify({ ...config, ...own }));
  }

  start(): void {
    const log = openSync(join(this.#folder, "log"), "a");
    const args = [...JAVA_FLAGS, "-cp", this.#classPath, "groovy.ui.GroovyMain", ENGINE, this.#config];
    const child = spawn(this.#java, args, { cwd: this.#folder, stdio: ["ignore", "pipe", log], detached: true });
    closeSync(log);
    this.#child = child;
    createInterface({ input: child.stdout! }).on("line", (line) => {
      const record = recordOf(line);
      if (record !== undefined) this.records.push(record);
    });
    const release =
      child.pid === undefined ? () => undefined : guard(child.pid, { signal: "SIGKILL", folder: this.#folder });
    this.#exited = new Promise((resolve) => {
      const end = (): void => {
        release();
        this.#child = undefined;
        resolve();
      };
      child.once("error", end);
      // "close" and not "exit": by then all that it emitted has been read.
      child.once("close", end);
    });
  }

  async kill(): Promise<void> {
    this.#child?.kill("SIGKILL");
    await withDeadline(this.#exited, 10_000, "end of Debezium");
  }

  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  get #config(): string {
    return join(this.#folder, "connector.json");
  }
}

interface PrintedRecord {
  topic: string;
  key: string | null;
  value: string | null;
  headers: [string, string | null][];
}

/** Undefined for a line that a kill has cut: its batch comes again. */
function recordOf(line: string): ConnectRecord | undefined {
  let printed: PrintedRecord;
  try {
    printed = JSON.parse(line) as PrintedRecord;
  } catch {
    return undefined;
  }
  const { topic, key, value, headers } = printed;
  return {
    topic,
    key: bytesOf(key),
    value: bytesOf(value),
    headers: headers.map(([name, bytes]) => [name, bytesOf(bytes)]),
  };
}

function bytesOf(text: string | null): Buffer | null {
  return text === null ? null : Buffer.from(text, "base64");
}
