import { EventEmitter } from "node:events";
import { describe, expect, test } from "vitest";
import { systemClock } from "../../../src/core/clock.ts";
import type { RabbitmqConnection } from "../../../src/brokers/rabbitmq/rabbitmq-client.ts";
import { RabbitmqLink } from "../../../src/brokers/rabbitmq/rabbitmq-link.ts";

const never = new AbortController().signal;

function connected() {
  const events = new EventEmitter();
  return { events, link: RabbitmqLink.of(events as unknown as RabbitmqConnection) };
}

describe("the rest between two attempts", () => {
  test("ends when the connection is back, however long it was to be", async () => {
    const { events, link } = connected();
    events.emit("disconnect", new Error("gone"));
    const resting = link.rest(60_000, systemClock, never);
    events.emit("reconnect-failed", new Error("not yet"));
    events.emit("connect");
    expect(await resting).toBe(true);
  });

  test("lasts as long as it was to be while the connection is there, or stays away", async () => {
    const { events, link } = connected();
    expect(await link.rest(10, systemClock, never)).toBe(false);
    events.emit("disconnect", new Error("gone"));
    expect(await link.rest(10, systemClock, never)).toBe(false);
  });

  test("is called off by its signal", async () => {
    const { events, link } = connected();
    events.emit("disconnect", new Error("gone"));
    const stopping = new AbortController();
    const resting = link.rest(60_000, systemClock, stopping.signal);
    stopping.abort();
    expect(await resting).toBe(false);
  });
});
