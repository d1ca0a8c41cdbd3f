import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import { createPostgresStore } from "../../../src/stores/postgres/postgres-store.ts";
import {
  type NodeProcess,
  type RabbitmqServer,
  serverOrSkip,
  type ServerSlot,
  startRabbitmq,
  type TestDatabase,
  until,
} from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import { blocks, page } from "../../support/docs/markdown.ts";
import { testConnection } from "../../support/rabbitmq-connection.ts";
import { CONFIG_URL, projectFolder, runCli, startCli } from "../../support/run-cli.ts";
import { startTcpProxy } from "../../support/tcp-proxy.ts";

const STOP_MS = 1000;
/** The stop deadline, 3 s for the relay to leave, 5 s for closing; and what a busy machine adds. */
const AT_MOST_MS = STOP_MS + 3000 + 5000 + 4000;

describe.skipIf(!hasPostgres())("txbox relay ends after a signal", () => {
  let database: TestDatabase;
  let pool: pg.Pool;

  beforeAll(async () => {
    database = await testDatabase();
    pool = new pg.Pool({ connectionString: database.url, max: 6 });
    pool.on("error", () => undefined);
  });
  afterAll(async () => {
    await pool?.end();
    await database?.drop();
  });

  async function prepared(schema: string) {
    const store = createPostgresStore({ client: pool, schema });
    await store.migrator.migrate();
    const enqueue = async (count: number): Promise<void> => {
      const client = await pool.connect();
      await client.query("begin");
      const messages = Array.from({ length: count }, (_, n) => ({ stream: "orders", type: "t", payload: n }));
      await createOutbox({ store }).enqueue(client, messages);
      await client.query("commit");
      client.release();
    };
    return { store, enqueue, env: { DATABASE_URL: database.url, TXBOX_SCHEMA: schema } };
  }

  async function endAfterSigterm(relay: NodeProcess) {
    const signalledAt = performance.now();
    relay.signal("SIGTERM");
    const exit = await relay.waitForExit({ timeoutMs: 60_000 });
    return { ...exit, ms: performance.now() - signalledAt, stderr: relay.stderr.join("\n") };
  }

  describe("while RabbitMQ is frozen", () => {
    let slot: ServerSlot<RabbitmqServer>;
    beforeAll(async () => {
      slot = await serverOrSkip("RabbitMQ", () => startRabbitmq({ owned: true }));
    }, 120_000);
    afterAll(() => slot.stop());

    const [documented] = blocks(page("docs/cli.md")).filter(({ language }) => language === "ts");
    const withoutBound = documented?.code.replace(
      /close: \(\) => Promise\.race.*/,
      "close: () => connection?.close(),",
    );

    test.for([
      ["as documented", documented?.code],
      ["with a close() that waits for ever", withoutBound],
    ])("%s", async ([title = "", code], { skip }) => {
      skip(slot.skipped, slot.reason);
      expect(code).toContain("connection?.close()");
      const schema = `frozen_${title.length}`;
      const { enqueue, env } = await prepared(schema);
      await using own = await testConnection(slot.server.url);
      const channel = await own.connection.createChannel();
      await channel.assertExchange("orders", "topic");
      await channel.assertQueue("all");
      await channel.bindQueue("all", "orders", "#");
      using folder = projectFolder({
        "txbox.config.ts": (code ?? "")
          .replace('"amqplib"', JSON.stringify(import.meta.resolve("amqplib")))
          .replace('"txbox/config"', JSON.stringify(CONFIG_URL))
          .replace(
            '"txbox/rabbitmq"',
            JSON.stringify(new URL("../../../src/brokers/rabbitmq/index.ts", import.meta.url).href),
          )
          .replace('schema: "txbox"', `schema: "${schema}"`),
      });
      const options = { cwd: folder.path, env: { ...env, RABBITMQ_URL: slot.server.url } };
      await using relay = startCli(["relay", "to-rabbit", "--json", "--stop-deadline-ms", String(STOP_MS)], options);
      await enqueue(1);
      await relay.waitForLine('"type":"batch"');
      slot.server.pause();
      try {
        await enqueue(100);
        await until(async () => (await figures(schema)).pending >= 100, { what: "a batch in hand" });
        const { code: exitCode, ms, stderr } = await endAfterSigterm(relay);
        expect(ms).toBeLessThan(AT_MOST_MS);
        expect(exitCode, stderr).toBe(1);
        expect(stderr).toContain(`The stop took longer than ${STOP_MS} ms`);
        expect(relay.stdout.join("\n") + stderr).not.toMatch(/lease/i);
      } finally {
        slot.server.resume();
      }
    });
  });

  async function figures(schema: string) {
    const [relay] = await createPostgresStore({ client: pool, schema }).admin.relays();
    return relay ?? { pending: 0 };
  }

  // Each waits for a deadline of its own.
  test.concurrent("though close() of the configuration and of the publisher never settle", async () => {
    const { env } = await prepared("closing");
    using folder = projectFolder({
      "txbox.config.mjs": `
        const never = () => new Promise(() => setTimeout(() => {}, 1e6));
        export default { relays: { r: { publisher: { keepsKeyOrder: true, publish: async () => [], close: never } } }, close: never };`,
    });
    const options = { cwd: folder.path, env };
    await using relay = startCli(["relay", "--json", "--stop-deadline-ms", String(STOP_MS)], options);
    await relay.waitForLine('"type":"lanes"');
    const { ms, stderr } = await endAfterSigterm(relay);
    expect(ms).toBeLessThan(AT_MOST_MS);
    expect(stderr).toContain("close() of the configuration did not end within 5000 ms and is left behind");
  });

  test.concurrent("though the database does not answer any more", async () => {
    const { env } = await prepared("mute");
    const url = new URL(database.url);
    const proxy = await startTcpProxy(Number(url.port));
    url.port = String(proxy.port);
    try {
      const options = { env: { ...env, DATABASE_URL: url.href } };
      const args = ["relay", "look", "--publisher", "stdout", "--json", "--stop-deadline-ms", String(STOP_MS)];
      await using relay = startCli(args, options);
      await relay.waitForLine('"type":"lanes"');
      await using watch = startCli(["status", "--watch", "0.2", "--json"], options);
      await watch.waitForLine('"relays"');
      proxy.mute();
      const ends = await Promise.all([endAfterSigterm(relay), endAfterSigterm(watch)]);
      for (const { ms } of ends) expect(ms).toBeLessThan(AT_MOST_MS);
    } finally {
      await proxy.close();
    }
  });

  test.concurrent("--once ends though its publisher does not", async () => {
    const { enqueue, env } = await prepared("once");
    await enqueue(1);
    using folder = projectFolder({
      "txbox.config.mjs": `export default { relays: { r: { publisher: { keepsKeyOrder: true,
        publish: () => new Promise(() => setTimeout(() => {}, 1e6)) } } } };`,
    });
    const options = { cwd: folder.path, env };
    const begunAt = performance.now();
    const args = ["relay", "--once", "--json", "--deadline-ms", "500", "--stop-deadline-ms", String(STOP_MS)];
    const { code, stderr } = await runCli(args, options);
    expect(performance.now() - begunAt).toBeLessThan(500 + AT_MOST_MS);
    expect(code, stderr).toBe(1);
    expect(stderr).toContain(`The end of r took longer than ${STOP_MS} ms`);
  });
});
