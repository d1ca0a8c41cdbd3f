import { AsyncLocalStorage } from "node:async_hooks";
import { channel, subscribe, unsubscribe } from "node:diagnostics_channel";
import { readFileSync } from "node:fs";
import { afterEach, describe, expect, it, vi } from "vitest";
import { eventEmitter, operation, runWithin } from "../../../src/core/channels.ts";
import type { Channels, Ended, ReconcilerEvent } from "../../../src/core/events.ts";
import { listen } from "../../../src/observability/listen.ts";

const ends: (() => void)[] = [];
const until = (end: () => void): void => void ends.push(end);
afterEach(() => {
  for (const end of ends.splice(0)) end();
  vi.restoreAllMocks();
});

const failed: ReconcilerEvent = { type: "failed", error: "no" };

describe("events", () => {
  it("come on the channel of their part and type, and to onEvent", () => {
    const told: unknown[] = [];
    const own: unknown[] = [];
    until(listen("txbox:reconciler:failed", (event) => told.push(event.error)));
    until(listen("txbox:reconciler:reconciled", (event) => told.push(event.found)));
    eventEmitter<ReconcilerEvent>("reconciler", (event) => own.push(event))(failed);
    expect(told).toEqual(["no"]);
    expect(own).toEqual([failed]);
  });

  it("reach no listener after it has ended", () => {
    const told: unknown[] = [];
    listen("txbox:reconciler:failed", (event) => told.push(event))();
    eventEmitter<ReconcilerEvent>("reconciler")(failed);
    expect(told).toEqual([]);
  });

  it.each<[string, () => unknown]>([
    [
      "throws",
      () => {
        throw new Error("mine");
      },
    ],
    ["rejects", () => Promise.reject(new Error("mine"))],
  ])("cost a warning when a listener %s, and reach the others", async (_, listener) => {
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => undefined);
    const others: unknown[] = [];
    until(listen("txbox:reconciler:failed", listener));
    until(listen("txbox:reconciler:failed", (event) => others.push(event)));
    eventEmitter<ReconcilerEvent>("reconciler", listener)(failed);
    await Promise.resolve();
    expect(others).toEqual([failed]);
    expect(warn.mock.calls.map(([text]) => text)).toEqual([
      expect.stringContaining("txbox:reconciler:failed"),
      expect.stringContaining("onEvent"),
    ]);
  });
});

describe("an operation", () => {
  interface Told {
    n: number;
    ms?: number;
    error?: unknown;
  }
  const tried = operation<Told>("outbox", "test");

  it("is not heard without a listener", () => {
    expect(tried.isHeard).toBe(false);
  });

  it("tells its start and its end with one object, and how long it took", async () => {
    const told: [string, Told, number | undefined][] = [];
    for (const when of ["start", "end"]) {
      const hear = (event: unknown): void => void told.push([when, event as Told, (event as Told).ms]);
      subscribe(`txbox:outbox:test:${when}`, hear);
      until(() => unsubscribe(`txbox:outbox:test:${when}`, hear));
    }
    const event: Told = { n: 1 };
    expect(await tried.run(event, async () => ++event.n)).toBe(2);
    expect(told).toEqual([
      ["start", event, undefined],
      ["end", event, expect.any(Number)],
    ]);
    const failing: Told = { n: 1 };
    await expect(tried.run(failing, () => Promise.reject(new Error("no")))).rejects.toThrow("no");
    expect(failing.error).toEqual(new Error("no"));
    expect(told).toHaveLength(4);
  });

  it("runs in what a listener binds to its start", async () => {
    const storage = new AsyncLocalStorage<number>();
    const start = channel("txbox:outbox:test:start");
    start.bindStore(storage, (told) => (told as Told).n);
    until(() => start.unbindStore(storage));
    const inner = await tried.run({ n: 7 }, async () => {
      await Promise.resolve();
      return storage.getStore();
    });
    expect(inner).toBe(7);
    expect(storage.getStore()).toBeUndefined();
  });
});

