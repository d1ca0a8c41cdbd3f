/** A queue service in memory: batches of ten that are taken in part, message groups, and a time to be invisible. */

export interface AcmeEntry {
  readonly body: Uint8Array;
  /** All that travels beside the body, as one text. */
  readonly attributes: string | undefined;
  /** Of one group, nothing is given out while an earlier message is in hand. */
  readonly group: string | undefined;
}

export interface AcmeReceived extends AcmeEntry {
  readonly receipt: string;
  readonly receiveCount: number;
}

interface Stored extends AcmeEntry {
  receipt: string;
  receiveCount: number;
  visibleAt: number;
}

export const MAX_ENTRIES = 10;
export const MAX_BYTES = 4 * 1024 * 1024;

export class AcmeServer {
  readonly #queues = new Map<string, Stored[]>();
  /** Entries whose attributes have this text are refused. */
  readonly refused = new Map<string, "failed" | "rejected">();
  down = false;
  hanging: Promise<void> | undefined;
  #receipts = 0;

  create(queue: string): void {
    this.#queues.set(queue, this.#queues.get(queue) ?? []);
  }

  exists(queue: string): boolean {
    this.#requireUp();
    return this.#queues.has(queue);
  }

  all(queue: string): readonly AcmeEntry[] {
    return this.#queues.get(queue) ?? [];
  }

  /** For each entry whether it was taken, or why not. */
  async send(queue: string, entries: readonly AcmeEntry[]): Promise<("taken" | "refused" | "never")[]> {
    await new Promise((resolve) => setImmediate(resolve));
    await this.hanging;
    this.#requireUp();
    if (entries.length > MAX_ENTRIES) throw new Error("TooManyEntriesInBatchRequest");
    const stored = this.#queues.get(queue);
    return entries.map((entry) => {
      if (stored === undefined || entry.body.length > MAX_BYTES) return "never";
      const refusal = [...this.refused].find(([text]) => entry.attributes?.includes(text) === true);
      if (refusal?.[1] === "failed") this.refused.delete(refusal[0]);
      if (refusal !== undefined) return refusal[1] === "failed" ? "refused" : "never";
      stored.push({ ...entry, receipt: "", receiveCount: 0, visibleAt: 0 });
      return "taken";
    });
  }

  async receive(queue: string, max: number, invisibleMs: number): Promise<AcmeReceived[]> {
    await new Promise((resolve) => setTimeout(resolve, 2));
    this.#requireUp();
    const now = performance.now();
    const got: Stored[] = [];
    const busy = new Set<string>();
    for (const one of this.#queues.get(queue) ?? []) {
      const isFree = one.visibleAt <= now && (one.group === undefined || !busy.has(one.group));
      if (isFree && got.length < Math.min(max, MAX_ENTRIES)) {
        one.visibleAt = now + invisibleMs;
        one.receiveCount++;
        one.receipt = String(++this.#receipts);
        got.push(one);
      } else if (one.group !== undefined) busy.add(one.group);
    }
    return got.map((one) => ({ ...one }));
  }

  /** False: the receipt is not valid any more. */
  hide(queue: string, receipt: string, forMs: number): boolean {
    this.#requireUp();
    const one = this.#queues.get(queue)?.find((stored) => stored.receipt === receipt);
    if (one === undefined) return false;
    one.visibleAt = performance.now() + forMs;
    return true;
  }

  delete(queue: string, receipt: string): void {
    this.#requireUp();
    const stored = this.#queues.get(queue) ?? [];
    const at = stored.findIndex((one) => one.receipt === receipt);
    if (at >= 0) stored.splice(at, 1);
  }

  #requireUp(): void {
    if (this.down) throw new Error("ECONNREFUSED");
  }
}
