import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { ClientSession } from "mongodb";
import type { NewMessage } from "../../src/core/message.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { type Business, mongoSoakStore, openMongo } from "./mongodb-stage.ts";
import { createRandom, type Random } from "./random.ts";
import type { SoakPayload } from "./wire.ts";
import { KEYS, SLOW_KEYS, STREAM } from "./world.ts";

const [url = "", seed = "", count = ""] = process.argv.slice(2);
const client = openMongo(url, Number(count) + 2);
const outbox = createOutbox({ store: mongoSoakStore(client) });
const counters = client.db().collection<{ _id: string; n: number }>("counter");
const business = client.db().collection<Business>("business");
const failures = new Map<string, number>();
const stopping = new AbortController();

interface AppendOptions {
  count?: number;
  chosenId?: boolean;
  unkeyed?: boolean;
  deliverAt?: Date;
}

interface Writing {
  session: ClientSession;
  random: Random;
  kind: string;
}

/** Raises the aggregate's counter, writes business data and messages: the order of n is the order of commits. */
async function append({ session, random, kind }: Writing, key: string, options: AppendOptions = {}): Promise<void> {
  const { count: many = 1, chosenId = false, unkeyed = false, deliverAt } = options;
  let last = many;
  if (!unkeyed) {
    const counter = await counters.findOneAndUpdate(
      { _id: key },
      { $inc: { n: many } },
      { session, returnDocument: "after" },
    );
    last = counter?.n ?? 0;
  }
  const messages = Array.from({ length: many }, (_, i): NewMessage<string, SoakPayload> => {
    const payload: SoakPayload = { key, n: last - many + 1 + i, nonce: randomUUID() };
    if (random.chance(0.001)) payload.poison = true;
    return {
      stream: STREAM,
      type: "event",
      payload,
      ...(unkeyed ? {} : { key }),
      ...(chosenId ? { id: `chosen-${payload.nonce}` } : {}),
      ...(deliverAt === undefined ? {} : { deliverAt }),
    };
  });
  const enqueued = await outbox.enqueue(session, messages);
  await business.insertMany(
    messages.map(({ payload: { n, nonce } }, i) => ({ key, n, nonce, kind, message_id: enqueued[i]?.id ?? "" })),
    { session },
  );
}

type Run = (writing: Writing) => Promise<void>;

const abort = new Error("rolled back");
const plain: Run = (writing) => append(writing, writing.random.pick(KEYS));
const slow = (random: Random): string => random.pick(random.chance(0.8) ? SLOW_KEYS : KEYS);
const later = (): Date => new Date(Date.now() + Math.floor(Math.random() * 1500));

const FAST: readonly [kind: string, weight: number, run: Run][] = [
  ["plain", 40, plain],
  ["bulk", 6, (writing) => append(writing, writing.random.pick(KEYS), { count: writing.random.int(2, 12) })],
  [
    "two-keys",
    6,
    async (writing) => {
      const keys = new Set([writing.random.pick(KEYS), writing.random.pick(KEYS)]);
      for (const key of [...keys].toSorted()) await append(writing, key);
    },
  ],
  [
    "rolled-back",
    8,
    async (writing) => {
      await plain(writing);
      throw abort;
    },
  ],
  ["unkeyed", 4, (writing) => append(writing, `free-${randomUUID()}`, { unkeyed: true })],
  ["scheduled", 2, (writing) => append(writing, `later-${randomUUID()}`, { unkeyed: true, deliverAt: later() })],
  [
    "chosen-id",
    4,
    (writing) => append(writing, writing.random.pick(KEYS), { chosenId: true, count: writing.random.int(1, 2) }),
  ],
];
const SLOW: typeof FAST = [
  [
    "early",
    5,
    async (writing) => {
      await counters.findOne({ _id: "key-0" }, { session: writing.session });
      await sleep(writing.random.int(20, 600));
      await append(writing, slow(writing.random));
    },
  ],
  [
    "long",
    5,
    async (writing) => {
      await append(writing, slow(writing.random), { count: writing.random.int(1, 3) });
      await sleep(writing.random.int(100, 1000));
    },
  ],
];

function choose(random: Random, kinds: typeof FAST): { kind: string; run: Run } {
  let left = random.next() * kinds.reduce((sum, [, weight]) => sum + weight, 0);
  for (const [kind, weight, run] of kinds) {
    left -= weight;
    if (left < 0) return { kind, run };
  }
  return { kind: "plain", run: plain };
}

async function write(number: number): Promise<void> {
  const random = createRandom(Number(seed) * 100 + number);
  while (!stopping.signal.aborted) {
    const { kind, run } = choose(random, number % 8 < 3 ? SLOW : FAST);
    try {
      await client.withSession((session) =>
        session.withTransaction(() => run({ session, random, kind }), { timeoutMS: 15_000 }),
      );
    } catch (error) {
      const name = error === abort ? "rolled back" : String((error as { code?: unknown }).code ?? error).slice(0, 60);
      failures.set(name, (failures.get(name) ?? 0) + 1);
      await sleep(50);
    }
    await sleep(random.int(0, 50));
  }
}

process.on("SIGTERM", () => stopping.abort());
process.stdout.write("started\n");
const report = setInterval(
  () => process.stdout.write(`rolled_back ${JSON.stringify(Object.fromEntries(failures))}\n`),
  1000,
);
await Promise.all(Array.from({ length: Number(count) }, (_, i) => write(i)));
clearInterval(report);
await client.close();
