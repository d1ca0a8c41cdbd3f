import { fileURLToPath } from "node:url";
import pg from "pg";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { eventually } from "../../src/testing/eventually.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { createPostgresStore, type PostgresStore } from "../../src/stores/postgres/index.ts";
import { type NodeProcess, serverOrSkip, spawnNode } from "../harness/index.ts";
import { hasPostgres, migratedDatabase } from "../harness/shared-postgres.ts";
import { startBrowser } from "../harness/start-browser.ts";
import { startRedis } from "../harness/start-redis.ts";
import { CONFIG_URL, projectFolder, startCli } from "../support/run-cli.ts";
import { complaintsOf, WIDE } from "./page-scene.ts";
import type { ShopService } from "./shop-service.ts";

const browser = await serverOrSkip("Chromium", startBrowser);
const redis = await serverOrSkip("Redis", () => startRedis({ owned: true }));
afterAll(() => Promise.all([browser.stop(), redis.stop()]));

const WAIT = { timeout: 120_000 };
const PATIENCE = { timeoutMs: 120_000, intervalMs: 200 };
const SERVICE = fileURLToPath(new URL("shop-service.ts", import.meta.url));

/**
 * Orders in one database, payments in another, a broker between them, each service and `txbox admin` in a process of its
 * own. The tests are one night: each begins where the one before has ended.
 */
