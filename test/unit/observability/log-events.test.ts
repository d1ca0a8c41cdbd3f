import { channel } from "node:diagnostics_channel";
import { Writable } from "node:stream";
import { pino } from "pino";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { eventEmitter, operation } from "../../../src/core/channels.ts";
import type {
  HandleOperation,
  PublishOperation,
  ReconcilerEvent,
  RelayEvent,
  SubscriberEvent,
  WakeUpEvent,
} from "../../../src/core/events.ts";
import { logEvents } from "../../../src/observability/log-events.ts";
import { sample } from "../../../src/testing/broker/sample-message.ts";

const LEVELS: Readonly<Record<number, string>> = { 10: "trace", 20: "debug", 30: "info", 40: "warn", 50: "error" };

interface Line {
  readonly level: string;
  readonly event: string;
  readonly msg: string;
  readonly [name: string]: unknown;
}

/** The real pino, with its lines as objects. */
function recorded(level = "trace") {
  const lines: Line[] = [];
  const text: string[] = [];
  const out = new Writable({
    write(chunk: Buffer, _, done) {
      text.push(chunk.toString());
      const line = JSON.parse(chunk.toString()) as Omit<Line, "level"> & { level: number };
      lines.push({ ...line, level: LEVELS[line.level] } as Line);
      done();
    },
  });
  return { logger: pino({ level }, out), lines, text };
}

const relayTells = eventEmitter<RelayEvent>("relay");
const subscriberTells = eventEmitter<SubscriberEvent>("subscriber");
const outage = (relay: string, attempt: number): RelayEvent => ({
  type: "outage",
  relay,
  error: "Error: connect amqp://user:hunter2@mq:5672",
  attempt,
  delayMs: 2000,
});

let end: () => void = () => undefined;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance", "Date"] });
});
afterEach(() => {
  end();
  vi.useRealTimers();
});
function start(level?: string) {
  const { logger, ...rest } = recorded(level);
  end = logEvents({ logger });
  return rest;
}
const shown = (lines: readonly Line[]) => lines.map(({ level, event, msg }) => `${level} ${event} ${msg}`);

