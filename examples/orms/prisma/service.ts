import { PrismaPg } from "@prisma/adapter-pg";
import pg from "pg";
import { createInbox, createOutbox, defineEvents, PermanentError } from "txbox";
import { createPostgresStore } from "txbox/postgres";
import { fromPrisma } from "txbox/prisma";
import { created, type Events, paid } from "../shared/events.ts";
import { forgotten } from "../shared/forgotten.ts";
import { LARGE, type Shop, UNPAYABLE } from "../shared/shop.ts";
import { type Prisma, PrismaClient } from "./generated/client.ts";

export function openShop(url: string): Shop {
  const pool = new pg.Pool({ connectionString: url });
  const prisma = new PrismaClient({ adapter: new PrismaPg(pool) });
  const store = createPostgresStore({ client: fromPrisma(prisma, pool) });
  const outbox = createOutbox({ store, events: defineEvents<Events>() });
  const inbox = createInbox({ store, consumer: "payments", events: defineEvents<Events>() });

  inbox.on("order_created", async (tx, { payload: { orderId, total } }) => {
    await tx.payment.create({ data: { orderId, amount: total } });
    if (total >= LARGE) {
      const nested = tx.$transaction(async (inner) => {
        await inner.payment.create({ data: { orderId: `${orderId}-twice`, amount: total } });
        await outbox.enqueue(inner, paid(`${orderId}-twice`));
        throw new Error("twice");
      });
      await nested.catch(() => undefined);
    }
    const found = await tx.payment.findMany({ where: { orderId } });
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
      await prisma.$transaction(async (tx) => {
        await tx.order.create({ data: { id, total } });
        await outbox.enqueue(tx, created(id, total));
      });
    },
    async placeOrderAndFail(id) {
      await prisma.$transaction(async (tx) => {
        await tx.order.create({ data: { id, total: 1 } });
        await outbox.enqueue(tx, created(id, 1));
        throw new Error("out of stock");
      });
    },
    async placeOrderAndForget(id, afterMs) {
      let late: Promise<void> | undefined;
      const failing = prisma.$transaction(async (tx) => {
        await tx.order.create({ data: { id, total: 1 } });
        late = forgotten(afterMs, () => outbox.enqueue(tx, created(id, 1)));
        throw new Error("out of stock");
      });
      await failing.catch(() => undefined);
      await late;
    },
    async placeOrderWithoutGift(id, giftId) {
      await prisma.$transaction(async (tx) => {
        await tx.order.create({ data: { id, total: 1 } });
        await outbox.enqueue(tx, created(id, 1));
        const gift = tx.$transaction(async (inner) => {
          await inner.order.create({ data: { id: giftId, total: 0 } });
          await outbox.enqueue(inner, created(giftId, 0));
          throw new Error("no gifts left");
        });
        await gift.catch(() => undefined);
      });
    },
    async placeOrders(ids) {
      await prisma.$transaction(async (tx) => {
        await tx.order.createMany({ data: ids.map((id) => ({ id, total: 1 })) });
        await outbox.enqueue(
          tx,
          ids.map((id) => created(id, 1)),
        );
      });
    },
    async placeOrderFromBelow(id) {
      await prisma.$transaction((tx) => outbox.withTransaction(tx, () => tellBelow(id)));
    },
    enqueueOutside: () => outbox.enqueue(prisma, created("outside", 1)),
    async enqueueTooLate() {
      const ended = await prisma.$transaction(async (tx) => tx);
      await outbox.enqueue(ended, created("late", 1));
    },
    sql: (tx: Prisma.TransactionClient, text) => tx.$executeRawUnsafe(text),
    async close() {
      await prisma.$disconnect();
      await pool.end();
    },
  };
}
