import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, describe, expect, it } from "vitest";
import type { Outcome } from "../../../src/core/contracts.ts";
import { errorCode } from "../../../src/core/errors.ts";
import { serverOrSkip, startMongodb, until } from "../../harness/index.ts";
import { isLong } from "../../support/is-long.ts";
import { createRandom } from "../../soak/random.ts";
import {
  contents,
  drain,
  firstClaim,
  join,
  mongoScene,
  ofKey,
  PUBLISHED,
  SHORT_LEASE_MS,
  type Scene,
} from "../../support/mongodb-scene.ts";
import { nextClaim } from "../../../src/testing/store/consumer.ts";

const slot = await serverOrSkip("MongoDB", () => startMongodb());
afterAll(() => slot.stop());

const scene = (): Promise<Scene> => mongoScene(slot.server.url);

const isClaim = (method: string, [, update]: unknown[]): boolean =>
  method === "updateMany" && JSON.stringify(update).includes('"processing"');

describe.skipIf(slot.skipped)("operations of an owner that was replaced", () => {
  it("a claim that arrives after the lease takes nothing", async () => {
    await using on = await scene();
    await on.enqueue("a1", "a2", "b1");
    const old = await join(on.broken, { leaseMs: SHORT_LEASE_MS });
    const arrives = Promise.withResolvers<void>();
    let matched: unknown;
    on.hook.intercept = async ({ method, args }, proceed) => {
      if (!isClaim(method, args)) return proceed();
      await arrives.promise;
      const result = (await proceed()) as { matchedCount: number };
      matched = result.matchedCount;
      return result;
    };
    await old.tend();
    const claiming = nextClaim(old);
    await sleep(SHORT_LEASE_MS + 100);
    const heir = await join(on.store);
    const first = await firstClaim(heir);
    expect(contents(first)).toEqual(["a1", "a2", "b1"]);
    await heir.settle(first, [
      { status: "retry", error: "no", attempts: 1, delayMs: 0 },
      { status: "waiting" },
      PUBLISHED,
    ]);
    arrives.resolve();
    expect(await claiming).toBeUndefined();
    expect(matched).toBe(0);
    expect(await drain(heir, 2)).toEqual(["a1", "a2"]);
  });

  it("a claim of ready messages that arrives late, though no other process has claimed them, takes nothing", async () => {
    await using on = await scene();
    await on.enqueue("a1", "a2");
    const old = await join(on.broken, { leaseMs: SHORT_LEASE_MS });
    const arrives = Promise.withResolvers<void>();
    let claims = 0;
    on.hook.intercept = async ({ method, args }, proceed) => {
      if (isClaim(method, args)) claims++;
      if (isClaim(method, args)) await arrives.promise;
      return proceed();
    };
    await old.tend();
    const claiming = nextClaim(old);
    await sleep(SHORT_LEASE_MS + 100);
    arrives.resolve();
    // It has loaded everything anew, and claimed again: what is claimed carries the token of the second claim.
    const claim = (await claiming)!;
    expect(old.isCurrent(claim)).toBe(true);
    const outbox = on.database.client.db().collection("outbox");
    const token = (claim.messages[0] as { token?: string }).token;
    expect(await outbox.countDocuments({ status: "processing", lease_token: token })).toBe(2);
    expect(claims).toBe(2);
    on.hook.intercept = undefined;
    await old.settle(
      claim,
      claim.messages.map(() => ({ status: "published" })),
    );
    expect(claim.messages.map(({ key, body }) => `${key}${String(body)}`)).toEqual(["a1", "a2"]);
  });

  it("a settle that arrives after the next owner has begun changes nothing", async () => {
    await using on = await scene();
    await on.enqueue("a1", "a2", "b1", "c1");
    const old = await join(on.broken, { leaseMs: SHORT_LEASE_MS });
    const claim = await firstClaim(old);
    const arrives = Promise.withResolvers<void>();
    on.hook.intercept = async ({ method }, proceed) => {
      if (method === "bulkWrite") await arrives.promise;
      return proceed();
    };
    const settling = old.settle(claim, [
      { status: "retry", error: "no", attempts: 1, delayMs: 60_000 },
      { status: "waiting" },
      { status: "dead", error: "never", attempts: 1, block: true },
      PUBLISHED,
    ]);
    const lost = settling.then(
      () => "settled",
      (error: unknown) => errorCode(error),
    );
    await sleep(SHORT_LEASE_MS + 100);
    const heir = await join(on.store);
    const inHand = await firstClaim(heir);
    expect(inHand.messages).toHaveLength(4);
    arrives.resolve();
    expect(await lost).toBe("lease_lost");
    await heir.settle(
      inHand,
      inHand.messages.map(() => PUBLISHED),
    );
    const [figures] = await on.store.admin.relays();
    expect([figures?.published, figures?.pending, figures?.parked, figures?.dead]).toEqual([4n, 0, 0, 0]);
  });

  it.each(["outbox", "outbox_dead"])(
    "a command whose write to %s comes too late is carried out by the next owner",
    async (collection) => {
      await using on = await scene();
      await on.enqueue("a1", "a2");
      const old = await join(on.broken, { leaseMs: SHORT_LEASE_MS });
      const claim = await firstClaim(old);
      await old.settle(claim, [{ status: "dead", error: "no", attempts: 1, block: true }, { status: "waiting" }]);
      await on.store.admin.requeue({ all: true });
      let late = false;
      on.hook.intercept = async ({ collection: name, method, args }, proceed) => {
        const text = JSON.stringify(args);
        const isCommand = method === "updateMany" && (text.includes("earlier_attempts") || text.includes("requeued"));
        if (name !== collection || !isCommand || late) return proceed();
        late = true;
        await sleep(SHORT_LEASE_MS + 100);
        return proceed();
      };
      await until(
        async () => {
          await old.tend().catch(() => undefined);
          await nextClaim(old).catch(() => undefined);
          return late;
        },
        { what: "the command" },
      );
      const heir = await join(on.store);
      await old.leave();
      expect(await drain(heir, 2)).toEqual(["a1", "a2"]);
      expect(await on.store.admin.dead({})).toEqual([]);
    },
    30_000,
  );

  it("keys stay in order whichever part of a settle was written before its owner died", async () => {
    for (let seed = 1; seed <= (isLong ? 24 : 6); seed++) {
      await using on = await scene();
      const random = createRandom(seed);
      const keys = ["a", "b", "c", "d"];
      await on.enqueue(...[1, 2, 3, 4].flatMap((n) => keys.map((key) => `${key}${n}`)));
      const old = await join(on.broken, { leaseMs: SHORT_LEASE_MS });
      const claim = await firstClaim(old);
      const failed = new Set<string>();
      const outcomes = claim.messages.map(({ key }): Outcome => {
        if (failed.has(String(key))) return { status: "waiting" };
        if (random.chance(0.6)) return PUBLISHED;
        failed.add(String(key));
        return { status: "retry", error: "no", attempts: 1, delayMs: random.int(0, 300) };
      });
      const written = new Set<string>();
      on.hook.intercept = ({ method, args }, proceed) => {
        if (method !== "bulkWrite") return Promise.reject(new Error("the process is dead"));
        const some = (args[0] as Record<string, { filter: { _id: unknown } }>[]).flatMap((operation) =>
          Object.entries(operation).flatMap(([kind, of]) => {
            const { _id } = of.filter;
            const ids = typeof _id === "string" ? [_id] : (_id as { $in: string[] }).$in;
            const chosen = ids.filter(() => random.chance(0.5));
            for (const id of chosen) written.add(id);
            return chosen.length === 0 ? [] : [{ [kind]: { ...of, filter: { ...of.filter, _id: { $in: chosen } } } }];
          }),
        );
        const asMany = some.map((operation) => ({ updateMany: Object.values(operation)[0] }));
        return Promise.resolve(asMany.length === 0 ? undefined : proceed(asMany)).then(() => {
          throw new Error("the process died in the middle");
        });
      };
      const settling = old.settle(claim, outcomes).catch(() => undefined);
      await sleep(SHORT_LEASE_MS);
      const through = claim.messages
        .filter(({ id }, i) => written.has(id) && outcomes[i]?.status === "published")
        .map(({ key, body }) => `${key}${String(body)}`);
      await on.enqueue(...keys.map((key) => `${key}5`));
      const heir = await join(on.store);
      const rest = await drain(heir, 20 - through.length);
      await settling;
      for (const key of keys) {
        const settled = new Set(ofKey(through, key));
        expect(ofKey(rest, key), `seed ${seed}, key ${key}`).toEqual([1, 2, 3, 4, 5].filter((n) => !settled.has(n)));
      }
      await heir.leave();
    }
  });
});

