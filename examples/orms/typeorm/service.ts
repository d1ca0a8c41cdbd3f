import { DataSource, type EntityManager, EntitySchema } from "typeorm";
import { createInbox, createOutbox, defineEvents, PermanentError } from "txbox";
import { createPostgresStore } from "txbox/postgres";
import { fromTypeorm } from "txbox/typeorm";
import { created, type Events, paid } from "../shared/events.ts";
import { forgotten } from "../shared/forgotten.ts";
import { LARGE, type Shop, UNPAYABLE } from "../shared/shop.ts";

const Order = new EntitySchema<{ id: string; total: number }>({
  name: "order",
  columns: { id: { type: String, primary: true }, total: { type: Number } },
});
const Payment = new EntitySchema<{ orderId: string; amount: number }>({
  name: "payment",
  columns: { orderId: { type: String, primary: true, name: "order_id" }, amount: { type: Number } },
});

export async function openShop(url: string): Promise<Shop> {
  const dataSource = await new DataSource({ type: "postgres", url, entities: [Order, Payment] }).initialize();
  const store = createPostgresStore({ client: fromTypeorm(dataSource) });
  const outbox = createOutbox({ store, events: defineEvents<Events>() });
  const inbox = createInbox({ store, consumer: "payments", events: defineEvents<Events>() });

  inbox.on("order_created", async (manager, { payload: { orderId, total } }) => {
    await manager.insert(Payment, { orderId, amount: total });
    if (total >= LARGE) {
      const nested = manager.transaction(async (inner) => {
        await inner.insert(Payment, { orderId: `${orderId}-twice`, amount: total });
        await outbox.enqueue(inner, paid(`${orderId}-twice`));
        throw new Error("twice");
      });
      await nested.catch(() => undefined);
    }
    const found = await manager.findBy(Payment, { orderId });
    await outbox.enqueue(
      manager,
      found.map((one) => paid(one.orderId)),
    );
    if (total === UNPAYABLE) throw new PermanentError("Nobody pays that");
  });

  const tellBelow = (id: string): Promise<unknown> => outbox.enqueueHere(created(id, 1));

  return {
    store,
    inbox,
    async placeOrder(id, total) {
      await dataSource.transaction(async (manager) => {
        await manager.insert(Order, { id, total });
        await outbox.enqueue(manager, created(id, total));
      });
    },
    async placeOrderAndFail(id) {
      await dataSource.transaction(async (manager) => {
        await manager.insert(Order, { id, total: 1 });
        await outbox.enqueue(manager, created(id, 1));
        throw new Error("out of stock");
      });
    },
    async placeOrderAndForget(id, afterMs) {
      let late: Promise<void> | undefined;
      const failing = dataSource.transaction(async (manager) => {
        await manager.insert(Order, { id, total: 1 });
        late = forgotten(afterMs, () => outbox.enqueue(manager, created(id, 1)));
        throw new Error("out of stock");
      });
      await failing.catch(() => undefined);
      await late;
    },
    async placeOrderWithoutGift(id, giftId) {
      await dataSource.transaction(async (manager) => {
        await manager.insert(Order, { id, total: 1 });
        await outbox.enqueue(manager, created(id, 1));
        const gift = manager.transaction(async (inner) => {
          await inner.insert(Order, { id: giftId, total: 0 });
          await outbox.enqueue(inner, created(giftId, 0));
          throw new Error("no gifts left");
        });
        await gift.catch(() => undefined);
      });
    },
    async placeOrders(ids) {
      await dataSource.transaction(async (manager) => {
        await manager.insert(
          Order,
          ids.map((id) => ({ id, total: 1 })),
        );
        await outbox.enqueue(
          manager,
          ids.map((id) => created(id, 1)),
        );
      });
    },
    async placeOrderFromBelow(id) {
      await dataSource.transaction((manager) => outbox.withTransaction(manager, () => tellBelow(id)));
    },
    enqueueOutside: () => outbox.enqueue(dataSource.manager, created("outside", 1)),
    async enqueueTooLate() {
      const ended = await dataSource.transaction(async (manager) => manager);
      await outbox.enqueue(ended, created("late", 1));
    },
    sql: (manager: EntityManager, text) => manager.query(text),
    close: () => dataSource.destroy(),
  };
}
