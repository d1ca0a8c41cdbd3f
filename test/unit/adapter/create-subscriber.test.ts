import { describe, expect, test } from "vitest";
import { createSubscriber } from "../../../src/adapter/index.ts";
import type { Handle } from "../../../src/core/contracts.ts";

const handle: Handle = async () => ({ status: "done" });

describe("createSubscriber", () => {
  test("serves one consumer at a time, and another one after it was stopped", async () => {
    const log: string[] = [];
    const subscriber = createSubscriber(async (consumer) => {
      log.push(`begin ${consumer}`);
      return { stop: async () => void log.push(`stop ${consumer}`) };
    });
    await subscriber.stop();
    await subscriber.start("a", handle);
    const error = { code: "invalid_option", message: expect.stringMatching(/already serves a.*another one for b/) };
    await expect(subscriber.start("b", handle)).rejects.toMatchObject(error);
    await Promise.all([subscriber.stop(), subscriber.stop()]);
    await subscriber.start("b", handle);
    expect(log).toEqual(["begin a", "stop a", "begin b"]);
  });

  test("may be started again after a start that failed", async () => {
    let attempts = 0;
    const subscriber = createSubscriber(async () => {
      if (++attempts === 1) throw new Error("not there");
      return { stop: async () => undefined };
    });
    await expect(subscriber.start("a", handle)).rejects.toThrow("not there");
    await subscriber.start("a", handle);
  });

  test("a stop during a start ends that and waits for it", async () => {
    const log: string[] = [];
    const subscriber = createSubscriber(async (_, __, stopping) => {
      await new Promise((resolve) => stopping.addEventListener("abort", resolve));
      log.push("begun");
      return { stop: async () => void log.push("stopped") };
    });
    const starting = subscriber.start("a", handle);
    await subscriber.stop();
    await starting;
    expect(log).toEqual(["begun", "stopped"]);
  });
});
