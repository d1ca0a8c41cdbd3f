import { createServer } from "node:http";
import { once } from "node:events";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePort, startPostgres, until, type NodeProcess, type PostgresServer } from "../../harness/index.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { projectFolder, runCli, startCli } from "../../support/run-cli.ts";
import { outboxDatabase, series, type OutboxDatabase } from "../support/outbox-database.ts";

interface Answer {
  readonly status: number;
  readonly body: string;
}

async function get(port: number, path: string, method = "GET"): Promise<Answer> {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { method, signal: AbortSignal.timeout(15_000) });
  return { status: response.status, body: await response.text() };
}

async function json(port: number, path: string): Promise<{ status: number; body: unknown }> {
  const { status, body } = await get(port, path);
  return { status, body: JSON.parse(body) as unknown };
}

async function serves(child: NodeProcess): Promise<void> {
  await until(() => child.stderr.join("\n").includes("Metrics and health at"), {
    what: "metrics that are served",
    timeoutMs: 60_000,
  });
}

const STUCK = `export default { relays: { stuck: { publisher: { keepsKeyOrder: true, publish: () => new Promise(() => undefined) } } } };`;

describe.skipIf(!hasPostgres())("txbox relay --metrics", () => {
  let database: OutboxDatabase;
  beforeAll(async () => {
    database = await outboxDatabase();
  });
  afterAll(() => database?.[Symbol.asyncDispose]());
  const env = () => ({ DATABASE_URL: database.url });

  test("serves its counters and its health, and ends with the relay", async () => {
    const port = await freePort();
    await database.enqueue(series("a", 7));
    const args = ["relay", "look", "--publisher", "stdout", "--metrics", `127.0.0.1:${port}`];
    await using relay = startCli(args, { env: env() });
    await serves(relay);
    await until(async () => (await get(port, "/metrics")).body.includes('outbox_done_total{relay="look"} 7'), {
      what: "seven published messages",
      timeoutMs: 60_000,
    });
    const { body } = await get(port, "/metrics");
    expect(body).toContain('outbox_publish_attempts_total{relay="look",result="published"} 7');
    expect(body).toContain('outbox_batch_duration_seconds_count{relay="look"}');
    expect(body).not.toContain("outbox_pending_records");
    expect(await json(port, "/healthz")).toEqual({ status: 200, body: { status: "ok", reasons: [] } });
    expect(await json(port, "/readyz")).toMatchObject({
      status: 200,
      body: { status: "ok", reasons: [], relays: [{ name: "look", pending: 0, oldestPendingAgeMs: null }] },
    });
    expect(await get(port, "/nothing")).toMatchObject({ status: 404 });
    expect(await get(port, "/metrics", "POST")).toMatchObject({ status: 405 });
    expect(await get(port, "/metrics?x=1", "HEAD")).toEqual({ status: 200, body: "" });
    relay.signal("SIGTERM");
    expect(await relay.waitForExit()).toEqual({ code: 0, signal: null });
    await database.store.admin.drop("look");
  });

  test("is alive and not ready while messages do not leave; a paused relay is ready", async () => {
    const port = await freePort();
    await database.enqueue(series("b", 3));
    using folder = projectFolder({ "txbox.config.mjs": STUCK });
    const args = ["relay", "--metrics", `${port}`, "--max-age-ms", "1000", "--stop-deadline-ms", "300"];
    await using relay = startCli(args, { cwd: folder.path, env: env() });
    await serves(relay);
    await until(async () => (await get(port, "/readyz")).status === 503, { what: "not ready", timeoutMs: 60_000 });
    expect(await json(port, "/readyz")).toMatchObject({
      body: {
        status: "not ok",
        reasons: [
          expect.stringMatching(/^relay stuck: the oldest of \d+ pending messages has waited \d+ s, more than 1 s/),
        ],
      },
    });
    expect(await json(port, "/healthz")).toMatchObject({ status: 200 });
    await until(
      async () => /outbox_processing_inflight\{relay="stuck"\} [1-9]/.test((await get(port, "/metrics")).body),
      { what: "messages in hand", timeoutMs: 60_000 },
    );
    await database.store.admin.pause("stuck");
    await until(async () => (await get(port, "/readyz")).status === 200, { what: "ready", timeoutMs: 60_000 });
    relay.signal("SIGTERM");
    await relay.waitForExit();
    await database.store.admin.drop("stuck");
  });

  test("goes on when the port is taken, and serves once it is free", async () => {
    const blocker = createServer();
    blocker.listen(0, "127.0.0.1");
    await once(blocker, "listening");
    const { port } = blocker.address() as { port: number };
    await database.enqueue(series("c", 2));
    const args = ["relay", "look", "--publisher", "stdout", "--metrics", `127.0.0.1:${port}`];
    await using relay = startCli(args, { env: env() });
    await relay.waitForLine('"key":"c"');
    expect(relay.stderr.join("\n")).toContain(`Metrics cannot be served at 127.0.0.1:${port}: the port is taken`);
    blocker.close();
    await serves(relay);
    expect((await get(port, "/metrics")).body).toMatch(/outbox_done_total\{relay="look"\} [1-9]/);
    relay.signal("SIGTERM");
    expect(await relay.waitForExit()).toEqual({ code: 0, signal: null });
    await database.store.admin.drop("look");
  });

  test.each([
    [["relay", "look", "--publisher", "stdout", "--metrics", "nowhere"], "--metrics needs a port"],
    [["relay", "look", "--publisher", "stdout", "--metrics", ":9464"], "--metrics needs a host"],
    [
      ["relay", "look", "--publisher", "stdout", "--once", "--metrics", "9464"],
      "--metrics goes with a relay that runs on",
    ],
    [["relay", "look", "--publisher", "stdout", "--max-age-ms", "5"], "--max-age-ms"],
    [["exporter", "--listen", "127.0.0.1:70000"], "--listen needs a port from 0 to 65535"],
  ])("%j is refused", async (args, message) => {
    const { code, stderr } = await runCli(args, { env: env() });
    expect(code).toBe(2);
    expect(stderr).toContain(message);
  });
});

