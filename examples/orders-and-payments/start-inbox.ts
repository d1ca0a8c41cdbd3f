import { setTimeout as sleep } from "node:timers/promises";
import { TxboxError, type Subscriber } from "txbox";

/** A broker that is out when the service starts is waited for. What waiting cannot mend is thrown. */
export async function startInbox(
  inbox: { start(subscriber: Subscriber): Promise<void> },
  subscriber: () => Subscriber,
): Promise<void> {
  for (let delayMs = 100; ; delayMs = Math.min(2 * delayMs, 2000)) {
    try {
      return await inbox.start(subscriber());
    } catch (error) {
      if (error instanceof TxboxError && !error.retryable) throw error;
      console.log(`waiting for the broker: ${(error as Error).message}`);
    }
    await sleep(delayMs);
  }
}
