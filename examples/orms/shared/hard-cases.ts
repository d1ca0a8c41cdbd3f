import { deepStrictEqual as same, equal, ok, rejects } from "node:assert/strict";
import { createInbox, type IncomingMessage } from "txbox";
import type { Shop } from "./shop.ts";

export interface HardCasesOptions {
  readonly name: string;
  readonly shop: Shop;
  readonly query: (text: string) => Promise<Record<string, unknown>[]>;
  /** A server that others use as well, so that a session can be ended. */
  readonly hasSessions: boolean;
}

const TIMEOUT_MS = 3000;

/** What goes wrong in handlers: each time the receipt and the handler's writes must stand or fall together. */
export async function hardCases({ name, shop, query, hasSessions }: HardCasesOptions): Promise<void> {
  const inbox = createInbox({ store: shop.store, consumer: "hard", handlerTimeoutMs: TIMEOUT_MS });
  type Sql = (text: string) => Promise<unknown>;
  const handle = (id: string, run: (sql: Sql) => Promise<unknown>): Promise<unknown> =>
    inbox.handle(messageOf(id), async (tx) => void (await run((text) => shop.sql(tx as never, text))));
  const said = (check: string): void => console.log(`${name}: ${check}`);
  const count = async (from: string): Promise<number> =>
    Number((await query(`select count(*)::int as n from ${from}`))[0]?.["n"]);
  const left = async (id: string): Promise<number[]> => [
    await count(`payment where order_id = '${id}'`),
    await count(`txbox.receipt where consumer = 'hard' and message_id = '${id}' and status = 'processed'`),
  ];
  const pay = (id: string): string => `insert into payment values ('${id}', 1)`;

  for (const text of ["commit", "rollback", "begin"]) {
    await rejects(
      handle(text, async (sql) => {
        await sql(pay(text));
        await sql(text);
      }),
      `${text} is refused`,
    );
    same(await left(text), [0, 0]);
  }
  said("a handler cannot end its transaction");

  await rejects(
    handle("swallowed", async (sql) => {
      await sql(pay("swallowed"));
      await sql("select 1 / 0").catch(() => undefined);
    }),
  );
  same(await left("swallowed"), [0, 0]);
  said("an error that the handler swallowed rolls back");

  let runs = 0;
  await handle("conflict", async (sql) => {
    await sql(pay("conflict"));
    if (++runs === 1) await sql("do $$ begin raise exception 'conflict' using errcode = '40001'; end $$");
  });
  same([runs, ...(await left("conflict"))], [2, 1, 1]);
  said("a conflict of transactions is run again");

  await query("alter table payment add constraint later unique (order_id) deferrable initially deferred");
  await query("alter table payment drop constraint payment_pkey");
  await query(pay("taken"));
  await rejects(handle("taken", (sql) => sql(pay("taken"))));
  same(await left("taken"), [1, 0]);
  said("a commit that fails leaves nothing");

  if (!hasSessions) return;
  const late = Promise.withResolvers<unknown>();
  await rejects(
    handle("slow", async (sql) => {
      await sql(pay("slow"));
      await sql("select pg_sleep(60)").catch(() => undefined);
      await sql(pay("late")).then(late.resolve, late.resolve);
    }),
    { code: "handler_timeout" },
  );
  ok((await late.promise) instanceof Error);
  same([...(await left("slow")), ...(await left("late"))], [0, 0, 0, 0]);
  equal(
    await count("pg_stat_activity where pid <> pg_backend_pid() and query like '%pg_sleep(60)%' and state = 'active'"),
    0,
  );
  said("a handler that hangs is given up, its query is ended, and what it does later is refused");

  await rejects(
    handle("lost", async (sql) => {
      await sql(pay("lost"));
      await sql("select pg_terminate_backend(pg_backend_pid())");
    }),
  );
  same(await left("lost"), [0, 0]);
  equal(await handle("lost", (sql) => sql(pay("lost"))), "processed");
  same(await left("lost"), [1, 1]);
  said("a connection that is lost leaves nothing, and the next one works");
}

function messageOf(id: string): IncomingMessage {
  return { id, stream: "hard", type: "hard", key: null, position: 1n, headers: {}, body: "{}" };
}
