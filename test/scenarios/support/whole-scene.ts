import type pg from "pg";
import { expect } from "vitest";
import { createInbox, createOutbox, PermanentError, publishEach } from "../../../src/index.ts";
import type { Publisher } from "../../../src/core/contracts.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import type { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";

export type PoolStore = ReturnType<typeof createPostgresStore<pg.Pool>>;

import { inTransaction } from "../../support/in-transaction.ts";

const MESSAGE = { stream: "s", type: "t", payload: 1 };

/** Everything that a writer can do, but for letting a message fail. Seven are left at once, one a moment later, and two that the relay of the scene lets fail. */
export async function writeInEveryWay(pool: pg.Pool, store: PoolStore): Promise<void> {
  const outbox = createOutbox({ store });
  const [soon, later] = [new Date(Date.now() + 300), new Date(Date.now() + 3_600_000)];
  await inTransaction(pool, async (tx) => {
    const full = { ...MESSAGE, aggregateType: "a", aggregateId: "1", headers: { correlationId: "c", n: 1 } };
    await outbox.enqueue(tx, full);
    await outbox.enqueue(tx, { ...MESSAGE, payload: new Uint8Array([1]) });
    await outbox.enqueue(tx, [
      full,
      { ...MESSAGE, key: "bad", type: "bad" },
      { ...MESSAGE, key: "worse", type: "worse" },
    ]);
    await outbox.enqueue(tx, { ...full, id: "chosen" });
    expect(await outbox.enqueue(tx, { ...full, id: "chosen" })).toEqual({ id: "chosen", duplicate: true });
    await outbox.enqueue(tx, [MESSAGE, { ...MESSAGE, id: "also-chosen" }]);
    await outbox.enqueue(tx, [MESSAGE, { ...MESSAGE, id: "later", deliverAt: later }, { ...MESSAGE, deliverAt: soon }]);
    await outbox.enqueue(tx, { ...MESSAGE, deliverAt: later });
    await outbox.lockKey(tx, { stream: "s", key: "k" });
    expect(await outbox.cancel(tx, "later")).toBe(true);
  });
}

/** Two relays beside each other, a message that fails at first and one that never works, and every command. */
export async function relayInEveryWay(store: PoolStore, others: PoolStore, streams: string[]): Promise<void> {
  const sent: string[] = [];
  let isUp = false;
  const publisher = publishEach(async ({ id, type }) => {
    if (type === "bad" && !isUp) throw new Error("not yet");
    if (type === "worse" && !isUp) throw new PermanentError("never");
    sent.push(id);
  });
  const options = {
    name: "r",
    streams,
    publisher,
    leaseMs: 1500,
    maintenance: false,
    backoff: { baseMs: 50, maxMs: 50 },
    maxAttempts: 1000,
  };
  const errors: string[] = [];
  const relays = [store, others].map((of) =>
    createRelay({
      ...options,
      store: of,
      onEvent: (event) => event.type === "store_error" && errors.push(event.error),
    }),
  );
  for (const relay of relays) await relay.start();
  try {
    const known = async (what: string, check: () => Promise<boolean> | boolean) =>
      until(
        async () => {
          expect(errors).toEqual([]);
          return check();
        },
        { what, timeoutMs: 20_000 },
      );
    await known("what can be published, with what was scheduled", () => sent.length === 8);
    await known("lanes of both", async () => ((await store.admin.relays())[0]?.lanes.length ?? 0) > 1);
    expect(await store.admin.dead({})).toMatchObject([{ type: "worse" }]);
    isUp = true;
    expect(await store.admin.requeue({ type: "worse" })).toBe(1);
    await known("what failed", () => sent.length === 10);
    await store.admin.pause("r");
    await store.admin.resume("r");
    await store.admin.rewind("r", { time: new Date(0) });
    await known("everything again", () => sent.length === 20);
  } finally {
    for (const relay of relays) await relay.stop();
  }
  expect((await store.admin.find({ key: "bad" }))[0]).toMatchObject({ status: "published" });
  expect((await store.admin.find({ aggregateId: "1", correlationId: "c", stream: "s" })).length).toBe(3);
  expect(await store.admin.discard({ all: true })).toBe(0);
}

export async function consumeInEveryWay(store: PoolStore): Promise<void> {
  let isUp = false;
  const inbox = createInbox({ store, consumer: "c" }).on("t", async () => {
    if (!isUp) throw new Error("not yet");
  });
  const message = { id: "foreign", type: "t", body: "1", headers: { correlationId: "c" } };
  await expect(inbox.handle(message)).rejects.toThrow("not yet");
  await store.ledger.fail({ consumer: "c", messageId: "foreign", type: "t", correlationId: null }, "x");
  isUp = true;
  expect([await inbox.handle(message), await inbox.handle(message)]).toEqual(["processed", "duplicate"]);
  expect(await store.ledger.keepScope?.("d", "source")).toBe("source");
}

/**
 * One relay takes the lanes of two that have gone, after it seemed that a message had killed them; a transaction that was
 * open meanwhile commits late; a body is too large for its page; the target is out for a moment.
 */
export async function recoverInEveryWay(pool: pg.Pool, store: PoolStore, streams: string[]): Promise<void> {
  const outbox = createOutbox({ store });
  const sent: unknown[] = [];
  let isUp = false;
  const publisher: Publisher = {
    keepsKeyOrder: true,
    publish: async (messages) => {
      if (!isUp) throw new Error("out");
      sent.push(...messages.map(({ body }) => String(body).length));
      return messages.map(() => ({ status: "published" as const }));
    },
  };
  const errors: string[] = [];
  const relay = createRelay({
    store,
    name: "r",
    streams,
    publisher,
    leaseMs: 1500,
    maintenance: false,
    batchBytes: 100_000,
    onEvent: (event) => {
      if (event.type === "store_error") errors.push(event.error);
      if (event.type === "outage") isUp = true;
    },
  });
  const arrived = (count: number) =>
    until(() => errors.length > 0 || sent.length === count, { what: `message ${count}`, timeoutMs: 60_000 });
  await pool.query("update txbox.cursor set crashes = 3, stamp = pg_catalog.pg_current_xact_id()");
  const late = await pool.connect();
  await late.query("begin");
  await outbox.enqueue(late, MESSAGE);
  await inTransaction(pool, (tx) => outbox.enqueue(tx, [MESSAGE, { ...MESSAGE, payload: "x".repeat(5000) }]));
  await relay.start();
  try {
    await arrived(2);
    await late.query("commit");
    late.release();
    await arrived(3);
    await inTransaction(pool, (tx) => outbox.enqueue(tx, MESSAGE));
    await arrived(4);
    await until(async () => (await store.admin.relays())[0]?.lanes.length === 1, { what: "one cursor" });
  } finally {
    await relay.stop();
  }
  expect(errors).toEqual([]);
  expect(sent).toEqual([1, 5002, 1, 1]);
}

/** A handler that hangs in a query. */
export async function hang(store: PoolStore): Promise<void> {
  const inbox = createInbox({ store, consumer: "h", handlerTimeoutMs: 200 }).on("t", async (tx) => {
    await tx.query("select pg_catalog.pg_sleep(20)");
  });
  await expect(inbox.handle({ id: "hanging", type: "t", body: "1", headers: {} })).rejects.toMatchObject({
    code: "handler_timeout",
  });
}
