import { spawn } from "node:child_process";
import { requireCommand } from "../../harness/require-command.ts";
import { mustRun } from "../../harness/run-command.ts";

export interface KcatRecord {
  readonly partition: number;
  readonly offset: number;
  readonly key: string | null;
  readonly payload: string | null;
  readonly headers: Readonly<Record<string, string>>;
}

/** All that a topic has for a reader of committed records, as kcat (librdkafka) sees it. */
export async function kcatRead(brokers: string[], topic: string): Promise<KcatRecord[]> {
  const kcat = await requireCommand("kcat", { apt: "kcat" });
  const args = ["-b", brokers.join(), "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J"];
  const isolation = ["-X", "isolation.level=read_committed", "-X", "enable.auto.commit=false"];
  const { stdout } = await mustRun(kcat, [...args, ...isolation], { timeoutMs: 20_000 });
  return stdout
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const { headers = [], ...record } = JSON.parse(line) as Omit<KcatRecord, "headers"> & { headers?: string[] };
      const pairs = headers.flatMap((name, i) => (i % 2 === 0 ? [[name, headers[i + 1] ?? ""]] : []));
      return { ...record, headers: Object.fromEntries(pairs) as Record<string, string> };
    });
}

/** Sends one message per line. */
export async function kcatSend(
  brokers: string[],
  topic: string,
  lines: readonly string[],
  options: { key?: string; headers?: Readonly<Record<string, string>>; partition?: number } = {},
): Promise<void> {
  const kcat = await requireCommand("kcat", { apt: "kcat" });
  const headers = Object.entries(options.headers ?? {}).flatMap(([name, value]) => ["-H", `${name}=${value}`]);
  const key = options.key === undefined ? [] : ["-k", options.key];
  const partitioner = ["-X", "partitioner=murmur2_random"];
  const place = options.partition === undefined ? [] : ["-p", String(options.partition)];
  const args = ["-b", brokers.join(), "-P", "-t", topic, ...place, ...key, ...headers, ...partitioner];
  const child = spawn(kcat, args, { stdio: ["pipe", "ignore", "pipe"] });
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (errors += text));
  child.stdin.end(`${lines.join("\n")}\n`);
  const code = await new Promise((resolve) => child.once("close", resolve));
  if (code !== 0) throw new Error(`kcat ended with ${String(code)}\n${errors}`);
}
