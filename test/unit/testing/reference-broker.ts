import { decodeEnvelope } from "../../../src/adapter/envelope.ts";
import { publishByKey } from "../../../src/core/by-key.ts";
import type { Handle, HandleResult, Publisher, PublishResult, Subscriber } from "../../../src/core/contracts.ts";
import { deadHeaders } from "../../../src/core/dead-letter.ts";
import { PermanentError, UnavailableError } from "../../../src/core/errors.ts";
import type { IncomingMessage, Message } from "../../../src/core/message.ts";
import { CONFORMANCE_ATTEMPTS, type AsideMessage, type SubscriberLimits } from "../../../src/testing/index.ts";

/** Ways in which a broker or its adapter may be wrong, to see that the suites notice. */
export type Fault =
  | "confirms early"
  | "overtakes"
  | "blames in an outage"
  | "ignores the signal"
  | "outlives its lease"
  | "drops headers"
  | "repeats rejected"
  | "does not wait"
  | "mixes a key"
  | "repeats done"
  | "drops the dead"
  | "takes any size"
  | "takes a route for all";

const MAX_BYTES = 1_000_000;

/** A queue in memory with everything the suites can ask of a broker, right or wrong. */
export class ReferenceBroker {
  readonly arrived: IncomingMessage[] = [];
  readonly refused = new Map<string, "failed" | "rejected">();
  readonly aside: AsideMessage[] = [];
  readonly #attempts = new Map<IncomingMessage, number>();
  readonly #queue: IncomingMessage[] = [];
  readonly #fault: Fault | undefined;
  #keysInHand = new Set<string>();
  #subscriptions = new Set<() => void>();
  down = false;
  /** Streams that lead nowhere at the moment. */
  readonly routesOut = new Set<string>();
  hanging: Promise<void> | undefined;

  constructor(fault?: Fault) {
    this.#fault = fault;
  }

  send(message: IncomingMessage): void {
    const stored = this.#fault === "drops headers" ? { ...message, headers: {} } : message;
    this.arrived.push(stored);
    this.#queue.push(stored);
    for (const wake of this.#subscriptions) wake();
  }

  /** As the envelope of a real broker is opened; what cannot be read goes aside. */
  sendForeign(body: Uint8Array, fields: Readonly<Record<string, string>> = {}): void {
    try {
      this.send(decodeEnvelope(fields, body, { cloudEventPrefixes: ["ce_"], asciiOnly: false }));
    } catch (error) {
      this.#moveToDeadLetters(body, error, 0);
    }
  }

  #moveToDeadLetters(body: string | Uint8Array, error: unknown, attempts: number): void {
    if (this.#fault === "drops the dead") return;
    this.aside.push({ body: Buffer.from(body as string), headers: deadHeaders("consumer", error, attempts) });
  }

  publisher(): Publisher {
    let closed = false;
    const one = async (message: Message, signal: AbortSignal): Promise<PublishResult> => {
      await Promise.resolve();
      if (this.hanging !== undefined && this.#fault !== "ignores the signal") {
        await Promise.race([this.hanging, new Promise((resolve) => signal.addEventListener("abort", resolve))]);
      } else if (this.hanging !== undefined) await this.hanging;
      if (signal.aborted) return { status: "unavailable" };
      if (this.down || closed) {
        const error = new UnavailableError("out");
        return this.#fault === "blames in an outage" ? { status: "failed", error } : { status: "unavailable", error };
      }
      if (this.routesOut.has(message.stream)) {
        const error = new UnavailableError("no subscriber takes it");
        if (this.#fault === "takes a route for all") return { status: "unavailable", error };
        return { status: "unavailable", error, route: message.stream };
      }
      if (message.body.length > MAX_BYTES || message.stream === "nowhere") {
        return { status: "rejected", error: new PermanentError("no") };
      }
      const refusal = this.refused.get(message.id);
      if (refusal !== undefined) {
        if (refusal === "failed") this.refused.delete(message.id);
        return this.#fault === "confirms early"
          ? { status: "published" }
          : { status: refusal, error: new Error(refusal) };
      }
      this.send(message);
      return { status: "published" };
    };
    return {
      keepsKeyOrder: true,
      publish: (messages, signal, progress) =>
        this.#fault === "overtakes"
          ? Promise.all(messages.map((message) => one(message, signal)))
          : publishByKey(messages, (message) => one(message, signal), {
              concurrency: 5,
              signal,
              progress: this.#fault === "outlives its lease" ? undefined : progress,
            }),
      close: async () => void (closed = true),
    };
  }

  subscriber({ prefetchBytes = Infinity }: SubscriberLimits = {}): Subscriber {
    let bytes = 0;
    const mayTake = (): boolean => bytes < prefetchBytes || this.#fault === "takes any size";
    const state = { stopping: true };
    let wake = (): void => undefined;
    const inHand = new Set<Promise<void>>();
    return {
      start: async (_, handle) => {
        state.stopping = false;
        wake = () => {
          while (!state.stopping && inHand.size < 10 && mayTake()) {
            const message = this.#next();
            if (message === undefined) return;
            bytes += message.body.length;
            const work = this.#deliver(message, handle).then(() => {
              inHand.delete(work);
              bytes -= message.body.length;
              for (const other of this.#subscriptions) other();
            });
            inHand.add(work);
          }
        };
        this.#subscriptions.add(wake);
        wake();
      },
      stop: async () => {
        state.stopping = true;
        this.#subscriptions.delete(wake);
        if (this.#fault !== "does not wait") await Promise.all(inHand);
      },
    };
  }

  /** The first message whose key no subscriber has in hand. */
  #next(): IncomingMessage | undefined {
    const free = (message: IncomingMessage): boolean =>
      message.key == null || this.#fault === "mixes a key" || !this.#keysInHand.has(message.key);
    const at = this.#queue.findIndex(free);
    if (at === -1) return undefined;
    const [message] = this.#queue.splice(at, 1);
    if (message?.key != null) this.#keysInHand.add(message.key);
    return message;
  }

  async #deliver(message: IncomingMessage, handle: Handle): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    const result = await handle(message, new AbortController().signal).catch((error: unknown): HandleResult => ({
      status: "failed",
      error,
    }));
    if (message.key != null) this.#keysInHand.delete(message.key);
    const attempts = (this.#attempts.get(message) ?? 0) + (result.status === "failed" ? 1 : 0);
    this.#attempts.set(message, attempts);
    const again = result.status === "failed" || result.status === "unavailable";
    if (result.status === "rejected" || (again && attempts >= CONFORMANCE_ATTEMPTS)) {
      this.#moveToDeadLetters(message.body, result.error, attempts);
    } else if (again) this.#queue.unshift(message);
    if (result.status === "rejected" && this.#fault === "repeats rejected") this.#queue.unshift(message);
    if (result.status === "done" && this.#fault === "repeats done") this.#queue.push(message);
  }
}
