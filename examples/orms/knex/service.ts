import knexOf, { type Knex } from "knex";
import { Model } from "objection";
import { createInbox, createOutbox, defineEvents, PermanentError } from "txbox";
import { fromKnex } from "txbox/knex";
import { createPostgresStore } from "txbox/postgres";
import { created, type Events, paid } from "../shared/events.ts";
import { forgotten } from "../shared/forgotten.ts";
import { LARGE, type Shop, UNPAYABLE } from "../shared/shop.ts";

/** Payments go through Objection, whose transactions are those of Knex. */
class Payment extends Model {
  static override tableName = "payment";
  static override idColumn = "order_id";
  declare order_id: string;
  declare amount: number;
}

interface Order {
  id: string;
  total: number;
}

export function openShop(url: string): Shop {
  const knex: Knex = knexOf({ client: "pg", connection: url });
  const store = createPostgresStore({ client: fromKnex(knex) });
  const outbox = createOutbox({ store, events: defineEvents<Events>() });
  const inbox = createInbox({ store, consumer: "payments", events: defineEvents<Events>() });

  inbox.on("order_created", async (trx, { payload: { orderId, total } }) => {
    await Payment.query(trx).insert({ order_id: orderId, amount: total });
    if (total >= LARGE) {
      const nested = trx.transaction(async (inner) => {
        await Payment.query(inner).insert({ order_id: `${orderId}-twice`, amount: total });
        await outbox.enqueue(inner, paid(`${orderId}-twice`));
        throw new Error("twice");
      });
      await nested.catch(() => undefined);
    }
    const found = await Payment.query(trx).where({ order_id: orderId });
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
      await knex.transaction(async (trx) => {
        await trx<Order>("order").insert({ id, total });
        await outbox.enqueue(trx, created(id, total));
      });
    },
    async placeOrderAndFail(id) {
      await knex.transaction(async (trx) => {
        await trx<Order>("order").insert({ id, total: 1 });
        await outbox.enqueue(trx, created(id, 1));
        throw new Error("out of stock");
      });
    },
    async placeOrderAndForget(id, afterMs) {
      let late: Promise<void> | undefined;
      const failing = knex.transaction(async (trx) => {
        await trx<Order>("order").insert({ id, total: 1 });
        late = forgotten(afterMs, () => outbox.enqueue(trx, created(id, 1)));
        throw new Error("out of stock");
      });
      await failing.catch(() => undefined);
      await late;
    },
    async placeOrderWithoutGift(id, giftId) {
      await knex.transaction(async (trx) => {
        await trx<Order>("order").insert({ id, total: 1 });
        await outbox.enqueue(trx, created(id, 1));
        const gift = trx.transaction(async (inner) => {
          await inner<Order>("order").insert({ id: giftId, total: 0 });
          await outbox.enqueue(inner, created(giftId, 0));
          throw new Error("no gifts left");
        });
        await gift.catch(() => undefined);
      });
    },
    async placeOrders(ids) {
      await knex.transaction(async (trx) => {
        await trx<Order>("order").insert(ids.map((id) => ({ id, total: 1 })));
        await outbox.enqueue(
          trx,
          ids.map((id) => created(id, 1)),
        );
      });
    },
    async placeOrderFromBelow(id) {
      await knex.transaction((trx) => outbox.withTransaction(trx, () => tellBelow(id)));
    },
    // @ts-expect-error Knex itself is no transaction: the compiler says so first.
    enqueueOutside: () => outbox.enqueue(knex, created("outside", 1)),
    async enqueueTooLate() {
      const trx = await knex.transaction();
      await trx.commit();
      await outbox.enqueue(trx, created("late", 1));
    },
    sql: async (trx: Knex.Transaction, text) => trx.raw(text),
    close: () => knex.destroy(),
  };
}
