import { setTimeout as sleep } from "node:timers/promises";
import { MongoClient } from "mongodb";
import { afterAll, describe, expect, it } from "vitest";
import { uuidv7 } from "../../../src/core/uuid.ts";
import { createOutbox, createRelay, type Relay } from "../../../src/index.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { serverOrSkip, startMongodbSet, until } from "../../harness/index.ts";
import { firstsOf, RecordingPublisher } from "../support/recording-publisher.ts";
import { relayProcess } from "../support/relay-process.ts";
import { bySource } from "../../support/by-source.ts";

const slot = await serverOrSkip("MongoDB", startMongodbSet);
afterAll(() => slot.stop());

const KEYS = ["a", "b", "c", "d", "e"];
const LEASE_MS = 2000;
const SOURCES = ["polling", "stream"] as const;

type Source = (typeof SOURCES)[number];

/** A database of its own, and clients that find out soon about a primary that is gone. */
function scene(source: Source) {
  const name = `t_${uuidv7().replaceAll("-", "")}`;
  const url = slot.server.url.replace("/?", `/${name}?`);
  const clients: MongoClient[] = [];
  const open = () => {
    const client = new MongoClient(url, { connectTimeoutMS: 1000, heartbeatFrequencyMS: 500 });
    clients.push(client);
    return { client, store: bySource(createMongoStore({ client }), source) };
  };
  return {
    name,
    url,
    open,
    /** A message for each key, by a client that has not seen the old primary. */
    async enqueue(...numbers: number[]): Promise<void> {
      const { client, store } = open();
      const outbox = createOutbox({ store });
      for (const n of numbers) {
        const messages = KEYS.map((key) => ({ stream: "s", type: "t", key, payload: { key, n } }));
        await client.withSession((session) => session.withTransaction(() => outbox.enqueue(session, messages)));
      }
    },
    relay(publisher: RecordingPublisher, store = open().store): Relay {
      const retries = { backoff: { baseMs: 200, maxMs: 200 }, maxAttempts: 10_000 };
      return createRelay({ store, name: "orders", publisher, leaseMs: LEASE_MS, maintenance: false, ...retries });
    },
    async documents() {
      return clients.at(-1)!.db().collection("outbox").find().toArray();
    },
    async [Symbol.asyncDispose]() {
      for (const member of slot.server.members) {
        member.resume();
        if (member.pid === undefined) await member.restart();
      }
      await Promise.all(clients.map((client) => client.close()));
    },
  };
}

/** Fails every message until it is healed. */
class FailingPublisher extends RecordingPublisher {
  readonly failed: Set<string> = new Set();
  healed = false;
  override rule: RecordingPublisher["rule"] = (_, { id }) => {
    if (this.healed) return undefined;
    this.failed.add(id);
    return { status: "failed", error: new Error("not yet") };
  };
}

describe.skipIf(slot.skipped).each(SOURCES)("after a failover, by %s", (source) => {
  it("a take-over that never reached a majority publishes nothing and costs its successor nothing", async () => {
    const set = slot.server;
    await using on = scene(source);
    const [before, after] = [new RecordingPublisher(), new FailingPublisher()];
    await on.open().store.migrator.migrate();
    await on.enqueue(1);
    const b = on.relay(before);
    await b.start();
    await until(() => before.sent.length === KEYS.length, { what: "the first messages" });
    await b.stop();
    await on.enqueue(2);

    const { store } = on.open();
    await store.migrator.check();
    const old = await set.primary();
    const others = await set.secondaries();
    for (const member of others) member.pause();
    await using a = on.relay(after, store);
    const starting = a.start();
    await until(
      () =>
        set.directly(old, async (client) => {
          const relay = await client
            .db(on.name)
            .collection<{ _id: string }>("outbox_relays")
            .findOne({ _id: "orders" });
          return (relay as { members?: unknown[] } | null)?.members?.length === 1;
        }),
      { what: "the write on the old primary" },
    );
    await sleep(300);
    old.pause();
    for (const member of others) member.resume();
    expect(after.calls).toBe(0);
    await set.primary({ not: old });
    await on.enqueue(3);
    await using c = on.relay(after);
    await c.start();
    await until(() => after.failed.size === KEYS.length, { what: "failures", timeoutMs: 60_000 });
    old.resume();
    await starting;
    // Whatever the old primary still has to say is rolled back by then.
    await until(
      () => set.directly(old, async (client) => (await client.db("admin").command({ hello: 1 }))["secondary"] === true),
      { what: "the old primary's return", timeoutMs: 60_000 },
    );
    await sleep(LEASE_MS);
    expect(after.sent).toEqual([]);
    after.healed = true;
    await until(() => after.sent.length === 2 * KEYS.length, { what: "all messages", timeoutMs: 60_000 });
    await Promise.all([a.stop(), c.stop()]);
    for (const key of KEYS) expect(firstsOf(after.sent, key), key).toEqual([2, 3]);
    expect((await on.documents()).map(({ status }) => status as unknown)).toEqual(Array(15).fill("done"));
  });

  it("the settle of an owner that was paused in mid-publish does not land in the work of its successor", async () => {
    const set = slot.server;
    await using on = scene(source);
    await on.open().store.migrator.migrate();
    await on.enqueue(1);
    await using a = relayProcess({ url: on.url, source, mode: "ask", leaseMs: LEASE_MS });
    await until(() => a.sent("asked").length === KEYS.length, { what: "messages in hand", timeoutMs: 60_000 });
    a.pause();
    const old = await set.primary();
    await old.kill();
    await set.primary({ not: old });
    await on.enqueue(2);
    const after = new FailingPublisher();
    await using c = on.relay(after);
    await c.start();
    await until(() => after.failed.size === KEYS.length, { what: "failures", timeoutMs: 60_000 });
    a.resume();
    a.send("publish");
    await until(() => a.sent().length === KEYS.length, { what: "the end of the pause" });
    // It is refused, or meets the connection that broke while it was paused; either way it has time enough to settle.
    await until(() => a.events("lease_lost").length + a.events("store_error").length > 0, {
      what: "the loss of the lease",
      timeoutMs: 60_000,
    });
    await new Promise((resolve) => setTimeout(resolve, 2 * LEASE_MS));
    // What it would take on next is not part of this.
    await a.kill();
    expect((await on.documents()).filter(({ status }) => status === "done")).toEqual([]);
    after.healed = true;
    await until(() => after.sent.length === 2 * KEYS.length, { what: "all messages", timeoutMs: 60_000 });
    await c.stop();
    for (const key of KEYS) expect(firstsOf(after.sent, key), key).toEqual([1, 2]);
    expect((await on.documents()).map(({ status }) => status as unknown)).toEqual(Array(10).fill("done"));
  });
});