describe.skipIf(!hasPostgres())("txbox exporter", () => {
  let server: PostgresServer;
  let database: OutboxDatabase;
  beforeAll(async () => {
    server = await startPostgres({ owned: true });
    database = await outboxDatabase({ serverUrl: server.url });
  }, 60_000);
  afterAll(async () => {
    await database?.close();
    await server?.stop();
  });

  test("serves the figures of the store; without it, it still answers and shows none", async () => {
    const port = await freePort();
    const args = ["exporter", "--listen", `127.0.0.1:${port}`, "--every", "0.1"];
    await using exporter = startCli(args, { env: { DATABASE_URL: database.url } });
    await serves(exporter);
    await database.enqueue(series("a", 4));
    await runCli(["relay", "look", "--publisher", "stdout", "--once", "--max", "1", "--batch-size", "1"], {
      env: { DATABASE_URL: database.url },
    });
    await until(async () => (await get(port, "/metrics")).body.includes('outbox_pending_records{relay="look"} 3'), {
      what: "the backlog",
      timeoutMs: 60_000,
    });
    const { body } = await get(port, "/metrics");
    expect(body).toMatch(/outbox_lag_seconds\{relay="look"\} \d/);
    expect(body).toContain("txbox_up 1");
    expect(body).not.toContain("outbox_done_total");
    expect(await json(port, "/readyz")).toMatchObject({ status: 200 });

    await server.kill();
    await until(async () => (await get(port, "/metrics")).body.includes("txbox_up 0"), {
      what: "txbox_up 0",
      timeoutMs: 60_000,
    });
    const away = await get(port, "/metrics");
    expect(away.status).toBe(200);
    expect(away.body).not.toMatch(/^outbox_pending_records\{/m);
    await until(async () => (await get(port, "/readyz")).status === 503, { what: "not ready", timeoutMs: 60_000 });
    expect(await json(port, "/healthz")).toMatchObject({ status: 200 });
    expect(exporter.stderr.join("\n")).toContain("no figures");

    await server.restart();
    await until(async () => (await get(port, "/metrics")).body.includes('outbox_pending_records{relay="look"} 3'), {
      what: "figures again",
      timeoutMs: 60_000,
    });
    exporter.signal("SIGTERM");
    expect(await exporter.waitForExit()).toEqual({ code: 0, signal: null });
  });

  test("ends with 1 and says why when its port is taken", async () => {
    const blocker = createServer();
    blocker.listen(0, "127.0.0.1");
    await once(blocker, "listening");
    const { port } = blocker.address() as { port: number };
    const { code, stderr } = await runCli(["exporter", "--listen", `127.0.0.1:${port}`], {
      env: { DATABASE_URL: database.url },
    });
    blocker.close();
    expect({ code, stderr }).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`Metrics cannot be served at 127.0.0.1:${port}: the port is taken`) as string,
    });
  });

  test("serves every interface when asked", async () => {
    const port = await freePort();
    await using exporter = startCli(["exporter", "--listen", `0.0.0.0:${port}`], {
      env: { DATABASE_URL: database.url },
    });
    await serves(exporter);
    expect(exporter.stderr.join("\n")).toContain(`at 0.0.0.0:${port}: /metrics`);
    expect((await get(port, "/metrics")).body).toContain("txbox_up 1");
  });
});
