import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import type { RelayOptions } from "../../../src/relay/relay-options.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { type Numbered, outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher, upTo } from "../support/recording-publisher.ts";

const BAD = 500;
const OTHERS = Array.from({ length: 20 }, (_, i) => `other-${i}`);

/** 1,000 messages of the key "bad" and 1,000 of others, mixed, with one in the middle that fails. */
function mixed(): Numbered[] {
  const messages: Numbered[] = [];
  for (let i = 1; i <= 1000; i++) {
    messages.push({ key: "bad", n: i, ...(i === BAD ? { poison: true } : {}) });
    messages.push({ key: OTHERS[i % OTHERS.length] ?? null, n: Math.ceil(i / OTHERS.length) });
  }
  return messages;
}

describe.skipIf(!hasPostgres())("a poison message among 1,000 of its key and 1,000 of others", () => {
  let database: OutboxDatabase;
  let publisher: RecordingPublisher;
  let relay: Relay;
  let poisonous: boolean;
  let tries: number;

  beforeEach(async () => {
    database = await outboxDatabase();
    publisher = new RecordingPublisher();
    poisonous = true;
    tries = 0;
    publisher.rule = ({ poison }) => {
      if (poison !== true || !poisonous) return undefined;
      tries++;
      return { status: "failed", error: new Error("poison") };
    };
    await database.enqueue(mixed());
  });
  afterEach(async () => {
    await relay.stop();
    await database[Symbol.asyncDispose]();
  });

  async function start(options: Partial<RelayOptions>): Promise<void> {
    relay = createRelay({
      store: database.store,
      name: "orders",
      publisher,
      batchSize: 100,
      maintenance: false,
      ...options,
    });
    await relay.start();
  }

  const othersSent = () => publisher.sent.filter(({ key }) => key !== "bad").length;

  async function othersAreThrough(): Promise<void> {
    await until(() => othersSent() === 1000, { what: "the other keys" });
    for (const key of OTHERS) expect(publisher.firsts(key)).toEqual(upTo(50));
  }

  /** Nothing of the key may pass its failed message. */
  async function keyWaits(): Promise<void> {
    await othersAreThrough();
    await until(async () => (await database.value("select count(*)::int from txbox.parked")) === 501, {
      what: "parking",
    }).catch(() => undefined);
    expect(publisher.firsts("bad")).toEqual(upTo(BAD - 1));
  }

  async function keyIsThrough(numbers: number[]): Promise<void> {
    await until(() => publisher.firsts("bad").length === numbers.length, { what: "the rest of the key" });
    expect(publisher.firsts("bad")).toEqual(numbers);
    expect(publisher.sent).toHaveLength(1000 + numbers.length);
    await until(async () => (await database.value("select count(*)::int from txbox.blocked")) === 0, {
      what: "the key to be free",
    });
    expect(await database.value("select count(*)::int from txbox.parked")).toBe(0);
  }

  it("delays no other key, and goes on in order when the message works", async () => {
    await start({ backoff: { baseMs: 300, maxMs: 300 }, maxAttempts: 1000 });
    await keyWaits();
    poisonous = false;
    await keyIsThrough(upTo(1000));
    const [info] = await database.store.admin
      .find({ key: "bad", limit: 1000 })
      .then((all) => all.filter(({ attempts }) => attempts > 1));
    expect(info).toMatchObject({ status: "published", attempts: tries + 1, lastError: "Error: poison" });
  });

  it("goes on without it once it is dead, with onDead: continue", async () => {
    await start({ backoff: { baseMs: 10, maxMs: 10 }, maxAttempts: 3 });
    await keyIsThrough(upTo(1000).filter((n) => n !== BAD));
    await othersAreThrough();
    expect(tries).toBe(3);
    const [dead] = await database.store.admin.dead({ relay: "orders" });
    expect(dead).toMatchObject({ key: "bad", attempts: 3, state: "dead", lastError: "Error: poison" });
    expect(dead?.errors).toHaveLength(3);
    poisonous = false;
    expect(await database.store.admin.requeue({ relay: "orders" })).toBe(1);
    await until(() => publisher.firsts("bad").includes(BAD), { what: "the requeued message" });
    expect(publisher.firsts("bad").at(-1)).toBe(BAD);
  });

  it("waits for the dead letter to be requeued, with onDead: block", async () => {
    await start({ backoff: { baseMs: 10, maxMs: 10 }, maxAttempts: 2, onDead: "block" });
    await until(async () => (await database.store.admin.dead({ relay: "orders" })).length === 1, {
      what: "the dead letter",
    });
    await othersAreThrough();
    await database.enqueue(series("bad", 10, 1001));
    await until(async () => (await database.value("select count(*)::int from txbox.parked")) === 510, {
      what: "parking",
    });
    expect(publisher.firsts("bad")).toEqual(upTo(BAD - 1));
    poisonous = false;
    expect(await database.store.admin.requeue({ relay: "orders" })).toBe(1);
    await until(() => publisher.firsts("bad").length === 1010, { what: "the rest of the key" });
    expect(publisher.firsts("bad")).toEqual(upTo(1010));
  });

  it("goes on without the dead letter when it is discarded, with onDead: block", async () => {
    await start({ backoff: { baseMs: 10, maxMs: 10 }, maxAttempts: 2, onDead: "block" });
    await until(async () => (await database.store.admin.dead({ relay: "orders" })).length === 1, {
      what: "the dead letter",
    });
    await othersAreThrough();
    expect(publisher.firsts("bad")).toEqual(upTo(BAD - 1));
    expect(await database.store.admin.discard({ relay: "orders" })).toBe(1);
    await keyIsThrough(upTo(1000).filter((n) => n !== BAD));
    expect(await database.store.admin.dead({ relay: "orders", state: "discarded" })).toHaveLength(1);
  });

  it("is dead at once when it can never work", async () => {
    publisher.rule = ({ poison }) =>
      poison === true ? { status: "rejected", error: new Error("too large") } : undefined;
    await start({});
    await keyIsThrough(upTo(1000).filter((n) => n !== BAD));
    const [dead] = await database.store.admin.dead({ relay: "orders" });
    expect(dead).toMatchObject({ attempts: 1, lastError: "Error: too large" });
  });

  it("does not delay others while it waits: they take no longer than without it", async () => {
    poisonous = false;
    const withoutAt = performance.now();
    await start({});
    await othersAreThrough();
    const withoutMs = performance.now() - withoutAt;
    await relay.stop();
    await database[Symbol.asyncDispose]();

    database = await outboxDatabase();
    await database.enqueue(mixed());
    poisonous = true;
    publisher.sent.length = 0;
    const withAt = performance.now();
    await start({ backoff: { baseMs: 86_400_000, maxMs: 86_400_000 } });
    await othersAreThrough();
    // A busy machine may have turned to something else in one of the two.
    expect(performance.now() - withAt).toBeLessThan(withoutMs + 3000);
    await database.enqueue(series("later", 100));
    await until(() => publisher.firsts("later").length === 100, { what: "new keys" });
    expect(publisher.firsts("later")).toEqual(upTo(100));
    expect(tries).toBe(1);
  });
});
