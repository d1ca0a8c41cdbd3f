import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import type { MessageInfo, MessageSearch } from "../../../src/index.ts";
import { uuidv7At } from "../../../src/core/uuid.ts";
import { dead, type Consumer, joined, PUBLISHED, retry } from "../../../src/testing/store/consumer.ts";
import { until } from "../../harness/index.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";

describe.skipIf(!hasPostgres())("what has no place in the log is found too", () => {
  let database: OutboxDatabase;
  let consumer: Consumer;
  beforeEach(async () => {
    database = await outboxDatabase({ segmentMs: 1, retentionMs: 0 });
    consumer = await joined(database.store);
  });
  afterEach(() => database[Symbol.asyncDispose]());

  async function enqueue(id: string, more: object = {}): Promise<void> {
    const client = await database.pool.connect();
    await client.query("begin");
    await database.outbox.enqueue(client, { stream: "s", type: "t", key: id, payload: id, id, ...more });
    await client.query("commit");
    client.release();
  }

  async function all(query: MessageSearch, limit = 1): Promise<MessageInfo[]> {
    const found: MessageInfo[] = [];
    for (let after: string | undefined; ;) {
      const { messages, next } = await database.store.admin.search({
        ...query,
        limit,
        ...(after === undefined ? {} : { after }),
      });
      found.push(...messages);
      if (next === null) return found;
      after = next;
    }
  }
  const shape = (found: readonly MessageInfo[]) => found.map(({ id, status }) => [id, status]);

  /** Rotates until nothing of what is there now is left in the log. */
  async function dropLog(): Promise<void> {
    let round = 0;
    await until(
      async () => {
        await consumer.session.tend();
        await consumer.drain();
        await database.store.maintenance.run();
        await enqueue(`filler-${round++}`);
        return (await database.value("select count(*)::int from txbox.message where id like 'old%'")) === 0;
      },
      { what: "the segment to be dropped", timeoutMs: 60_000 },
    );
  }

  it("messages that wait, and dead letters, outlive their segments", async () => {
    consumer.judge = ({ id }, n) =>
      id.startsWith("old-dead")
        ? dead(2, false, "no")
        : id === "old-waits"
          ? retry(n + 1, 3_600_000, "not yet")
          : PUBLISHED;
    await enqueue("old-gone");
    await enqueue("old-waits", { key: "w", aggregateType: "order", aggregateId: "7" });
    await enqueue("old-behind", { key: "w" });
    await enqueue("old-dead-1");
    await enqueue("old-dead-2", { headers: { correlationId: "chain" } });
    await consumer.drain();
    await dropLog();
    await enqueue("new");
    await enqueue("later", { key: "w", deliverAt: new Date(Date.now() + 3_600_000) });
    for (const limit of [1, 2, 1000]) {
      const found = shape(await all({}, limit)).filter(([id]) => !id!.startsWith("filler"));
      expect(found).toEqual([
        ["new", "pending"],
        ["old-behind", "pending"],
        ["old-waits", "retrying"],
        ["old-dead-2", "dead"],
        ["old-dead-1", "dead"],
        ["later", "scheduled"],
      ]);
    }
    expect(shape(await all({ id: "old-dead-1" }))).toEqual([["old-dead-1", "dead"]]);
    expect(shape(await all({ id: "old-waits" }))).toEqual([["old-waits", "retrying"]]);
    expect(shape(await all({ key: "w" }))).toEqual([
      ["old-behind", "pending"],
      ["old-waits", "retrying"],
      ["later", "scheduled"],
    ]);
    expect(shape(await all({ aggregateId: "7" }))).toEqual([["old-waits", "retrying"]]);
    expect(shape(await all({ correlationId: "chain" }))).toEqual([["old-dead-2", "dead"]]);
    expect(shape(await all({ status: "retrying" }))).toEqual([["old-waits", "retrying"]]);
    expect(shape(await all({ status: "dead" }))).toEqual([
      ["old-dead-2", "dead"],
      ["old-dead-1", "dead"],
    ]);
    expect(shape(await all({ id: "old-gone" }))).toEqual([]);
    const waiting = await database.store.admin.waiting({ relay: "r", stream: "s", key: "w" });
    expect(shape(waiting)).toEqual([
      ["old-waits", "retrying"],
      ["old-behind", "pending"],
    ]);
  });

  it("what was scheduled counts from when it was enqueued until it was due", async () => {
    const at = (text: string) => new Date(text);
    await database.query(
      `insert into txbox.message (id, size, lane, stream, type, key, created_at, payload)
       values ($1, 2, 1, 's', 't', 'k', '2026-01-01T00:00:00Z', '1')`,
      [uuidv7At(at("2026-01-02T00:00:00Z").getTime())],
    );
    const found = async (query: MessageSearch) => (await all(query)).length;
    expect(await found({ since: at("2026-01-01T12:00:00Z"), until: at("2026-01-02T12:00:00Z") })).toBe(1);
    expect(await found({ key: "k", since: at("2025-12-31T12:00:00Z"), until: at("2026-01-01T12:00:00Z") })).toBe(1);
    expect(await found({ since: at("2026-01-02T12:00:00Z") })).toBe(0);
    expect(await found({ key: "k", until: at("2026-01-01T00:00:00Z") })).toBe(0);
  });

  it("under any name of a schema and a prefix", async () => {
    const names = { schema: 'Od"d', tablePrefix: "p'x_" };
    const store = createPostgresStore({ client: database.pool, ...names });
    await store.migrator.migrate();
    await database.query(
      `insert into "Od""d"."p'x_message" (id, size, lane, stream, type, key, payload) select 'm-' || n, 2, 1, 's', 't', 'k', '1' from generate_series(1, 10) n`,
    );
    expect((await store.admin.search({ key: "k", limit: 4 })).messages.map(({ id }) => id)).toEqual([
      "m-10",
      "m-9",
      "m-8",
      "m-7",
    ]);
    expect(await store.admin.consumers()).toEqual([]);
  });
});
