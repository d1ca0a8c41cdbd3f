import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Publisher, PublishResult } from "../../../src/core/contracts.ts";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { interceptingPool } from "../support/intercepting-pool.ts";
import { openPool, outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";

describe.skipIf(!hasPostgres())("a clean stop in the middle of a batch", () => {
  let database: OutboxDatabase;
  let sent: string[];
  let relays: Relay[];

  beforeEach(async () => {
    database = await outboxDatabase();
    sent = [];
    relays = [];
  });
  afterEach(async () => {
    await Promise.all(relays.map((relay) => relay.stop()));
    await database[Symbol.asyncDispose]();
  });

  async function start(publisher: Publisher, store = database.store): Promise<Relay> {
    const relay = createRelay({ store, name: "r", publisher, maintenance: false, leaseMs: 30_000 });
    relays.push(relay);
    await relay.start();
    return relay;
  }

  const enqueue = (...keys: string[]) => database.enqueue(keys.map((key, n) => ({ key, n })));
  const nameOf = ({ key, body }: { key: string | null; body: unknown }) =>
    `${key}${(JSON.parse(String(body)) as { n: number }).n}`;

  /** Says what each message gets, when it was told to go on. */
  function gated(result: (name: string) => PublishResult, keepsKeyOrder: boolean) {
    const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
    const { promise: gate, resolve: open } = Promise.withResolvers<void>();
    const publisher: Publisher = {
      keepsKeyOrder,
      async publish(messages) {
        begin();
        await gate;
        return messages.map((message) => {
          const given = result(nameOf(message));
          if (given.status === "published") sent.push(nameOf(message));
          return given;
        });
      },
    };
    return { publisher, begun, open };
  }

  it("repeats nothing that went out before a later message of another one's key was sent", async () => {
    await enqueue("a", "a", "b", "c", "d");
    const { publisher, begun, open } = gated(() => ({ status: "published" }), false);
    const first = await start(publisher);
    await begun;
    const stopped = first.stop();
    open();
    await stopped;
    expect(sent.toSorted()).toEqual(["a0", "b2", "c3", "d4"]);
    await start(publisher);
    await until(() => sent.includes("a1"), { what: "the rest" });
    await relays[1]!.stop();
    expect(sent.toSorted()).toEqual(["a0", "a1", "b2", "c3", "d4"]);
  });

  it("repeats nothing that went out while the target was out for another one", async () => {
    await enqueue("a", "b", "c", "d", "a");
    let out = true;
    const result = (name: string): PublishResult =>
      out && name.startsWith("a")
        ? { status: "unavailable", error: new Error("connection lost") }
        : { status: "published" };
    const { publisher, begun, open } = gated(result, true);
    const first = await start(publisher);
    await begun;
    const stopped = first.stop();
    open();
    await stopped;
    expect(sent).toEqual(["b1", "c2", "d3"]);
    out = false;
    await start(publisher);
    await until(() => sent.includes("a4"), { what: "the rest" });
    await relays[1]!.stop();
    expect(sent).toEqual(["b1", "c2", "d3", "a0", "a4"]);
  });

  it("parks nothing that was not tried while the target was out", async () => {
    await enqueue("z");
    let asked = 0;
    const publisher: Publisher = {
      keepsKeyOrder: true,
      async publish(messages) {
        asked++;
        return messages.map(({ key }) => {
          return { status: key === "z" ? "failed" : "unavailable", error: new Error("no") };
        });
      },
    };
    const first = createRelay({
      store: database.store,
      name: "r",
      publisher,
      maintenance: false,
      backoff: { baseMs: 60_000, maxMs: 60_000 },
    });
    relays.push(first);
    await first.start();
    const parked = async () => {
      const { rows } = await database.pool.query<{ n: string }>('select count(*) as n from "txbox"."parked"');
      return Number(rows[0]!.n);
    };
    await until(async () => (await parked()) === 1, { what: "the key that failed" });
    await enqueue("a", "b", "c", "z");
    await until(() => asked >= 2, { what: "the outage" });
    await first.stop();
    expect(await parked()).toBe(1);
  });

  it("starts anew though its leave still hangs, and keeps what it has then", async () => {
    const pool = openPool(database.url);
    const intercepting = interceptingPool(pool);
    const store = createPostgresStore({ client: intercepting.client }) as typeof database.store;
    const { publisher, begun, open } = gated(() => ({ status: "published" }), true);
    const lost: string[] = [];
    const onEvent = ({ type }: { type: string }) => void (type === "lease_lost" && lost.push(type));
    const relay = createRelay({ store, name: "r", publisher, maintenance: false, leaseMs: 1000, onEvent });
    relays.push(relay);
    await relay.start();
    const { promise: late, resolve: arrive } = Promise.withResolvers<void>();
    const left = Promise.withResolvers<void>();
    const caught = intercepting.intercept(/delete from "txbox"."member"/, async (send) => {
      await late;
      const answer = await send();
      left.resolve();
      return answer;
    });
    await relay.stop({ deadlineMs: 100 });
    await caught;
    await relay.start();
    await until(() => relay.state().session?.lanes === 64, { what: "all lanes", timeoutMs: 10_000 });
    await enqueue("a", "b");
    await begun;
    arrive();
    await left.promise;
    open();
    await until(() => sent.length >= 2, { what: "both messages" });
    await until(async () => (await database.store.admin.relays())[0]?.pending === 0, { what: "their settle" });
    await relay.stop();
    expect([sent.toSorted(), lost]).toEqual([["a0", "b1"], []]);
    await pool.end();
  });

  it("gives the lanes back though the connection breaks at that moment", async () => {
    const pool = openPool(database.url);
    const intercepting = interceptingPool(pool);
    const { publisher, open } = gated(() => ({ status: "published" }), true);
    open();
    const first = await start(publisher, createPostgresStore({ client: intercepting.client }) as typeof database.store);
    const cut = intercepting.intercept(/delete from "txbox"."member"/, async () => {
      throw Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
    });
    await first.stop();
    await cut;
    await enqueue("a");
    await start(publisher);
    await until(() => sent.length === 1, { what: "the message, long before the lease is over", timeoutMs: 10_000 });
    await pool.end();
  });
});
