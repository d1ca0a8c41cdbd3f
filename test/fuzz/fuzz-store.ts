import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import type { Publisher } from "../../src/core/contracts.ts";
import { TxboxError } from "../../src/core/errors.ts";
import type { Message, NewMessage } from "../../src/core/message.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { createRelay } from "../../src/relay/relay.ts";
import { hostileMessage } from "./hostile-message.ts";
import { openStore, type StoreName } from "./store-target.ts";

export interface StoreFuzzOptions {
  readonly store: StoreName;
  /** Of an empty PostgreSQL database; other stores start a server of their own. */
  readonly databaseUrl: string;
  readonly count: number;
  readonly seed: number;
  /** Called with how many hostile messages are sent so far. */
  readonly onProgress?: (count: number) => void;
}

export interface StoreFigures {
  readonly store: StoreName;
  readonly seed: number;
  /** Refused before anything was written. */
  readonly refused: number;
  readonly delivered: number;
  /** With a time that has not come: written and not delivered. */
  readonly scheduled: number;
  readonly duplicates: number;
  readonly good: number;
  readonly seconds: number;
}

const BATCH = 20;
const STANDSTILL_MS = 30_000;

/**
 * Enqueues hostile values with good ones between them, by turns alone and in batches. Throws unless each is delivered
 * equal or refused by a TxboxError with nothing written, and all good ones arrive once and in order.
 */
export async function fuzzStore({
  store: name,
  databaseUrl,
  count,
  seed,
  onProgress,
}: StoreFuzzOptions): Promise<StoreFigures> {
  const began = performance.now();
  await using target = await openStore(name, databaseUrl);
  const { store } = target;
  const outbox = createOutbox({ store });
  const open = new Map<string, NewMessage>();
  const arrived = new Map<string, Message>();
  const faults: string[] = [];
  const good: number[] = [];
  let [refused, delivered, scheduled, duplicates, goodSent] = [0, 0, 0, 0, 0];
  let movedAt = performance.now();

  /** A message may arrive before the one who enqueued it knows that it is written. */
  const compare = (id: string): void => {
    const [sent, message] = [open.get(id), arrived.get(id)];
    if (sent === undefined || message === undefined) return;
    open.delete(id);
    delivered++;
    const wrong = differences(sent, message);
    if (wrong.length === 0) return;
    faults.push(`${describe(sent)}: ${wrong.join(", ")}, got ${String(message.body).slice(0, 200)}`);
  };
  const publisher: Publisher = {
    keepsKeyOrder: true,
    async publish(messages) {
      movedAt = performance.now();
      for (const message of messages) {
        if (message.headers["good"] === "yes") {
          const { good: n } = JSON.parse(String(message.body)) as { good: number };
          // A repeat is no fault: a relay may lose its lease on a busy machine.
          if (!good.includes(n)) good.push(n);
          continue;
        }
        arrived.set(message.id, message);
        compare(message.id);
      }
      return messages.map(() => ({ status: "published" }));
    },
  };
  const relay = createRelay({ store, name: "fuzz", publisher });
  await relay.start();

  const enqueue = async (messages: readonly unknown[], n: number): Promise<void> => {
    const goodOne = {
      stream: "good",
      type: "good",
      key: "good",
      headers: { good: "yes" },
      payload: { good: goodSent },
    };
    const isBatch = n % 3 === 0;
    // Each hostile message is alone in its transaction, or in a batch that it may have refused as a whole.
    for (const message of messages) {
      const input = message as NewMessage;
      try {
        const enqueued = await target.transaction(async (tx) =>
          isBatch ? (await outbox.enqueue(tx, [input]))[0]! : outbox.enqueue(tx, input),
        );
        if (enqueued.duplicate) duplicates++;
        else if (input.deliverAt !== undefined && input.deliverAt.getTime() > Date.now()) scheduled++;
        else {
          open.set(enqueued.id, input);
          compare(enqueued.id);
        }
      } catch (error) {
        if (error instanceof TxboxError && ["invalid_message", "payload_too_large"].includes(error.code)) refused++;
        else faults.push(`a raw error: ${String(error)} for ${describe(message)}`);
      }
    }
    await target.transaction((tx) => outbox.enqueue(tx, goodOne));
    goodSent++;
  };

  try {
    for (let n = 0; n < count; n += BATCH) {
      const size = Math.min(BATCH, count - n);
      const messages = fc.sample(hostileMessage, { numRuns: size, seed: seed * 1_000_003 + n });
      await enqueue(messages, n / BATCH);
      onProgress?.(n + size);
    }
    movedAt = performance.now();
    while (open.size > 0 || good.length < goodSent) {
      if (performance.now() - movedAt > STANDSTILL_MS) {
        const [first] = open.values();
        throw new Error(
          `seed ${seed}: ${open.size} were not delivered, ${goodSent - good.length} good; ${describe(first)}`,
        );
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  } finally {
    await relay.stop();
  }
  if (
    !isDeepStrictEqual(
      good,
      Array.from({ length: goodSent }, (_, i) => i),
    )
  )
    faults.push("good messages out of order");
  if (faults.length > 0) throw new Error(`seed ${seed}: ${faults.length} faults\n${faults.slice(0, 5).join("\n")}`);
  const seconds = Math.round((performance.now() - began) / 100) / 10;
  return { store: name, seed, refused, delivered, scheduled, duplicates, good: goodSent, seconds };
}

/** What of a message did not arrive as it was enqueued. */
function differences(sent: NewMessage, message: Message): string[] {
  // Texts are compared, not what they are parsed to: see `escapedName` in hostile-message.ts.
  const { body } = message;
  const isText = typeof sent.payload === "string" && typeof body !== "string";
  const got = typeof body === "string" ? body : Buffer.from(body);
  const wanted =
    isText || sent.payload instanceof Uint8Array ? Buffer.from(sent.payload as string) : jsonOf(sent.payload);
  const wrong = isDeepStrictEqual(got, wanted) ? [] : ["payload"];
  const { stream, type, key, aggregateType, aggregateId, headers = {} } = sent;
  const fields = {
    stream,
    type,
    key: key ?? aggregateId ?? null,
    aggregateType: aggregateType ?? null,
    aggregateId: aggregateId ?? null,
  };
  for (const [name, value] of Object.entries(fields)) {
    if (message[name as keyof typeof fields] !== value) wrong.push(name);
  }
  for (const [name, value] of Object.entries(headers)) {
    const found = Object.getOwnPropertyDescriptor(message.headers, name)?.value as unknown;
    if (jsonOf(found) !== jsonOf(value)) wrong.push(`header ${name}`);
  }
  return wrong;
}

function jsonOf(value: unknown): string | undefined {
  return JSON.stringify(value);
}

function describe(message: unknown): string {
  try {
    return (JSON.stringify(message) as string | undefined)?.slice(0, 500) ?? typeof message;
  } catch {
    return "a message that has no JSON";
  }
}
