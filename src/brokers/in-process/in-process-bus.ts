import { publishByKey } from "../../core/by-key.ts";
import type { Handle, HandleResult, Publisher, PublishResult, Subscriber } from "../../core/contracts.ts";
import { TxboxError, UnavailableError } from "../../core/errors.ts";
import type { Message } from "../../core/message.ts";
import { rejectUnknownOptions, requireInteger } from "../../core/options.ts";
import { handlerSlots } from "../../core/publish-slots.ts";

export interface InProcessBusOptions {
  /**
   * Messages of different keys in hand at once; half as many again may take long or be tried again. No more in all than
   * the handlers' pool has connections. Default 10.
   */
  concurrency?: number;
}

/** Both ends of the way from a relay to the inbox of one module in the same process. */
export type InProcessBus = Publisher & Subscriber;

/** One bus per module: `createRelay({ store, name: "payments", publisher: bus })` and `inbox.start(bus)`. */
export function createInProcessBus(options: InProcessBusOptions = {}): InProcessBus {
  rejectUnknownOptions("createInProcessBus", options, ["concurrency"]);
  const { concurrency = 10 } = options;
  requireInteger("createInProcessBus", "concurrency", concurrency, 1, 10_000);
  const slots = handlerSlots(concurrency);
  let subscription: { consumer: string; handle: Handle } | undefined;
  const inHand = new Set<Promise<unknown>>();

  async function deliver(message: Message, signal: AbortSignal): Promise<PublishResult> {
    if (subscription === undefined) return { status: "unavailable", error: nobodyListens() };
    const handling = subscription.handle(message, signal);
    inHand.add(handling);
    try {
      return publishResult(await handling);
    } catch (error) {
      return { status: "failed", error };
    } finally {
      inHand.delete(handling);
    }
  }

  return {
    keepsKeyOrder: true,
    async publish(messages, signal, progress) {
      if (subscription === undefined) throw nobodyListens();
      return publishByKey(messages, (message) => deliver(message, signal), { concurrency, signal, progress, slots });
    },
    async start(consumer, handle) {
      if (subscription !== undefined) {
        throw new TxboxError("invalid_option", `The bus already serves ${subscription.consumer}`, {
          fix: `Create another bus, with a relay of its own, for ${consumer}`,
        });
      }
      subscription = { consumer, handle };
    },
    async stop() {
      subscription = undefined;
      await Promise.allSettled(inHand);
    },
  };
}

function publishResult(result: HandleResult): PublishResult {
  return result.status === "done" ? { status: "published" } : result;
}

function nobodyListens(): UnavailableError {
  return new UnavailableError("Nobody listens to the in-process bus", { fix: "Call inbox.start(bus)" });
}
