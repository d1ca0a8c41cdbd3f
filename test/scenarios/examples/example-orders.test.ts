import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import pg from "pg";
import { afterAll, describe, expect, test } from "vitest";
import { BROKERS } from "../../../examples/orders-and-payments/open-broker.ts";
import { Books, isGood } from "../../../examples/orders-and-payments/show/books.ts";
import { OrderCheck } from "../../../examples/orders-and-payments/show/order-check.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { inCi, type NodeProcess, spawnNode, until } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import { runCli } from "../../support/run-cli.ts";
import { isLong } from "../../support/is-long.ts";

const SECONDS = isLong ? 60 : 8;
/** Redis starts fastest. */
const TRIED = isLong ? BROKERS : (["redis"] as const);

const folder = mkdtempSync(join(tmpdir(), "txbox-example-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const path = (relative: string): string => fileURLToPath(new URL(`../../../examples/${relative}`, import.meta.url));

function run(...args: string[]): NodeProcess {
  const nodeArgs = ["--import", path("from-source.ts")];
  return spawnNode(path("orders-and-payments/show/main.ts"), args, { nodeArgs, timeoutMs: (SECONDS + 280) * 1000 });
}

/** What it wrote; undefined when this machine lacks a server, which is a failure in CI. */
async function resultOf(show: NodeProcess, json: string): Promise<Record<string, unknown> | undefined> {
  const { code } = await show.waitForExit();
  if (code === 3 && !inCi()) return undefined;
  expect(code, [...show.stdout, ...show.stderr].join("\n")).toBe(0);
  return JSON.parse(readFileSync(json, "utf8")) as Record<string, unknown>;
}

describe.each(TRIED)("orders and payments over %s", (broker) => {
  test(
    `killed at random for ${SECONDS} s: one payment for each order`,
    async ({ skip }) => {
      const json = join(folder, `${broker}.json`);
      const args = ["--broker", broker, "--chaos", "--seconds", String(SECONDS), "--seed", "3", "--json", json];
      const result = await resultOf(run(...args), json);
      if (result === undefined) return skip(`no ${broker}`);
      const { orders } = result;
      expect(orders).toBeGreaterThan(50);
      expect(result).toMatchObject({ payments: orders, paid: orders, lost: 0, doubled: 0, orderBreaks: 0, dead: 0 });
      expect(result).toMatchObject({ passed: true, phantoms: 0, causeless: 0, unanswered: 0, crashes: [] });
      for (const kills of Object.values(result["kills"] as object)) expect(kills).toBeGreaterThan(0);
      expect(result["acceptedRateRatio"]).toBeGreaterThanOrEqual(0.9);
    },
    (SECONDS + 300) * 1000,
  );

  test(
    "what piled up while the broker was down arrives in order",
    async ({ skip }) => {
      const json = join(folder, `${broker}-backlog.json`);
      const result = await resultOf(run("--broker", broker, "--backlog", "20000", "--json", json), json);
      if (result === undefined) return skip(`no ${broker}`);
      expect(result).toMatchObject({ passed: true, backlog: 20_000, drained: 20_000, orderBreaks: 0, crashes: [] });
    },
    (SECONDS + 300) * 1000,
  );
});

test("kept running, it takes orders once each and refuses nonsense, until Ctrl-C", async ({ skip }) => {
  await using show = run("--keep", "--seconds", "1");
  const line = await Promise.race([show.waitForLine("listens on"), show.exited]);
  if (typeof line !== "string") {
    if (line.code === 3 && !inCi()) return skip("no redis");
    throw new Error(show.stderr.join("\n"));
  }
  const url = `${/http:\S+(?=\.)/.exec(line)?.[0]}/orders`;
  const post = (body: unknown, key = "mine"): Promise<Response> =>
    fetch(url, { method: "POST", headers: { "idempotency-key": key }, body: JSON.stringify(body) });
  const order = { customer_id: "me", items: [{ price: 100, quantity: 2 }] };

  expect((await post(order)).status).toBe(201);
  const again = await post(order);
  expect(again.status).toBe(200);
  expect(await again.json()).toMatchObject({ id: "mine", customer_id: "me", total_amount: 200 });
  expect((await post({ ...order, customer_id: "another customer" })).status).toBe(409);
  expect((await post({ customer_id: "me", items: [{ price: -1, quantity: 1 }] }, "bad")).status).toBe(400);
  expect((await fetch(`${url}/bad`)).status).toBe(404);
  const isPaid = async (): Promise<boolean> => {
    const { status } = (await (await fetch(`${url}/mine`)).json()) as { status: string };
    return status === "paid";
  };
  await until(isPaid, { what: "the payment", timeoutMs: 60_000, intervalMs: 100 });

  show.signal("SIGINT");
  expect(await show.waitForExit()).toEqual({ code: 0, signal: null });
});

test("a wrong option is named", async () => {
  const show = run("--broker", "pigeons");
  expect(await show.waitForExit()).toMatchObject({ code: 2 });
  expect(show.stderr.join("\n")).toContain("redis, kafka, nats, rabbitmq");
});

test.skipIf(!hasPostgres())("the command line takes its configuration", async () => {
  await using database = await testDatabase();
  await execute(database.url, "select 1");
  const env = {
    DATABASE_URL: database.url,
    BROKER: "nats",
    NODE_OPTIONS: `--import ${pathToFileURL(path("from-source.ts")).href}`,
  };
  const cwd = path("orders-and-payments");
  const status = await runCli(["status", "--json"], { cwd, env });
  expect(status, status.stderr).toMatchObject({ code: 0 });
  const unknown = await runCli(["relay", "to-nowhere"], { cwd, env });
  expect(unknown.code).not.toBe(0);
  expect(unknown.stderr).toContain("to-nats");
});

describe("the checks find", () => {
  test("a gap and what fills it, and tell repeats from both", () => {
    const check = new OrderCheck();
    for (const n of [1, 2, 2, 4, 3, 4, 1, 5]) check.saw({ key: "a", n });
    check.saw({ key: "b", n: 1 });
    expect(check).toMatchObject({ drained: 6, orderBreaks: 1, repeats: 3 });
  });

  test.skipIf(!hasPostgres())("lost, doubled, invented and misordered payments", async () => {
    await using orders = await testDatabase();
    await using payments = await testDatabase();
    await execute(
      orders.url,
      `create table orders (number int, id text, status text, payments int, cause text);
       insert into orders values (1, 'a', 'paid', 1, 'payments:order_created'), (2, 'b', 'paid', 2, 'payments:order_created'),
         (3, 'c', 'new', 0, null), (4, 'd', 'paid', 1, '')`,
    );
    await execute(
      payments.url,
      `create table payments (number int, order_id text, customer_id text);
       insert into payments values (1, 'b', 'me'), (2, 'a', 'me'), (3, 'b', 'me'), (4, 'd', 'me'), (5, 'x', 'you')`,
    );
    await using books = new Books({ orders: orders.url, payments: payments.url });
    const verdict = await books.compare(new Set(["a", "b", "gone"]));
    expect(verdict).toEqual({
      orders: 4,
      payments: 5,
      paid: 3,
      lost: 2,
      doubled: 2,
      phantoms: 1,
      orderBreaks: 1,
      causeless: 1,
      dead: 0,
    });
    expect(isGood(verdict)).toBe(false);
  });
});

async function execute(url: string, sql: string): Promise<void> {
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  await createPostgresStore({ client: pool }).migrator.migrate();
  await pool.query(sql);
  await pool.end();
}