describe("logEvents", () => {
  it("logs fields and a sentence; what a person has to mend are errors, the life of a relay is information", () => {
    const { lines } = start();
    relayTells({ type: "started", relay: "out", owner: "host-1" });
    relayTells({ type: "dead", relay: "out", id: "m-1", position: 7n, attempts: 10, error: "Error: no" });
    relayTells({
      type: "batch",
      relay: "out",
      published: 2,
      retried: 1,
      dead: 0,
      waiting: 0,
      unavailable: 0,
      ms: 12,
    });
    subscriberTells({ type: "dead", consumer: "payments", id: undefined, attempts: 1, error: "Error: no" });
    eventEmitter<ReconcilerEvent>("reconciler")({ type: "reconciled", found: 3, enqueued: 0, known: 3, ms: 5 });
    eventEmitter<WakeUpEvent>("store")({ type: "wake_up_lost", error: "Error: gone", again: true });
    expect(shown(lines)).toEqual([
      "info txbox:relay:started out: started as host-1",
      "error txbox:relay:dead out: message m-1 is dead after 10 attempts: Error: no",
      "debug txbox:relay:batch out: published 2 messages in 12 ms, 1 to be retried",
      "error txbox:subscriber:dead payments: message without an id is put aside after 1 attempt: Error: no",
      "debug txbox:reconciler:reconciled found 3, enqueued 0 missing messages in 5 ms",
      "warn txbox:store:wake_up_lost the wake-up was lost (Error: gone): relays poll until it is back",
    ]);
    expect(lines[1]).toMatchObject({ relay: "out", id: "m-1", position: "7", attempts: 10, error: "Error: no" });
    expect(lines[1]).not.toHaveProperty("type");
  });

  it("warns of an outage once in a minute, and tells its end when it told its beginning", () => {
    const { lines } = start();
    relayTells(outage("out", 1));
    for (let attempt = 2; attempt < 9; attempt++) relayTells(outage("out", attempt));
    relayTells(outage("other", 1));
    expect(shown(lines).filter((line) => line.startsWith("warn"))).toEqual([
      "warn txbox:relay:outage out: the target is out (Error: connect amqp://…); next try in 2.0 s",
      "warn txbox:relay:outage other: the target is out (Error: connect amqp://…); next try in 2.0 s",
    ]);
    expect(lines.filter(({ level }) => level === "debug")).toHaveLength(7);
    vi.advanceTimersByTime(61_000);
    relayTells(outage("out", 9));
    expect(lines.at(-1)).toMatchObject({ level: "warn", repeated: 7, attempt: 9 });
    relayTells({ type: "recovered", relay: "out" });
    expect(lines.at(-1)).toMatchObject({ level: "info", msg: "out: the target is back" });
    // It flaps: neither side floods the log.
    const before = lines.length;
    for (let i = 0; i < 50; i++) {
      relayTells(outage("out", 1));
      relayTells({ type: "recovered", relay: "out" });
    }
    expect(lines.slice(before).filter(({ level }) => level !== "debug")).toEqual([]);
  });

  it("warns once in a minute of an archive that fails, without its secrets", () => {
    const { lines, text } = start();
    const report = { rotated: false, droppedSegments: [], heldBackBy: ["(archive)"] };
    const archiveError = "message_0 could not be archived: Error: put https://user:hunter2@s3/bucket";
    const tell = (more: object) =>
      channel("txbox:maintenance:done").publish({ store: "db", ms: 1, report: { ...report, ...more } });
    tell({});
    tell({ archiveError });
    tell({ archiveError });
    expect(lines.map(({ level }) => level)).toEqual(["debug", "warn", "debug"]);
    expect(lines[1]!.msg).toContain("message_0 could not be archived");
    expect(text.join("")).not.toContain("hunter2");
  });

  it("tells routes apart, and warns of failing messages once in a minute for each relay and consumer", () => {
    const { lines } = start("info");
    for (const route of ["a", "b", "a"])
      relayTells({ type: "route_out", relay: "out", route, error: "full", attempt: 1, delayMs: 10 });
    relayTells({ type: "route_back", relay: "out", route: "a" });
    for (let i = 0; i < 100; i++) {
      const failure = { id: `m-${i}`, attempts: 1, delayMs: 10, error: "Error: no" };
      relayTells({ type: "retry", relay: "out", position: 1n, ...failure });
      subscriberTells({ type: "retry", consumer: "payments", ...failure });
    }
    expect(lines.map(({ level, event }) => `${level} ${event}`)).toEqual([
      "warn txbox:relay:route_out",
      "warn txbox:relay:route_out",
      "info txbox:relay:route_back",
      "warn txbox:relay:retry",
      "warn txbox:subscriber:retry",
    ]);
  });

  it("has neither payloads nor headers nor secrets, at no level", async () => {
    const { lines, text } = start("trace");
    const message = sample("orders", { card: "4111" }, { headers: { authorization: "Bearer 4111" } });
    const told: HandleOperation = { consumer: "payments", how: "inline", message };
    const error = new Error("password=hunter2 was refused by postgres://u:hunter2@db");
    await operation<HandleOperation>("inbox", "handle")
      .run(told, () => Promise.reject(error))
      .catch(() => undefined);
    const batch: PublishOperation = { relay: "out", system: "kafka", kind: "new", messages: [message] };
    await operation<PublishOperation>("relay", "publish").run(batch, async () => undefined);
    relayTells(outage("out", 1));
    expect(text.join("")).not.toMatch(/4111|hunter2|authorization/);
    expect(lines[0]).toMatchObject({
      level: "trace",
      event: "txbox:inbox:handle:end",
      consumer: "payments",
      id: message.id,
      type: "sampled",
      error: expect.stringContaining("was refused") as string,
    });
    expect(lines[1]).toMatchObject({ event: "txbox:relay:publish:end", ids: [message.id], count: 1, system: "kafka" });
  });

  it("has payloads when they are asked for, cut where they are long, and still no headers", async () => {
    const { logger, lines, text } = recorded("trace");
    end = logEvents({ logger, payloads: true });
    const message = sample("orders", { card: "4111" }, { headers: { authorization: "Bearer 5222" } });
    const handled: HandleOperation = { consumer: "payments", how: "inline", message };
    await operation<HandleOperation>("inbox", "handle").run(handled, async () => undefined);
    const others = [
      { ...message, body: new Uint8Array(7) },
      { ...message, body: "x".repeat(2001) },
    ];
    const batch: PublishOperation = { relay: "out", system: "kafka", kind: "new", messages: [message, ...others] };
    await operation<PublishOperation>("relay", "publish").run(batch, async () => undefined);
    expect(lines[0]).toMatchObject({ payload: '{"card":"4111"}' });
    expect(lines[1]).toMatchObject({
      payloads: ['{"card":"4111"}', "7 bytes", `${"x".repeat(2000)} … (2,001 characters)`],
    });
    expect(text.join("")).not.toMatch(/5222|authorization/);
    expect(() => logEvents({ logger, payloads: "yes" } as never)).toThrow(/payloads must be true or false/);
  });

  it("does not hear operations when the logger would drop them", () => {
    start("debug");
    expect(operation("inbox", "handle").isHeard).toBe(false);
  });

  it("puts what a terminal would obey out of the sentence", () => {
    const { lines } = start();
    relayTells({ type: "failed", relay: "out", error: "Error: \u001b[2J\nfake line" });
    expect(lines[0]?.msg).toBe("out: cannot go on: Error: \\u001B[2J fake line");
  });

  it("ends, and refuses what is no logger", () => {
    const { lines } = start();
    end();
    relayTells({ type: "stopped", relay: "out" });
    expect(lines).toEqual([]);
    expect(() => logEvents(undefined as never)).toThrow(/Pass \{ logger: pino\(\) \} or \{ logger: console \}/);
    expect(() => logEvents({} as never)).toThrow(/logger\.error must be a function.*pino\(\)/);
    expect(() => logEvents({ logger: pino(), level: "info" } as never)).toThrow(/no option "level"/);
  });
});
