import * as client from "prom-client";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { eventEmitter, operation } from "../../../src/core/channels.ts";
import type { PublishResult } from "../../../src/core/contracts.ts";
import type {
  EnqueueOperation,
  HandleOperation,
  PublishOperation,
  ReceiveOperation,
  RelayEvent,
  SubscriberEvent,
  WakeUpEvent,
} from "../../../src/core/events.ts";
import type { Message } from "../../../src/core/message.ts";
import { collectMetrics, type CollectedMetrics } from "../../../src/observability/prometheus/index.ts";
import { PROCESS_METRICS } from "../../../src/observability/prometheus/process-metrics.ts";

const relayEvent = eventEmitter<RelayEvent>("relay");
const subscriberEvent = eventEmitter<SubscriberEvent>("subscriber");
const enqueueing = operation<EnqueueOperation>("outbox", "enqueue");
const publishing = operation<PublishOperation>("relay", "publish");
const handling = operation<HandleOperation>("inbox", "handle");
const receiving = operation<ReceiveOperation>("subscriber", "receive");

let registry: client.Registry;
let collected: CollectedMetrics;
beforeEach(() => {
  registry = new client.Registry();
  collected = collectMetrics({ client, registry });
});
afterEach(() => collected.end());

/** Lines of the text that Prometheus gets, by metric. */
async function lines(metric: string): Promise<string[]> {
  const text = await registry.metrics();
  return text.split("\n").filter((line) => line.startsWith(`${metric}{`) || line.startsWith(`${metric} `));
}

const messages = (count: number, stream = "s"): Message[] =>
  Array.from({ length: count }, () => ({ stream }) as unknown as Message);

async function enqueued(streams: readonly string[], more: { duplicate?: boolean; error?: unknown } = {}) {
  const { duplicate = false, error } = more;
  const told: EnqueueOperation = { store: "postgres", headers: {} };
  told.messages = streams.map((stream) => ({ id: "1", duplicate, stream, type: "t", key: null, size: 1 }));
  const work = () => (error === undefined ? Promise.resolve() : Promise.reject(error));
  await enqueueing.run(told, work).catch(() => undefined);
}

describe("counts what is enqueued", () => {
  it("by stream, without duplicates and without what failed", async () => {
    await enqueued(["orders", "orders", "payments"]);
    await enqueued(["orders"], { duplicate: true });
    await enqueued(["orders"], { error: new Error("no") });
    expect(await lines("outbox_new_total")).toEqual([
      'outbox_new_total{stream="orders"} 2',
      'outbox_new_total{stream="payments"} 1',
    ]);
  });

  it("under at most a hundred names and other", async () => {
    await enqueued(Array.from({ length: 150 }, (_, n) => `s${n}`));
    await enqueued(["s7", "s149"]);
    const found = await lines("outbox_new_total");
    expect(found).toHaveLength(101);
    expect(found).toContain('outbox_new_total{stream="other"} 51');
    expect(found).toContain('outbox_new_total{stream="s7"} 2');
  });
});

