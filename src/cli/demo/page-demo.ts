import { setTimeout as sleep } from "node:timers/promises";
import type { PGlite, Transaction } from "@electric-sql/pglite";
import { createAdmin } from "../../admin/create-admin.ts";
import { createInProcessBus } from "../../brokers/in-process/in-process-bus.ts";
import type { Publisher } from "../../core/contracts.ts";
import { PermanentError } from "../../core/errors.ts";
import { createInbox } from "../../inbox/inbox.ts";
import { createOutbox } from "../../outbox/outbox.ts";
import { createRelay, type Relay } from "../../relay/relay.ts";
import { createPostgresStore, type PostgresStore } from "../../stores/postgres/postgres-store.ts";
import { importPglite } from "../import-driver.ts";
import type { Output } from "../output.ts";
import { PageServer } from "../page-server.ts";
import { createOrderModule, type OrderEvents, type OrderModule } from "./order-module.ts";

interface PaymentEvents {
  payment_made: { orderId: string; eur: string };
}

const CUSTOMERS = ["ada", "ben", "cleo", "dora", "eli", "fay", "gus", "hana"];
const ORDER_EVERY_MS = 350;
/** What happens, again and again, by the second of the round. */
const ROUND_S = 150;
const RATE_LOST = { from: 15, to: 75 };
const MAIL_OUT = { from: 90, to: 120 };

/** Orders, payments and mails on an embedded database, with the page over them: they flow, fail and recover until the signal. */
export async function runPageDemo({
  output,
  cwd,
  port,
  stop,
}: {
  output: Output;
  cwd: string;
  port: number;
  stop: AbortSignal;
}): Promise<void> {
  const { PGlite } = await importPglite(cwd);
  const db = new PGlite();
  try {
    const store = createPostgresStore({ client: db });
    await store.migrator.migrate();
    const demo = new PageDemo(db, store, await createOrderModule(db, store), output);
    await demo.start();
    const admin = createAdmin({ stores: { shop: store }, title: "txbox demo" });
    {
      await using server = new PageServer(admin);
      const url = await server.listen({ host: "127.0.0.1", port });
      output.text(`The page is at ${url} (Ctrl-C ends it; all of it is in memory)\n`);
      await demo.run(stop);
    }
    await demo.stop();
  } finally {
    await db.close();
  }
}

class PageDemo {
  readonly #db: PGlite;
  readonly #store: PostgresStore<Transaction>;
  readonly #orders: OrderModule;
  readonly #output: Output;
  readonly #inboxes: { stop(): Promise<void> }[] = [];
  readonly #relays: Relay[] = [];
  #knowsRate = true;
  #mailIsOut = false;

  constructor(db: PGlite, store: PostgresStore<Transaction>, orders: OrderModule, output: Output) {
    this.#db = db;
    this.#store = store;
    this.#orders = orders;
    this.#output = output;
  }

  async start(): Promise<void> {
    await this.#db.exec(`create schema payments;
      create table payments.payments (n integer generated always as identity, order_id text not null, eur numeric(10, 2) not null);`);
    const store = this.#store;
    const outbox = createOutbox<PaymentEvents, Transaction>({ store });
    const payments = createInProcessBus();
    const mails = createInProcessBus();
    const paying = createInbox<OrderEvents, Transaction>({ store, consumer: "payments" });
    paying.on("order_placed", async (tx, { payload: { orderId, amount, currency } }) => {
      if (currency === "SEK" && !this.#knowsRate) throw new Error(`No exchange rate for ${currency} of ${orderId}`);
      await tx.query("insert into payments.payments (order_id, eur) values ($1, $2::numeric)", [orderId, amount]);
      const payload = { orderId, eur: amount };
      const about = { aggregateType: "order", aggregateId: orderId };
      await outbox.enqueue(tx, { stream: "payments", type: "payment_made", key: orderId, ...about, payload });
    });
    const mailing = createInbox<PaymentEvents, Transaction>({ store, consumer: "mails" });
    mailing.on("payment_made", async (_tx, { payload: { orderId } }) => {
      const n = Number(orderId.replace("order-", ""));
      if (!this.#knowsRate && n % 9 === 0)
        throw new PermanentError(`552 5.2.2 mailbox of the buyer of ${orderId} is full`);
    });
    await paying.start(payments);
    await mailing.start(mails);
    this.#inboxes.push(paying, mailing);
    const mailServer: Publisher = {
      keepsKeyOrder: mails.keepsKeyOrder,
      publish: async (messages, signal, progress) => {
        if (this.#mailIsOut) throw new Error("connect ECONNREFUSED 10.0.0.7:25, the mail server");
        return mails.publish(messages, signal, progress);
      },
    };
    const common = { store, maxAttempts: 3, backoff: { baseMs: 200, maxMs: 1000 }, maintenance: false } as const;
    this.#relays.push(
      createRelay({ ...common, name: "to-payments", streams: ["orders"], publisher: payments, onDead: "block" }),
      createRelay({ ...common, name: "to-mails", streams: ["payments"], publisher: mailServer }),
    );
    for (const relay of this.#relays) await relay.start();
  }

  /** A round: a currency is not known and letters die; it is known again; the mail server is out; it is back. */
  async run(stop: AbortSignal): Promise<void> {
    const began = performance.now();
    for (let n = 1; !stop.aborted; n++) {
      const second = ((performance.now() - began) / 1000) % ROUND_S;
      this.#turn(second);
      const customer = CUSTOMERS[n % CUSTOMERS.length]!;
      const currency = n % 12 === 5 || n % 40 === 7 ? "SEK" : "EUR";
      await this.#orders.place({ orderId: `order-${n}`, customer, amount: `${10 + (n % 90)}.50`, currency });
      await sleep(ORDER_EVERY_MS, undefined, { signal: stop }).catch(() => undefined);
    }
  }

  async stop(): Promise<void> {
    for (const relay of this.#relays) await relay.stop();
    for (const inbox of this.#inboxes) await inbox.stop();
  }

  #turn(second: number): void {
    const isLost = second >= RATE_LOST.from && second < RATE_LOST.to;
    if (isLost === this.#knowsRate) {
      this.#knowsRate = !isLost;
      this.#output.note(
        isLost
          ? "The payment module forgot a currency: some orders become dead letters, and their customers wait."
          : "It knows the currency again: requeue the dead letters on the page (g d, then Requeue).",
      );
    }
    const isOut = second >= MAIL_OUT.from && second < MAIL_OUT.to;
    if (isOut !== this.#mailIsOut) {
      this.#mailIsOut = isOut;
      this.#output.note(isOut ? "The mail server is out: its messages wait." : "The mail server is back: they leave.");
    }
  }
}
