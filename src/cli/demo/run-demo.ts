import { setTimeout as sleep } from "node:timers/promises";
import type { PGlite, Transaction } from "@electric-sql/pglite";
import { createInProcessBus, type InProcessBus } from "../../brokers/in-process/in-process-bus.ts";
import type { RelayInfo } from "../../core/contracts.ts";
import { createPostgresStore, type PostgresStore } from "../../stores/postgres/postgres-store.ts";
import { formatMs, plural } from "../format-values.ts";
import { importPglite } from "../import-driver.ts";
import type { Output } from "../output.ts";
import { DemoStory } from "./demo-story.ts";
import { demoOrders, POISON } from "./demo-orders.ts";
import { tellBooks, type DemoSummary } from "./demo-summary.ts";
import { createMortalRelay, type MortalRelay } from "./mortal-relay.ts";
import { createOrderModule, type NewOrder, type OrderModule } from "./order-module.ts";
import { createPaymentModule, type PaymentModule } from "./payment-module.ts";
import { isPaidOnce, reconcile } from "./reconcile.ts";

const LEASE_MS = 1000;
const BATCH_SIZE = 4;
const MAX_ATTEMPTS = 3;
const PATIENCE_MS = 30_000;

/** Orders and payments on an embedded database, with every accident that txbox is for. */
export async function runDemo({
  output,
  cwd,
  orders,
}: {
  output: Output;
  cwd: string;
  orders: number;
}): Promise<DemoSummary> {
  const { PGlite } = await importPglite(cwd);
  const db = new PGlite();
  try {
    return await new Demo(db, new DemoStory(output), orders).run();
  } finally {
    await db.close();
  }
}

class Demo {
  readonly #db: PGlite;
  readonly #story: DemoStory;
  readonly #orders: readonly [NewOrder, ...NewOrder[]];
  readonly #store: PostgresStore<Transaction>;
  readonly #bus: InProcessBus = createInProcessBus();
  readonly #relays: MortalRelay[] = [];

  constructor(db: PGlite, story: DemoStory, count: number) {
    this.#db = db;
    this.#story = story;
    this.#orders = demoOrders(count);
    this.#store = createPostgresStore({ client: db });
  }

