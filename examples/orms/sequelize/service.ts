import { DataTypes, Sequelize, type Transaction } from "sequelize";
import { createInbox, createOutbox, defineEvents, PermanentError } from "txbox";
import { createPostgresStore } from "txbox/postgres";
import { fromSequelize } from "txbox/sequelize";
import { created, type Events, paid } from "../shared/events.ts";
import { forgotten } from "../shared/forgotten.ts";
import { LARGE, type Shop, UNPAYABLE } from "../shared/shop.ts";

export function openShop(url: string): Shop {
  const sequelize = new Sequelize(url, { logging: false, pool: { max: 10 } });
  const settings = { freezeTableName: true, timestamps: false };
  const Order = sequelize.define(
    "order",
    { id: { type: DataTypes.TEXT, primaryKey: true }, total: DataTypes.INTEGER },
    settings,
  );
  const Payment = sequelize.define(
    "payment",
    { orderId: { type: DataTypes.TEXT, primaryKey: true, field: "order_id" }, amount: DataTypes.INTEGER },
    settings,
  );
  const store = createPostgresStore({ client: fromSequelize(sequelize) });
  const outbox = createOutbox({ store, events: defineEvents<Events>() });
  const inbox = createInbox({ store, consumer: "payments", events: defineEvents<Events>() });

  inbox.on("order_created", async (transaction, { payload: { orderId, total } }) => {
    await Payment.create({ orderId, amount: total }, { transaction });
    if (total >= LARGE) {
      const nested = sequelize.transaction({ transaction }, async (inner) => {
        await Payment.create({ orderId: `${orderId}-twice`, amount: total }, { transaction: inner });
        await outbox.enqueue(inner, paid(`${orderId}-twice`));
        throw new Error("twice");
      });
      await nested.catch(() => undefined);
    }
    const found = await Payment.findAll({ where: { orderId }, transaction });
    await outbox.enqueue(
      transaction,
      found.map((one) => paid(String(one.get("orderId")))),
    );
    if (total === UNPAYABLE) throw new PermanentError("Nobody pays that");
  });

  const tellBelow = (id: string): Promise<unknown> => outbox.enqueueHere(created(id, 1));

  return {
    store,
    inbox,
    async placeOrder(id, total) {
      await sequelize.transaction(async (transaction) => {
        await Order.create({ id, total }, { transaction });
        await outbox.enqueue(transaction, created(id, total));
      });
    },
    async placeOrderAndFail(id) {
      await sequelize.transaction(async (transaction) => {
        await Order.create({ id, total: 1 }, { transaction });
        await outbox.enqueue(transaction, created(id, 1));
        throw new Error("out of stock");
      });
    },
    async placeOrderAndForget(id, afterMs) {
      let late: Promise<void> | undefined;
      const failing = sequelize.transaction(async (transaction) => {
        await Order.create({ id, total: 1 }, { transaction });
        late = forgotten(afterMs, () => outbox.enqueue(transaction, created(id, 1)));
        throw new Error("out of stock");
      });
      await failing.catch(() => undefined);
      await late;
    },
    async placeOrderWithoutGift(id, giftId) {
      await sequelize.transaction(async (transaction) => {
        await Order.create({ id, total: 1 }, { transaction });
        await outbox.enqueue(transaction, created(id, 1));
        const gift = sequelize.transaction({ transaction }, async (inner) => {
          await Order.create({ id: giftId, total: 0 }, { transaction: inner });
          await outbox.enqueue(inner, created(giftId, 0));
          throw new Error("no gifts left");
        });
        await gift.catch(() => undefined);
      });
    },
    async placeOrders(ids) {
      await sequelize.transaction(async (transaction) => {
        await Order.bulkCreate(
          ids.map((id) => ({ id, total: 1 })),
          { transaction },
        );
        await outbox.enqueue(
          transaction,
          ids.map((id) => created(id, 1)),
        );
      });
    },
    async placeOrderFromBelow(id) {
      await sequelize.transaction((transaction) => outbox.withTransaction(transaction, () => tellBelow(id)));
    },
    // @ts-expect-error Sequelize itself is no transaction: the compiler says so first.
    enqueueOutside: () => outbox.enqueue(sequelize, created("outside", 1)),
    async enqueueTooLate() {
      const ended = await sequelize.transaction(async (transaction) => transaction);
      await outbox.enqueue(ended, created("late", 1));
    },
    sql: (transaction: Transaction, text) => sequelize.query(text, { transaction }),
    close: () => sequelize.close(),
  };
}
