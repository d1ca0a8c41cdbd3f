import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { redrive, type RedriveProgress } from "../../../src/admin/index.ts";
import { errorGroup } from "../../../src/core/error-group.ts";
import { createRelay, PermanentError, type Relay } from "../../../src/index.ts";
import { createMemoryPublisher, type MemoryPublisher } from "../../../src/testing/index.ts";
import { serverOrSkip, startMongodb } from "../../harness/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { mongoScene } from "../../support/mongodb-scene.ts";
import { outboxDatabase, type Numbered, type OutboxDatabase } from "../support/outbox-database.ts";

const numberOf = ({ body }: { body: string | Uint8Array }): number => (JSON.parse(String(body)) as Numbered).n;
const NOTHING = {
  published: 0,
  retried: 0,
  dead: 0,
  unavailable: 0,
  processed: 0,
  duplicate: 0,
  failed: 0,
  rejected: 0,
};

describe.skipIf(!hasPostgres())("redrive", () => {
  let database: OutboxDatabase;
  let publisher: MemoryPublisher;
  let relay: Relay;

  beforeEach(async () => {
    database = await outboxDatabase();
    publisher = createMemoryPublisher();
    relay = createRelay({ store: database.store, name: "r", publisher, maxPollMs: 10, leaseMs: 3000 });
  });
  afterEach(async () => {
    await relay.stop();
    await database[Symbol.asyncDispose]();
  });

  /** Letters 1 to `count` of two keys. */
  async function withLetters(count: number): Promise<void> {
    publisher.reject(() => new PermanentError("no price"));
    await relay.start();
    await database.enqueue(Array.from({ length: count }, (_, i) => ({ key: `k${i % 2}`, n: i + 1 })));
    const { admin } = database.store;
    await until(async () => (await admin.dead({ limit: 1000 })).length === count, { what: "letters" });
    publisher.heal();
  }

  it("requeues at its rate, in order, and is one change", async () => {
    await withLetters(40);
    const progress: RedriveProgress[] = [];
    const startedAt = performance.now();
    const by = { actor: "anna", reason: "prices are there" };
    const report = await redrive(database.store, {
      relay: "r",
      all: true,
      perSecond: 40,
      by,
      onProgress: (one) => progress.push(one),
    });
    expect(performance.now() - startedAt).toBeGreaterThan(800);
    expect(report).toEqual({ requeued: 40, rounds: 1, diedAgain: null, stopped: false });
    expect(progress.at(-1)).toEqual({ requeued: 40, round: 1, waitingFor: null });
    await until(() => publisher.published.length === 40, { what: "all of them" });
    for (const key of ["k0", "k1"]) {
      const own = publisher.published.filter((message) => message.key === key).map(numberOf);
      expect(own).toEqual(own.toSorted((a, b) => a - b));
    }
    const { changes } = await database.store.admin.changes({});
    expect(changes).toMatchObject([{ action: "redrive", relay: "r", count: 40, ...by, details: {} }]);
  });

  it("takes what is chosen, and no more than that", async () => {
    await withLetters(10);
    const { admin } = database.store;
    expect(await redrive(database.store, { key: "k0", limit: 2, perSecond: 1000 })).toMatchObject({ requeued: 2 });
    await until(() => publisher.published.length === 2, { what: "two" });
    expect(publisher.published.map(numberOf)).toEqual([1, 3]);
    const [letter] = await admin.dead({ key: "k1" });
    expect(await redrive(database.store, { letters: [letter!], perSecond: 1000 })).toMatchObject({ requeued: 1 });
    expect(await redrive(database.store, { group: "000000000000", perSecond: 1000 })).toMatchObject({ requeued: 0 });
    await until(() => publisher.published.length === 3, { what: "three" });
    expect(numberOf(publisher.published[2]!)).toBe(2);
    // The user of the database, where no other is named.
    expect((await admin.changes({})).changes[0]?.actor).not.toBe("");
  });

  it("begins when it is told to", async () => {
    await withLetters(2);
    const startAt = new Date(Date.now() + 600);
    await redrive(database.store, { all: true, perSecond: 1000, startAt });
    expect(Date.now()).toBeGreaterThanOrEqual(startAt.getTime());
  });

  it("waits while no process runs, while the relay is paused, and while its target is out", async () => {
    await withLetters(6);
    await relay.stop();
    const { admin, history } = database.store;
    const told: (string | null)[] = [];
    const running = redrive(database.store, {
      all: true,
      perSecond: 1000,
      onProgress: ({ waitingFor }) => told.push(waitingFor),
    });
    await until(() => told.includes('no process of relay "r" runs'), { what: "a wait for a process" });
    await admin.pause("r");
    publisher = createMemoryPublisher();
    relay = createRelay({ store: database.store, name: "r", publisher, maxPollMs: 10, leaseMs: 3000 });
    await relay.start();
    await until(() => told.includes('relay "r" is paused'), { what: "a wait for the relay" });
    const lastError = { error: "connect ECONNREFUSED", agoMs: 0 };
    await history!.record({ ...NOTHING, of: { relay: "r" }, owner: "o", unavailable: 3, lastError });
    await admin.resume("r");
    const out = 'the target of relay "r" is out: connect ECONNREFUSED';
    await until(() => told.includes(out), { what: "a wait for the target" });
    expect((await admin.dead({})).every(({ command }) => command === null)).toBe(true);
    await history!.record({ ...NOTHING, of: { relay: "r" }, owner: "o2", published: 1, lastError: undefined });
    expect(await running).toMatchObject({ requeued: 6 });
    await until(() => publisher.published.length === 6, { what: "all of them" });
  });

  it("requeues again what dies again, at most so many rounds", async () => {
    await withLetters(4);
    const tried = new Map<string, number>();
    publisher.reject(({ id }) => {
      tried.set(id, (tried.get(id) ?? 0) + 1);
      return tried.get(id)! < 3 ? new PermanentError("no price") : undefined;
    });
    const report = await redrive(database.store, { all: true, perSecond: 1000, rounds: 5 });
    expect(report).toEqual({ requeued: 12, rounds: 3, diedAgain: 0, stopped: false });
    expect(new Set(publisher.published.map(numberOf))).toEqual(new Set([1, 2, 3, 4]));
    expect(publisher.published).toHaveLength(4);
    expect((await database.store.admin.changes({})).changes).toMatchObject([{ action: "redrive", count: 12 }]);
  });

  it("leaves what died again of something else, and what is over its rounds", async () => {
    await withLetters(4);
    publisher.reject((message) => new PermanentError(numberOf(message) === 1 ? "another cause" : "no price"));
    const group = errorGroup("changed", "PermanentError: no price");
    const report = await redrive(database.store, { relay: "r", group, perSecond: 1000, rounds: 2 });
    expect(report).toEqual({ requeued: 7, rounds: 2, diedAgain: 3, stopped: false });
  });

  it("ends at once when it is told to, and what is requeued stays so", async () => {
    await withLetters(20);
    const end = new AbortController();
    const report = await redrive(database.store, {
      all: true,
      perSecond: 10,
      signal: end.signal,
      onProgress: ({ requeued }) => requeued >= 3 && end.abort(),
    });
    expect(report).toMatchObject({ requeued: 3, stopped: true });
    await until(() => publisher.published.length === 3, { what: "three" });
    expect((await database.store.admin.dead({})).length).toBe(17);
    const never = AbortSignal.abort();
    const startAt = new Date(Date.now() + 86_400_000);
    expect(await redrive(database.store, { all: true, perSecond: 1, startAt, signal: never })).toMatchObject({
      requeued: 0,
      stopped: true,
    });
  });

  it.each([
    [{ all: true }, "perSecond"],
    [{ all: true, perSecond: 0 }, "perSecond"],
    [{ all: true, perSecond: Number.NaN }, "perSecond"],
    [{ all: true, perSecond: "5" }, "perSecond"],
    [{ perSecond: 5 }, "all"],
    [{ all: true, key: "k", perSecond: 5 }, "all"],
    [{ all: true, perSecond: 5, rounds: 0 }, "rounds"],
    [{ all: true, perSecond: 5, startAt: new Date(Number.NaN) }, "startAt"],
    [{ all: true, perSecond: 5, signal: {} }, "signal"],
    [{ all: true, perSecond: 5, onProgress: 5 }, "onProgress"],
    [{ all: true, perSecond: 5, by: { actor: "" } }, "actor"],
    [{ all: true, perSecond: 5, by: { who: "a" } }, "who"],
    [{ all: true, rate: 5 }, "rate"],
    [{ group: "x", perSecond: 5 }, "group"],
  ])("refuses %j", async (options, field) => {
    await expect(redrive(database.store, options as never)).rejects.toMatchObject({ code: "invalid_option", field });
  });
});