describe.skipIf(slot.skipped)("answers that get lost", () => {
  it("of a claim: its messages come again, in order, and none is left behind", async () => {
    await using on = await scene();
    await on.enqueue("a1", "a2", "b1");
    const session = await join(on.broken, { leaseMs: 2000 });
    let lost = 0;
    on.hook.intercept = async ({ method, args }, proceed) => {
      if (!isClaim(method, args) || lost > 0) return proceed();
      lost++;
      await proceed();
      throw new Error("connection reset");
    };
    await expect(nextClaim(session)).rejects.toThrow("connection reset");
    await on.enqueue("a3");
    const journal = await drain(session, 4);
    expect(ofKey(journal, "a")).toEqual([1, 2, 3]);
    expect(journal).toHaveLength(4);
  });

  it("of a claim that arrives only when its process claims again", async () => {
    await using on = await scene();
    await on.enqueue("a1", "a2");
    const session = await join(on.broken, { leaseMs: 4000 });
    let late: (() => unknown) | undefined;
    let arrived: unknown;
    on.hook.intercept = async ({ method, args }, proceed) => {
      if (!isClaim(method, args)) return proceed();
      if (late === undefined) {
        late = () => proceed();
        throw new Error("connection reset");
      }
      arrived ??= await late();
      return proceed();
    };
    await expect(nextClaim(session)).rejects.toThrow("connection reset");
    expect(contents(await firstClaim(session))).toEqual(["a1", "a2"]);
    expect(arrived).toMatchObject({ matchedCount: 0 });
  });

  it("of a process that is no longer a member: its documents are found by their lease", async () => {
    await using on = await scene();
    const session = await join(on.store, { leaseMs: SHORT_LEASE_MS });
    await on.enqueue("a1", "a2");
    const documents = on.database.client.db().collection("outbox");
    await documents.updateMany(
      {},
      {
        $set: {
          status: "processing",
          lease_owner: "unknown",
          relay: "r",
          lease_until: new Date(Date.now() - 60_000),
          attempts: 1,
        },
        $unset: { waits: 1 },
      },
    );
    expect(await drain(session, 2)).toEqual(["a1", "a2"]);
  });

  it("of a settle: it is written once, and the relay goes on", async () => {
    await using on = await scene();
    await on.enqueue("a1", "a2", "b1", "c1");
    const session = await join(on.broken);
    const claim = await firstClaim(session);
    let lost = 0;
    on.hook.intercept = async ({ collection, method }, proceed) => {
      if (collection !== "outbox" || method !== "bulkWrite" || ++lost > 2) return proceed();
      await proceed();
      throw new Error("connection reset");
    };
    await session.settle(claim, [
      { status: "retry", error: "no", attempts: 1, delayMs: 0 },
      { status: "waiting" },
      { status: "dead", error: "never", attempts: 1, block: false },
      PUBLISHED,
    ]);
    expect(lost).toBe(3);
    const [figures] = await on.store.admin.relays();
    expect([figures?.published, figures?.parked, figures?.dead]).toEqual([1n, 2, 1]);
    expect(await drain(session, 2)).toEqual(["a1", "a2"]);
    const [letter] = await on.store.admin.dead({});
    expect(letter?.errors).toHaveLength(1);
  });

  it("of a death: the next owner writes the letter", async () => {
    await using on = await scene();
    await on.enqueue("a1", "a2");
    const old = await join(on.broken, { leaseMs: SHORT_LEASE_MS });
    const claim = await firstClaim(old);
    on.hook.intercept = ({ collection, method }, proceed) =>
      collection.endsWith("_dead") || method === "findOneAndUpdate"
        ? Promise.reject(new Error("the process is dead"))
        : proceed();
    const outcome: Outcome = { status: "dead", error: "poison", attempts: 1, block: true };
    await expect(old.settle(claim, [outcome, { status: "waiting" }])).rejects.toThrow();
    expect(await on.store.admin.dead({})).toEqual([]);
    const heir = await join(on.store);
    await until(async () => (await heir.tend()).lanes === 64 || (await nextClaim(heir), false), { what: "all lanes" });
    expect(await on.store.admin.dead({})).toMatchObject([{ state: "dead", lastError: "poison", attempts: 1 }]);
    expect(await nextClaim(heir)).toBeUndefined();
    await on.store.admin.requeue({ all: true });
    expect(await drain(heir, 2)).toEqual(["a1", "a2"]);
  });
});

describe.skipIf(slot.skipped)("reading while others commit", () => {
  it("does not claim a message before an earlier one of its key that the read went past", async () => {
    await using on = await scene();
    await on.enqueue("a1", "b1", "a2");
    const session = await join(on.broken);
    let reads = 0;
    on.hook.interceptRead = ({ method, args }, proceed) => {
      const options = args[1] as { sort?: unknown } | undefined;
      const isRead = method === "find" && options?.sort !== undefined && JSON.stringify(args[0]).includes("ready");
      if (!isRead || ++reads > 1) return proceed();
      // As a read that gave way sees it: the first document was not there yet when it went by.
      return proceed({ ...(args[0] as object), $nor: [{ key: "a", payload: 1 }] }, args[1]);
    };
    expect(await drain(session, 3)).toEqual(["a1", "b1", "a2"]);
    expect(reads).toBeGreaterThan(1);
  });
});
