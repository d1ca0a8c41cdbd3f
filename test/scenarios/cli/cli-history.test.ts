import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createOutbox, createRelay, type NewMessage, type RelayOptions } from "../../../src/index.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import { until, type TestDatabase } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import { type CliResult, projectFolder, runCli, startCli } from "../../support/run-cli.ts";

/** What a relay of the configuration sends is appended to a file, as lines of JSON. */
const CONFIG = `
import { appendFileSync } from "node:fs";
const publisher = {
  keepsKeyOrder: true,
  async publish(messages) {
    for (const { id, stream, headers, body } of messages)
      appendFileSync("sent.ndjson", JSON.stringify({ id, stream, headers, body }) + "\\n");
    return messages.map(() => ({ status: "published" }));
  },
};
export default {
  database: { segmentMs: 1, retentionMs: 0, archive: { directory: "archive" } },
  relays: { bus: { publisher }, search: { publisher: () => publisher, streams: ["orders"] } },
};`;

describe.skipIf(!hasPostgres())("status, blocked, archive and replay", () => {
  let database: TestDatabase;
  let pool: pg.Pool;

  beforeAll(async () => {
    database = await testDatabase();
    pool = new pg.Pool({ connectionString: database.url, max: 5 });
    pool.on("error", () => undefined);
  });
  afterAll(async () => {
    await pool?.end();
    await database?.drop();
  });

  /** Every test has a schema of its own. */
  async function open(schema: string, cwd?: string) {
    const store = createPostgresStore({ client: pool, schema });
    await store.migrator.migrate();
    const env = { TXBOX_DATABASE_URL: database.url, TXBOX_SCHEMA: schema };
    const options = { env, ...(cwd === undefined ? {} : { cwd }) };
    const run = (...args: string[]): Promise<CliResult> => runCli(args, options);
    const must = async (...args: string[]): Promise<CliResult> => {
      const result = await run(...args);
      expect(result.code, result.stderr).toBe(0);
      return result;
    };
    const outbox = createOutbox({ store });
    const enqueue = async (...messages: NewMessage[]) => {
      const client = await pool.connect();
      try {
        await client.query("begin");
        await outbox.enqueue(client, messages);
        await client.query("commit");
      } finally {
        client.release();
      }
    };
    const deliver = (more: Partial<RelayOptions> = {}) =>
      createRelay({ store, name: "bus", publisher: createMemoryPublisher(), ...more }).drainOnce();
    return { store, options, run, must, enqueue, deliver };
  }

  const order = (n: number, more: Partial<NewMessage> = {}): NewMessage => ({
    stream: "orders",
    type: "changed",
    key: `k${n % 3}`,
    payload: { n },
    ...more,
  });
  const failing = (which: (n: number) => boolean) => {
    const publisher = createMemoryPublisher();
    publisher.fail(
      ({ body }) => which((JSON.parse(String(body)) as { n: number }).n) && new Error("the bank is closed"),
    );
    return publisher;
  };

  test("status shows rate, last error, scheduled messages and streams that no relay reads", async () => {
    const { must, enqueue, deliver } = await open("st");
    await enqueue(
      ...Array.from({ length: 60 }, (_, i) => order(i)),
      order(7, { deliverAt: new Date(Date.now() + 3_600_000) }),
    );
    await enqueue(order(1, { stream: "forgotten" }));
    await deliver({
      streams: ["orders"],
      publisher: failing((n) => n === 50),
      backoff: { baseMs: 60_000, maxMs: 60_000 },
    });
    const text = (await must("status")).stdout;
    expect(text).toMatch(/relay +state +processes +rate +pending/);
    expect(text).toMatch(/bus +no process +0 +0\.9\/s/);
    expect(text).toMatch(/last error of +when +error\n.*\nbus +.* ago +.*the bank is closed/);
    expect(text).toMatch(/1 scheduled message, the next one due 20/);
    expect(text).toMatch(/No relay reads these streams.*\n.*\n.*\nforgotten +\d/);
    for (const line of text.split("\n")) expect(line.length, line).toBeLessThanOrEqual(120);
    const json = (await must("status", "--json")).json as Record<string, unknown>;
    expect(json).toMatchObject({
      relays: [{ name: "bus" }],
      activity: [{ relay: "bus", consumer: null, lastError: expect.stringContaining("the bank is closed") as string }],
      scheduled: { count: 1, estimated: false },
      unread: [{ stream: "forgotten" }],
    });
    expect((await must("status", "--relay", "bus")).stdout).not.toContain("forgotten");
  });

  test("blocked lists keys, causes and what waits, page by page", async () => {
    const { must, run, enqueue, deliver } = await open("bl");
    expect((await must("blocked")).stdout).toBe("No key is blocked.\n");
    expect((await must("blocked", "--json")).json).toEqual({ blocked: [] });
    await enqueue(...Array.from({ length: 1200 }, (_, i) => order(i, { key: `k${i % 600}` })));
    await enqueue(order(1, { key: "\u001b[31mred", stream: "held" }));
    const dead = createMemoryPublisher();
    dead.fail(({ stream }) => stream === "orders" && new Error("the bank is closed"));
    dead.reject(({ stream }) => stream === "held" && new Error("never"));
    await deliver({ publisher: dead, onDead: "block", backoff: { baseMs: 3_600_000, maxMs: 3_600_000 } });
    const text = (await must("blocked", "--limit", "1000")).stdout;
    expect(text).toMatch(/relay +stream +key +waiting +since +tries +next try +error of the message in front/);
    expect(text).toMatch(/bus +orders +k599 +1 +.* ago +1 +(in .*|now) +Error: the bank is closed/);
    expect(text).toMatch(/bus +held +\\u001b\[31mred +0 .* dead letter +Error: never/i);
    for (const line of text.split("\n")) expect(line.length, line).toBeLessThanOrEqual(160);
    const { blocked } = (await must("blocked", "--json", "--limit", "1000")).json as {
      blocked: { key: string; waiting: number }[];
    };
    expect(blocked).toHaveLength(601);
    expect(new Set(blocked.map(({ key }) => key)).size).toBe(601);
    const one = (await must("blocked", "--json", "--stream", "orders", "--key", "k7")).json;
    expect(one).toMatchObject({ blocked: [{ relay: "bus", key: "k7", waiting: 1, attempts: 1, heldByDead: false }] });
    expect((await must("blocked", "--limit", "2")).stderr).toContain("--limit");
    expect(await run("blocked", "--limit", "0")).toMatchObject({ code: 2 });
    expect((await must("blocked", "--relay", "bus", "--key", "none")).stdout).toBe("No key is blocked.\n");
    const misspelt = await run("blocked", "--relay", "bsu");
    expect(misspelt).toMatchObject({ code: 1, stdout: "", stderr: expect.stringContaining('Did you mean "bus"?') });
  });

  test("maintain archives, replay sends again: marked, filtered, in order, and not twice where ids are new", async () => {
    using folder = projectFolder({ "txbox.config.mjs": CONFIG });
    const { store, must, run, enqueue, deliver } = await open("re", folder.path);
    const sent = () =>
      readFileSync(join(folder.path, "sent.ndjson"), "utf8")
        .trimEnd()
        .split("\n")
        .map(
          (line) => JSON.parse(line) as { id: string; stream: string; body: string; headers: Record<string, string> },
        );
    const numbers = () => sent().map(({ body }) => (JSON.parse(body) as { n: number }).n);
    const clear = () => writeFileSync(join(folder.path, "sent.ndjson"), "");
    for (let i = 0; i < 3; i++) {
      await enqueue(order(i * 10), order(i * 10 + 1, { stream: "payments" }), order(i * 10 + 2, { type: "paid" }));
      await must("maintain");
    }
    await deliver();
    await until(
      async () => {
        await must("maintain");
        return readdirSync(join(folder.path, "archive")).length === 3;
      },
      { what: "three archives", timeoutMs: 60_000 },
    );
    expect(readdirSync(join(folder.path, "archive")).toSorted()).toEqual(
      [0, 1, 2].map((n) => `re.message_${n}.jsonl.gz`),
    );

    const dry = await must("replay", "--from", "archive", "--to", "bus", "--dry-run");
    expect(dry.stdout).toMatch(/^9 messages, enqueued from 20.*\n\nstream +messages\n.*\norders +6\npayments +3\n$/);
    expect((await must("replay", "--from", "archive", "--to", "search", "--dry-run", "--json")).json).toMatchObject({
      dryRun: true,
      found: 6,
      sent: 0,
      streams: { orders: 6 },
    });
    expect((await run("replay", "--from", "archive", "--to", "bus")).stderr).toContain("Add --yes");
    clear();
    const first = await must("replay", "--from", "archive", "--to", "bus", "--rate", "1000", "--yes");
    expect(first.stdout).toBe("Sent 9 messages.\n");
    expect(numbers()).toEqual([0, 1, 2, 10, 11, 12, 20, 21, 22]);
    expect(sent().every(({ id, headers }) => headers["replayOf"] === id && headers["replayedAt"] !== undefined)).toBe(
      true,
    );

    clear();
    const archive = "archive/re.message_1.jsonl.gz";
    for (let time = 0; time < 2; time++)
      await must("replay", "--from", archive, "--to", "bus", "--type", "paid", "--new-ids", "--yes");
    expect(numbers()).toEqual([12, 12]);
    const [one, two] = sent();
    expect(one?.id).toBe(two?.id);
    expect(one?.id).not.toBe(one?.headers["replayOf"]);

    // From the log goes what the relay has delivered, and the rest it delivers by itself.
    await enqueue(order(30), order(31));
    await deliver();
    await enqueue(order(32));
    clear();
    await must("replay", "--from", "1h", "--to", "bus", "--yes");
    expect(numbers()).toEqual([30, 31]);
    expect((await must("replay", "--from", "2020-01-01", "--until", "2021-01-01", "--to", "bus", "--yes")).stdout).toBe(
      "No message matches.\n",
    );
    // A target that never ran as a relay gets all of it.
    clear();
    await must("replay", "--from", "1h", "--to", "search", "--yes");
    expect(numbers()).toEqual([30, 31, 32]);
    expect((await store.admin.relays()).map(({ name }) => name)).toEqual(["bus"]);

    const bytes = readFileSync(join(folder.path, "archive/re.message_2.jsonl.gz"));
    mkdirSync(join(folder.path, "cut"));
    writeFileSync(join(folder.path, "cut/re.message_2.jsonl.gz"), bytes.subarray(0, bytes.length - 30));
    clear();
    const cut = await run("replay", "--from", "cut/re.message_2.jsonl.gz", "--to", "bus", "--yes");
    expect(cut.code).toBe(1);
    expect(cut.stderr).toMatch(/was cut: it ends after line \d+/);
    expect(readFileSync(join(folder.path, "sent.ndjson"), "utf8")).toBe("");
  });

  test("replay says what is wrong with its flags", async () => {
    using folder = projectFolder({ "txbox.config.mjs": CONFIG });
    const { run } = await open("wr", folder.path);
    const fails = async (text: string, ...args: string[]) => {
      const { code, stderr } = await run("replay", ...args);
      expect(code, stderr).toBe(2);
      expect(stderr).toContain(text);
    };
    await fails("Replay what?", "--to", "bus");
    await fails("Replay where to?", "--from", "1h");
    await fails('Did you mean "bus"?', "--from", "1h", "--to", "bsu");
    await fails("--from must be an archive file, a folder of them, a time ago", "--from", "yesterday", "--to", "bus");
    await fails("There is no archive", "--from", ".", "--to", "bus");
    const none = await run("replay", "--from", "1h", "--to", "bus", "--stream", "nowhere", "--yes");
    expect(none).toMatchObject({ code: 0, stdout: "No message matches.\n" });
    await fails("--until must be a time ago", "--from", "1h", "--to", "bus", "--until", "soon");
  });

  test("replay stops when told to, and goes on with --after", async () => {
    using folder = projectFolder({ "txbox.config.mjs": CONFIG });
    const { options, must, enqueue, deliver } = await open("go", folder.path);
    await enqueue(...Array.from({ length: 200 }, (_, i) => order(i + 1)));
    await deliver();
    const file = join(folder.path, "sent.ndjson");
    writeFileSync(file, "");
    const count = () => readFileSync(file, "utf8").split("\n").length - 1;
    const child = startCli(["replay", "--from", "1h", "--to", "bus", "--rate", "20", "--yes"], options);
    await until(() => count() >= 10, { what: "the first messages", timeoutMs: 60_000 });
    child.signal("SIGTERM");
    expect(await child.exited).toMatchObject({ code: 1 });
    const [, sent, after] =
      /^Sent (\d+) messages\.\nIt was stopped\. Go on with (--after \d+)\.$/.exec(child.stdout.join("\n")) ?? [];
    expect(Number(sent)).toBe(count());
    await must("replay", "--from", "1h", "--to", "bus", "--rate", "1000", ...after!.split(" "), "--yes");
    const found = readFileSync(file, "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse((JSON.parse(line) as { body: string }).body) as { n: number });
    expect(found.map(({ n }) => n)).toEqual(Array.from({ length: 200 }, (_, i) => i + 1));
  });

  test("audit shows hostile names harmlessly, asks before it sends again, and sends what is missing", async () => {
    using folder = projectFolder({ "txbox.config.mjs": CONFIG });
    const { must, run, enqueue, deliver } = await open("au", folder.path);
    await enqueue(order(1, { type: "\u001b[31mred", key: "a\nb" }), order(2));
    await deliver({ publisher: createMemoryPublisher() });
    const audit = ["audit", "--relay", "bus", "--consumer", "payments", "--grace", "0s"];
    const found = await run(...audit);
    expect(found.code).toBe(6);
    expect(found.stdout).toContain("2 missing");
    expect(found.stdout).toMatch(/missing .*\\u001b\[31mred +a b/i);
    expect(found.stdout + found.stderr).not.toContain("\u001b[31m");
    // A misspelt type must not look like a type of which nothing is missing.
    const misspelt = await run(...audit, "--types", "order_plaecd");
    expect(misspelt.stdout).toContain("0 messages:");
    expect(misspelt.stderr).toContain("No message of these types was enqueued in that time. Are the names right?");
    const asked = await run(...audit, "--requeue");
    expect(asked.code).toBe(2);
    expect(asked.stderr).toContain("Send 2 missing messages to the publisher of bus again? Add --yes");
    const sent = await run(...audit, "--requeue", "--yes");
    expect(sent.stdout).toContain("Sent 2 messages again");
    expect(readFileSync(join(folder.path, "sent.ndjson"), "utf8").trimEnd().split("\n")).toHaveLength(2);
    expect((await must("status")).code).toBe(0);
  });
});
