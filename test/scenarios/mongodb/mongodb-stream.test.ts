import { setTimeout as sleep } from "node:timers/promises";
import { MongoClient } from "mongodb";
import { afterAll, describe, expect, it } from "vitest";
import { systemClock } from "../../../src/core/clock.ts";
import type { Claim } from "../../../src/core/contracts.ts";
import { createOutbox, createRelay, publishEach, type Relay } from "../../../src/index.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { serverOrSkip, startMongodb, until } from "../../harness/index.ts";
import { createRandom } from "../../soak/random.ts";
import {
  contents,
  drain,
  firstClaim,
  join,
  mongoScene,
  numbered,
  ofKey,
  PUBLISHED,
  retry,
  SHORT_LEASE_MS,
  type Scene,
  startsOf,
  streaming,
} from "../../support/mongodb-scene.ts";
import { nextClaim } from "../../../src/testing/store/consumer.ts";
import { bySource } from "../../support/by-source.ts";

const slot = await serverOrSkip("MongoDB", () => startMongodb());
afterAll(() => slot.stop());

const scene = (): Promise<Scene> => mongoScene(slot.server.url, { source: "stream" });

/** Drops the relay "r", whose message a1 is parked, but does not give that back yet; what is returned does. */
async function dropHalfWay(on: Scene): Promise<() => Promise<void>> {
  const dropped = await streaming(on);
  await on.enqueue("a1");
  await dropped.settle(await firstClaim(dropped), [retry(60_000)]);
  const swept = Promise.withResolvers<void>();
  on.hook.intercept = async ({ method, args }, proceed) => {
    if (method === "updateMany" && JSON.stringify(args[0]).includes("parked")) await swept.promise;
    return proceed();
  };
  const dropping = on.broken.admin.drop("r");
  await until(async () => (await on.store.admin.relays()).length === 0, { what: "the drop" });
  return () => {
    swept.resolve();
    return dropping;
  };
}

describe.skipIf(slot.skipped)("beginning to follow the stream", () => {
  it("after a clean stop goes on from where it was, without a scan", async () => {
    await using on = await scene();
    await on.enqueue("a1", "b1");
    const first = await join(on.store);
    expect(await drain(first, 2)).toEqual(["a1", "b1"]);
    await on.enqueue("a2");
    expect(await drain(first, 1)).toEqual(["a2"]);
    await first.leave();
    await on.enqueue("a3", "b2");
    const second = await join(on.store);
    expect(await drain(second, 2)).toEqual(["a3", "b2"]);
    expect(startsOf(on.events)).toEqual(["scan", "resume"]);
    await second.leave();
  });

  it("after its process died goes on from where that was last known to be, and gives nothing twice", async () => {
    await using on = await scene();
    const old = await streaming(on, on.broken, SHORT_LEASE_MS);
    await on.enqueue("a1", "b1");
    expect(await drain(old, 2)).toEqual(["a1", "b1"]);
    await on.enqueue("a2");
    const inHand = await firstClaim(old);
    expect(contents(inHand)).toEqual(["a2"]);
    on.hook.intercept = () => Promise.reject(new Error("the process is dead"));
    await on.enqueue("a3");
    const heir = await join(on.store);
    expect(await drain(heir, 2)).toEqual(["a2", "a3"]);
    expect(startsOf(on.events)).toEqual(["scan", "resume"]);
    await heir.leave();
  });

  it("tells messages apart that both a scan and the stream bring", async () => {
    await using on = await scene();
    await on.enqueue("a1", "a2", "a3");
    const session = await join(on.store, { batch: { messages: 2, bytes: 1_000_000 } });
    const first = await firstClaim(session);
    // Committed after the look of the scan, but still claimed by it.
    await on.enqueue("a4");
    const second = await firstClaim(session);
    expect([...contents(first), ...contents(second)]).toEqual(["a1", "a2", "a3", "a4"]);
    for (const claim of [first, second])
      await session.settle(
        claim,
        claim.messages.map(() => PUBLISHED),
      );
    await on.enqueue("a5");
    expect(await drain(session, 1)).toEqual(["a5"]);
    expect(await nextClaim(session)).toBeUndefined();
    await session.leave();
  });

  it("loses, doubles and reorders nothing while writers commit and roll back, and processes come and go", async () => {
    await using on = await scene();
    const random = createRandom(7);
    const committed = new Map<string, number[]>();
    const journal: { key: string; n: number }[] = [];
    const stop = new AbortController();
    const write = async (key: string): Promise<void> => {
      const client = new MongoClient(on.database.url);
      const outbox = createOutbox({ store: createMongoStore({ client }) });
      const mine: number[] = [];
      committed.set(key, mine);
      for (let n = 1; !stop.signal.aborted; n++) {
        const failing = random.chance(0.2);
        const writing = client.withSession((session) =>
          session.withTransaction(async () => {
            await outbox.enqueue(session, { stream: "s", type: "t", key, payload: n });
            if (failing) throw new Error("rolled back");
          }),
        );
        if (await writing.then(() => true).catch(() => false)) mine.push(n);
        await sleep(random.int(0, 8));
      }
      await client.close();
    };
    const relay = (): Relay =>
      createRelay({
        store: bySource(createMongoStore({ client: on.database.client }), "stream", (e) => on.events.push(e)),
        name: "r",
        leaseMs: 2000,
        batchSize: 20,
        maintenance: false,
        publisher: publishEach(async ({ key, body }) => void journal.push({ key: String(key), n: Number(body) })),
      });
    const writers = Promise.all(["a", "b", "c", "d", "e", "f"].map(write));
    const relays: Relay[] = [];
    for (let step = 0; step < 24; step++) {
      if (relays.length < 3 && (relays.length === 0 || random.chance(0.5))) {
        const one = relay();
        await one.start();
        relays.push(one);
      } else await relays.splice(random.int(0, relays.length - 1), 1)[0]?.stop();
      await sleep(random.int(0, 250));
    }
    stop.abort();
    await writers;
    if (relays.length === 0) relays.push(relay());
    for (const one of relays) await one.start();
    const all = [...committed.values()].reduce((sum, { length }) => sum + length, 0);
    await until(() => journal.length >= all, { what: `delivery of ${all}`, timeoutMs: 60_000 });
    await Promise.all(relays.map((one) => one.stop()));
    for (const [key, numbers] of committed) {
      expect(
        journal.filter((one) => one.key === key).map(({ n }) => n),
        `key ${key}`,
      ).toEqual(numbers);
    }
    expect(startsOf(on.events)).toContain("resume");
  });
});

