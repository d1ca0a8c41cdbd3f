import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, describe, expect, it } from "vitest";
import { serverOrSkip, startMongodb } from "../../harness/index.ts";
import {
  contents,
  drain,
  firstClaim,
  join,
  mongoScene,
  ofKey,
  PUBLISHED,
  retry,
  SHORT_LEASE_MS,
  type Scene,
  startsOf,
  streaming,
} from "../../support/mongodb-scene.ts";

const slot = await serverOrSkip("MongoDB", () => startMongodb());
afterAll(() => slot.stop());

const scene = (): Promise<Scene> => mongoScene(slot.server.url, { source: "stream" });

const isSettle = (method: string, [, update]: unknown[]): boolean =>
  method === "updateMany" && JSON.stringify(update).includes('"done"');
const isClaim = (method: string, [, update]: unknown[]): boolean =>
  method === "updateMany" && JSON.stringify(update).includes('"processing"');

describe.skipIf(slot.skipped)("settles of messages by the stream", () => {
  it.each([
    ["published", PUBLISHED],
    ["failed", retry(0)],
  ])("change nothing when they arrive after the lease: %s ones", async (_, outcome) => {
    await using on = await scene();
    const old = await streaming(on, on.broken, SHORT_LEASE_MS);
    await on.enqueue("a1", "b1");
    const claim = await firstClaim(old);
    const arrives = Promise.withResolvers<void>();
    const matched: number[] = [];
    on.hook.intercept = async ({ method, args }, proceed) => {
      if (!isSettle(method, args) && !isClaim(method, args)) return proceed();
      await arrives.promise;
      const result = (await proceed()) as { matchedCount: number };
      matched.push(result.matchedCount);
      return result;
    };
    const settling = old.settle(claim, [outcome, outcome]).catch((error: unknown) => error);
    await sleep(SHORT_LEASE_MS + 100);
    const heir = await join(on.store);
    const inHand = await firstClaim(heir);
    expect(contents(inHand)).toEqual(["a1", "b1"]);
    // By the stream as well: nothing in the documents would keep the old owner out.
    expect(startsOf(on.events)).toEqual(["scan", "resume"]);
    arrives.resolve();
    expect(await settling).toMatchObject({ code: "lease_lost" });
    expect(matched.every((count) => count === 0)).toBe(true);
    expect(matched.length).toBeGreaterThan(0);
    await heir.settle(inHand, [PUBLISHED, PUBLISHED]);
    const [figures] = await on.store.admin.relays();
    expect([figures?.published, figures?.pending, figures?.parked]).toEqual([2n, 0, 0]);
    await heir.leave();
  });

  it("do not wait beyond the lease for a document that another process is writing to", async () => {
    await using on = await scene();
    const old = await streaming(on, on.broken, SHORT_LEASE_MS);
    await on.enqueue("a1");
    const claim = await firstClaim(old);
    const other = on.database.client.startSession();
    other.startTransaction();
    const documents = on.database.client.db().collection("outbox");
    await documents.updateMany({}, { $set: { touched: true } }, { session: other });
    const settling = old.settle(claim, [PUBLISHED]).catch((error: unknown) => error);
    await sleep(SHORT_LEASE_MS);
    on.hook.intercept = () => Promise.reject(new Error("the process is dead"));
    const heir = await join(on.store);
    expect(contents(await firstClaim(heir))).toEqual(["a1"]);
    await other.abortTransaction();
    await other.endSession();
    await sleep(300);
    expect(await documents.findOne()).toMatchObject({ status: "new", waits: "ready" });
    expect(await settling).toBeInstanceOf(Error);
    await heir.leave();
  });

  it.each(["settle", "late claim"])("are written once when the answer to the %s is lost", async (which) => {
    await using on = await scene();
    const session = await streaming(on, on.broken);
    await on.enqueue("a1", "b1", "b2");
    const claim = await firstClaim(session);
    let lost = 0;
    on.hook.intercept = async ({ method, args }, proceed) => {
      const one = which === "settle" ? isSettle(method, args) : isClaim(method, args);
      if (!one || ++lost > 2) return proceed();
      await proceed();
      throw new Error("connection reset");
    };
    await session.settle(claim, [PUBLISHED, retry(0), { status: "waiting" }]);
    expect(lost).toBe(3);
    const [figures] = await on.store.admin.relays();
    expect([figures?.published, figures?.parked]).toEqual([1n, 2]);
    const infos = await on.store.admin.find({ stream: "s" });
    expect(infos.map(({ status, attempts }) => [status, attempts])).toEqual([
      ["published", 1],
      ["retrying", 1],
      ["pending", 0],
    ]);
    on.hook.intercept = undefined;
    expect(ofKey(await drain(session, 2), "b")).toEqual([1, 2]);
    await session.leave();
  });
});
