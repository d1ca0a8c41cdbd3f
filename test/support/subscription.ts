import type { Handle, HandleResult, Subscriber } from "../../src/core/contracts.ts";
import type { IncomingMessage } from "../../src/core/message.ts";

export interface Subscription extends Subscriber {
  /** Delivers one message as a broker would. */
  deliver(message: IncomingMessage): Promise<HandleResult>;
}

export function createSubscription(): Subscription {
  let handle: Handle | undefined;
  return {
    async start(_, given) {
      handle = given;
    },
    async stop() {
      handle = undefined;
    },
    async deliver(message) {
      if (handle === undefined) throw new Error("no subscriber");
      return handle(message, new AbortController().signal);
    },
  };
}
