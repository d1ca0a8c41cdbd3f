import { defineEntity, MikroORM, p, type SqlEntityManager } from "@mikro-orm/postgresql";
import pg from "pg";
import { createInbox, createOutbox, defineEvents, PermanentError } from "txbox";
import { fromMikroOrm } from "txbox/mikro-orm";
import { createPostgresStore } from "txbox/postgres";
import { created, type Events, paid } from "../shared/events.ts";
import { forgotten } from "../shared/forgotten.ts";
import { LARGE, type Shop, UNPAYABLE } from "../shared/shop.ts";

const Order = defineEntity({
  name: "Order",
  tableName: "order",
  properties: { id: p.text().primary(), total: p.integer() },
});
const Payment = defineEntity({
  name: "Payment",
  tableName: "payment",
  properties: { orderId: p.text().primary().name("order_id"), amount: p.integer() },
});

export async function openShop(url: string): Promise<Shop> {
  let pool: pg.Pool | undefined;
  const orm = await MikroORM.init({
    clientUrl: url,
    entities: [Order, Payment],
    driverOptions: { onPoolCreated: (created: pg.Pool) => (pool = created) },
  });
  await orm.connect();
  if (pool === undefined) throw new Error("MikroORM made no pool");
  const store = createPostgresStore({ client: fromMikroOrm(orm, pool) });
  const outbox = createOutbox({ store, events: defineEvents<Events>() });
  const inbox = createInbox({ store, consumer: "payments", events: defineEvents<Events>() });

  inbox.on("order_created", async (em, { payload: { orderId, total } }) => {
    em.create(Payment, { orderId, amount: total });
    await em.flush();
    if (total >= LARGE) {
      const nested = em.transactional(async (inner) => {
        await inner.insert(Payment, { orderId: `${orderId}-twice`, amount: total });
        await outbox.enqueue(inner, paid(`${orderId}-twice`));
        throw new Error("twice");
      });
      await nested.catch(() => undefined);
    }
    const found = await em.find(Payment, { orderId });
    await outbox.enqueue(
      em,
      found.map((one) => paid(one.orderId)),
    );
    if (total === UNPAYABLE) throw new PermanentError("Nobody pays that");
  });

  const tellBelow = (id: string): Promise<unknown> => outbox.enqueueHere(created(id, 1));
  const em = () => orm.em.fork();

  return {
    store,
    inbox,
    async placeOrder(id, total) {
      await em().transactional(async (tx) => {
        // Written with the commit.
        tx.create(Order, { id, total });
        await outbox.enqueue(tx, created(id, total));
      });
    },
    async placeOrderAndFail(id) {
      await em().transactional(async (tx) => {
        await tx.insert(Order, { id, total: 1 });
        await outbox.enqueue(tx, created(id, 1));
        throw new Error("out of stock");
      });
    },
    async placeOrderAndForget(id, afterMs) {
      let late: Promise<void> | undefined;
      const failing = em().transactional(async (tx) => {
        await tx.insert(Order, { id, total: 1 });
        late = forgotten(afterMs, () => outbox.enqueue(tx, created(id, 1)));
        throw new Error("out of stock");
      });
      await failing.catch(() => undefined);
      await late;
    },
    async placeOrderWithoutGift(id, giftId) {
      await em().transactional(async (tx) => {
        await tx.insert(Order, { id, total: 1 });
        await outbox.enqueue(tx, created(id, 1));
        const gift = tx.transactional(async (inner) => {
          await inner.insert(Order, { id: giftId, total: 0 });
          await outbox.enqueue(inner, created(giftId, 0));
          throw new Error("no gifts left");
        });
        await gift.catch(() => undefined);
      });
    },
    async placeOrders(ids) {
      await em().transactional(async (tx) => {
        await tx.insertMany(
          Order,
          ids.map((id) => ({ id, total: 1 })),
        );
        await outbox.enqueue(
          tx,
          ids.map((id) => created(id, 1)),
        );
      });
    },
    async placeOrderFromBelow(id) {
      await em().transactional((tx) => outbox.withTransaction(tx, () => tellBelow(id)));
    },
    enqueueOutside: () => outbox.enqueue(orm.em, created("outside", 1)),
    async enqueueTooLate() {
      const ended = await em().transactional(async (tx) => tx);
      await outbox.enqueue(ended, created("late", 1));
    },
    sql: (tx: SqlEntityManager, text) => tx.execute(text),
    close: () => orm.close(),
  };
}
