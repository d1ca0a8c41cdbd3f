import { createSubscriber, integer, publishByKey, readOptions, type OptionSpecs } from "../../adapter/index.ts";
import type { Handle, HandleResult, Publisher, PublishResult, Subscriber } from "../../core/contracts.ts";
import { UnavailableError } from "../../core/errors.ts";
import type { Message } from "../../core/message.ts";
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

const OPTIONS = { concurrency: integer(1, 10_000, 10) } satisfies OptionSpecs<InProcessBusOptions>;

/** One bus per module: `createRelay({ store, name: "payments", publisher: bus })` and `inbox.start(bus)`. */
export function createInProcessBus(options: InProcessBusOptions = {}): InProcessBus {
  const { concurrency } = readOptions("createInProcessBus", options, OPTIONS);
  const slots = handlerSlots(concurrency);
  let handle: Handle | undefined;
  const inHand = new Set<Promise<unknown>>();

  async function deliver(message: Message, signal: AbortSignal): Promise<PublishResult> {
    if (handle === undefined) return { status: "unavailable", error: nobodyListens() };
    const handling = handle(message, signal);
    inHand.add(handling);
    try {
      return publishResult(await handling);
    } catch (error) {
      return { status: "failed", error };
    } finally {
      inHand.delete(handling);
    }
  }

  const subscriber = createSubscriber(async (_, given) => {
    handle = given;
    return {
      async stop() {
        handle = undefined;
        await Promise.allSettled(inHand);
      },
    };
  });

  return {
    keepsKeyOrder: true,
    async publish(messages, signal, progress) {
      if (handle === undefined) throw nobodyListens();
      return publishByKey(messages, (message) => deliver(message, signal), { concurrency, signal, progress, slots });
    },
    ...subscriber,
  };
}

function publishResult(result: HandleResult): PublishResult {
  return result.status === "done" ? { status: "published" } : result;
}

function nobodyListens(): UnavailableError {
  return new UnavailableError("No inbox listens to the in-process bus", { fix: "Call inbox.start(bus)" });
}