describe.skipIf(browser.skipped || redis.skipped || !hasPostgres())("a night on call", { timeout: 240_000 }, () => {
  const stack = new AsyncDisposableStack();
  let orders: { store: PostgresStore<pg.PoolClient>; pool: pg.Pool; url: string };
  let payments: typeof orders;
  let relay: NodeProcess;
  let paying: NodeProcess;
  let page: Page;
  let url: string;
  let complaints: string[];
  let placed = 0;

  async function database(): Promise<typeof orders> {
    const { url: at } = stack.use(await migratedDatabase());
    const pool = stack.adopt(new pg.Pool({ connectionString: at, max: 5 }), (one) => one.end());
    pool.on("error", () => undefined);
    return { url: at, pool, store: createPostgresStore({ client: pool }) };
  }

  async function start(service: Omit<ShopService, "redis">): Promise<NodeProcess> {
    const child = stack.use(spawnNode(SERVICE, [JSON.stringify({ ...service, redis: redis.server.url })]));
    await child.waitForLine("ready", { timeoutMs: 60_000 });
    return child;
  }

  async function place(orderId: string, customer: string, total = 10): Promise<void> {
    const client = await orders.pool.connect();
    try {
      await client.query("begin");
      const about = { aggregateType: "order", aggregateId: orderId };
      const payload = { orderId, customer, total };
      await createOutbox({ store: orders.store }).enqueue(client, {
        stream: "orders",
        type: "order_placed",
        key: customer,
        payload,
        ...about,
      });
      await client.query("commit");
      placed++;
    } finally {
      client.release();
    }
  }

  /** Each order is paid once. */
  async function paidOnce(count = placed): Promise<void> {
    await eventually(async () => {
      const { rows } = await payments.pool.query("select count(*)::int as all from payment");
      expect(rows).toEqual([{ all: count }]);
    }, PATIENCE);
    const { rows } = await payments.pool.query("select order_id from payment group by order_id having count(*) > 1");
    expect(rows).toEqual([]);
  }

  const verdict = () => page.getByRole("region", { name: "Verdict" });
  const dialog = () => page.getByRole("dialog");
  const open = (where: string) => page.goto(url + where);

  async function confirm(button: RegExp, reason?: string): Promise<void> {
    const name = dialog().getByLabel("Your name");
    await name.waitFor(WAIT);
    if ((await name.inputValue()) === "") await name.fill("ada");
    if (reason !== undefined)
      await dialog()
        .getByLabel(/^Reason/)
        .fill(reason);
    await dialog().getByRole("button", { name: button }).click();
    await dialog().waitFor({ ...WAIT, state: "detached" });
  }

  beforeAll(async () => {
    [orders, payments] = [await database(), await database()];
    await payments.pool.query("create table payment (order_id text, customer text, total int, iban text)");
    relay = await start({ role: "relay", database: orders.url });
    paying = await start({ role: "payments", database: payments.url });
    const folder = stack.use(
      projectFolder({
        "txbox.config.ts": `import { defineConfig } from ${JSON.stringify(CONFIG_URL)};
          export default defineConfig({ database: { url: ${JSON.stringify(orders.url)} }, stores: { payments: { url: ${JSON.stringify(payments.url)} } } });`,
      }),
    );
    const admin = stack.use(startCli(["admin", "--listen", "127.0.0.1:0"], { cwd: folder.path }));
    url = /http:\/\/[\d.:]+\//.exec(await admin.waitForLine(/The page is at/))![0];
    const context = stack.adopt(await browser.server.browser.newContext(WIDE), (one) => one.close());
    page = await context.newPage();
    complaints = complaintsOf(page);
  }, 180_000);
  afterAll(() => stack.disposeAsync());

  test("is it healthy? One sentence says yes, and so does the title", async () => {
    for (let n = 1; n <= 5; n++) await place(`first-${n}`, `customer-${n}`);
    await paidOnce();
    await open("");
    await verdict()
      .getByText(/^All messages/)
      .waitFor(WAIT);
    expect(await page.title()).toMatch(/^Overview/);
  });

  test("orders are not being paid: the broker was killed; the page says so, and that it is over", async () => {
    await redis.server.kill();
    for (let n = 1; n <= 8; n++) await place(`out-${n}`, `customer-${n}`);
    await verdict()
      .getByText(/Relay to-redis: target out for .*, 8 messages wait/)
      .first()
      .waitFor(WAIT);
    await verdict()
      .getByText(/ECONNREFUSED/)
      .first()
      .waitFor(WAIT);
    expect(await page.title()).toMatch(/^✕ Overview/);
    await redis.server.start();
    await paidOnce();
    await verdict()
      .getByText(/^All messages/)
      .waitFor(WAIT);
  });

  test("orders are not being paid: the relay was killed; the page names it and the command that starts it", async () => {
    const more = Array.from({ length: 200 }, (_, n) => place(`burst-${n}`, `customer-${n % 40}`));
    await eventually(
      async () => {
        const { rows } = await payments.pool.query("select 1 from payment where order_id like 'burst-%' limit 1");
        expect(rows).toHaveLength(1);
      },
      { ...PATIENCE, intervalMs: 5 },
    );
    await relay.kill();
    await Promise.all(more);
    await place("4711", "customer-4711", 47);
    await verdict()
      .getByText(/Relay to-redis: no process runs it, .* messages? waits?, /)
      .first()
      .waitFor(WAIT);
    const started = await verdict().getByText("txbox relay to-redis", { exact: false }).first().textContent();
    expect(started).toContain("txbox relay to-redis");
    relay = await start({ role: "relay", database: orders.url });
    await paidOnce();
    await verdict()
      .getByText(/^All messages/)
      .waitFor(WAIT);
  });

  test("customer 4711, charged twice or not at all? The story goes from order to payment over two databases", async () => {
    // All orders are sent a second time: as often as that, no more than one payment.
    await open("relays?relay=to-redis");
    await page.getByRole("button", { name: "Rewind…" }).click();
    await page.getByRole("button", { name: "See what would be sent…" }).click();
    await dialog().getByText(`Send ${placed} messages of relay to-redis again?`).waitFor(WAIT);
    await confirm(/^Rewind/, "to be sure");
    await eventually(async () => expect(await orders.store.admin.relays()).toMatchObject([{ pending: 0 }]), PATIENCE);
    await page.keyboard.press("/");
    await page.keyboard.type("order:4711");
    await page.keyboard.press("Enter");
    await page.getByRole("link", { name: "order_placed" }).first().click();
    const tree = page.getByRole("article").filter({ hasText: "Relay to-redis" }).first();
    await tree.getByText(/Enqueued in main/).waitFor(WAIT);
    await tree.getByText(/Relay payments-inbox.* in payments/).waitFor(WAIT);
    await tree.getByText(/Consumer payments in payments/).waitFor(WAIT);
    await tree.getByText(/Enqueued in payments/).waitFor(WAIT);
    await tree.getByText("Relay to-mails").waitFor(WAIT);
    expect(await tree.getByText(/Consumer payments in payments/).count()).toBe(1);
    expect(await tree.getByRole("article").filter({ hasText: "payment_made" }).count()).toBe(1);
    await paidOnce();
  });

  test("300 dead letters since the deploy: one cause; one is requeued to see it work, then the rest", async () => {
    const before = placed;
    paying.signal("SIGTERM");
    await paying.waitForExit({ timeoutMs: 30_000 });
    paying = await start({ role: "payments", database: payments.url, release: "bad" });
    for (let n = 0; n < 300; n++) await place(`deploy-${n}`, `buyer-${n}`);
    await open("dead");
    await page.getByText("300 dead letters of 1 cause: all of them have the same cause.").waitFor(WAIT);
    await page.getByRole("link", { name: /Cannot read properties of undefined \(reading 'iban'\)/ }).click();
    await paidOnce(before);
    // The release is taken back.
    await paying.kill();
    paying = await start({ role: "payments", database: payments.url });
    await page.getByRole("button", { name: "Requeue one, to see whether it works" }).click();
    await confirm(/Requeue 1 letter/);
    await paidOnce(before + 1);
    await page.getByRole("button", { name: "Requeue all…" }).click();
    await dialog().getByText("Requeue 299 dead letters?").waitFor(WAIT);
    await dialog().getByLabel("How fast").selectOption("100");
    await confirm(/Requeue 299 letters/, "the release was taken back");
    await page
      .getByText(/\d+ of 299 requeued/)
      .first()
      .waitFor(WAIT);
    await page.getByText("None left of these.").waitFor(WAIT);
    await paidOnce();
    await open("");
    await verdict()
      .getByText(/^All messages/)
      .waitFor(WAIT);
  });

  test("one message is wrong and blocks its key: it is seen, edited, and the key flows in its order", async () => {
    await place("wrong", "poisoned", -5);
    await place("after-1", "poisoned", 1);
    await place("after-2", "poisoned", 2);
    await verdict()
      .getByText("Relay payments-inbox: 1 dead letter blocks 1 key, 2 messages wait.")
      .first()
      .waitFor(WAIT);
    await open("dead?tab=blocked&store=payments");
    await page.getByRole("link", { name: "poisoned" }).click();
    await page.getByText("the total of an order must be above 0, got -5").first().waitFor(WAIT);
    await page.getByRole("heading", { name: "What waits behind it: 2 messages" }).waitFor(WAIT);
    await page.getByRole("button", { name: "Edit…" }).click();
    // What does not fit either is refused by the consumer, and dead again.
    await page.getByLabel("Body").fill('{ "orderId": "wrong", "customer": "poisoned", "total": 0 }');
    await page.getByRole("button", { name: "Keep these contents…" }).click();
    await confirm(/Keep these contents/, "it should have been positive");
    await page.getByText("edited", { exact: true }).waitFor(WAIT);
    await page.getByRole("button", { name: "Requeue", exact: true }).click();
    await confirm(/Requeue 1 letter/);
    await page.getByText("the total of an order must be above 0, got 0").first().waitFor(WAIT);
    await page.getByRole("button", { name: "Edit…" }).click();
    await page.getByLabel("Body").fill('{ "orderId": "wrong", "customer": "poisoned", "total": 5 }');
    await page.getByRole("button", { name: "Keep these contents…" }).click();
    await confirm(/Keep these contents/, "five it was");
    await page.getByRole("button", { name: "Requeue", exact: true }).click();
    await confirm(/Requeue 1 letter/);
    await paidOnce();
    const { rows } = await payments.pool.query("select order_id, total from payment where customer = 'poisoned'");
    expect(rows).toEqual([
      { order_id: "wrong", total: 5 },
      { order_id: "after-1", total: 1 },
      { order_id: "after-2", total: 2 },
    ]);
    await open("dead?tab=changes");
    await page.getByText("five it was").waitFor(WAIT);
    expect(await page.getByRole("cell", { name: "ada" }).count()).toBe(7);
    expect(complaints).toEqual([]);
  });
});
