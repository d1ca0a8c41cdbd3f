import { describe, expect, it } from "vitest";
import { RequeueMissing } from "../../../src/audit/requeue-missing.ts";
import type { Publisher } from "../../../src/core/contracts.ts";
import type { Message } from "../../../src/core/message.ts";

const messages = Array.from({ length: 25 }, (_, i): Message => ({
  id: `m${i}`,
  position: BigInt(i),
  stream: "orders",
  type: "placed",
  key: null,
  aggregateType: null,
  aggregateId: null,
  headers: {},
  body: "1",
  createdAt: new Date(0),
}));

describe("sending again what is missing", () => {
  it("goes in small batches, no faster than the rate", async () => {
    const batches: number[] = [];
    const publisher: Publisher = {
      keepsKeyOrder: true,
      publish: async (batch) => {
        batches.push(batch.length);
        return batch.map(() => ({ status: "published" }));
      },
    };
    const startedAt = performance.now();
    const requeue = new RequeueMissing(publisher, 100, undefined);
    expect((await requeue.send(messages)).size).toBe(25);
    expect(batches).toEqual([10, 10, 5]);
    expect(performance.now() - startedAt).toBeGreaterThan(190);
    expect(requeue.report).toEqual({ sent: 25, failed: 0, error: null });
  });

  it("ends though the publisher ignores its signal, and sends nothing after that", { timeout: 20_000 }, async () => {
    let calls = 0;
    const publisher: Publisher = {
      keepsKeyOrder: true,
      publish: () => {
        calls++;
        return new Promise(() => undefined);
      },
    };
    const requeue = new RequeueMissing(publisher, 100, AbortSignal.timeout(50));
    expect((await requeue.send(messages)).size).toBe(0);
    expect(calls).toBe(1);
    expect(requeue.report).toMatchObject({ sent: 0, failed: 25 });
    expect(requeue.report.error).toContain("did not answer");
  });
});