describe.skipIf(slot.skipped)("messages by the stream", () => {
  it("are settled with one write, as published after one attempt", async () => {
    await using on = await scene();
    const session = await streaming(on, on.broken);
    const writes: string[] = [];
    on.hook.intercept = ({ collection, method }, proceed) => {
      if (collection === "outbox" && /update|bulk/i.test(method)) writes.push(method);
      return proceed();
    };
    await on.enqueue("a1", "a2", "b1");
    expect(await drain(session, 3)).toEqual(["a1", "a2", "b1"]);
    expect(writes).toEqual(["updateMany"]);
    const infos = await on.store.admin.find({ stream: "s" });
    expect(infos.map(({ status, attempts, relay }) => [status, attempts, relay])).toEqual(
      infos.map(() => ["published", 1, "r"]),
    );
    expect((await on.store.admin.relays())[0]?.published).toBe(3n);
    await session.leave();
  });

  it("of one transaction keep their order, with ids of any origin", async () => {
    await using on = await scene();
    const session = await streaming(on);
    const chosen = (text: string) => ({ ...numbered(text), id: `chosen-${text}` });
    await on.enqueueAll([chosen("a1"), numbered("a2"), chosen("a3"), numbered("a4"), numbered("a5"), chosen("a6")]);
    expect(await drain(session, 6)).toEqual(["a1", "a2", "a3", "a4", "a5", "a6"]);
    await session.leave();
  });

  it("park their key when one fails: later ones wait, others go", async () => {
    await using on = await scene();
    const session = await streaming(on);
    await on.enqueue("a1", "b1", "a2");
    const claim = await firstClaim(session);
    expect(contents(claim)).toEqual(["a1", "b1", "a2"]);
    await session.settle(claim, [retry(300), PUBLISHED, { status: "waiting" }]);
    await on.enqueue("a3", "b2");
    const behind = await firstClaim(session);
    expect(contents(behind)).toEqual(["a3", "b2"]);
    expect(session.admit(behind)).toEqual([false, true]);
    await session.settle(behind, [{ status: "waiting" }, PUBLISHED]);
    expect((await session.tend()).parked).toBe(3);
    const [first] = await on.store.admin.find({ key: "a" });
    expect([first?.status, first?.attempts, first?.lastError]).toEqual(["retrying", 1, "no"]);
    expect(await drain(session, 3)).toEqual(["a1", "a2", "a3"]);
    expect(startsOf(on.events)).toEqual(["scan"]);
    await session.leave();
  });

  it("do not overtake a scheduled one of their key that has come due", async () => {
    await using on = await scene();
    const session = await streaming(on);
    await on.enqueueAll([{ ...numbered("a1"), deliverAt: new Date(Date.now() + 200) }]);
    await sleep(300);
    // It becomes ready here, by an update, which the stream does not bring.
    await session.tend();
    await on.enqueue("a2");
    expect(await drain(session, 2)).toEqual(["a1", "a2"]);
    await on.enqueue("a3");
    expect(await drain(session, 1)).toEqual(["a3"]);
    await session.leave();
  });

  it("do not overtake it either when its owner died right after", async () => {
    await using on = await scene();
    const old = await streaming(on, on.broken, SHORT_LEASE_MS);
    await on.enqueueAll([{ ...numbered("a1"), deliverAt: new Date(Date.now() + 200) }]);
    await sleep(300);
    await old.tend();
    on.hook.intercept = () => Promise.reject(new Error("the process is dead"));
    await on.enqueue("a2");
    const heir = await join(on.store);
    expect(await drain(heir, 2)).toEqual(["a1", "a2"]);
    expect(startsOf(on.events)).toEqual(["scan", "scan"]);
    await heir.leave();
  });

  it("that the stream does not show are still found", async () => {
    await using on = await scene();
    const session = await streaming(on);
    await on.enqueueAll([{ ...numbered("a1"), deliverAt: new Date(Date.now() + 3_600_000) }]);
    await on.database.client
      .db()
      .collection("outbox")
      .updateMany({}, { $set: { waits: "ready" } });
    expect(await drain(session, 1)).toEqual(["a1"]);
    await session.leave();
  });

  it("that it does not show are found though it never runs dry", async () => {
    await using on = await scene();
    let ahead = 0;
    const clock = { ...systemClock, monotonic: () => systemClock.monotonic() + ahead };
    const store = bySource(createMongoStore({ client: on.database.client, clock }), "stream");
    const session = await join(store);
    expect(await nextClaim(session)).toBeUndefined();
    await on.enqueueAll([{ ...numbered("a1"), deliverAt: new Date(Date.now() + 3_600_000) }]);
    await on.database.client
      .db()
      .collection("outbox")
      .updateMany({}, { $set: { waits: "ready" } });
    const journal: string[] = [];
    let unsettled: Claim | undefined;
    const settle = async (claim: Claim | undefined): Promise<void> => {
      if (claim === undefined) return;
      journal.push(...contents(claim));
      await session.settle(
        claim,
        claim.messages.map(() => PUBLISHED),
      );
    };
    for (let n = 1; n <= 20 && !journal.includes("a1"); n++) {
      // It looks once a minute.
      ahead += 61_000;
      await session.tend();
      await on.enqueue(`b${n}`);
      const next = await until(
        async () => (await nextClaim(session)) ?? (await settle(unsettled), (unsettled = undefined)),
        {
          what: "a claim",
        },
      );
      await settle(unsettled);
      unsettled = next;
    }
    await settle(unsettled);
    expect(journal).toContain("a1");
    expect(ofKey(journal, "b")).toEqual(ofKey(journal, "b").map((_, i) => i + 1));
    await session.leave();
  });

  it("that a dropped relay leaves behind go to the next one before what comes later", async () => {
    await using on = await scene();
    const sweep = await dropHalfWay(on);
    const next = await join(on.store, { relay: "next" });
    await next.tend();
    expect(await nextClaim(next)).toBeUndefined();
    await sweep();
    await next.tend();
    await on.enqueue("a2");
    expect(await drain(next, 2)).toEqual(["a1", "a2"]);
    await next.leave();
  });

  it.each(["stops", "dies"])("go before what comes later also when the next one %s meanwhile", async (how) => {
    await using on = await scene();
    const sweep = await dropHalfWay(on);
    const next = await join(on.store, { relay: "next", leaseMs: SHORT_LEASE_MS });
    await next.tend();
    expect(await nextClaim(next)).toBeUndefined();
    await next.tend();
    if (how === "stops") await next.leave();
    await sweep();
    await on.enqueue("a2");
    const heir = await join(on.store, { relay: "next" });
    expect(await drain(heir, 2)).toEqual(["a1", "a2"]);
    await heir.leave();
  });

  it("that are no messages become dead letters, and the rest goes on", async () => {
    await using on = await scene();
    const session = await streaming(on);
    const documents = on.database.client.db().collection<{ _id: string }>("outbox");
    const bad = {
      _id: "bad",
      status: "new",
      waits: "ready",
      lane: 3,
      stream: "s",
      position: 1,
      payload: 1,
      attempts: 0,
    };
    await documents.insertOne(bad);
    await on.enqueue("a1");
    expect(await drain(session, 1)).toEqual(["a1"]);
    expect(await on.store.admin.dead({})).toMatchObject([{ id: "bad", lastError: /event_type/ }]);
    await session.leave();
  });
});