describe("counts what relays do", () => {
  it("by outcome of each batch, from 0 on", async () => {
    relayEvent({ type: "started", relay: "r", owner: "o" });
    expect(await lines("outbox_dlq_total")).toEqual(['outbox_dlq_total{relay="r"} 0']);
    relayEvent({ type: "batch", relay: "r", published: 5, retried: 2, dead: 1, waiting: 3, unavailable: 1, ms: 20 });
    relayEvent({ type: "batch", relay: "r", published: 4, retried: 0, dead: 0, waiting: 0, unavailable: 0, ms: 2 });
    expect(await lines("outbox_done_total")).toEqual(['outbox_done_total{relay="r"} 9']);
    expect(await lines("outbox_failed_total")).toEqual(['outbox_failed_total{relay="r"} 2']);
    expect(await lines("outbox_dlq_total")).toEqual(['outbox_dlq_total{relay="r"} 1']);
    expect(await lines("outbox_batch_duration_seconds_count")).toEqual([
      'outbox_batch_duration_seconds_count{relay="r"} 2',
    ]);
    expect(await lines("outbox_batch_duration_seconds_sum")).toEqual([
      'outbox_batch_duration_seconds_sum{relay="r"} 0.022',
    ]);
  });

  it("attempts by result, and what is in hand meanwhile", async () => {
    const told: PublishOperation = { relay: "r", kind: "new", messages: messages(5) };
    const results: PublishResult[] = [
      { status: "published" },
      { status: "failed", error: 1 },
      { status: "rejected", error: 1 },
      { status: "unavailable" },
      { status: "held" },
    ];
    await publishing.run(told, async () => {
      expect(await lines("outbox_processing_inflight")).toEqual(['outbox_processing_inflight{relay="r"} 5']);
      told.results = results;
    });
    expect(await lines("outbox_processing_inflight")).toEqual(['outbox_processing_inflight{relay="r"} 0']);
    expect(await lines("outbox_publish_attempts_total")).toEqual(
      ["published", "failed", "rejected", "unavailable"].map(
        (result) => `outbox_publish_attempts_total{relay="r",result="${result}"} 1`,
      ),
    );
  });

  it("a publisher that throws as a target that is out, for every message", async () => {
    const told: PublishOperation = { relay: "r", kind: "new", messages: messages(3) };
    await publishing.run(told, () => Promise.reject(new Error("refused"))).catch(() => undefined);
    expect(await lines("outbox_publish_attempts_total")).toEqual([
      'outbox_publish_attempts_total{relay="r",result="unavailable"} 3',
    ]);
    expect(await lines("outbox_processing_inflight")).toEqual(['outbox_processing_inflight{relay="r"} 0']);
  });

  it("nothing less in hand for what was under way before", async () => {
    collected.end();
    const later = Promise.withResolvers<void>();
    const { promise: ended, resolve } = Promise.withResolvers<PublishResult>();
    const idle = new client.Registry();
    const before = collectMetrics({ client, registry: idle });
    const told: PublishOperation = { relay: "r", kind: "new", messages: messages(2) };
    const publish = publishing.run(told, () => later.promise);
    const receipt: HandleOperation = { consumer: "c", how: "inline", message: {} as never };
    const handle = handling.run(receipt, () => later.promise);
    before.end();
    collected = collectMetrics({ client, registry });
    told.results = [{ status: "published" }, { status: "running", ended }];
    receipt.result = "processed";
    later.resolve();
    await Promise.all([publish, handle]);
    resolve({ status: "published" });
    await ended;
    const text = await registry.metrics();
    expect(text.match(/^(outbox|inbox)_processing_inflight.* -\d+$/gm)).toBeNull();
    expect(await lines("inbox_done_total")).toEqual(['inbox_done_total{consumer="c"} 1']);
    expect(await lines("outbox_publish_attempts_total")).toEqual([
      'outbox_publish_attempts_total{relay="r",result="published"} 2',
    ]);
  });

  it("no stream of the database as open once the relay is stopped, and none at all without one", async () => {
    for (const relay of ["a", "b"]) relayEvent({ type: "started", relay, owner: "me" });
    relayEvent({ type: "stream_started", relay: "a", from: "scan" });
    expect(await lines("outbox_stream_open")).toEqual(['outbox_stream_open{relay="a"} 1']);
    for (const relay of ["a", "b"]) relayEvent({ type: "stopped", relay });
    expect(await lines("outbox_stream_open")).toEqual(['outbox_stream_open{relay="a"} 0']);
  });

  it("an attempt that goes on as in hand until it has ended", async () => {
    const { promise: ended, resolve } = Promise.withResolvers<PublishResult>();
    const told: PublishOperation = { relay: "r", kind: "new", messages: messages(2) };
    await publishing.run(told, async () => {
      await Promise.resolve();
      told.results = [{ status: "published" }, { status: "running", ended }];
    });
    expect(await lines("outbox_processing_inflight")).toEqual(['outbox_processing_inflight{relay="r"} 1']);
    resolve({ status: "failed", error: 1 });
    await ended;
    expect(await lines("outbox_processing_inflight")).toEqual(['outbox_processing_inflight{relay="r"} 0']);
    expect(await lines("outbox_publish_attempts_total")).toEqual([
      'outbox_publish_attempts_total{relay="r",result="published"} 1',
      'outbox_publish_attempts_total{relay="r",result="failed"} 1',
    ]);
  });

  it("outages while they last, of the target and of its routes", async () => {
    const out = { relay: "r", error: "no", attempt: 1, delayMs: 1 };
    relayEvent({ type: "outage", ...out });
    for (const route of ["a", "b", "a"]) relayEvent({ type: "route_out", ...out, route });
    expect(await lines("outbox_circuit_open")).toEqual(['outbox_circuit_open{relay="r"} 1']);
    expect(await lines("outbox_routes_out")).toEqual(['outbox_routes_out{relay="r"} 2']);
    relayEvent({ type: "recovered", relay: "r" });
    relayEvent({ type: "route_back", relay: "r", route: "a" });
    expect(await lines("outbox_circuit_open")).toEqual(['outbox_circuit_open{relay="r"} 0']);
    expect(await lines("outbox_routes_out")).toEqual(['outbox_routes_out{relay="r"} 1']);
    relayEvent({ type: "outage", ...out });
    relayEvent({ type: "stopped", relay: "r" });
    expect(await lines("outbox_circuit_open")).toEqual(['outbox_circuit_open{relay="r"} 0']);
    expect(await lines("outbox_routes_out")).toEqual(['outbox_routes_out{relay="r"} 0']);
  });

  it("lost leases, errors of the store, lanes and streams", async () => {
    relayEvent({ type: "lease_lost", relay: "r" });
    relayEvent({ type: "store_error", relay: "r", error: "no", code: undefined });
    relayEvent({ type: "lanes", relay: "r", lanes: 32 });
    relayEvent({ type: "full", relay: "r", parked: 9 });
    relayEvent({ type: "stream_lost", relay: "r", error: "no", windowLost: false });
    expect(await lines("outbox_wake_up_open")).toEqual([]);
    eventEmitter<WakeUpEvent>("store")({ type: "wake_up_lost", error: "no", again: true });
    for (const [metric, value] of [
      ["outbox_lease_lost_total", 1],
      ["outbox_store_errors_total", 1],
      ["outbox_lanes", 32],
      ["outbox_full", 1],
      ["outbox_stream_open", 0],
    ]) {
      expect(await lines(String(metric))).toEqual([`${metric}{relay="r"} ${value}`]);
    }
    expect(await lines("outbox_wake_up_open")).toEqual(["outbox_wake_up_open 0"]);
  });
});

