import { afterAll, describe, expect, it } from "vitest";
import { systemClock } from "../../../src/core/clock.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { serverOrSkip, startMongodb } from "../../harness/index.ts";
import {
  contents,
  drain,
  firstClaim,
  join,
  mongoScene,
  retry,
  type Scene,
  WAITING,
} from "../../support/mongodb-scene.ts";
import { nextClaim } from "../../../src/testing/store/consumer.ts";

const slot = await serverOrSkip("MongoDB", () => startMongodb());
afterAll(() => slot.stop());

/** Longer than the first message has to wait, and less than a lease. */
const JUMP_MS = 20_000;

/** The one message of this status is due so long after the server's present. */
async function setDue({ database }: Scene, filter: object, ms: number): Promise<void> {
  const outbox = database.client.db().collection("outbox");
  const { modifiedCount } = await outbox.updateOne(filter, [{ $set: { next_retry_at: { $add: ["$$NOW", ms] } } }]);
  expect(modifiedCount).toBe(1);
}

describe.skipIf(slot.skipped)("parked messages of MongoDB", () => {
  it.each([1, 2, 3, 4, 5, 6])(
    "wait for the first of their key, though time jumps at look %i at the clock",
    async (n) => {
      await using on = await mongoScene(slot.server.url);
      let looks = Number.NaN;
      const monotonic = (): number => systemClock.monotonic() + (++looks >= n ? JUMP_MS : 0);
      const store = createMongoStore({ client: on.hook.client, clock: { ...systemClock, monotonic } });
      await on.enqueue("a1", "a2");
      const session = await join(store);
      await session.settle(await firstClaim(session), [retry(0), WAITING]);
      await setDue(on, { status: "failed" }, JUMP_MS / 2);
      on.hook.interceptRead = ({ args }, proceed) => {
        if (JSON.stringify(args[0]).includes('"parked"')) looks = 0;
        return proceed();
      };
      const early = await nextClaim(session);
      expect(looks).toBeGreaterThan(0);
      expect(early === undefined ? [] : contents(early)).toEqual([]);
      on.hook.interceptRead = undefined;
      looks = Number.NaN;
      await setDue(on, { status: "failed" }, 0);
      // Times that the session remembers are those of the clock that jumped.
      await session.leave();
      expect(await drain(await join(store), 2)).toEqual(["a1", "a2"]);
    },
  );

  it("wait for no clock unless they have failed, be that of their writer an hour ahead", async () => {
    await using on = await mongoScene(slot.server.url);
    await on.enqueueAll([{ stream: "s", type: "t", payload: 1 }]);
    const session = await join(on.store);
    await session.settle(await firstClaim(session), [WAITING]);
    await setDue(on, { status: "new", waits: "parked" }, 3_600_000);
    expect(await drain(session, 1)).toEqual(["null1"]);
  });
});
