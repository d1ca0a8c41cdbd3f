import { afterAll, describe, expect, it } from "vitest";
import { serverOrSkip, startMongodb } from "../../harness/index.ts";
import { mongoScene } from "../../support/mongodb-scene.ts";

const slot = await serverOrSkip("MongoDB", () => startMongodb());
afterAll(() => slot.stop());

const LETTERS = 100_000;
const GROUPS = 1000;

describe.skipIf(slot.skipped)("groups of many dead letters on MongoDB", () => {
  it("are counted from an index, by the groups that were written", { timeout: 120_000 }, async () => {
    await using on = await mongoScene(slot.server.url);
    const letters = on.database.client.db(on.database.name).collection<{ _id: string }>("outbox_dead");
    const letter = (n: number) => ({
      _id: `m${n}`,
      state: "dead",
      command: null,
      relay: "r",
      position: n,
      lane: 1,
      stream: "orders",
      event_type: "order_created",
      key: `k${n % 5000}`,
      error_group: (n % 10 === 0 ? 0 : n % GROUPS).toString(16).padStart(12, "0"),
      last_error: "refused",
      errors: [],
      attempts: 1,
      died_at: new Date(),
      created_at: new Date(),
      payload: "x".repeat(200),
    });
    for (let from = 0; from < LETTERS; from += 10_000)
      await letters.insertMany(Array.from({ length: 10_000 }, (_, i) => letter(from + i)));
    const startedAt = performance.now();
    const groups = await on.store.admin.deadGroups({ limit: 1000 });
    const took = performance.now() - startedAt;
    process.stdout.write(`groups of ${LETTERS} letters on MongoDB ${took.toFixed(0)} ms\n`);
    expect(groups).toHaveLength(901);
    expect(groups[0]).toMatchObject({ group: "000000000000", count: 10_000, keys: null, estimated: false });
    expect(groups[1]).toMatchObject({ count: 100, keys: expect.any(Number) });
    expect(took).toBeLessThan(3000);
    // The same as the store asks.
    const match = { state: "dead", error_group: { $gt: "" } };
    const project = { _id: 0, relay: 1, error_group: 1, died_at: 1, position: 1 };
    const group = {
      _id: { relay: "$relay", group: "$error_group" },
      last: { $max: "$died_at" },
      at: { $max: "$position" },
    };
    const stages = [{ $match: match }, { $project: project }, { $group: group }];
    const plan = JSON.stringify(await letters.aggregate(stages, { hint: "txbox_groups" }).explain());
    expect(plan).toContain("txbox_groups");
    expect(plan).not.toContain('"FETCH"');
  });
});
