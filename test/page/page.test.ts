import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Message } from "../../src/core/message.ts";
import type { PublishResult } from "../../src/core/contracts.ts";
import { createInProcessBus } from "../../src/brokers/in-process/in-process-bus.ts";
import { createInbox } from "../../src/inbox/inbox.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { createRelay, type Relay } from "../../src/relay/relay.ts";
import { eventually } from "../../src/testing/eventually.ts";
import { serverOrSkip, until } from "../harness/index.ts";
import { hasPostgres } from "../harness/shared-postgres.ts";
import { startBrowser } from "../harness/start-browser.ts";
import { type AdminScene, adminScene, judging } from "../support/admin-scene.ts";
import { complaintsOf, NARROW, type ServedPage, servePage, WIDE } from "./page-scene.ts";

const slot = await serverOrSkip("Chromium", startBrowser);
afterAll(() => slot.stop());

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const SCREENS = ["", "messages", "dead", "dead?tab=blocked", "dead?tab=changes", "relays", "doctor"];
const PATIENCE = { timeoutMs: 60_000, intervalMs: 200 };
const WAIT = { timeout: 60_000 };

/** A shop whose target does what the test says. */
interface Shop extends AsyncDisposable {
  readonly scene: AdminScene;
  readonly served: ServedPage;
  judge: (message: Message) => PublishResult;
  order(n: number, type?: string): Promise<void>;
  open(where?: string, options?: typeof WIDE): Promise<{ page: Page; complaints: string[] }>;
}

async function openShop(options: Parameters<typeof servePage>[1] = {}): Promise<Shop> {
  const scene = await adminScene();
  const served = await servePage(scene, options);
  const contexts: { close(): Promise<void> }[] = [];
  const shop: Shop = {
    scene,
    served,
    judge: () => ({ status: "published" }),
    async order(n, type = "order_placed") {
      const about = { aggregateType: "order", aggregateId: `order-${n}` };
      await scene.enqueue({
        stream: "orders",
        type,
        key: `customer-${n % 20}`,
        payload: { n },
        id: `m-${n}`,
        ...about,
      });
    },
    async open(where = "", how = WIDE) {
      const context = await slot.server.browser.newContext(how);
      contexts.push(context);
      const page = await context.newPage();
      const complaints = complaintsOf(page);
      await page.goto(served.url + where);
      return { page, complaints };
    },
    async [Symbol.asyncDispose]() {
      for (const context of contexts) await context.close();
      await relay.stop();
      await served[Symbol.asyncDispose]();
      await scene[Symbol.asyncDispose]();
    },
  };
  const relay: Relay = createRelay({
    store: scene.store,
    name: "to-bank",
    publisher: judging((message) => shop.judge(message)),
    maxAttempts: 2,
    backoff: { baseMs: 50, maxMs: 200 },
    onDead: "block",
  });
  await relay.start();
  return shop;
}

const rejects = (error: string) => (): PublishResult => ({ status: "rejected", error: new Error(error) });

async function serious(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  return page.evaluate(`axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => id + ": " + nodes.map(({ html }) => html.slice(0, 120)).join(" | ")))`);
}

async function confirm(page: Page, button: RegExp, reason?: string): Promise<void> {
  const dialog = page.getByRole("dialog");
  const name = dialog.getByLabel("Your name");
  await name.waitFor(WAIT);
  if ((await name.inputValue()) === "") await name.fill("ada");
  if (reason !== undefined) await dialog.getByLabel(/^Reason/).fill(reason);
  await dialog.getByRole("button", { name: button }).click();
  await dialog.waitFor({ ...WAIT, state: "detached" });
}