  async run(): Promise<DemoSummary> {
    const startedAt = performance.now();
    const story = this.#story;
    story.title("txbox demo: orders are placed, payments are made, and things go wrong in between");
    story.say(
      "An order module and a payment module, each with tables of its own, in an embedded PostgreSQL (PGlite).",
      "A relay carries the order messages over; an inbox makes each take effect once. No server, no network.",
    );
    await this.#store.migrator.migrate();
    const orders = await createOrderModule(this.#db, this.#store);
    const payments = await createPaymentModule(this.#db, this.#store);
    await payments.listen(this.#bus);

    const half = Math.ceil(this.#orders.length / 2);
    const rolledBack = await this.#placeOrders(orders, this.#orders.slice(0, half));
    const killed = await this.#killRelay(half);
    const killedRelay = { ...killed, takenOverAfterMs: await this.#restartRelay(orders, half) };
    await this.#deliverTwice();
    const deadLetters = await this.#meetPoison();
    const requeued = await this.#repair(payments);
    for (const { relay } of this.#relays.slice(1)) await relay.stop();
    await payments.stop();

    const found = await reconcile(this.#db);
    const deliveries = this.#deliveries();
    const summary: DemoSummary = {
      ...found,
      everyOrderPaidOnce: isPaidOnce(found),
      rolledBack,
      killedRelay,
      deliveries,
      failedAttempts: payments.runs.failed,
      // Whatever was delivered without the handler being run was recognised by its receipt.
      duplicatesDropped: deliveries - payments.runs.all,
      deadLetters,
      requeued,
      ms: Math.round(performance.now() - startedAt),
    };
    tellBooks(this.#story, summary);
    return summary;
  }

  #extraDeliveries = 0;

  #deliveries(): number {
    return this.#relays.reduce((sum, { delivered }) => sum + delivered, 0) + this.#extraDeliveries;
  }

  async #placeOrders(orders: OrderModule, first: readonly NewOrder[]): Promise<DemoSummary["rolledBack"]> {
    const story = this.#story;
    story.chapter("Orders are placed");
    for (const order of first) await orders.place(order);
    const failed: NewOrder = { orderId: "order-x", customer: "ada", amount: "5.00", currency: "EUR" };
    await orders.placeAndFail(failed);
    const left = await this.#count("select count(*)::int as n from orders.orders where id = $1", [failed.orderId]);
    const messages = (await this.#store.admin.find({ aggregateId: failed.orderId })).length;
    story.say(
      `${plural(first.length, "order")} committed, each with its message in the same transaction.`,
      `One more was rolled back after its message had been written: ${plural(left, "order")} and ${plural(messages, "message")} of it are left.`,
    );
    return { orders: left, messages };
  }

  async #killRelay(half: number): Promise<{ delivered: number; settled: number }> {
    const story = this.#story;
    story.chapter("The relay starts, and is killed half-way");
    const first = this.#addRelay({ dieAt: Math.ceil(half / 2) });
    await first.relay.start();
    await withPatience(first.died, "the first relay's end");
    const settled = Number((await this.#figures()).published);
    story.say(
      `It had handed over ${plural(first.delivered, "message")} and settled ${settled} of them when it died, between publishing and settling.`,
      "(All of this is one process, so instead of sending a SIGKILL the demo freezes the relay for good.)",
    );
    return { delivered: first.delivered, settled };
  }

  async #restartRelay(orders: OrderModule, half: number): Promise<number> {
    const story = this.#story;
    story.chapter("A second relay takes over");
    const diedAt = performance.now();
    for (const order of this.#orders.slice(half)) await orders.place(order);
    const second = this.#addRelay({});
    await second.relay.start();
    await until(() => second.delivered > 0, "the second relay's first message");
    const after = Math.round(performance.now() - diedAt);
    story.say(
      `Meanwhile ${plural(this.#orders.length - half, "more order")} came in. The lease of the dead relay ran out and the new one went on after ${formatMs(after)}`,
      "(the lease is 1 s here, 30 s by default). It delivers again what was published and not settled.",
    );
    await until(async () => (await this.#unpaidOfOthers()) === 0, "the payments of the other customers");
    return after;
  }

  /** As brokers do when an acknowledgement is lost. */
  async #deliverTwice(): Promise<void> {
    const story = this.#story;
    story.chapter("A message is delivered twice");
    const [{ orderId }] = this.#orders;
    const [message] = await this.#store.admin.find({ aggregateId: orderId });
    if (message === undefined || message.position === null) throw new Error(`There is no message of ${orderId}`);
    const results = await this.#bus.publish([{ ...message, position: message.position }], new AbortController().signal);
    this.#extraDeliveries++;
    const paid = await this.#count("select count(*)::int as n from payments.payments where order_id = $1", [orderId]);
    story.say(
      `The message of ${orderId} was delivered once more and answered with "${results[0]?.status}".`,
      `Its receipt was there already, so the handler did not run: ${orderId} has ${plural(paid, "payment")}.`,
    );
  }

  async #meetPoison(): Promise<number> {
    const story = this.#story;
    story.chapter("A message that cannot be handled");
    await until(async () => (await this.#figures()).dead > 0, "the dead letter");
    const letters = await this.#store.admin.dead({});
    const unpaid = await this.#unpaid();
    story.say(
      `It failed ${plural(letters[0]?.attempts ?? 0, "time")} and was put aside as a dead letter (\`txbox dead list\`):`,
    );
    story.table(letters, [
      { title: "message", value: ({ id }) => id },
      { title: "order", value: ({ aggregateId }) => aggregateId },
      { title: "key", value: ({ key }) => key },
      { title: "attempts", align: "right", value: ({ attempts }) => attempts },
      { title: "last error", value: ({ lastError }) => lastError, max: 60 },
    ]);
    const waiting = unpaid.filter((id) => !letters.some(({ aggregateId }) => aggregateId === id));
    const others = await this.#unpaidOfOthers();
    story.say(
      `${POISON.customer}'s later orders wait behind it, to keep their order: ${waiting.join(", ") || "none"}.`,
      `Unpaid orders of all other customers: ${others}.`,
    );
    return letters.length;
  }

  async #repair(payments: PaymentModule): Promise<number> {
    const story = this.#story;
    story.chapter("The cause is mended and the message requeued");
    await payments.learnRate(POISON.currency, "0.09");
    const requeued = await this.#store.admin.requeue({ stream: "orders", key: POISON.customer });
    await until(async () => (await this.#unpaid()).length === 0, "the last payments");
    const { rows } = await this.#db.query<{ id: string; amount: string; currency: string; paid: number }>(
      `select o.id, o.amount::text, o.currency, row_number() over (order by p.n)::int as paid
       from orders.orders o join payments.payments p on p.order_id = o.id where o.customer = $1 order by o.n`,
      [POISON.customer],
    );
    story.say(
      `The payment module learnt the rate of ${POISON.currency}; ${plural(requeued, "dead letter")} requeued. ${POISON.customer}'s orders, in the order they were placed:`,
    );
    story.table(rows, [
      { title: "order", value: ({ id }) => id },
      { title: "amount", align: "right", value: ({ amount, currency }) => `${amount} ${currency}` },
      { title: "paid as number", align: "right", value: ({ paid }) => paid },
    ]);
    return requeued;
  }

  #addRelay({ dieAt }: { dieAt?: number }): MortalRelay {
    const relay = createMortalRelay({
      store: this.#store,
      name: "payments",
      publisher: this.#bus,
      batchSize: BATCH_SIZE,
      leaseMs: LEASE_MS,
      maxAttempts: MAX_ATTEMPTS,
      backoff: { baseMs: 50, maxMs: 200 },
      onDead: "block",
      maintenance: false,
      ...(dieAt === undefined ? {} : { dieAt }),
    });
    this.#relays.push(relay);
    return relay;
  }

  async #figures(): Promise<RelayInfo> {
    const [figures] = await this.#store.admin.relays();
    if (figures === undefined) throw new Error("There is no relay");
    return figures;
  }

  async #unpaid(customer?: string): Promise<string[]> {
    const { rows } = await this.#db.query<{ id: string }>(
      `select o.id from orders.orders o where not exists (select 1 from payments.payments p where p.order_id = o.id)
         and ($1::text is null or o.customer <> $1) order by o.n`,
      [customer ?? null],
    );
    return rows.map(({ id }) => id);
  }

  async #unpaidOfOthers(): Promise<number> {
    return (await this.#unpaid(POISON.customer)).length;
  }

  async #count(sql: string, params: string[]): Promise<number> {
    const { rows } = await this.#db.query<{ n: number }>(sql, params);
    return rows[0]?.n ?? 0;
  }
}

async function until(check: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const endsAt = performance.now() + PATIENCE_MS;
  while (!(await check())) {
    if (performance.now() > endsAt) throw new Error(`The demo waited too long for ${what}`);
    await sleep(20);
  }
}

async function withPatience(promise: Promise<void>, what: string): Promise<void> {
  let done = false;
  void promise.then(() => (done = true));
  await until(() => done, what);
}
