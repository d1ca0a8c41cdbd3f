import { setTimeout as sleep } from "node:timers/promises";
import { createOutbox } from "txbox";
import { createPostgresStore } from "txbox/postgres";
import { createDatabase, startPostgres } from "../../../test/harness/index.ts";
import { inTransaction, openPool } from "../database.ts";
import { openBroker } from "../open-broker.ts";
import { startBrokerServer } from "./broker-server.ts";
import type { ShowOptions } from "./options.ts";
import { OrderCheck } from "./order-check.ts";
import { ServiceProcess } from "./service-process.ts";

const KEYS = 1000;
const PER_TRANSACTION = 5000;
const SLOWEST = 1000;

export interface BacklogResult {
  passed: boolean;
  broker: string;
  backlog: number;
  /** Distinct messages that arrived. */
  drained: number;
  orderBreaks: number;
  /** Delivered more than once: no fault. */
  repeats: number;
  writeSeconds: number;
  /** From the broker's return to the last message. */
  seconds: number;
  perSecond: number;
  crashes: string[];
}

/** Messages pile up while the broker is down; when it is back they must arrive, those of a key in order. */
export async function showBacklog(options: ShowOptions, say: (text: string) => void): Promise<BacklogResult> {
  const { broker: name, backlog, verbose } = options;
  say(`Starting PostgreSQL, ${name} and a relay.`);
  await using stack = new AsyncDisposableStack();
  const stopped = <T extends { stop(): Promise<unknown> }>(one: T): T =>
    stack.adopt(one, async (it) => void (await it.stop()));
  const postgres = stopped(await startPostgres({ owned: true, fsync: true }));
  const server = stopped(await startBrokerServer(name));
  const { url } = await createDatabase(postgres.url, "orders");
  const pool = stack.adopt(openPool(url), (it) => it.end());
  const store = createPostgresStore({ client: pool });
  await store.migrator.migrate();

  const check = new OrderCheck();
  const broker = stack.adopt(await openBroker(name, server.url), async (it) => void (await it.close()));
  const subscriber = stopped(
    broker.subscriber({ stream: "backlog", consumer: "checker", concurrency: 100, prefetch: 1000 }),
  );
  await subscriber.start("checker", async ({ body }) => {
    check.saw(JSON.parse(Buffer.from(body).toString()) as Numbered);
    return { status: "done" };
  });
  const env = { BROKER: name, BROKER_URL: server.url, DATABASE_URL: url };
  const relay = stopped(new ServiceProcess({ name: "relay", file: "relay.ts", env, verbose }));
  relay.start();
  await relay.said("ready");

  await server.kill();
  say(`The broker is down. Writing ${backlog} messages of ${KEYS} keys.`);
  const writingAt = performance.now();
  const outbox = createOutbox<{ numbered: Numbered }>({ store });
  for (let from = 0; from < backlog; from += PER_TRANSACTION) {
    const messages = Array.from({ length: Math.min(PER_TRANSACTION, backlog - from) }, (_, i) => numbered(from + i));
    await inTransaction(pool, (tx) => outbox.enqueue(tx, messages));
  }
  const writeSeconds = (performance.now() - writingAt) / 1000;
  say(`Written in ${writeSeconds.toFixed(1)} s; ${check.drained} have arrived. The broker comes back.`);

  await server.restart();
  const backAt = performance.now();
  const endsAt = backAt + 60_000 + (backlog / SLOWEST) * 1000;
  for (let ticks = 1; check.drained < backlog && performance.now() < endsAt; ticks++) {
    await sleep(100);
    if (ticks % 50 === 0)
      say(`${check.drained} have arrived after ${Math.round((performance.now() - backAt) / 1000)} s`);
  }
  const seconds = (performance.now() - backAt) / 1000;
  const { drained, orderBreaks, repeats } = check;
  return {
    passed: drained === backlog && orderBreaks === 0 && relay.crashes.length === 0,
    broker: name,
    backlog,
    drained,
    orderBreaks,
    repeats,
    writeSeconds: Math.round(writeSeconds * 10) / 10,
    seconds: Math.round(seconds * 10) / 10,
    perSecond: Math.round(drained / seconds),
    crashes: relay.crashes,
  };
}

export interface Numbered {
  key: string;
  /** 1, 2, 3 … within the key. */
  n: number;
  /** Makes the message as long as an ordinary one. */
  note: string;
}

const NOTE = "a message like any other ".repeat(8);

/** The keys take turns, so that those of a key lie far apart. */
function numbered(index: number) {
  const key = `key-${index % KEYS}`;
  const payload: Numbered = { key, n: Math.floor(index / KEYS) + 1, note: NOTE };
  return { stream: "backlog", type: "numbered" as const, key, payload };
}