describe.skipIf(slot.skipped || !hasPostgres())("the page in a browser", () => {
  test("orders are not being paid: the verdict names the relay, the cause and since when, and is calm again", async () => {
    await using shop = await openShop();
    const { page, complaints } = await shop.open();
    for (let n = 1; n <= 3; n++) await shop.order(n);
    const verdict = page.getByRole("region", { name: "Verdict" });
    await verdict.getByText(/All messages/).waitFor(WAIT);
    shop.judge = () => ({ status: "unavailable", error: new Error("connect ECONNREFUSED the bank") });
    for (let n = 4; n <= 9; n++) await shop.order(n);
    await verdict
      .getByText(/Relay to-bank: target out for .*, 6 messages wait/)
      .first()
      .waitFor(WAIT);
    await verdict.getByText("connect ECONNREFUSED the bank").waitFor(WAIT);
    expect(await page.title()).toMatch(/^✕ Overview/);
    shop.judge = () => ({ status: "published" });
    await verdict.getByText(/All messages/).waitFor(WAIT);
    expect(await page.title()).toMatch(/^Overview/);
    expect(complaints).toEqual([]);
  });

  test("letters since the deploy: one cause, one requeued to see it work, the rest, and the number falls", async () => {
    await using shop = await openShop();
    shop.judge = rejects("cannot read field iban of undefined");
    for (let n = 1; n <= 15; n++) await shop.order(n);
    await eventually(async () => expect(await shop.scene.store.admin.relays()).toMatchObject([{ dead: 15 }]), PATIENCE);
    const { page, complaints } = await shop.open("dead");
    await page.getByText("15 dead letters of 1 cause").waitFor(WAIT);
    await page.getByRole("link", { name: /cannot read field iban/ }).click();
    shop.judge = () => ({ status: "published" });
    await page.getByRole("button", { name: "Requeue one, to see whether it works" }).click();
    await page.getByRole("dialog").getByText("Requeue 1 dead letter?").waitFor(WAIT);
    await page
      .getByRole("dialog")
      .getByText(/txbox dead requeue/)
      .waitFor(WAIT);
    await confirm(page, /Requeue 1 letter/);
    await eventually(async () => expect(await shop.scene.store.admin.relays()).toMatchObject([{ dead: 14 }]), PATIENCE);
    await page.getByRole("button", { name: "Requeue all…" }).click();
    await page.getByText("Requeue 14 dead letters?").waitFor(WAIT);
    await confirm(page, /Requeue 14 letters/, "the deploy is mended");
    await eventually(async () => expect(await shop.scene.store.admin.relays()).toMatchObject([{ dead: 0 }]), PATIENCE);
    await page.getByText("None left of these.").waitFor(WAIT);
    expect(complaints).toEqual([]);
  });

  test("one message blocks its key: what waits is seen, the letter is discarded with a reason, the key flows", async () => {
    await using shop = await openShop();
    shop.judge = (message) => (message.id === "m-1" ? rejects("no such account")() : { status: "published" });
    for (const n of [1, 21, 41, 2]) await shop.order(n);
    const { page } = await shop.open();
    const verdict = page.getByRole("region", { name: "Verdict" });
    await verdict.getByText("Relay to-bank: 1 dead letter blocks 1 key, 2 messages wait.").first().waitFor(WAIT);
    await page.goto(`${shop.served.url}dead?tab=blocked`);
    await page.getByRole("link", { name: "customer-1" }).click();
    await page.getByRole("heading", { name: "What waits behind it: 2 messages" }).waitFor(WAIT);
    await page.getByRole("button", { name: "Discard…" }).click();
    const sure = page.getByRole("dialog").getByRole("button", { name: "Discard 1 letter" });
    await page.getByRole("dialog").getByLabel("Your name").fill("ada");
    await sure.click();
    // Without a reason the browser does not let it go.
    expect(await page.getByRole("dialog").count()).toBe(1);
    await confirm(page, /Discard 1 letter/, "the account is closed");
    await eventually(
      async () => expect(await shop.scene.store.admin.relays()).toMatchObject([{ blockedKeys: 0, pending: 0 }]),
      PATIENCE,
    );
    await page.goto(shop.served.url);
    await verdict.getByText(/All messages/).waitFor(WAIT);
  });

  test("a customer asks: found by anything, the story tells what happened", async () => {
    await using shop = await openShop();
    for (let n = 1; n <= 3; n++) await shop.order(n);
    const { page } = await shop.open();
    await page.getByText("live", { exact: true }).waitFor(WAIT);
    await page.keyboard.press("/");
    await page.keyboard.type("order:order-2");
    await page.keyboard.press("Enter");
    await page.getByText("1 row, one for each message and relay").waitFor(WAIT);
    expect(page.url()).toContain("messages?q=order%3Aorder-2");
    await page.getByRole("link", { name: "order_placed" }).click();
    await page.getByRole("heading", { name: "Story of m-2" }).waitFor(WAIT);
    await page.getByText("Relay to-bank").waitFor(WAIT);
    await page
      .getByText(/after \d+ ms/)
      .first()
      .waitFor(WAIT);
    await page.getByText("Body and headers").click();
    await page.getByText(/"n": 2/).waitFor(WAIT);
    await page.goBack();
    await page.getByText("1 row, one for each message and relay").waitFor(WAIT);
  });

  test("one message is wrong: it is edited, requeued, and its key flows; the change is noted with who and why", async () => {
    await using shop = await openShop();
    const got: string[] = [];
    shop.judge = (message) => {
      if (String(message.body).includes('"n":1}')) return rejects("n must not be 1")();
      got.push(`${message.id} ${String(message.body)}`);
      return { status: "published" };
    };
    await shop.order(1);
    await shop.order(21);
    await eventually(async () => expect(await shop.scene.store.admin.relays()).toMatchObject([{ dead: 1 }]), PATIENCE);
    const { page, complaints } = await shop.open("dead");
    await page.getByRole("link", { name: /n must not be 1/ }).click();
    await page.getByRole("link", { name: "m-1" }).click();
    await page.getByRole("button", { name: "Edit…" }).click();
    await page.getByLabel("Body").fill("{ nonsense");
    await page.getByText(/The body must be JSON/).waitFor(WAIT);
    await page.getByLabel("Body").fill('{ "n": 2 }');
    await page.getByRole("button", { name: "Keep these contents…" }).click();
    await confirm(page, /Keep these contents/, "a typing error");
    await page.getByText("edited", { exact: true }).waitFor(WAIT);
    await page.getByText("The original", { exact: true }).waitFor(WAIT);
    await page.getByRole("button", { name: "Requeue", exact: true }).click();
    await confirm(page, /Requeue 1 letter/);
    await eventually(() => expect(got).toEqual(['m-1 {"n":2}', 'm-21 {"n":21}']), PATIENCE);
    await page.goto(`${shop.served.url}dead?tab=changes`);
    await page.getByText("a typing error").waitFor(WAIT);
    expect(await page.getByRole("cell", { name: "ada" }).count()).toBe(2);
    expect(complaints).toEqual([]);
  });

  test("a story from order to payment over two databases is one tree", async () => {
    await using orders = await adminScene();
    await using payments = await adminScene();
    await using served = await servePage(orders, { stores: { orders: orders.store, payments: payments.store } });
    const bus = createInProcessBus();
    const outbox = createOutbox({ store: payments.store });
    const inbox = createInbox({ store: payments.store, consumer: "billing" });
    inbox.on("order_placed", async (tx) => {
      await outbox.enqueue(tx, { stream: "payments", type: "payment_made", key: "4711", payload: { paid: true } });
    });
    await inbox.start(bus);
    const about = { aggregateType: "order", aggregateId: "4711" };
    await orders.enqueue({ stream: "orders", type: "order_placed", key: "ada", payload: { total: 5 }, ...about });
    await createRelay({ store: orders.store, name: "to-payments", publisher: bus }).drainOnce();
    await payments.relayOnce("to-mails");
    await inbox.stop();
    const context = await slot.server.browser.newContext(WIDE);
    try {
      const page = await context.newPage();
      await page.goto(`${served.url}messages?q=order:4711`);
      await page.getByRole("link", { name: "order_placed" }).click();
      const tree = page.getByRole("article").filter({ hasText: "Relay to-payments" });
      await tree.getByText(/Enqueued in orders/).waitFor(WAIT);
      await tree.getByText(/Consumer billing in payments/).waitFor(WAIT);
      await tree.getByText(/Enqueued in payments/).waitFor(WAIT);
      await tree.getByText("Relay to-mails").waitFor(WAIT);
      const timeline = page.getByRole("complementary", { name: "Timeline" });
      expect(await timeline.getByRole("listitem").count()).toBe(5);
      // From the payment the way up is there as well.
      await page.getByRole("link", { name: "payment_made" }).click();
      await page.getByText(/Enqueued in orders/).waitFor(WAIT);
    } finally {
      await context.close();
    }
  });

  test("by the keyboard alone: to the dead letters, to a row, requeue, help", async () => {
    await using shop = await openShop();
    shop.judge = rejects("broken");
    for (let n = 1; n <= 3; n++) await shop.order(n);
    await eventually(async () => expect(await shop.scene.store.admin.relays()).toMatchObject([{ dead: 3 }]), PATIENCE);
    const { page } = await shop.open();
    await page.getByText("live", { exact: true }).waitFor(WAIT);
    await page.keyboard.press("g");
    await page.keyboard.press("d");
    await page.getByText("3 dead letters of 1 cause").waitFor(WAIT);
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await page.getByRole("link", { name: "m-2" }).waitFor(WAIT);
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    expect(await page.evaluate("document.activeElement.textContent")).toBe("m-2");
    shop.judge = () => ({ status: "published" });
    await page.keyboard.press("r");
    await page.getByText("Requeue 1 dead letter?").waitFor(WAIT);
    await eventually(async () => expect(await page.evaluate("document.activeElement.id")).toBe("ask-actor"));
    await page.keyboard.type("ada");
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor({ ...WAIT, state: "detached" });
    await eventually(async () => expect(await shop.scene.store.admin.relays()).toMatchObject([{ dead: 2 }]), PATIENCE);
    await page.keyboard.press("?");
    await page.getByRole("heading", { name: "Keys" }).waitFor(WAIT);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ ...WAIT, state: "detached" });
  });

  test("a page that lost its server says so and since when, keeps what it knew, and comes back", async () => {
    await using shop = await openShop();
    await shop.order(1);
    const { page } = await shop.open();
    await page.getByRole("link", { name: "to-bank" }).first().waitFor(WAIT);
    await shop.served.stop();
    await page.getByText(/Not connected since .*, for .* What you see is from then/).waitFor(WAIT);
    await page.getByRole("link", { name: "to-bank" }).first().waitFor(WAIT);
    await shop.served.restart();
    await page.getByText("live", { exact: true }).waitFor(WAIT);
    expect(await page.getByText(/Not connected since/).count()).toBe(0);
  });

  test("hostile messages are text: nothing runs, control characters are symbols, long values tell their length", async () => {
    await using shop = await openShop();
    const type = `<img src=x onerror="window.hit=1"><script>window.hit=1</script>`;
    shop.judge = rejects(`<b onmouseover="window.hit=1">bold</b> \u001B[31mred \u202Eback ${"long ".repeat(3000)}`);
    await shop.scene.enqueue({
      stream: "orders",
      type,
      key: "\u001B]0;pwned\u0007key",
      payload: { html: type },
      id: "m-1",
    });
    await eventually(async () => expect(await shop.scene.store.admin.relays()).toMatchObject([{ dead: 1 }]), PATIENCE);
    const { page, complaints } = await shop.open("dead");
    await page.getByRole("link", { name: /<b onmouseover/ }).click();
    await page.getByRole("link", { name: "m-1" }).click();
    await page.getByText("␛]0;pwned␇key").first().waitFor(WAIT);
    await page
      .getByText(/␛\[31mred ⟨U\+202E⟩back/)
      .first()
      .waitFor(WAIT);
    await page
      .getByText(/… \([\d,]+ characters\)/)
      .first()
      .waitFor(WAIT);
    await page.getByText("Body and headers").click();
    await page.goto(`${shop.served.url}story?id=m-1`);
    await page.getByRole("heading", { name: /Story of/ }).waitFor(WAIT);
    await page.getByText(type.slice(0, 20)).first().waitFor(WAIT);
    expect(await page.evaluate("window.hit")).toBeUndefined();
    expect(await page.locator("main img, main b[onmouseover], main script").count()).toBe(0);
    expect(complaints).toEqual([]);
  });

  test("10,000 groups do not freeze it: only the rows in sight are there", async () => {
    await using shop = await openShop();
    const { page } = await shop.open("relays");
    await page.route("**/api/groups*", (route) => {
      const groups = Array.from({ length: 10_000 }, (_, n) => ({
        store: "shop",
        group: `g${n}`,
        relay: "to-bank",
        stream: "s",
        type: "t",
        error: `error ${n}`,
        count: 1,
        estimated: false,
        firstDiedAt: 0,
        lastDiedAt: 0,
        keys: 1,
        command: "txbox dead requeue",
      }));
      return route.fulfill({ json: { groups, cut: false, missing: [] } });
    });
    await page.getByText("live", { exact: true }).waitFor(WAIT);
    await page.keyboard.press("g");
    await page.keyboard.press("d");
    await page.getByText("10,000 dead letters of 10,000 causes").waitFor(WAIT);
    expect(await page.locator("[data-row]").count()).toBeLessThan(100);
    await page.evaluate("scrollTo(0, document.body.scrollHeight)");
    await page.getByRole("link", { name: "error 9999" }).waitFor(WAIT);
    expect(await page.locator("[data-row]").count()).toBeLessThan(100);
  });

  test("a hidden page asks for nothing, and goes on when it is seen again", async () => {
    await using shop = await openShop();
    const { page } = await shop.open();
    await page.getByText("live", { exact: true }).waitFor(WAIT);
    let asked = 0;
    page.on("request", (request) => (asked += request.url().endsWith("/api/live") ? 1 : 0));
    const show = (isHidden: boolean) =>
      page.evaluate(`Object.defineProperty(document, "hidden", { configurable: true, get: () => ${isHidden} });
        document.dispatchEvent(new Event("visibilitychange"))`);
    await page.clock.install();
    await show(true);
    for (let seconds = 0; seconds < 120; seconds += 10) await page.clock.runFor(10_000);
    expect(asked).toBe(0);
    await show(false);
    await eventually(() => expect(asked).toBe(1), PATIENCE);
  });

  test("a rewind begins with the hour before now, in the reader's own zone", async () => {
    await using shop = await openShop();
    await eventually(async () => expect(await shop.scene.store.admin.relays()).toHaveLength(1), PATIENCE);
    const { page } = await shop.open("relays", { ...WIDE, timezoneId: "America/New_York" });
    await page.getByRole("button", { name: "Rewind…" }).click();
    await page.getByLabel("Go on from").selectOption("time");
    const given = await page.getByLabel("Time", { exact: true }).inputValue();
    const at = Number(await page.evaluate(`new Date(${JSON.stringify(given)}).getTime()`));
    expect(Math.abs(Date.now() - 3_600_000 - at)).toBeLessThan(5 * 60_000);
  });

  test("with a token: nothing before it, then the page; a wrong one is refused", async () => {
    await using shop = await openShop({
      token: "a token of more than sixteen characters",
      title: "production",
      color: "#b91c1c",
    });
    const { page } = await shop.open("dead");
    await page.getByLabel("Token").fill("a wrong one");
    await page.getByRole("button", { name: "Open the page" }).click();
    await page.getByText("That is not the token").waitFor(WAIT);
    await page.getByLabel("Token").fill("a token of more than sixteen characters");
    await page.getByRole("button", { name: "Open the page" }).click();
    await page.getByText("No dead letters. Every message got through.").waitFor(WAIT);
    await page.getByRole("link", { name: "production" }).waitFor(WAIT);
    expect(await page.evaluate("getComputedStyle(document.querySelector('.top')).borderTopColor")).toBe(
      "rgb(185, 28, 28)",
    );
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Token").waitFor(WAIT);
  });

  describe("for all visitors", () => {
    let shop: Shop;
    beforeAll(async () => {
      shop = await openShop();
      shop.judge = (message) => (message.type === "bad" ? rejects("no such account")() : { status: "published" });
      for (let n = 1; n <= 30; n++) await shop.order(n, n % 6 === 0 ? "bad" : "order_placed");
      await until(async () => ((await shop.scene.store.admin.relays())[0]?.dead ?? 0) > 2, { what: "dead letters" });
    });
    afterAll(async () => shop[Symbol.asyncDispose]());

    test("empty and disconnected: no serious finding of axe, nothing beyond the edge", async () => {
      await using empty = await adminScene();
      await using served = await servePage(empty);
      for (const how of [
        { ...WIDE, colorScheme: "light" as const },
        { ...NARROW, colorScheme: "dark" as const },
      ]) {
        const context = await slot.server.browser.newContext(how);
        const page = await context.newPage();
        const check = async (what: string): Promise<void> => {
          expect(await serious(page), what).toEqual([]);
          const overflow = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
          expect(overflow, `${what} is wider than the screen`).toBeLessThanOrEqual(0);
        };
        for (const screen of [...SCREENS, "story", "story?id=none"]) {
          await page.goto(served.url + screen);
          await page.getByText("live", { exact: true }).waitFor(WAIT);
          await page
            .getByText("Looking…")
            .first()
            .waitFor({ ...WAIT, state: "detached" });
          await check(`empty ${screen}`);
        }
        for (const screen of ["", "messages", "dead", "relays", "doctor"]) {
          await page.goto(served.url + screen);
          await page.getByText("live", { exact: true }).waitFor(WAIT);
          await served.stop();
          await page.getByText(/Not connected since/).waitFor(WAIT);
          await check(`disconnected ${screen}`);
          await served.restart();
        }
        await context.close();
      }
    });

    test.each([
      { name: "1280 px, light", how: { ...WIDE, colorScheme: "light" as const } },
      { name: "1280 px, dark", how: { ...WIDE, colorScheme: "dark" as const } },
      { name: "390 px, light", how: { ...NARROW, colorScheme: "light" as const } },
      { name: "390 px, dark", how: { ...NARROW, colorScheme: "dark" as const } },
    ])("$name: no serious finding of axe, nothing beyond the edge", async ({ how }) => {
      const { page, complaints } = await shop.open("", how);
      for (const screen of [...SCREENS, "story?id=m-1"]) {
        await page.goto(shop.served.url + screen);
        await page
          .getByRole("main")
          .getByRole("heading")
          .first()
          .waitFor({ ...WAIT, state: "attached" });
        await page.getByText("live", { exact: true }).waitFor(WAIT);
        await page
          .getByText("Looking…")
          .first()
          .waitFor({ ...WAIT, state: "detached" });
        expect(await serious(page), screen).toEqual([]);
        const overflow = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
        expect(overflow, `${screen} is wider than the screen`).toBeLessThanOrEqual(0);
      }
      await page.goto(`${shop.served.url}dead`);
      await page
        .getByRole("button", { name: /Requeue the/ })
        .first()
        .click();
      await page.getByText(/The command that does the same/).waitFor(WAIT);
      expect(await serious(page), "the dialog").toEqual([]);
      expect(complaints).toEqual([]);
    });
  });
});
