import { createInProcessBus } from "../../../src/brokers/in-process/index.ts";
import type { Handle, HandleResult } from "../../../src/core/contracts.ts";
import type { IncomingMessage } from "../../../src/core/message.ts";
import { eventually, type PublisherContext, type SubscriberContext } from "../../../src/testing/index.ts";

/** The bus as a target: its handler plays the module that receives. */
export async function inProcessPublisherContext(): Promise<PublisherContext & AsyncDisposable> {
  const bus = createInProcessBus();
  const got: IncomingMessage[] = [];
  const refused = new Map<string, "failed" | "rejected">();
  let hanging: Promise<void> | undefined;
  const handle: Handle = async (message, signal): Promise<HandleResult> => {
    if (hanging !== undefined) {
      await Promise.race([hanging, new Promise((resolve) => signal.addEventListener("abort", resolve))]);
      if (signal.aborted) return { status: "unavailable", error: new Error("the lease is lost") };
    }
    const status = refused.get(String(message.id));
    if (status === undefined) {
      got.push(message);
      return { status: "done" };
    }
    if (status === "failed") refused.delete(String(message.id));
    return { status, error: new Error(status) };
  };
  await bus.start("module", handle);
  return {
    publisher: bus,
    stream: "orders",
    arrived: (count) =>
      eventually(() => {
        if (got.length < count) throw new Error(`${got.length} of ${count} messages arrived`);
        return got;
      }),
    refuse: async (id, how) => void refused.set(id, how),
    goDown: () => bus.stop(),
    comeBack: () => bus.start("module", handle),
    async hang() {
      const { promise, resolve } = Promise.withResolvers<void>();
      hanging = promise;
      return async () => {
        hanging = undefined;
        resolve();
      };
    },
    [Symbol.asyncDispose]: () => bus.stop(),
  };
}

/** The bus as a source: what is sent goes through its other end, as from a relay. */
export async function inProcessSubscriberContext(): Promise<SubscriberContext & AsyncDisposable> {
  const bus = createInProcessBus();
  return {
    subscriber: () => bus,
    stream: "orders",
    async send(messages) {
      // It answers when the handlers are done, which is not waited for here.
      bus.publish(messages, new AbortController().signal).catch(() => undefined);
    },
    [Symbol.asyncDispose]: () => bus.stop(),
  };
}
