import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import pg from "pg";
import type { HandledMessage, Message } from "../../src/core/message.ts";
import { uuidv7 } from "../../src/core/uuid.ts";
import { createInbox } from "../../src/inbox/inbox.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { createPostgresStore } from "../../src/stores/postgres/index.ts";
import { type BrokerName, openTarget } from "./broker-target.ts";
import { type HostileEnvelope, hostileEnvelope, numberIn, TYPES } from "./hostile-envelope.ts";

export interface BrokerFuzzOptions {
  readonly broker: BrokerName;
  /** Of an empty PostgreSQL database, for the inbox. */
  readonly databaseUrl: string;
  readonly count: number;
  readonly seed: number;
  /** Called with how many hostile messages are sent so far. */
  readonly onProgress?: (count: number) => void;
}

export interface BrokerFigures {
  readonly broker: BrokerName;
  readonly seed: number;
  readonly sent: number;
  /** Not taken by the broker or by the producer's client. */
  readonly refused: number;
  readonly delivered: number;
  readonly dead: number;
  readonly good: number;
  /** Of the broker, as the subscriber saw them: a busy machine may answer late. */
  readonly outages: number;
  readonly seconds: number;
}

const CHUNK = 100;
const GOOD_PER_CHUNK = 10;
/** Nothing happened for so long: the consumer stands still. */
const STANDSTILL_MS = 20_000;

/**
 * Sends hostile messages with good ones between them. Throws unless each hostile one is delivered as it was sent or is a
 * dead letter with its bytes, and all good ones arrive once and in order.
 */
export async function fuzzBroker({
  broker,
  databaseUrl,
  count,
  seed,
  onProgress,
}: BrokerFuzzOptions): Promise<BrokerFigures> {
  const began = performance.now();
  await using target = await openTarget(broker);
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 12 });
  const store = createPostgresStore({ client: pool });
  await store.migrator.migrate();
  const outbox = createOutbox({ store });
  const inbox = createInbox({ store, consumer: "fuzz", unknownTypes: "reject" });

  const open = new Map<number, HostileEnvelope>();
  const good: number[] = [];
  const outages: string[] = [];
  const faults: string[] = [];
  let [sent, refused, delivered, dead, goodSent] = [0, 0, 0, 0, 0];
  let movedAt = performance.now();
  const settle = (n: number | undefined, body: Uint8Array): HostileEnvelope | undefined => {
    movedAt = performance.now();
    const envelope = n === undefined ? undefined : open.get(n);
    if (envelope === undefined || n === undefined) return undefined;
    if (!envelope.body.equals(body)) faults.push(`message ${n} came with another body`);
    open.delete(n);
    return envelope;
  };

  for (const type of TYPES) {
    inbox.on(type, async (tx, message) => {
      if (message.headers["good"] === "yes") {
        good.push((message.payload as { good: number }).good);
        movedAt = performance.now();
        return;
      }
      const body = bodyOf(message);
      const n = numberIn(body);
      // What a hostile message hands down must not break what its handler sends.
      if (n !== undefined && n % 4 === 0) await outbox.enqueue(tx, { stream: "out", type: "t", payload: n });
      const envelope = settle(n, body);
      if (envelope === undefined) return;
      delivered++;
      faults.push(...differences(envelope, message, target.tables));
    });
  }

  const subscriber = await target.subscriber((event) => {
    if (event.type === "outage") outages.push(event.error);
  });
  await inbox.start(subscriber);
  const collectDead = async (): Promise<void> => {
    for (const body of await target.newDead()) if (settle(numberIn(body), body) !== undefined) dead++;
  };
  const caughtUp = async (limit: number): Promise<void> => {
    const isBehind = (): boolean => open.size > limit || (limit === 0 && good.length < goodSent);
    while (isBehind()) {
      await collectDead();
      if (performance.now() - movedAt > STANDSTILL_MS)
        throw new Error(
          `${standstill(seed, open, outages)}\n${delivered} delivered, ${dead} dead, ${good.length} good`,
        );
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  };

  try {
    for (let from = 0; from < count; from += CHUNK) {
      const size = Math.min(CHUNK, count - from);
      const envelopes = Array.from({ length: size }, (_, i) => {
        const n = from + i;
        return fc.sample(hostileEnvelope(n, target), { numRuns: 1, seed: seed * 1_000_003 + n })[0]!;
      });
      for (let part = 0; part < GOOD_PER_CHUNK; part++) {
        const some = envelopes.filter((_, i) => i % GOOD_PER_CHUNK === part);
        for (const envelope of some) open.set(envelope.n, envelope);
        const taken = await target.sendHostile(some);
        for (const [i, { n }] of some.entries()) {
          if (taken[i] === true) sent++;
          else if (open.delete(n)) refused++;
        }
        await target.sendGood([goodMessage(goodSent)]);
        goodSent++;
      }
      movedAt = performance.now();
      await caughtUp(1000);
      onProgress?.(from + size);
    }
    await caughtUp(0);
  } finally {
    await inbox.stop();
    await pool.end();
  }
  if (
    !isDeepStrictEqual(
      good,
      Array.from({ length: goodSent }, (_, i) => i),
    )
  )
    faults.push("good messages out of order");
  if (faults.length > 0) throw new Error(`seed ${seed}: ${faults.length} faults, ${faults.slice(0, 5).join("; ")}`);
  const seconds = Math.round((performance.now() - began) / 100) / 10;
  return { broker, seed, sent, refused, delivered, dead, good: goodSent, outages: outages.length, seconds };
}

function goodMessage(n: number): Message {
  return {
    id: uuidv7(),
    position: BigInt(n),
    stream: "orders",
    type: "good",
    key: "good",
    aggregateType: null,
    aggregateId: null,
    body: JSON.stringify({ good: n }),
    headers: { good: "yes" },
    createdAt: new Date(),
  };
}

function bodyOf({ body }: HandledMessage): Uint8Array {
  // A producer of Redis that sends fields only has its body made of them: the mark is one of them.
  if (typeof body !== "string") return body;
  const fields = JSON.parse(body) as { mark?: string | { data: number[] } };
  return typeof fields.mark === "object" ? Buffer.from(fields.mark.data) : Buffer.from(fields.mark ?? body);
}

function differences({ n, plain }: HostileEnvelope, message: HandledMessage, tables: boolean): string[] {
  const wrong = [...plain].filter(([name, value]) => {
    // amqplib loses a header of this name.
    if (name === "__proto__" && tables) return false;
    const found = Object.getOwnPropertyDescriptor(message.headers, name)?.value as unknown;
    return found !== value;
  });
  return wrong.map(([name]) => `message ${n} lost its header ${name}`);
}

function standstill(seed: number, open: ReadonlyMap<number, HostileEnvelope>, outages: readonly string[]): string {
  const first = [...open.values()].slice(0, 3).map(({ n, fields, body }) => {
    const shown = fields.slice(0, 30).map(([name, value]) => `${name}=${textOf(value)}`);
    return `\n#${n} ${shown.join(" ")} body=${body.toString("latin1").slice(0, 200)}`;
  });
  const why = outages.length === 0 ? "" : `\noutages: ${[...new Set(outages)].slice(0, 3).join(" | ")}`;
  return `seed ${seed}: no progress, ${open.size} messages neither delivered nor dead${first.join("")}${why}`;
}

function textOf(value: unknown): string {
  const json = JSON.stringify(value) as string | undefined;
  return json?.slice(0, 120) ?? typeof value;
}
