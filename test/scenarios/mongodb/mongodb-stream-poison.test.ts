import { afterAll, describe, expect, it } from "vitest";
import { createOutbox } from "../../../src/index.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { serverOrSkip, startMongodb, until } from "../../harness/index.ts";
import { mongoDatabase } from "../../support/mongodb-database.ts";
import { series } from "../support/outbox-database.ts";
import { firstsOf, upTo } from "../support/recording-publisher.ts";
import { type ChildSent, relayProcess, type RelayProcess } from "../support/relay-process.ts";

const slot = await serverOrSkip("MongoDB", () => startMongodb());
afterAll(() => slot.stop());

describe.skipIf(slot.skipped)("a message by the change stream that kills the process", () => {
  it("is found, dead after a few crashes, and everything else is delivered in order", async () => {
    await using database = await mongoDatabase(slot.server.url);
    const store = createMongoStore({ client: database.client });
    await store.migrator.migrate();
    const outbox = createOutbox({ store });
    const children: RelayProcess[] = [];
    let stopped = false;
    const start = (): RelayProcess => {
      const config = {
        url: database.url,
        source: "stream",
        mode: "die-on-poison",
        leaseMs: 500,
        batchSize: 20,
      } as const;
      const child = relayProcess(config);
      children.push(child);
      // Started again whenever it dies, as an orchestrator would.
      void child.exited.then(() => stopped || start());
      return child;
    };
    const enqueue = async (key: string, poison?: number): Promise<void> => {
      const messages = series(key, 100).map((one) => ({ ...one, ...(one.n === poison ? { poison: true } : {}) }));
      await database.client.withSession((session) =>
        session.withTransaction(() =>
          outbox.enqueue(
            session,
            messages.map((payload) => ({ stream: "orders", type: "numbered", key, payload })),
          ),
        ),
      );
    };
    const sent = (): ChildSent[] => children.flatMap((child) => child.sent());
    try {
      const first = start();
      await until(() => first.events("stream_started").length > 0, { what: "the stream", timeoutMs: 60_000 });
      await enqueue("a", 37);
      await enqueue("b");
      await until(() => firstsOf(sent(), "a").length === 99 && firstsOf(sent(), "b").length === 100, {
        what: "everything but the poison",
        timeoutMs: 60_000,
        intervalMs: 100,
      });
      expect(firstsOf(sent(), "a")).toEqual(upTo(100).filter((n) => n !== 37));
      expect(firstsOf(sent(), "b")).toEqual(upTo(100));
      const dead = await until(async () => (await store.admin.dead({}))[0], { what: "the dead letter" });
      expect(JSON.parse(String(dead.body))).toMatchObject({ key: "a", n: 37 });
      expect(dead.lastError).toMatch(/died 3 times/);
      expect(children.filter(({ running }) => !running).length).toBeLessThanOrEqual(7);
      // Healthy again, by the stream.
      const before = children.length;
      await enqueue("c");
      await until(() => firstsOf(sent(), "c").length === 100, { what: "later messages", timeoutMs: 60_000 });
      expect(children).toHaveLength(before);
    } finally {
      stopped = true;
      await Promise.all(children.map((child) => child.kill()));
    }
  });
});
