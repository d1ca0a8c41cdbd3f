import type { EnqueueOperation, HandleOperation, PublishOperation, ReceiveOperation } from "../../core/events.ts";
import type { IncomingMessage } from "../../core/message.ts";
import { rejectUnknownOptions } from "../../core/options.ts";
import { listen } from "../listen.ts";
import type { MetricsApi, OtelAttributes, OtelCounter, OtelHistogram } from "./opentelemetry-api.ts";
import { requireApi } from "./require-api.ts";
import { commonStream, errorType, KnownNames, operationAttributes, streamOf, wasTried } from "./span-facts.ts";

export interface MeasureOptions {
  /** The module: `import * as api from "@opentelemetry/api"`. */
  api: MetricsApi;
}

/**
 * Counters and durations of messages as metrics of OpenTelemetry, for every outbox, relay, subscriber and inbox of this
 * process; gives the function that ends it.
 */
export function measureMessages(options: MeasureOptions): () => void {
  rejectUnknownOptions("measureMessages", options, ["api"]);
  requireApi("measureMessages", options.api, "metrics");
  const measures = new MessageMeasures(options.api);
  const ends = [
    listen("txbox:outbox:enqueue:end", (told) => measures.enqueued(told)),
    listen("txbox:relay:publish:end", (told) => measures.published(told)),
    listen("txbox:subscriber:receive:start", (told) => measures.receive(told)),
    listen("txbox:subscriber:receive:end", (told) => measures.received(told)),
    listen("txbox:inbox:handle:end", (told) => measures.handled(told)),
    listen("txbox:relay:dead", ({ relay }) => measures.dead({ "txbox.relay": relay })),
    listen("txbox:subscriber:dead", ({ consumer }) => measures.dead({ "messaging.consumer.group.name": consumer })),
  ];
  return () => {
    for (const end of ends) end();
  };
}

/** In seconds, as the conventions for messaging have them. */
const BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];

class MessageMeasures {
  readonly #names = new KnownNames();
  readonly #systems = new WeakMap<IncomingMessage, string | undefined>();
  readonly #operationSeconds: OtelHistogram;
  readonly #handleSeconds: OtelHistogram;
  readonly #enqueued: OtelCounter;
  readonly #sent: OtelCounter;
  readonly #consumed: OtelCounter;
  readonly #dead: OtelCounter;

  constructor(api: MetricsApi) {
    const meter = api.metrics.getMeter("txbox");
    const seconds = (description: string) => ({
      description,
      unit: "s",
      advice: { explicitBucketBoundaries: BUCKETS },
    });
    const messages = (description: string) => ({ description, unit: "{message}" });
    this.#operationSeconds = meter.createHistogram(
      "messaging.client.operation.duration",
      seconds("Duration of an enqueue, and of publishing a batch."),
    );
    this.#handleSeconds = meter.createHistogram(
      "messaging.process.duration",
      seconds("Duration of one attempt of an inbox, with its transaction."),
    );
    this.#enqueued = meter.createCounter(
      "txbox.enqueued.messages",
      messages("Messages written in transactions, which may yet be rolled back."),
    );
    this.#sent = meter.createCounter(
      "messaging.client.sent.messages",
      messages("Messages that a relay tried to publish."),
    );
    this.#consumed = meter.createCounter(
      "messaging.client.consumed.messages",
      messages("Messages that a subscriber has taken from a broker."),
    );
    this.#dead = meter.createCounter("txbox.dead.messages", messages("Messages that became dead letters."));
  }

  enqueued({ messages = [], ms = 0, error }: EnqueueOperation): void {
    const failure = error === undefined ? undefined : errorType(error);
    const stream = this.#names.find(commonStream(messages));
    this.#operationSeconds.record(ms / 1000, attributesOf("enqueue", "create", undefined, stream, failure));
    const written = messages.filter(({ duplicate }) => !duplicate);
    for (const [name, count] of counted(written, (message) => this.#names.find(message.stream))) {
      this.#enqueued.add(count, attributesOf("enqueue", "create", undefined, name, undefined));
    }
  }

  published({ relay, system, messages, results, ms = 0, error }: PublishOperation): void {
    const failure = error === undefined ? undefined : errorType(error);
    const stream = this.#names.find(commonStream(messages));
    const own = { "txbox.relay": relay };
    const attributes = { ...attributesOf("publish", "send", system, stream, failure), ...own };
    this.#operationSeconds.record(ms / 1000, attributes);
    if (results === undefined) return;
    for (const { stream: from, status, count } of byStreamAndStatus(messages, results)) {
      const name = this.#names.find(from);
      const why = status === "published" || status === "running" ? undefined : status;
      this.#sent.add(count, { ...attributesOf("publish", "send", system, name, why), ...own, "txbox.result": status });
    }
  }

  receive({ message, system }: ReceiveOperation): void {
    this.#systems.set(message, system);
  }

  received({ consumer, system, message, error }: ReceiveOperation): void {
    const failure = error === undefined ? undefined : errorType(error);
    const stream = this.#names.find(streamOf(message));
    const attributes = attributesOf("receive", "receive", system, stream, failure);
    this.#consumed.add(1, { ...attributes, "messaging.consumer.group.name": consumer });
  }

  handled({ consumer, message, result, error, ms = 0 }: HandleOperation): void {
    const failure = error === undefined ? undefined : errorType(error);
    const stream = this.#names.find(streamOf(message));
    const attributes = attributesOf("handle", "process", this.#systems.get(message), stream, failure);
    this.#handleSeconds.record(ms / 1000, {
      ...attributes,
      "messaging.consumer.group.name": consumer,
      "txbox.result": result ?? "failed",
    });
  }

  dead(attributes: OtelAttributes): void {
    this.#dead.add(1, attributes);
  }
}

function attributesOf(
  name: string,
  type: Parameters<typeof operationAttributes>[1],
  system: string | undefined,
  stream: string | undefined,
  failure: string | undefined,
): OtelAttributes {
  const attributes = operationAttributes(name, type, system, stream);
  if (failure !== undefined) attributes["error.type"] = failure;
  return attributes;
}

function counted<T, Name>(all: readonly T[], nameOf: (one: T) => Name): Map<Name, number> {
  const counts = new Map<Name, number>();
  for (const one of all) counts.set(nameOf(one), (counts.get(nameOf(one)) ?? 0) + 1);
  return counts;
}

interface Tally {
  readonly stream: string;
  readonly status: string;
  count: number;
}

/** Messages that were not tried are not in it. */
function byStreamAndStatus(
  messages: PublishOperation["messages"],
  results: NonNullable<PublishOperation["results"]>,
): Iterable<Tally> {
  const tallies = new Map<string, Tally>();
  let last: Tally | undefined;
  for (let i = 0; i < messages.length; i++) {
    const result = results[i];
    if (result === undefined || !wasTried(result)) continue;
    const { status } = result;
    const { stream } = messages[i]!;
    // Nearly always the same as that of the message before.
    if (last?.stream !== stream || last.status !== status) {
      const name = `${status} ${stream}`;
      last = tallies.get(name);
      if (last === undefined) tallies.set(name, (last = { stream, status, count: 0 }));
    }
    last.count++;
  }
  return tallies.values();
}
