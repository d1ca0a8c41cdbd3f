import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "./deadline.ts";
import { freePort } from "./free-port.ts";
import { guard, signal, waitUntilGone } from "./processes.ts";
import { requireCommand } from "./require-command.ts";

export interface PrometheusOptions {
  /** What to scrape, by job: `host:port`. */
  readonly targets: Readonly<Record<string, string>>;
  /** Text of a file of rules. */
  readonly rules: string;
  /** Between two scrapes, and two looks at the rules. Default: a second. */
  readonly interval?: string;
}

export interface PrometheusServer extends AsyncDisposable {
  readonly url: string;
  log(): string;
  /** The samples of an instant query, by their labels. */
  query(expression: string): Promise<{ labels: Readonly<Record<string, string>>; value: number }[]>;
  /** Alerts that fire now. */
  firing(): Promise<{ name: string; labels: Readonly<Record<string, string>> }[]>;
  stop(): Promise<void>;
}

/** Starts a private Prometheus on loopback. It ends with this process. */
export async function startPrometheus(options: PrometheusOptions): Promise<PrometheusServer> {
  const command = await requireCommand("prometheus", { apt: "prometheus" });
  const port = await freePort();
  const folder = mkdtempSync(join(tmpdir(), "txbox-prometheus-"));
  const { targets, rules, interval = "1s" } = options;
  writeFileSync(join(folder, "rules.yaml"), rules);
  const jobs = Object.entries(targets).map(([job, target]) => ({
    job_name: job,
    static_configs: [{ targets: [target] }],
  }));
  // JSON is YAML.
  const config = {
    global: { scrape_interval: interval, scrape_timeout: interval, evaluation_interval: interval },
    rule_files: [join(folder, "rules.yaml")],
    scrape_configs: jobs,
  };
  writeFileSync(join(folder, "prometheus.yaml"), JSON.stringify(config));
  const log = openSync(join(folder, "log"), "a");
  const child: ChildProcess = spawn(
    command,
    [
      `--config.file=${join(folder, "prometheus.yaml")}`,
      `--storage.tsdb.path=${join(folder, "data")}`,
      `--web.listen-address=127.0.0.1:${port}`,
    ],
    { cwd: folder, stdio: ["ignore", log, log], detached: true },
  );
  closeSync(log);
  child.unref();
  child.once("error", () => undefined);
  const { pid } = child;
  if (pid === undefined) throw new Error(`could not run ${command}`);
  const release = guard(pid, { signal: "SIGKILL", folder });
  const url = `http://127.0.0.1:${port}`;
  const readLog = (): string => readFileSync(join(folder, "log"), "utf8");

  const stop = async (): Promise<void> => {
    release();
    signal(pid, "SIGKILL");
    await waitUntilGone([pid], 5000);
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  };
  const ask = async (path: string): Promise<unknown> => {
    const response = await fetch(`${url}/api/v1/${path}`, { signal: AbortSignal.timeout(5000) });
    const body = (await response.json()) as { status: string; data: unknown; error?: string };
    if (body.status !== "success") throw new Error(`Prometheus: ${body.error}`);
    return body.data;
  };
  const isReady = async (): Promise<boolean> => {
    if (child.exitCode !== null) throw new Error(`prometheus ended while starting\n${readLog()}`);
    const answer = await fetch(`${url}/-/ready`, { signal: AbortSignal.timeout(1000) }).catch(() => undefined);
    return answer?.ok === true;
  };
  try {
    await until(isReady, { what: "start of Prometheus", timeoutMs: 60_000 });
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    url,
    log: readLog,
    async query(expression) {
      const data = (await ask(`query?query=${encodeURIComponent(expression)}`)) as {
        result: { metric: Record<string, string>; value: [number, string] }[];
      };
      return data.result.map(({ metric, value }) => ({ labels: metric, value: Number(value[1]) }));
    },
    async firing() {
      const { alerts } = (await ask("alerts")) as { alerts: { state: string; labels: Record<string, string> }[] };
      return alerts
        .filter(({ state }) => state === "firing")
        .map(({ labels }) => ({ name: labels["alertname"] ?? "", labels }));
    },
    stop,
    [Symbol.asyncDispose]: stop,
  };
}
