import { setTimeout as sleep } from "node:timers/promises";

/** What a forgotten `await` leaves running. Whether it is refused or undone, no message may come of it. */
export async function forgotten(afterMs: number, run: () => Promise<unknown>): Promise<void> {
  await sleep(afterMs);
  await run().catch(() => undefined);
}