const mongodb = await serverOrSkip("MongoDB", () => startMongodb());

describe.skipIf(mongodb.skipped)("redrive on MongoDB", () => {
  afterEach(() => mongodb.stop());

  it("requeues again what dies again, and is one change", async () => {
    await using scene = await mongoScene(mongodb.server.url);
    const publisher = createMemoryPublisher();
    const relay = createRelay({ store: scene.store, name: "r", publisher, maxPollMs: 10, leaseMs: 3000 });
    const tried = new Map<string, number>();
    publisher.reject(({ id }) => {
      tried.set(id, (tried.get(id) ?? 0) + 1);
      return tried.get(id)! < 3 ? new PermanentError("no price") : undefined;
    });
    await relay.start();
    await scene.enqueue("a1", "a2", "b1");
    await until(async () => (await scene.store.admin.dead({})).length === 3, { what: "letters" });
    const report = await redrive(scene.store, {
      relay: "r",
      all: true,
      perSecond: 1000,
      rounds: 5,
      by: { actor: "anna" },
    });
    expect(report).toEqual({ requeued: 6, rounds: 2, diedAgain: 0, stopped: false });
    expect(publisher.published).toHaveLength(3);
    expect((await scene.store.admin.changes({})).changes).toMatchObject([
      { actor: "anna", action: "redrive", relay: "r", count: 6 },
    ]);
    await relay.stop();
  });
});