describe("the context that a listener gives an operation", () => {
  const tried = operation<Ended>("outbox", "within");
  const atStart = (listener: (told: Ended) => void): void => {
    const hear = (told: unknown): void => listener(told as Ended);
    subscribe("txbox:outbox:within:start", hear);
    until(() => unsubscribe("txbox:outbox:within:start", hear));
  };

  it("is where the work runs, those of the first listeners outside", async () => {
    const storage = new AsyncLocalStorage<string>();
    for (const name of ["a", "b"]) {
      atStart((told) => runWithin(told, (work) => storage.run(`${storage.getStore() ?? ""}${name}`, work)));
    }
    const inner = await tried.run({}, async () => {
      await Promise.resolve();
      return storage.getStore();
    });
    expect(inner).toBe("ab");
  });

  it.each<[string, (work: () => unknown) => unknown]>([
    ["does not call the work", () => undefined],
    [
      "calls it later",
      async (work) => {
        await Promise.resolve();
        await work();
      },
    ],
    ["waits for it", async (work) => work()],
    [
      "throws before it",
      () => {
        throw new Error("mine");
      },
    ],
    [
      "throws after it",
      (work) => {
        void work();
        throw new Error("mine");
      },
    ],
    ["calls it twice", (work) => [work(), work()]],
  ])("harms nothing when it %s: the work runs once", async (_, run) => {
    vi.spyOn(process, "emitWarning").mockImplementation(() => undefined);
    atStart((told) => runWithin(told, run));
    let runs = 0;
    expect(await tried.run({}, async () => ++runs)).toBe(1);
    expect(runs).toBe(1);
    const rejections: unknown[] = [];
    const hear = (reason: unknown): void => void rejections.push(reason);
    process.on("unhandledRejection", hear);
    until(() => process.off("unhandledRejection", hear));
    await expect(tried.run({}, () => Promise.reject(new Error("no")))).rejects.toThrow("no");
    await new Promise((resolve) => setImmediate(resolve));
    expect(rejections).toEqual([]);
  });
});

describe("a listener that always throws", () => {
  it("warns once in a minute", () => {
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => undefined);
    until(
      listen("txbox:reconciler:failed", () => {
        throw new Error("mine");
      }),
    );
    for (let i = 0; i < 100; i++) eventEmitter<ReconcilerEvent>("reconciler")(failed);
    expect(warn).toHaveBeenCalledTimes(1);
  });
});

describe("docs/events.md", () => {
  // Every channel by name: the compiler sees to it that none is missing here.
  const every: { [Name in keyof Channels]: true } = {
    "txbox:outbox:enqueue:start": true,
    "txbox:outbox:enqueue:end": true,
    "txbox:relay:publish:start": true,
    "txbox:relay:publish:end": true,
    "txbox:subscriber:receive:start": true,
    "txbox:subscriber:receive:end": true,
    "txbox:inbox:handle:start": true,
    "txbox:inbox:handle:end": true,
    "txbox:relay:started": true,
    "txbox:relay:stopped": true,
    "txbox:relay:failed": true,
    "txbox:relay:lanes": true,
    "txbox:relay:paused": true,
    "txbox:relay:resumed": true,
    "txbox:relay:batch": true,
    "txbox:relay:retry": true,
    "txbox:relay:dead": true,
    "txbox:relay:outage": true,
    "txbox:relay:recovered": true,
    "txbox:relay:route_out": true,
    "txbox:relay:route_back": true,
    "txbox:relay:full": true,
    "txbox:relay:not_full": true,
    "txbox:relay:lease_lost": true,
    "txbox:relay:store_error": true,
    "txbox:relay:maintained": true,
    "txbox:relay:stream_started": true,
    "txbox:relay:stream_lost": true,
    "txbox:subscriber:retry": true,
    "txbox:subscriber:dead": true,
    "txbox:subscriber:outage": true,
    "txbox:subscriber:recovered": true,
    "txbox:subscriber:stopped": true,
    "txbox:inbox:newer_version": true,
    "txbox:reconciler:reconciled": true,
    "txbox:reconciler:failed": true,
    "txbox:maintenance:done": true,
    "txbox:maintenance:failed": true,
    "txbox:store:wake_up_started": true,
    "txbox:store:wake_up_lost": true,
  };

  it("has a row for every channel, and no other", () => {
    const rows = readFileSync("docs/events.md", "utf8")
      .split("\n")
      .filter((line) => line.startsWith("| `txbox:"));
    const named = rows.flatMap((row) => [...row.split("|")[1]!.matchAll(/`([^`]+)`/g)].map(([, name]) => name!));
    const operations = ["outbox:enqueue", "relay:publish", "subscriber:receive", "inbox:handle"].map(
      (one) => `txbox:${one}`,
    );
    const names = named.flatMap((name) => (operations.includes(name) ? [`${name}:start`, `${name}:end`] : [name]));
    expect(names.sort()).toEqual(Object.keys(every).sort());
  });
});
