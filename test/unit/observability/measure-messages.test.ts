import { metrics } from "@opentelemetry/api";
import * as api from "@opentelemetry/api";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
  type Histogram,
} from "@opentelemetry/sdk-metrics";
import { afterEach, beforeEach, expect, it } from "vitest";
import { eventEmitter, operation } from "../../../src/core/channels.ts";
import type {
  EnqueueOperation,
  HandleOperation,
  PublishOperation,
  ReceiveOperation,
  RelayEvent,
} from "../../../src/core/events.ts";
import { measureMessages } from "../../../src/observability/opentelemetry/index.ts";
import { sample } from "../../../src/testing/broker/sample-message.ts";

const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
let reader: PeriodicExportingMetricReader;
let end: () => void;

beforeEach(() => {
  reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });
  metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }));
  end = measureMessages({ api });
});
afterEach(async () => {
  end();
  metrics.disable();
  await reader.shutdown();
});

/** Every point by its metric: what it counts, and by which attributes. */
async function points(): Promise<Record<string, [number, api.Attributes][]>> {
  await reader.forceFlush();
  const all =
    exporter
      .getMetrics()
      .at(-1)
      ?.scopeMetrics.flatMap((scope) => scope.metrics) ?? [];
  return Object.fromEntries(
    all.map(({ descriptor, dataPoints }) => [
      `${descriptor.name} (${descriptor.unit})`,
      dataPoints.map(({ value, attributes }) => [
        typeof value === "number" ? value : (value as Histogram).count,
        attributes,
      ]),
    ]),
  );
}

it("counts and times what becomes of messages, by names that are few", async () => {
  const message = sample("orders", 1);
  const enqueue: EnqueueOperation = { store: "postgres", headers: {} };
  await operation<EnqueueOperation>("outbox", "enqueue").run(enqueue, async () => {
    const { id, stream, type, key } = message;
    const written = { id, stream, type, key, size: 1 };
    enqueue.messages = [
      { ...written, duplicate: false },
      { ...written, duplicate: true },
    ];
  });
  const other = sample("refunds", 1);
  const messages = [message, message, other, message, other];
  const publish: PublishOperation = { relay: "out", system: "kafka", kind: "new", messages };
  await operation<PublishOperation>("relay", "publish").run(publish, async () => {
    const published = { status: "published" } as const;
    publish.results = [
      published,
      published,
      published,
      { status: "failed", error: new Error("no") },
      { status: "held" },
    ];
  });
  const receive: ReceiveOperation = { consumer: "payments", system: "kafka", message };
  await operation<ReceiveOperation>("subscriber", "receive").run(receive, async () => {
    for (const failure of [new RangeError("no"), undefined]) {
      const handle: HandleOperation = { consumer: "payments", how: "inline", message };
      await operation<HandleOperation>("inbox", "handle").run(handle, async () => {
        handle.result = failure === undefined ? "processed" : "failed";
        if (failure !== undefined) handle.error = failure;
      });
    }
    receive.result = "ended";
  });
  eventEmitter<RelayEvent>("relay")({ type: "dead", relay: "out", id: "m", position: 1n, attempts: 9, error: "no" });

  const of = (name: string, type: string, system: string, more: api.Attributes) => ({
    "messaging.operation.name": name,
    "messaging.operation.type": type,
    "messaging.system": system,
    ...more,
  });
  const orders = { "messaging.destination.name": "orders" };
  const refunds = { "messaging.destination.name": "refunds" };
  const [out, payments] = [{ "txbox.relay": "out" }, { "messaging.consumer.group.name": "payments" }];
  const published = { ...out, "txbox.result": "published" };
  expect(await points()).toEqual({
    "messaging.client.operation.duration (s)": [
      [1, of("enqueue", "create", "txbox", orders)],
      [1, of("publish", "send", "kafka", out)],
    ],
    "txbox.enqueued.messages ({message})": [[1, of("enqueue", "create", "txbox", orders)]],
    "messaging.client.sent.messages ({message})": [
      [2, of("publish", "send", "kafka", { ...orders, ...published })],
      [1, of("publish", "send", "kafka", { ...refunds, ...published })],
      [1, of("publish", "send", "kafka", { ...orders, ...out, "txbox.result": "failed", "error.type": "failed" })],
    ],
    "messaging.client.consumed.messages ({message})": [
      [1, of("receive", "receive", "kafka", { ...orders, ...payments })],
    ],
    "messaging.process.duration (s)": [
      [
        1,
        of("handle", "process", "kafka", {
          ...orders,
          ...payments,
          "txbox.result": "failed",
          "error.type": "RangeError",
        }),
      ],
      [1, of("handle", "process", "kafka", { ...orders, ...payments, "txbox.result": "processed" })],
    ],
    "txbox.dead.messages ({message})": [[1, out]],
  });
});

it("refuses something else than the API", () => {
  expect(() => measureMessages({ api: {} } as never)).toThrow(/@opentelemetry\/api/);
});
