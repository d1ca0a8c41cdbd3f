import { describe, expect, test } from "vitest";
import { createRelay } from "../../../src/relay/relay.ts";
import { eventually } from "../../../src/testing/eventually.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { adminScene, judging } from "../../support/admin-scene.ts";

describe.skipIf(!hasPostgres())("the samples of a relay", () => {
  test("tell that its whole target was out, though no batch was settled", async () => {
    await using scene = await adminScene();
    await scene.enqueue({ stream: "s", type: "t", key: "k", payload: 1 });
    let tries = 0;
    const publisher = judging(() => (tries++, { status: "unavailable", error: new Error("refused") }));
    const relay = createRelay({ store: scene.store, name: "r", publisher });
    await relay.start();
    await eventually(() => expect(tries).toBeGreaterThan(1));
    await relay.stop();
    const samples = await scene.store.admin.samples({ since: new Date(Date.now() - 600_000) });
    const total = samples.reduce((sum, { unavailable }) => sum + unavailable, 0);
    expect(total).toBeGreaterThan(0);
    expect(samples.reduce((sum, { published }) => sum + published, 0)).toBe(0);
    expect(samples.at(-1)?.lastError).toContain("refused");
  });
});
