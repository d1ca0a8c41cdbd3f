import { runWithin } from "../../core/channels.ts";
import type { EnqueueOperation, HandleOperation, PublishOperation, ReceiveOperation } from "../../core/events.ts";
import type { IncomingMessage, Message } from "../../core/message.ts";
import { rejectUnknownOptions } from "../../core/options.ts";
import { listen } from "../listen.ts";
import {
  CLIENT,
  CONSUMER,
  INTERNAL,
  PRODUCER,
  type OtelContext,
  type OtelLink,
  type OtelSpan,
  type OtelSpanContext,
  type OtelTracer,
  type TraceApi,
} from "./opentelemetry-api.ts";
import { requireApi } from "./require-api.ts";
import {
  addMessage,
  commonStream,
  failureOf,
  KnownNames,
  markFailed,
  operationAttributes,
  spanName,
  streamOf,
  wasTried,
} from "./span-facts.ts";
import { isSampled, isTrace, readSampledContext, readTraceContext, writeTraceContext } from "./trace-context.ts";

export interface TraceOptions {
  /** The module: `import * as api from "@opentelemetry/api"`. */
  api: TraceApi;
}

/**
 * One trace from enqueue to handler, across the database and the broker: its context is stored with each message. Hears
 * every outbox, relay, subscriber and inbox of this process; gives the function that ends it. Nothing it does can fail one
 * of them.
 */
export function traceMessages(options: TraceOptions): () => void {
  rejectUnknownOptions("traceMessages", options, ["api"]);
  requireApi("traceMessages", options.api, "trace");
  const tracing = new MessageTracing(options.api);
  const ends = [
    listen("txbox:outbox:enqueue:start", (told) => tracing.enqueue(told)),
    listen("txbox:outbox:enqueue:end", (told) => tracing.enqueued(told)),
    listen("txbox:relay:publish:start", (told) => tracing.publish(told)),
    listen("txbox:relay:publish:end", (told) => tracing.published(told)),
    listen("txbox:subscriber:receive:start", (told) => tracing.receive(told)),
    listen("txbox:subscriber:receive:end", (told) => tracing.received(told)),
    listen("txbox:subscriber:dead", ({ error }) => tracing.putAside(error)),
    listen("txbox:inbox:handle:start", (told) => tracing.handle(told)),
    listen("txbox:inbox:handle:end", (told) => tracing.handled(told)),
  ];
  return () => {
    for (const end of ends) end();
  };
}

/** More than that SDKs drop, unless told otherwise. */
const MAX_LINKS = 128;

interface SampledMessage {
  readonly index: number;
  readonly message: Message;
  readonly context: OtelSpanContext;
}

class MessageTracing {
  readonly #api: TraceApi;
  readonly #tracer: OtelTracer;
  readonly #names = new KnownNames();
  /** Spans that have not ended, by the object that their operation is told with. */
  readonly #spans = new WeakMap<object, OtelSpan>();
  readonly #sampled = new WeakMap<object, readonly SampledMessage[]>();
  /** The message that is being received in a context. */
  readonly #receiving: symbol;
  readonly #publishing: symbol;
  /** The key of the SDK: what runs in such a context is not traced. */
  readonly #suppressed: symbol;

  constructor(api: TraceApi) {
    this.#api = api;
    this.#tracer = api.trace.getTracer("txbox");
    this.#receiving = api.createContextKey("txbox: the message being received");
    this.#publishing = api.createContextKey("txbox: a relay publishes");
    this.#suppressed = api.createContextKey("OpenTelemetry SDK Context Key SUPPRESS_TRACING");
  }

  enqueue(told: EnqueueOperation): void {
    const active = this.#api.context.active();
    const attributes = operationAttributes("enqueue", "create", undefined, undefined);
    attributes["txbox.store"] = told.store;
    const span = this.#start(told, "enqueue", { kind: PRODUCER, attributes }, active);
    writeTraceContext(span.spanContext(), told.headers);
    this.#runIn(told, this.#api.trace.setSpan(active, span));
  }

