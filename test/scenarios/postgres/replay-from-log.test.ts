import { describe, expect, it } from "vitest";
import { createOutbox, createRelay } from "../../../src/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { series } from "../support/outbox-database.ts";
import { RecordingPublisher } from "../support/recording-publisher.ts";
import { archiveScene } from "../support/archive-scene.ts";

describe.skipIf(!hasPostgres())("a replay from the log", () => {
  const scene = archiveScene();

  it("refuses times that are none", async () => {
    const { store } = scene.database;
    for (const [field, query] of [
      ["since", { since: "1h" }],
      ["since", {}],
      ["until", { since: new Date(0), until: new Date(Number.NaN) }],
    ] as const)
      await expect(store.readLog(query as never).next()).rejects.toMatchObject({ code: "invalid_option", field });
  });

  it("from the log goes only what a relay has delivered", async () => {
    const outbox = createOutbox({ store: scene.database.store });
    const client = await scene.database.pool.connect();
    const enqueue = async (...types: string[]) => {
      await client.query("begin");
      await outbox.enqueue(
        client,
        types.map((type) => ({ stream: type === "other" ? "other" : "orders", type, key: type, payload: 1 })),
      );
      await client.query("commit");
    };
    await enqueue("sent", "failed", "failed", "dead", "discarded", "requeued", "other");
    const publisher = createMemoryPublisher();
    publisher.fail(({ type }) => type === "failed");
    publisher.reject(({ type }) => ["dead", "discarded", "requeued"].includes(type));
    const options = {
      store: scene.database.store,
      name: "r",
      streams: ["orders"],
      backoff: { baseMs: 3_600_000, maxMs: 3_600_000 },
    };
    await createRelay({ ...options, publisher }).drainOnce();
    await scene.database.store.admin.discard({ type: "discarded" });
    await scene.database.store.admin.requeue({ type: "requeued" });
    publisher.reject(() => false);
    await createRelay({ ...options, publisher }).drainOnce();
    await until(
      async () => {
        await createRelay({ ...options, publisher }).drainOnce();
        return publisher.published.some(({ type }) => type === "requeued");
      },
      { what: "the requeued letter" },
    );
    await enqueue("pending");
    client.release();
    const types = async (deliveredBy?: string) => {
      const found: string[] = [];
      const query = { since: new Date(0), ...(deliveredBy === undefined ? {} : { deliveredBy }) };
      for await (const { type } of scene.database.store.readLog(query)) found.push(type);
      return found;
    };
    expect(await types("r")).toEqual(["sent", "requeued"]);
    expect(await types()).toEqual(["sent", "failed", "failed", "dead", "discarded", "requeued", "other", "pending"]);
    expect(await types("never ran")).toHaveLength(8);
  });

  it("from the log goes nothing that a relay skipped by starting or rewinding to now", async () => {
    const relay = () => {
      const publisher = new RecordingPublisher();
      return { publisher, relay: createRelay({ store: scene.database.store, name: "late", publisher, start: "now" }) };
    };
    await scene.database.enqueue(series("k", 3));
    await relay().relay.drainOnce();
    await scene.database.enqueue(series("k", 3, 4));
    const { publisher, relay: second } = relay();
    await second.drainOnce();
    expect(publisher.firsts("k")).toEqual([4, 5, 6]);
    await scene.database.enqueue(series("k", 3, 7));
    await scene.database.store.admin.rewind("late", "now");
    const found: number[] = [];
    for await (const { body } of scene.database.store.readLog({ since: new Date(0), deliveredBy: "late" }))
      found.push((JSON.parse(String(body)) as { n: number }).n);
    expect(found).toEqual([4, 5, 6]);
  });
});
