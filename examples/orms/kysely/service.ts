import { Kysely, PostgresDialect, sql, type Transaction } from "kysely";
import pg from "pg";
import { createInbox, createOutbox, defineEvents, PermanentError } from "txbox";
import { fromKysely } from "txbox/kysely";
import { createPostgresStore } from "txbox/postgres";
import { created, type Events, paid } from "../shared/events.ts";
import { forgotten } from "../shared/forgotten.ts";
import { LARGE, type Shop, UNPAYABLE } from "../shared/shop.ts";

interface Tables {
  order: { id: string; total: number };
  payment: { order_id: string; amount: number };
}

export function openShop(url: string): Shop {
  const pool = new pg.Pool({ connectionString: url });
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) });
  const store = createPostgresStore({ client: fromKysely(db, pool) });
  const outbox = createOutbox({ store, events: defineEvents<Events>() });
  const inbox = createInbox({ store, consumer: "payments", events: defineEvents<Events>() });

  inbox.on("order_created", async (trx, { payload: { orderId, total } }) => {
    await trx.insertInto("payment").values({ order_id: orderId, amount: total }).execute();
    if (total >= LARGE) {
      const inner = await trx.savepoint("twice").execute();
      await inner
        .insertInto("payment")
        .values({ order_id: `${orderId}-twice`, amount: total })
        .execute();
      await outbox.enqueue(inner, paid(`${orderId}-twice`));
      await inner.rollbackToSavepoint("twice").execute();
    }
    const found = await trx.selectFrom("payment").selectAll().where("order_id", "=", orderId).execute();
    await outbox.enqueue(
      trx,
      found.map((one) => paid(one.order_id)),
    );
    if (total === UNPAYABLE) throw new PermanentError("Nobody pays that");
  });

  const tellBelow = (id: string): Promise<unknown> => outbox.enqueueHere(created(id, 1));

  return {
    store,
    inbox,
    async placeOrder(id, total) {
      await db.transaction().execute(async (trx) => {
        await trx.insertInto("order").values({ id, total }).execute();
        await outbox.enqueue(trx, created(id, total));
      });
    },
    async placeOrderAndFail(id) {
      await db.transaction().execute(async (trx) => {
        await trx.insertInto("order").values({ id, total: 1 }).execute();
        await outbox.enqueue(trx, created(id, 1));
        throw new Error("out of stock");
      });
    },
    async placeOrderAndForget(id, afterMs) {
      let late: Promise<void> | undefined;
      const failing = db.transaction().execute(async (trx) => {
        await trx.insertInto("order").values({ id, total: 1 }).execute();
        late = forgotten(afterMs, () => outbox.enqueue(trx, created(id, 1)));
        throw new Error("out of stock");
      });
      await failing.catch(() => undefined);
      await late;
    },
    async placeOrderWithoutGift(id, giftId) {
      const trx = await db.startTransaction().execute();
      await trx.insertInto("order").values({ id, total: 1 }).execute();
      await outbox.enqueue(trx, created(id, 1));
      const inner = await trx.savepoint("gift").execute();
      await inner.insertInto("order").values({ id: giftId, total: 0 }).execute();
      await outbox.enqueue(inner, created(giftId, 0));
      await inner.rollbackToSavepoint("gift").execute();
      await trx.commit().execute();
    },
    async placeOrders(ids) {
      await db.transaction().execute(async (trx) => {
        await trx
          .insertInto("order")
          .values(ids.map((id) => ({ id, total: 1 })))
          .execute();
        await outbox.enqueue(
          trx,
          ids.map((id) => created(id, 1)),
        );
      });
    },
    async placeOrderFromBelow(id) {
      await db.transaction().execute((trx) => outbox.withTransaction(trx, () => tellBelow(id)));
    },
    // @ts-expect-error The database is no transaction: the compiler says so first.
    enqueueOutside: () => outbox.enqueue(db, created("outside", 1)),
    async enqueueTooLate() {
      const ended = await db.transaction().execute(async (trx) => trx);
      await outbox.enqueue(ended, created("late", 1));
    },
    sql: (trx: Transaction<Tables>, text) => sql.raw(text).execute(trx),
    close: () => db.destroy(),
  };
}
