import { deepStrictEqual as same, ok, rejects } from "node:assert/strict";
import pg from "pg";
import { createRelay } from "txbox";
import { createInProcessBus } from "txbox/in-process";
import { TABLES } from "./events.ts";
import { hardCases } from "./hard-cases.ts";
import { LARGE, type Shop, UNPAYABLE } from "./shop.ts";

const MESSAGES = 10_000;
const AT_ONCE = 500;

/** Rows of the application's tables and of the log, seen from outside. */
interface Reader {
  ids(text: string): Promise<string[]>;
}

export interface ShowOptions {
  readonly name: string;
  readonly open: () => Promise<Shop>;
  readonly query: (text: string) => Promise<Record<string, unknown>[]>;
  readonly hasSessions?: boolean;
}

/** Runs one service through everything that txbox promises an ORM; throws when something is not as it should be. */
export async function show({ name, open, query, hasSessions = true }: ShowOptions): Promise<void> {
  for (const statement of TABLES.split(";")) await query(statement);
  const shop = await open();
  await shop.store.migrator.migrate();
  const reader: Reader = {
    ids: async (text) => (await query(text)).map((row) => String(Object.values(row)[0])).sort(),
  };
  const orders = (): Promise<string[]> => reader.ids(`select id from "order"`);
  const created = (): Promise<string[]> => reader.ids("select key from txbox.message where type = 'order_created'");
  const payments = (): Promise<string[]> => reader.ids("select order_id from payment");
  const paid = (): Promise<string[]> => reader.ids("select key from txbox.message where type = 'order_paid'");
  const said = (check: string): void => console.log(`${name}: ${check}`);

  await shop.placeOrder("o-1", LARGE);
  same([await orders(), await created()], [["o-1"], ["o-1"]]);
  said("commit");

  await rejects(shop.placeOrderAndFail("o-2"), /out of stock/);
  same([await orders(), await created()], [["o-1"], ["o-1"]]);
  said("rollback");

  for (let n = 0; n < 20; n++) await shop.placeOrderAndForget(`f-${n}`, n % 5);
  same([await orders(), await created()], [["o-1"], ["o-1"]]);
  said("a forgotten await writes nothing");

  await shop.placeOrderWithoutGift("o-3", "gift");
  same(
    [await orders(), await created()],
    [
      ["o-1", "o-3"],
      ["o-1", "o-3"],
    ],
  );
  said("nested transaction rolled back, outer one committed");

  await shop.placeOrders(["o-4", "o-5", "o-6"]);
  same(await created(), ["o-1", "o-3", "o-4", "o-5", "o-6"]);
  said("array");

  await shop.placeOrderFromBelow("o-7");
  ok((await created()).includes("o-7"));
  said("enqueueHere");

  await rejects(shop.enqueueOutside(), (error: Error & { code?: string }) => {
    same(error.code, "no_transaction");
    said(`refused outside a transaction: ${error.message}`);
    return true;
  });
  await rejects(shop.enqueueTooLate(), (error: Error & { code?: string }) => {
    same(error.code, "no_transaction");
    said(`refused after the end: ${error.message}`);
    return true;
  });
  same(await created(), ["o-1", "o-3", "o-4", "o-5", "o-6", "o-7"]);

  await shop.placeOrder("o-8", UNPAYABLE);
  const bus = createInProcessBus({ concurrency: 4 });
  const relay = createRelay({ store: shop.store, name: "payments", publisher: bus });
  await shop.inbox.start(bus);
  const drain = (): Promise<unknown> => relay.drainOnce({ deadlineMs: 1_500_000 });
  await drain();
  const payable = ["o-1", "o-3", "o-4", "o-5", "o-6", "o-7"];
  same([await payments(), await paid()], [payable, payable]);
  said("handlers: payment and next message in the transaction of the receipt, nested transaction rolled back");
  const dead = await shop.store.admin.dead({});
  same(
    dead.map(({ key }) => key),
    ["o-8"],
  );
  said(`handler rolled back: ${dead[0]?.lastError ?? ""}`);

  const began = performance.now();
  for (let n = 0; n < MESSAGES; n += AT_ONCE) {
    await shop.placeOrders(Array.from({ length: AT_ONCE }, (_, i) => `m-${n + i}`));
  }
  const placed = performance.now();
  await drain();
  const ended = performance.now();
  const all = Array.from({ length: MESSAGES }, (_, i) => `m-${i}`)
    .concat(payable)
    .sort();
  same([(await payments()).length, (await paid()).length], [all.length, all.length]);
  same([await payments(), await paid()], [all, all]);
  const seconds = (ms: number): string => (ms / 1000).toFixed(1);
  said(`${MESSAGES} messages: enqueued in ${seconds(placed - began)} s, handled in ${seconds(ended - placed)} s`);

  await hardCases({ name, shop, query, hasSessions });

  await relay.stop();
  await shop.inbox.stop();
  await shop.close();
}

/** `query` of a show on a server. */
export function readerOf(url: string): { query: ShowOptions["query"]; close(): Promise<void> } {
  const pool = new pg.Pool({ connectionString: url, max: 1 });
  return {
    query: async (text) => (await pool.query<Record<string, unknown>>(text)).rows,
    close: () => pool.end(),
  };
}
