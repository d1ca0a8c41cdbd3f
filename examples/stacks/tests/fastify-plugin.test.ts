import fastify, { type FastifyInstance } from "fastify";
import pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, test } from "vitest";
import { createDatabase, type TestDatabase } from "../../../test/harness/index.ts";
import { txboxFastify, type TxboxFastify } from "txbox/fastify";
import { createInProcessBus } from "txbox/in-process";
import { createPostgresStore } from "txbox/postgres";

declare module "fastify" {
  interface FastifyInstance {
    txbox: TxboxFastify;
  }
}

describe("the plugin for Fastify", () => {
  let database: TestDatabase;
  let pool: pg.Pool;
  let app: FastifyInstance;

  beforeAll(async () => {
    database = await createDatabase(inject("postgresUrl")!);
    pool = new pg.Pool({ connectionString: database.url });
    await createPostgresStore({ client: pool }).migrator.migrate();
  });
  afterAll(async () => {
    await pool.end();
    await database.drop();
  });
  beforeEach(() => {
    app = fastify();
  });
  afterEach(() => app.close());

  const store = (schema = "txbox") => createPostgresStore({ client: pool, schema });
  const relay = () => ({ name: "r", publisher: createInProcessBus() });

  test("decorates the whole application, runs when it is ready, and stops when it closes", async () => {
    await app.register(async (inner) => {
      await inner.register(txboxFastify, { store: store(), relays: [relay()] });
      expect(inner.hasDecorator("outbox")).toBe(true);
    });
    const outer = fastify();
    await outer.register(txboxFastify, { store: store(), relays: [relay()] });
    const [running] = outer.txbox.relays;
    expect(running?.state().running).toBe(false);
    await outer.ready();
    expect(running?.state().running).toBe(true);
    expect(outer.txbox.health.live()).toEqual({ ok: true, reasons: [] });
    await outer.close();
    expect(running?.state().running).toBe(false);
  });

  test("names what is wrong with its options", async () => {
    const bus = createInProcessBus();
    const cases: [object, RegExp][] = [
      [{ store: store(), relay: [] }, /txboxFastify has no option "relay".*Did you mean "relays"/],
      [{ store: store(), relays: relay() }, /relays must be an array/],
      [{ store: pool }, /createOutbox needs a store/],
      [{ store: store(), inboxes: [{ consumer: "c", subscriber: bus }] }, /the inbox c needs handlers/],
      [{ store: store(), inboxes: [{ consumer: "c", handlers: {} }] }, /the inbox c needs a subscriber/],
      [{ store: store(), inboxes: [null] }, /inboxes\[0\] is null\. Each is \{ consumer, subscriber, handlers \}/],
    ];
    for (const [options, message] of cases) {
      const other = fastify();
      await expect(other.register(txboxFastify, options as never).ready()).rejects.toThrow(message);
      await other.close();
    }
    await app.register(txboxFastify, { store: store() });
    await expect(app.register(txboxFastify, { store: store() }).ready()).rejects.toThrow(/registered already/);
  });

  test("lets an application fail to start whose tables are missing, and leaves nothing running", async () => {
    const bus = createInProcessBus();
    const handlers = { t: async () => undefined };
    await app.register(txboxFastify, {
      store: store("nowhere"),
      relays: [{ name: "r", publisher: bus }],
      inboxes: [{ consumer: "c", subscriber: bus, handlers }],
    });
    const [made] = app.txbox.relays;
    await expect(app.ready()).rejects.toMatchObject({ code: "schema_missing" });
    expect(made?.state().running).toBe(false);
  });
});
