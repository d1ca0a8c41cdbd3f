import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createInbox, createRelay } from "../../../src/index.ts";
import { createInProcessBus } from "../../../src/brokers/in-process/index.ts";
import { laneOf } from "../../../src/core/lane.ts";
import { findCommand, mustRun, runCommand, serverOrSkip, withDeadline } from "../../harness/index.ts";
import { requirePythonPackage } from "../../harness/python-package.ts";
import { ServerUnavailableError } from "../../harness/server-unavailable-error.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { documentedBlock } from "../../support/documented-block.ts";
import { outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";

const WRITER = fileURLToPath(new URL("../../support/psycopg-writer.py", import.meta.url));
const NOTHING = { stop: () => Promise.resolve() };

const python = await serverOrSkip("psycopg", async () => ({
  ...(await requirePythonPackage("psycopg", "3.3.9", ["psycopg-binary==3.3.9", "typing_extensions==4.15.0"])),
  ...NOTHING,
}));
const psql = await serverOrSkip("psql", async () => {
  const path = findCommand("psql");
  if (path === undefined) throw new ServerUnavailableError("Install it: apt-get install postgresql-client");
  return { path, ...NOTHING };
});

interface Answer {
  id?: string | null;
  sqlstate?: string;
  field?: string;
  message?: string;
}

describe.skipIf(!hasPostgres())("writers that are not the outbox", () => {
  let db: OutboxDatabase;

  beforeEach(async () => {
    db = await outboxDatabase();
  });
  afterEach(() => db[Symbol.asyncDispose]());

  /** What handlers get when everything is delivered: type, key and payload, in order. */
  async function delivered(): Promise<{ type: string; key: unknown; payload: unknown; headers: object }[]> {
    const got: Awaited<ReturnType<typeof delivered>> = [];
    const bus = createInProcessBus();
    const inbox = createInbox({ store: db.store, consumer: "all" });
    for (const type of ["order_created", "order_changed", "order_deleted"]) {
      inbox.on(type, async (_, { key, payload, headers }) => void got.push({ type, key, payload, headers }));
    }
    await inbox.start(bus);
    await createRelay({ store: db.store, name: "all", publisher: bus }).drainOnce();
    await inbox.stop();
    return got;
  }

  const positions = () => db.query("select key, lane from txbox.message order by position");

  async function python3(calls: readonly object[]): Promise<Answer[]> {
    const child = spawn(python.server.python, [WRITER, db.url], {
      env: python.server.env,
      stdio: ["pipe", "pipe", "inherit"],
    });
    let output = "";
    child.stdout.setEncoding("utf8").on("data", (chunk: string) => (output += chunk));
    child.stdin.end(calls.map((call) => `${JSON.stringify(call)}\n`).join(""));
    const ended = new Promise<number | null>((resolve) => void child.once("close", resolve));
    const code = await withDeadline(ended, 30_000, "the writer in Python").finally(() => child.kill("SIGKILL"));
    expect(code).toBe(0);
    return output
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Answer);
  }

  it.skipIf(python.skipped)(
    "Python: every kind of payload, chosen ids, rollback, errors",
    { timeout: 90_000 },
    async () => {
      const at = { stream: "orders", type: "order_created" };
      const order = { orderId: "ü-1", total: 1.5, note: "Grüße 🎉" };
      const deliverAt = new Date(Date.now() + 3_600_000).toISOString();
      const answers = await python3([
        { ...at, key: "ü-1 🎉", as: "json", payload: order },
        { ...at, key: "ü-1 🎉", as: "jsonb", payload: order, headers: { correlationId: "c-1", schemaVersion: 2 } },
        { ...at, key: "ü-1 🎉", as: "text", payload: order },
        { ...at, as: "bytes", payload: "Grüße", headers: { contentType: "text/plain" } },
        { ...at, as: "json", payload: 1, id: "chosen" },
        { ...at, as: "json", payload: 2, id: "chosen" },
        { ...at, as: "json", payload: 3, id: "undone", rollback: true },
        { ...at, as: "json", payload: 4, deliverAt, id: "later" },
        { ...at, as: "json", payload: 5, key: "" },
        { ...at, as: "json", payload: null },
      ]);
      expect(answers.map(({ id }) => typeof id)).toEqual(
        "string string string string string object string string undefined string".split(" "),
      );
      expect(answers[8]).toEqual({ sqlstate: "22023", field: "key", message: "key is empty" });
      const rows = await positions();
      expect(rows.slice(0, 3)).toEqual(Array.from({ length: 3 }, () => ({ key: "ü-1 🎉", lane: laneOf("ü-1 🎉") })));
      expect(rows.length).toBe(6);
      expect(await db.query("select id, deliver_at from txbox.scheduled")).toEqual([
        { id: "later", deliver_at: new Date(deliverAt) },
      ]);
      const got = await delivered();
      // Those without a key have no order.
      const alone = got.filter(({ key }) => key === null).map(({ payload }) => payload);
      expect(new Set(alone)).toEqual(new Set(["Grüße", 1, null]));
      expect(got.filter(({ key }) => key !== null).map(({ payload }) => payload)).toEqual([order, order, order]);
      expect(got.find(({ headers }) => "schemaVersion" in headers)?.headers).toMatchObject({
        correlationId: "c-1",
        schemaVersion: 2,
      });
    },
  );

  it.skipIf(python.skipped)("Python: the example of the docs", { timeout: 60_000 }, async () => {
    await db.query(documentedBlock("docs/enqueue-from-sql.md", "sql", "create table orders"));
    const example = documentedBlock("docs/enqueue-from-sql.md", "python", "psycopg");
    const script = `import sys\nurl = sys.argv[1]\n${example}`;
    await mustRun(python.server.python, ["-c", script, db.url], { env: python.server.env });
    expect(await db.query("select * from orders")).toEqual([{ id: "o-2", total: 7 }]);
    expect(await delivered()).toMatchObject([{ key: "o-2", payload: { orderId: "o-2", total: 7 } }]);
  });

  it.skipIf(psql.skipped)("psql: the statements of the docs, and a transaction that is rolled back", async () => {
    const shop = documentedBlock("docs/enqueue-from-sql.md", "sql", "create table orders");
    const call = documentedBlock("docs/enqueue-from-sql.md", "sql", "begin;");
    const run = (script: string) =>
      mustRun(psql.server.path, [db.url, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", script]);
    await run(shop);
    await run(call);
    await run(`begin; select txbox.enqueue_v1('orders', 'order_created', '{}', key => 'undone'); rollback`);
    const refused = await runCommand(psql.server.path, [
      db.url,
      "-X",
      "-c",
      "select txbox.enqueue_v1('orders', '', '{}')",
    ]);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain("ERROR:  type is empty\nHINT:  Give type a value");
    expect((await delivered()).map(({ type, key, payload }) => ({ type, key, payload }))).toEqual([
      { type: "order_created", key: "o-1", payload: { orderId: "o-1", total: 42 } },
    ]);
  });

  it("a trigger: the message of the docs for every row that a program knows nothing of", async () => {
    await db.query(documentedBlock("docs/enqueue-from-sql.md", "sql", "create table orders"));
    await db.query(documentedBlock("docs/enqueue-from-sql.md", "sql", "create trigger"));
    await db.query("insert into orders values ('o-1', 1), ('o-2', 2)");
    await db.query("update orders set total = 3 where id = 'o-1'");
    await db.query("delete from orders where id = 'o-2'");
    const client = await db.connect();
    await client.query("begin");
    await client.query("insert into orders values ('undone', 1)");
    await client.query("rollback");
    await client[Symbol.asyncDispose]();
    await expect(db.query("insert into orders values ('', 1)")).rejects.toMatchObject({ code: "22023", column: "key" });
    expect(await db.query("select id from orders order by 1")).toEqual([{ id: "o-1" }]);
    const expected = [
      { type: "order_created", key: "o-1", payload: { id: "o-1", total: 1 } },
      { type: "order_created", key: "o-2", payload: { id: "o-2", total: 2 } },
      { type: "order_changed", key: "o-1", payload: { id: "o-1", total: 3 } },
      { type: "order_deleted", key: "o-2", payload: { id: "o-2", total: 2 } },
    ];
    const got = (await delivered()).map(({ type, key, payload }) => ({ type, key, payload }));
    for (const key of ["o-1", "o-2"]) {
      expect(got.filter((one) => one.key === key)).toEqual(expected.filter((one) => one.key === key));
    }
    expect((await positions()).map(({ lane }) => lane)).toEqual(expected.map(({ key }) => laneOf(key)));
  });
});
