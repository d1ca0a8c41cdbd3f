import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createInbox, createRelay, type NewMessage } from "../../../src/index.ts";
import { createInProcessBus } from "../../../src/brokers/in-process/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { type Captured, captureCli } from "../../support/captured-cli.ts";
import { projectFolder, runCli } from "../../support/run-cli.ts";
import { outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";

async function enqueue({ pool, outbox }: OutboxDatabase, ...messages: NewMessage[]): Promise<void> {
  const client = await pool.connect();
  await client.query("begin");
  await outbox.enqueue(client, messages);
  await client.query("commit");
  client.release();
}

describe.skipIf(!hasPostgres())("find and story", () => {
  let orders: OutboxDatabase;
  let payments: OutboxDatabase;

  beforeAll(async () => {
    [orders, payments] = [await outboxDatabase(), await outboxDatabase()];
    await enqueue(
      orders,
      {
        id: "order-1",
        stream: "orders",
        type: "order_placed",
        aggregateType: "order",
        aggregateId: "4711",
        payload: 1,
      },
      { id: "bad-1", stream: "orders", type: "bad", key: "b", payload: 2 },
      { id: "other-1", stream: "orders", type: "other", key: "x", payload: 3 },
    );
    const bus = createInProcessBus();
    const inbox = createInbox({ store: payments.store, consumer: "payments" });
    inbox.on("order_placed", async (tx) => {
      await payments.outbox.enqueue(tx, {
        id: "paid-1",
        stream: "payments",
        type: "payment_taken",
        payload: 1,
      });
    });
    inbox.on("bad", () => Promise.reject(new Error("no \u001B[31mfunds\u202E")));
    await inbox.start(bus);
    await createRelay({ store: orders.store, name: "bus", publisher: bus, maintenance: false }).drainOnce();
    await inbox.stop();
    await createRelay({ store: payments.store, name: "out", publisher: createMemoryPublisher() }).drainOnce();
  });
  afterAll(async () => {
    await orders?.[Symbol.asyncDispose]();
    await payments?.[Symbol.asyncDispose]();
  });

  const find = (...args: string[]): Promise<Captured> =>
    captureCli(["find", ...args], { env: { TXBOX_DATABASE_URL: orders.url } });
  const ids = ({ json }: Captured) => (json as { messages: { id: string }[] }).messages.map(({ id }) => id);

  test("find shows messages, newest first, by every filter", async () => {
    const all = await find();
    expect(all).toMatchObject({ code: 0, stderr: "" });
    expect(all.stdout.split("\n").map((line) => line.trim().split(/\s+/)[1])).toEqual(
      expect.arrayContaining(["other-1", "bad-1", "order-1"]),
    );
    expect(ids(await find("--json"))).toEqual(["other-1", "bad-1", "order-1"]);
    expect(ids(await find("--json", "--id", "bad-1"))).toEqual(["bad-1"]);
    expect(ids(await find("--json", "--key", "x"))).toEqual(["other-1"]);
    expect(ids(await find("--json", "--aggregate", "order:4711", "--correlation", "order-1"))).toEqual(["order-1"]);
    expect(ids(await find("--json", "--status", "retrying", "--relay", "bus"))).toEqual(["bad-1"]);
    expect(ids(await find("--json", "--type", "other", "--stream", "orders", "--since", "1h"))).toEqual(["other-1"]);
    expect(ids(await find("--json", "--until", "2020-01-01"))).toEqual([]);
    const none = await find("--key", "missing");
    expect([none.code, none.stdout]).toEqual([0, "No such message.\n"]);
    const [failing] = ((await find("--json", "--id", "bad-1")).json as { messages: { errors: { error: string }[] }[] })
      .messages;
    expect(failing?.errors[0]?.error).toContain("funds");
  });

  test("find says how far it looked, and goes on from there", async () => {
    const first = await find("--limit", "2", "--json");
    const { next, lookedBackTo } = first.json as { next: string; lookedBackTo: string };
    expect([ids(first).length, typeof next]).toEqual([2, "string"]);
    expect(Number.isNaN(Date.parse(lookedBackTo))).toBe(false);
    expect(first.stderr).toMatch(/^Looked back to \d{4}-.* There may be more: --after \S+\n$/);
    const rest = await find("--json", "--after", next);
    expect([ids(rest), (rest.json as { next: unknown }).next]).toEqual([["order-1"], null]);
    const other = await find("--key", "x", "--after", next);
    expect([other.code, other.stderr]).toEqual([2, expect.stringMatching(/after is of another search/)]);
    const moving = await find("--since", "1h", "--after", next);
    expect([moving.code, moving.stderr]).toEqual([2, expect.stringMatching(/give the time as such/)]);
    const dated = await find("--since", "1h", "--limit", "1");
    const [, place, since] = /--after (\S+) with --since (\S+)/.exec(dated.stderr) ?? [];
    expect(ids(await find("--json", "--since", since!, "--after", place!))).toEqual(["bad-1", "order-1"]);
  });

  test.each([
    [["--status", "lost"], /--status cannot be "lost"/],
    [["--limit", "0"], /--limit must be a whole number from 1/],
    [["--since", "yesterday"], /--since must be/],
    [["4711"], /"4711" is too much/],
    [["--keys", "x"], /Did you mean --key/],
  ])("find refuses %o", async (args, what) => {
    const { code, stderr } = await find(...args);
    expect([code, stderr]).toEqual([2, expect.stringMatching(what)]);
  });

  test("story tells of an order and its payment, by the stores of the configuration", async () => {
    const config = `export default { database: { url: ${JSON.stringify(orders.url)} }, stores: { payments: { url: ${JSON.stringify(payments.url)} } } };`;
    using project = projectFolder({ "txbox.config.mjs": config });
    const story = (...args: string[]) => runCli(["story", ...args], { cwd: project.path });
    const { code, stdout, stderr } = await story("order-1");
    expect([code, stderr]).toEqual([0, ""]);
    const lines = stdout.trimEnd().split("\n");
    expect(lines).toEqual([
      expect.stringMatching(/^order_placed order-1 in main, stream orders, key 4711, enqueued \d{4}-/),
      expect.stringMatching(/^│ relay bus: published after .+, 1 attempt$/),
      expect.stringMatching(/^│ consumer payments in payments: processed after .+, 1 attempt$/),
      expect.stringMatching(/^└─ payment_taken paid-1 in payments, stream payments, enqueued /),
      expect.stringMatching(/^ {5}relay out: published after .+, 1 attempt$/),
    ]);
    const paid = await story("paid-1", "--json");
    expect(paid.json).toMatchObject({
      message: { id: "paid-1", places: [{ store: "payments", payload: 1 }], caused: [] },
      causes: [{ id: "order-1", places: [{ store: "main" }] }],
      count: 1,
      cut: false,
      unreachable: [],
    });
    expect((await story("paid-1")).stdout).toMatch(/^because of order_placed order-1 in main/);
    for (const name of ["main", "own"]) {
      const alone = await story("order-1", "--stores", name);
      expect(alone.stdout).toContain("order-1 in main");
      expect(alone.stdout).not.toContain("payment_taken");
    }
    const audited = await runCli(["audit", "--from", "main", "--to", "payments", "--consumer", "payments"], {
      cwd: project.path,
    });
    expect([audited.code, audited.stderr]).toEqual([0, expect.stringMatching(/^Auditing .+ against the receipts/)]);
    const wrong = await story("order-1", "--stores", "payment");
    expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('Did you mean "payments"?')]);
    const named = `export default { stores: { a: { url: ${JSON.stringify(orders.url)} }, b: { url: ${JSON.stringify(payments.url)} } } };`;
    using without = projectFolder({ "txbox.config.mjs": named });
    const { stdout: ofNamed } = await runCli(["story", "order-1"], { cwd: without.path });
    expect(ofNamed).toMatch(/order-1 in a,[^]*payment_taken paid-1 in b/);
    const unknown = await story("missing");
    expect([unknown.code, unknown.stdout]).toEqual([1, "No store that was asked knows missing.\n"]);
    expect((await story("order-1", "--stores", "paiments")).stderr).toMatch(/Did you mean "payments"/);
    expect((await story()).stderr).toMatch(/Which message/);
    expect((await story("a", "b")).code).toBe(2);
  });

  test("story takes several configurations, and names a store that is down", async () => {
    using project = projectFolder();
    for (const [name, url] of [
      ["orders", orders.url],
      ["payments", payments.url],
      ["gone", "postgres://u:S3cr3t@127.0.0.1:1/none"],
    ] as const) {
      mkdirSync(join(project.path, name));
      const config = `export default { database: { url: ${JSON.stringify(url)} } };`;
      writeFileSync(join(project.path, name, "txbox.config.mjs"), config);
    }
    const configs = ["orders", "payments", "gone"].flatMap((name) => ["--config", `${name}/txbox.config.mjs`]);
    // What the environment says is for the own store, not for these.
    const env = { TXBOX_DATABASE_URL: payments.url };
    const told = await captureCli(["story", "order-1", ...configs], { cwd: project.path, env });
    expect(told.code, told.stderr).toBe(0);
    expect(told.stdout).toMatch(/^order_placed order-1 in orders,/);
    expect(told.stdout).toMatch(/consumer payments in payments: processed/);
    expect(told.stdout).toMatch(/\nCould not ask gone: .*ECONNREFUSED/);
    expect(told.stdout + told.stderr).not.toContain("S3cr3t");
    const down = await captureCli(["story", "order-1", "--config", "gone/txbox.config.mjs"], { cwd: project.path });
    expect([down.code, down.stderr]).toEqual([4, expect.stringMatching(/127\.0\.0\.1/)]);
  });

  test("story shows what was hostile as text", async () => {
    const { stdout } = await captureCli(["story", "bad-1"], { env: { TXBOX_DATABASE_URL: orders.url } });
    expect(stdout).toContain("relay bus: retrying");
    expect(stdout).toContain("funds");
    expect(["\u001B", "\u202E"].filter((character) => stdout.includes(character))).toEqual([]);
  });
});
