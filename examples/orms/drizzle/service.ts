import { sql } from "drizzle-orm";
import type { PgDatabase, PgQueryResultHKT, PgTransaction } from "drizzle-orm/pg-core";
import { createInbox, createOutbox, defineEvents, PermanentError } from "txbox";
import { fromDrizzle } from "txbox/drizzle";
import { createPostgresStore } from "txbox/postgres";
import { created, type Events, paid } from "../shared/events.ts";
import { forgotten } from "../shared/forgotten.ts";
import { LARGE, type Shop, UNPAYABLE } from "../shared/shop.ts";
import * as schema from "./schema.ts";
import { order, payment } from "./schema.ts";

/** Drizzle on any of its drivers. */
type Database = PgDatabase<PgQueryResultHKT, typeof schema>;

export function createShop(db: Database, close: () => Promise<void>): Shop {
  const store = createPostgresStore({ client: fromDrizzle(db) });
  const outbox = createOutbox({ store, events: defineEvents<Events>() });
  const inbox = createInbox({ store, consumer: "payments", events: defineEvents<Events>() });

  inbox.on("order_created", async (tx, { payload: { orderId, total } }) => {
    await tx.insert(payment).values({ orderId, amount: total });
    if (total >= LARGE) {
      const nested = tx.transaction(async (inner) => {
        await inner.insert(payment).values({ orderId: `${orderId}-twice`, amount: total });
        await outbox.enqueue(inner, paid(`${orderId}-twice`));
        inner.rollback();
      });
      await nested.catch(() => undefined);
    }
    const found = await tx.query.payment.findMany({ where: (one, { eq }) => eq(one.orderId, orderId) });
    await outbox.enqueue(
      tx,
      found.map((one) => paid(one.orderId)),
    );
    if (total === UNPAYABLE) throw new PermanentError("Nobody pays that");
  });

  const tellBelow = (id: string): Promise<unknown> => outbox.enqueueHere(created(id, 1));

  return {
    store,
    inbox,
    async placeOrder(id, total) {
      await db.transaction(async (tx) => {
        await tx.insert(order).values({ id, total });
        await outbox.enqueue(tx, created(id, total));
      });
    },
    async placeOrderAndFail(id) {
      await db.transaction(async (tx) => {
        await tx.insert(order).values({ id, total: 1 });
        await outbox.enqueue(tx, created(id, 1));
        throw new Error("out of stock");
      });
    },
    async placeOrderAndForget(id, afterMs) {
      let late: Promise<void> | undefined;
      const failing = db.transaction(async (tx) => {
        await tx.insert(order).values({ id, total: 1 });
        late = forgotten(afterMs, () => outbox.enqueue(tx, created(id, 1)));
        throw new Error("out of stock");
      });
      await failing.catch(() => undefined);
      await late;
    },
    async placeOrderWithoutGift(id, giftId) {
      await db.transaction(async (tx) => {
        await tx.insert(order).values({ id, total: 1 });
        await outbox.enqueue(tx, created(id, 1));
        const gift = tx.transaction(async (inner) => {
          await inner.insert(order).values({ id: giftId, total: 0 });
          await outbox.enqueue(inner, created(giftId, 0));
          inner.rollback();
        });
        await gift.catch(() => undefined);
      });
    },
    async placeOrders(ids) {
      await db.transaction(async (tx) => {
        await tx.insert(order).values(ids.map((id) => ({ id, total: 1 })));
        await outbox.enqueue(
          tx,
          ids.map((id) => created(id, 1)),
        );
      });
    },
    async placeOrderFromBelow(id) {
      await db.transaction((tx) => outbox.withTransaction(tx, () => tellBelow(id)));
    },
    // @ts-expect-error The database is no transaction: the compiler says so first.
    enqueueOutside: () => outbox.enqueue(db, created("outside", 1)),
    async enqueueTooLate() {
      const tx = await db.transaction(async (one) => one);
      // Its connection serves this one by now.
      await db.transaction(async (other) => {
        await other.insert(order).values({ id: "other", total: 1 });
        await outbox.enqueue(tx, created("late", 1));
      });
    },
    sql: (tx: PgTransaction<PgQueryResultHKT, typeof schema>, text) => tx.execute(sql.raw(text)),
    close,
  };
}