  enqueued(told: EnqueueOperation): void {
    this.#end(told, (span) => {
      const { messages = [], error } = told;
      this.#nameAfter(span, "enqueue", messages);
      if (messages.length === 1) {
        span.setAttribute("messaging.message.id", messages[0]!.id);
        span.setAttribute("txbox.message.type", messages[0]!.type);
      } else {
        span.setAttribute("messaging.batch.message_count", messages.length);
      }
      if (error !== undefined) markFailed(span, error);
    });
  }

  /**
   * The batch is a trace of its own, linked to those of its messages. Clients of brokers are not traced beneath it: their
   * instrumentation would put its own context into the message, in place of the one that it was stored with.
   */
  publish(told: PublishOperation): void {
    const { relay, system, kind, messages } = told;
    const sampled = this.#sampledOf(messages);
    if (sampled.length > 0) this.#sampled.set(told, sampled);
    const attributes = operationAttributes("publish", "send", system, undefined);
    attributes["messaging.batch.message_count"] = messages.length;
    attributes["txbox.relay"] = relay;
    attributes["txbox.claim"] = kind;
    const links = sampled
      .slice(0, MAX_LINKS)
      .map(({ context, message: { id } }) => ({ context, attributes: { "messaging.message.id": id } }));
    const root = this.#api.ROOT_CONTEXT;
    const span = this.#start(told, "publish", { kind: CLIENT, attributes, links }, root);
    // It takes a look at each message.
    if (span.isRecording()) this.#nameAfter(span, "publish", messages);
    const context = this.#api.trace.setSpan(root, span).setValue(this.#publishing, true);
    this.#runIn(told, system === undefined ? context : context.setValue(this.#suppressed, true));
  }

  published(told: PublishOperation): void {
    const { results, error } = told;
    const batch = this.#spans.get(told);
    try {
      for (const one of this.#sampled.get(told) ?? []) this.#messagePublished(told, one, batch);
    } finally {
      this.#end(told, (span) => {
        const failure = error ?? results?.map(failureOf).find((found) => found !== undefined);
        if (failure !== undefined) markFailed(span, failure);
      });
    }
  }

  receive(told: ReceiveOperation): void {
    const { consumer, system, message } = told;
    const stream = this.#names.find(streamOf(message));
    const attributes = operationAttributes("receive", "receive", system, stream);
    attributes["messaging.consumer.group.name"] = consumer;
    addMessage(attributes, message);
    const parent = this.#contextOf(readTraceContext(message.headers, this.#api));
    const span = this.#start(told, spanName("receive", stream), { kind: CONSUMER, attributes }, parent);
    const received: Received = { message, system };
    this.#runIn(told, this.#api.trace.setSpan(parent, span).setValue(this.#receiving, received));
  }

  received(told: ReceiveOperation): void {
    this.#end(told, (span) => {
      const { result, error } = told;
      if (result !== undefined) span.setAttribute("txbox.result", result);
      if (error !== undefined) markFailed(span, error);
    });
  }

  /** Told while it is being received. */
  putAside(error: string): void {
    const active = this.#api.context.active();
    if (active.getValue(this.#receiving) === undefined) return;
    const span = this.#api.trace.getSpan(active);
    span?.setAttribute("txbox.dead", true);
    if (span !== undefined) markFailed(span, error);
  }

  handle(told: HandleOperation): void {
    const { consumer, how, message } = told;
    const active = this.#api.context.active();
    const received = this.#receivedIn(active, message);
    const stream = this.#names.find(streamOf(message));
    const attributes = operationAttributes("handle", "process", received?.system, stream);
    attributes["messaging.consumer.group.name"] = consumer;
    attributes["txbox.how"] = how;
    addMessage(attributes, message);
    const { parent, links } = received === undefined ? this.#parentOf(message, active) : { parent: active, links: [] };
    const kind = received === undefined ? CONSUMER : INTERNAL;
    const span = this.#start(told, spanName("handle", stream), { kind, attributes, links }, parent);
    this.#runIn(told, this.#api.trace.setSpan(parent, span));
  }

  handled(told: HandleOperation): void {
    this.#end(told, (span) => {
      const { result, error } = told;
      if (result !== undefined) span.setAttribute("txbox.result", result);
      if (error !== undefined) markFailed(span, error);
    });
  }

  /** Of a message that no subscriber of ours has received. */
  #parentOf(message: IncomingMessage, active: OtelContext): { parent: OtelContext; links: OtelLink[] } {
    const own = readTraceContext(message.headers, this.#api);
    const around = this.#api.trace.getSpan(active)?.spanContext();
    const linkTo = (context: OtelSpanContext | undefined) =>
      isTrace(context) && isSampled(context) ? [{ context }] : [];
    // A relay handles it: the trace of the message goes on, not that of the batch.
    if (active.getValue(this.#publishing) === true) return { parent: this.#contextOf(own), links: linkTo(around) };
    // Inside a span of the application, such as a request that brought it.
    if (isTrace(around)) return { parent: active, links: linkTo(own) };
    return { parent: this.#contextOf(own), links: [] };
  }

  #receivedIn(context: OtelContext, message: IncomingMessage): Received | undefined {
    const received = context.getValue(this.#receiving) as Received | undefined;
    return received?.message === message ? received : undefined;
  }

  #messagePublished(told: PublishOperation, one: SampledMessage, batch: OtelSpan | undefined): void {
    const { index, message, context } = one;
    const result = told.results?.[index];
    if (!wasTried(result) && told.error === undefined) return;
    const stream = this.#names.find(message.stream);
    const attributes = operationAttributes("publish", "send", told.system, stream);
    attributes["txbox.relay"] = told.relay;
    if (result !== undefined) attributes["txbox.result"] = result.status;
    addMessage(attributes, message);
    const endTime = Date.now();
    const startTime = endTime - (told.ms ?? 0);
    const batchContext = batch?.isRecording() === true ? batch.spanContext() : undefined;
    const links = batchContext === undefined ? [] : [{ context: batchContext }];
    const name = spanName("publish", stream);
    const span = this.#tracer.startSpan(name, { kind: CLIENT, attributes, links, startTime }, this.#contextOf(context));
    const error = result === undefined ? told.error : failureOf(result);
    if (error !== undefined) markFailed(span, error);
    span.end(endTime);
  }

  #nameAfter(span: OtelSpan, operation: string, messages: readonly { readonly stream: string }[]): void {
    const stream = this.#names.find(commonStream(messages));
    if (stream === undefined) return;
    span.updateName(spanName(operation, stream));
    span.setAttribute("messaging.destination.name", stream);
  }

  #sampledOf(messages: readonly Message[]): SampledMessage[] {
    const sampled: SampledMessage[] = [];
    for (let index = 0; index < messages.length; index++) {
      const message = messages[index]!;
      const context = this.#sampledContext(message);
      if (context !== undefined) sampled.push({ index, message, context });
    }
    return sampled;
  }

  /** A row that no outbox wrote may have headers that cannot be read. */
  #sampledContext(message: Message): OtelSpanContext | undefined {
    try {
      return readSampledContext(message, this.#api);
    } catch {
      return undefined;
    }
  }

  #contextOf(spanContext: OtelSpanContext | undefined): OtelContext {
    const root = this.#api.ROOT_CONTEXT;
    return spanContext === undefined ? root : this.#api.trace.setSpanContext(root, spanContext);
  }

  #start(told: object, name: string, options: Parameters<OtelTracer["startSpan"]>[1], context: OtelContext): OtelSpan {
    const span = this.#tracer.startSpan(name, options, context);
    this.#spans.set(told, span);
    return span;
  }

  /** What becomes of the details, the span ends. */
  #end(told: object, addTo: (span: OtelSpan) => void): void {
    const span = this.#spans.get(told);
    if (span === undefined) return;
    this.#spans.delete(told);
    try {
      if (span.isRecording()) addTo(span);
    } finally {
      span.end();
    }
  }

  #runIn(told: EnqueueOperation | PublishOperation | ReceiveOperation | HandleOperation, context: OtelContext): void {
    runWithin(told, (work) => this.#api.context.with(context, work));
  }
}

interface Received {
  readonly message: IncomingMessage;
  readonly system: string | undefined;
}
