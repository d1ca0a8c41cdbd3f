import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, describe, expect, test } from "vitest";
import {
  freePort,
  findCommand,
  requireCommand,
  serverOrSkip,
  startPrometheus,
  startRedis,
  until,
  type PrometheusServer,
} from "../../harness/index.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { projectFolder, startCli } from "../../support/run-cli.ts";
import { outboxDatabase, series } from "../support/outbox-database.ts";

/** Both are needed; without one of them it is said here. */
const redis = await serverOrSkip("Redis", () => startRedis({ owned: true }));
const prometheus = await serverOrSkip("Prometheus", async () => {
  await requireCommand("prometheus", { apt: "prometheus" });
  return { stop: () => Promise.resolve() };
});
afterAll(() => redis.stop());

/** The shipped rules with times for a test: what takes minutes takes a second or two. */
const hurried = readFileSync("ops/prometheus-rules.yaml", "utf8")
  .replace("outbox_lag_seconds > 300", "outbox_lag_seconds > 2")
  .replaceAll(/for: \d+m/g, "for: 1s");

const source = (path: string): string => JSON.stringify(new URL(`../../../src/${path}`, import.meta.url).href);
const config = (url: string): string => `
  import { Redis } from ${JSON.stringify(import.meta.resolve("ioredis"))};
  import { createRedisPublisher } from ${source("brokers/redis/index.ts")};
  const client = new Redis(${JSON.stringify(url)}, { lazyConnect: true });
  client.on("error", () => undefined);
  export default { relays: { "to-redis": { publisher: () => createRedisPublisher({ client }) } }, close: () => client.disconnect() };`;

async function value(server: PrometheusServer, expression: string): Promise<number> {
  return (await server.query(expression))[0]?.value ?? Number.NaN;
}

const skipped = !hasPostgres() || redis.skipped || prometheus.skipped || findCommand("prometheus") === undefined;

describe.skipIf(skipped)("Prometheus beside relays and the exporter", () => {
  test("sees an outage of the broker begin and end, and the lag rise though every relay was killed", async () => {
    await using database = await outboxDatabase();
    using folder = projectFolder({ "txbox.config.mjs": config(redis.server.url) });
    const [relayPort, otherPort, exporterPort] = [await freePort(), await freePort(), await freePort()];
    const options = { cwd: folder.path, env: { DATABASE_URL: database.url } };
    const relay = (port: number) =>
      startCli(["relay", "to-redis", "--lease-ms", "2000", "--metrics", `127.0.0.1:${port}`], options);
    await using first = relay(relayPort);
    await using second = relay(otherPort);
    await using exporter = startCli(["exporter", "--listen", `127.0.0.1:${exporterPort}`, "--every", "0.5"], options);
    await until(
      () => [first, second, exporter].every(({ stderr }) => stderr.join().includes("Metrics and health at")),
      {
        what: "three processes that serve metrics",
        timeoutMs: 60_000,
      },
    );
    const targets = {
      first: `127.0.0.1:${relayPort}`,
      second: `127.0.0.1:${otherPort}`,
      exporter: `127.0.0.1:${exporterPort}`,
    };
    await using server = await startPrometheus({ targets, rules: hurried });
    const is = (expression: string, wanted: (found: number) => boolean, timeoutMs = 20_000) =>
      until(async () => wanted(await value(server, expression)), { what: expression, timeoutMs, intervalMs: 200 });
    const fires = (name: string, wanted = true) =>
      until(async () => (await server.firing()).some((alert) => alert.name === name) === wanted, {
        what: `${name} ${wanted ? "fires" : "is over"}`,
        timeoutMs: 60_000,
        intervalMs: 200,
      });

    // All is well.
    await database.enqueue(series("a", 100));
    await is("sum(outbox_done_total)", (found) => found === 100);
    await is('outbox_pending_records{relay="to-redis"}', (found) => found === 0);
    expect(await value(server, 'sum(outbox_publish_attempts_total{result="published"})')).toBe(100);
    expect(await value(server, "sum(outbox_processing_inflight)")).toBe(0);
    expect(await value(server, "outbox_relay_processes")).toBe(2);
    // Before the first scrape there is no exporter.
    await until(async () => (await server.firing()).length === 0, { what: "no alert", timeoutMs: 60_000 });

    // The broker is away: the lag rises, no attempt is counted, an alert fires, and is over when the broker is back.
    await redis.server.kill();
    await database.enqueue([...series("b", 5), ...series("c", 5)]);
    await is("max(outbox_circuit_open)", (found) => found === 1);
    await is("outbox_lag_seconds", (found) => found > 2);
    const early = await value(server, "outbox_lag_seconds");
    await fires("TxboxLag");
    await fires("TxboxCircuitOpen");
    await is("outbox_lag_seconds", (found) => found > early + 1);
    expect(await value(server, 'sum(outbox_publish_attempts_total{result="unavailable"})')).toBeGreaterThan(0);
    expect(await value(server, "sum(outbox_failed_total) + sum(outbox_dlq_total)")).toBe(0);
    await redis.server.start();
    await fires("TxboxLag", false);
    await fires("TxboxCircuitOpen", false);
    await is("sum(outbox_done_total)", (found) => found === 110);

    // Every relay is killed: the exporter still tells the lag.
    await Promise.all([first.kill("SIGKILL"), second.kill("SIGKILL")]);
    await database.enqueue(series("d", 3));
    await is("outbox_lag_seconds", (found) => found > 2);
    const lag = await value(server, "outbox_lag_seconds");
    await fires("TxboxNoRelay");
    await sleep(1000);
    await is("outbox_lag_seconds", (found) => found > lag + 1);
    expect(await value(server, "outbox_pending_records")).toBe(3);
    expect(await value(server, "count(up == 0)")).toBe(2);

    exporter.signal("SIGTERM");
    expect(await exporter.waitForExit()).toEqual({ code: 0, signal: null });
  });
});
