import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { createInProcessBus } from "../../../src/brokers/in-process/index.ts";
import type { HandleResult } from "../../../src/core/contracts.ts";
import type { Message } from "../../../src/core/message.ts";

const { signal } = new AbortController();
const message = (id: string, key: string | null = null) =>
  ({ id, key, stream: "s", type: "t", body: "1", headers: {} }) as unknown as Message;

describe("in-process bus", () => {
  it("is out before start and after stop", async () => {
    const bus = createInProcessBus();
    await expect(bus.publish([message("a")], signal)).rejects.toMatchObject({ code: "unavailable", retryable: true });
    await bus.start("c", async () => ({ status: "done" }));
    expect(await bus.publish([message("a")], signal)).toEqual([{ status: "published" }]);
    await bus.stop();
    await expect(bus.publish([message("a")], signal)).rejects.toMatchObject({ code: "unavailable" });
  });

  it("passes on what the handler says, in the order of the batch", async () => {
    const bus = createInProcessBus();
    const results: Record<string, HandleResult> = {
      a: { status: "done" },
      b: { status: "failed", error: "f" },
      c: { status: "rejected", error: "r" },
    };
    await bus.start("c", async ({ id }) => {
      const result = results[String(id)];
      if (result === undefined) throw new Error("thrown");
      return result;
    });
    expect(
      await bus.publish(
        ["a", "b", "c", "d"].map((id) => message(id)),
        signal,
      ),
    ).toMatchObject([
      { status: "published" },
      { status: "failed", error: "f" },
      { status: "rejected", error: "r" },
      { status: "failed", error: { message: "thrown" } },
    ]);
  });

  it("serves one consumer", async () => {
    const bus = createInProcessBus();
    await bus.start("payments", async () => ({ status: "done" }));
    await expect(bus.start("search", async () => ({ status: "done" }))).rejects.toThrow("already serves payments");
  });

  it("waits at stop for what is in hand, and takes no more of the batch", async () => {
    const bus = createInProcessBus({ concurrency: 1 });
    const done: string[] = [];
    await bus.start("c", async ({ id }) => {
      await sleep(20);
      done.push(String(id));
      return { status: "done" };
    });
    const publishing = bus.publish([message("a"), message("b"), message("c")], signal);
    await sleep(5);
    await bus.stop();
    expect(done).toEqual(["a"]);
    expect((await publishing).map(({ status }) => status)).toEqual(["published", "unavailable", "unavailable"]);
  });
});
