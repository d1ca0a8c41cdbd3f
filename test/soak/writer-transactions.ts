import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { PoolClient } from "pg";
import type { NewMessage } from "../../src/core/message.ts";
import type { Outbox } from "../../src/outbox/outbox.ts";
import type { Random } from "./random.ts";
import type { SoakPayload } from "./wire.ts";
import { KEYS, SLOW_KEYS, STREAM } from "./world.ts";

export interface Writing {
  client: PoolClient;
  outbox: Outbox<Record<string, unknown>, object>;
  random: Random;
  kind: string;
}

type Run = (writing: Writing) => Promise<void>;

interface AppendOptions {
  count?: number;
  chosenId?: boolean;
  /** No ordering key. */
  unkeyed?: boolean;
  deliverAt?: Date;
}

/** Locks the aggregate, writes business rows and messages: the order of n is the order of commits. */
async function append(writing: Writing, key: string, options: AppendOptions = {}): Promise<void> {
  const { client, outbox, random, kind } = writing;
  const { count = 1, chosenId = false, unkeyed = false, deliverAt } = options;
  let last = count;
  if (!unkeyed) {
    const { rows } = await client.query<{ n: string }>("update counter set n = n + $2 where key = $1 returning n", [
      key,
      count,
    ]);
    last = Number(rows[0]?.n);
  }
  const messages = Array.from({ length: count }, (_, i): NewMessage<string, SoakPayload> => {
    const payload: SoakPayload = { key, n: last - count + 1 + i, nonce: randomUUID() };
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
  const enqueued = await outbox.enqueue(client, messages);
  await client.query(
    `insert into business (key, n, nonce, message_id, kind)
     select $1, *, $5 from unnest($2::bigint[], $3::text[], $4::text[])`,
    [
      key,
      messages.map(({ payload }) => payload.n),
      messages.map(({ payload }) => payload.nonce),
      enqueued.map(({ id }) => id),
      kind,
    ],
  );
}

function within(work: Run, { begin = "begin", end = "commit" } = {}): Run {
  return async (writing) => {
    await writing.client.query(begin);
    await work(writing);
    await writing.client.query(end);
  };
}

/** Waiting writers must not all pile up behind the slow ones. */
function slowKey(random: Random): string {
  return random.pick(random.chance(0.8) ? SLOW_KEYS : KEYS);
}

const plain: Run = (writing) => append(writing, writing.random.pick(KEYS));

const bulk: Run = (writing) => append(writing, writing.random.pick(KEYS), { count: writing.random.int(2, 12) });

const twoKeys: Run = async (writing) => {
  const keys = new Set([writing.random.pick(KEYS), writing.random.pick(KEYS)]);
  for (const key of [...keys].toSorted()) await append(writing, key);
};

const savepoint: Run = async (writing) => {
  const { client, random } = writing;
  if (random.chance(0.5)) await append(writing, random.pick(SLOW_KEYS));
  await client.query("savepoint s");
  await append(writing, random.pick(KEYS), { count: random.int(1, 3) });
  await client.query("rollback to savepoint s");
  if (random.chance(0.7)) await append(writing, random.pick(KEYS));
};

const earlyXid: Run = async (writing) => {
  await writing.client.query("select pg_current_xact_id()");
  await sleep(writing.random.int(20, 1000));
  await append(writing, writing.random.pick(KEYS));
};

/** Draws its positions long before it commits. */
const long: Run = async (writing) => {
  await append(writing, slowKey(writing.random), { count: writing.random.int(1, 3) });
  await sleep(writing.random.int(100, 1500));
};

const prepared: Run = async (writing) => {
  const { client, random } = writing;
  await client.query("begin");
  await append(writing, slowKey(random));
  if (random.chance(0.3)) await sleep(random.int(0, 700));
  const gid = `soak-${randomUUID()}`;
  await client.query(`prepare transaction '${gid}'`);
  await sleep(random.int(0, 800));
  await client.query(`${random.chance(0.7) ? "commit" : "rollback"} prepared '${gid}'`);
};

const unkeyed: Run = (writing) => append(writing, `free-${randomUUID()}`, { unkeyed: true });

const scheduled: Run = (writing) => {
  const deliverAt = new Date(Date.now() + writing.random.int(0, 1500));
  return append(writing, `later-${randomUUID()}`, { unkeyed: true, deliverAt });
};

const chosenId: Run = (writing) =>
  append(writing, writing.random.pick(KEYS), { chosenId: true, count: writing.random.int(1, 2) });

type Kinds = readonly [kind: string, weight: number, run: Run][];

const FAST: Kinds = [
  ["plain", 36, within(plain)],
  ["bulk", 6, within(bulk)],
  ["two-keys", 6, within(twoKeys)],
  ["rolled-back", 8, within(plain, { end: "rollback" })],
  ["savepoint", 8, within(savepoint)],
  // A crash of the server may undo them, but then nothing of them may have been published.
  ["asynchronous", 8, within(plain, { begin: "begin; set local synchronous_commit = off" })],
  ["serializable", 3, within(plain, { begin: "begin isolation level serializable" })],
  ["unkeyed", 4, within(unkeyed)],
  ["scheduled", 2, within(scheduled)],
  ["chosen-id", 4, within(chosenId)],
];
const SLOW: Kinds = [
  ["early-xid", 5, within(earlyXid)],
  ["long", 5, within(long)],
  ["prepared", 5, prepared],
  ["rolled-back", 1, within(long, { end: "rollback" })],
];

export function chooseTransaction(random: Random, slow: boolean): { kind: string; run: Run } {
  const kinds = slow ? SLOW : FAST;
  let left = random.next() * kinds.reduce((sum, [, weight]) => sum + weight, 0);
  for (const [kind, weight, run] of kinds) {
    left -= weight;
    if (left < 0) return { kind, run };
  }
  return { kind: "plain", run: within(plain) };
}