describe("counts what inboxes do", () => {
  const message = () => ({ stream: "s" }) as unknown as HandleOperation["message"];
  async function handled(result: HandleOperation["result"], of = message(), how: HandleOperation["how"] = "inline") {
    const told: HandleOperation = { consumer: "c", how, message: of };
    await handling.run(told, async () => {
      await Promise.resolve();
      if (result !== undefined) told.result = result;
    });
  }

  it("by result; a message is new once, however often it is tried", async () => {
    const tried = message();
    await handled("failed", tried);
    await handled("unavailable", tried);
    await handled("processed", tried);
    await handled("duplicate");
    await handled("skipped");
    await handled("rejected");
    expect(await lines("inbox_new_total")).toEqual(['inbox_new_total{consumer="c"} 2']);
    expect(await lines("inbox_done_total")).toEqual(['inbox_done_total{consumer="c"} 1']);
    expect(await lines("inbox_failed_total")).toEqual(['inbox_failed_total{consumer="c"} 1']);
    expect(await lines("inbox_publish_attempts_total")).toEqual(
      ["failed", "unavailable", "processed", "duplicate", "skipped", "rejected"].map(
        (result) => `inbox_publish_attempts_total{consumer="c",result="${result}"} 1`,
      ),
    );
    expect(await lines("inbox_handler_duration_seconds_count")).toEqual([
      'inbox_handler_duration_seconds_count{consumer="c"} 4',
    ]);
    expect(await lines("inbox_processing_inflight")).toEqual(['inbox_processing_inflight{consumer="c"} 0']);
  });

  it("a stored message as new when it is stored, and as done when it is processed", async () => {
    await handled("stored", message(), "store");
    expect(await lines("inbox_done_total")).toEqual([]);
    await handled("processed", message(), "stored");
    expect(await lines("inbox_new_total")).toEqual(['inbox_new_total{consumer="c"} 1']);
    expect(await lines("inbox_done_total")).toEqual(['inbox_done_total{consumer="c"} 1']);
  });

  it("dead letters, of the broker and of the relay that handles what was stored", async () => {
    subscriberEvent({ type: "dead", consumer: "c", id: "1", attempts: 3, error: "no" });
    const told: PublishOperation = { relay: "local", kind: "new", messages: messages(1, "inbox.d") };
    await publishing.run(told, () => Promise.resolve());
    const counts = { published: 0, retried: 0, dead: 2, waiting: 0, unavailable: 0 };
    relayEvent({ type: "batch", relay: "local", ...counts, ms: 1 });
    expect(await lines("inbox_dlq_total")).toEqual([
      'inbox_dlq_total{consumer="c"} 1',
      'inbox_dlq_total{consumer="d"} 2',
    ]);
  });

  it("an outage until it is over, the subscriber stops, or a message goes through", async () => {
    const open = async () => (await lines("inbox_circuit_open")).map((line) => Number(line.split(" ")[1]));
    const out = { consumer: "c", error: "no", delayMs: 1 };
    subscriberEvent({ type: "outage", ...out, attempt: 0 });
    expect(await open()).toEqual([]);
    subscriberEvent({ type: "outage", ...out, attempt: 1 });
    expect(await open()).toEqual([1]);
    subscriberEvent({ type: "recovered", consumer: "c" });
    expect(await open()).toEqual([0]);
    subscriberEvent({ type: "outage", ...out, attempt: 1 });
    subscriberEvent({ type: "stopped", consumer: "c" });
    expect(await open()).toEqual([0]);
    subscriberEvent({ type: "outage", ...out, attempt: 1 });
    const told: ReceiveOperation = { consumer: "c", message: message() };
    await receiving.run(told, async () => {
      await Promise.resolve();
      told.result = "ended";
    });
    expect(await open()).toEqual([0]);
  });
});

describe("collectMetrics", () => {
  it("leaves nothing behind when it ends, and can be called again", async () => {
    collected.end();
    expect(await registry.metrics()).toBe("\n");
    relayEvent({ type: "lease_lost", relay: "r" });
    collected = collectMetrics({ client, registry });
    expect(await lines("outbox_lease_lost_total")).toEqual([]);
  });

  it("refuses to count twice into one registry, and leaves the first alone", async () => {
    expect(() => collectMetrics({ client, registry })).toThrow(
      /the registry has a metric outbox_new_total already.*end\(\)/,
    );
    expect(Object.keys(PROCESS_METRICS).every((name) => registry.getSingleMetric(name) !== undefined)).toBe(true);
  });

  it.each([
    [{ client: {} }, /client must be the module prom-client, got an object/],
    [{ client: undefined }, /client must be the module prom-client/],
    [{ client, registry: {} }, /registry must be a registry of prom-client/],
    [{ client, registy: registry }, /Did you mean "registry"/],
  ])("refuses %o", (options, message) => {
    expect(() => collectMetrics(options as never)).toThrow(message);
  });
});
