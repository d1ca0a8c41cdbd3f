import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/postgres-store.ts";
import type { TestDatabase } from "../../harness/index.ts";
import { until } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import { type Captured, captureCli } from "../../support/captured-cli.ts";
import { projectFolder, runCli, startCli } from "../../support/run-cli.ts";

interface Listed {
  relays: {
    name: string;
    published: string;
    pending: number;
    dead: number;
    paused: boolean;
    lanes: { epoch: string }[];
  }[];
  messages: { id: string; position: string; status: string; relay: string; payload: unknown }[];
  dead: {
    id: string;
    position: string;
    key: string;
    state: string;
    command: string | null;
    errors: unknown[];
    payload: unknown;
  }[];
}

describe.skipIf(!hasPostgres())("txbox on PostgreSQL", () => {
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
  const cliOf = (schema: string) => {
    const env = { TXBOX_DATABASE_URL: database.url, TXBOX_SCHEMA: schema };
    const run = (...args: string[]): Promise<Captured> => captureCli(args, { env });
    const must = async (...args: string[]): Promise<Captured> => {
      const result = await run(...args);
      expect(result.code, result.stderr).toBe(0);
      return result;
    };
    const list = async (...args: string[]): Promise<Listed> => (await must(...args, "--json")).json as Listed;
    return { env, run, must, list };
  };

  const storeOf = (schema: string) => createPostgresStore({ client: pool, schema });

  async function enqueue(schema: string, keys: readonly string[]): Promise<string[]> {
    const outbox = createOutbox({ store: storeOf(schema) });
    const client = await pool.connect();
    try {
      await client.query("begin");
      const messages = keys.map((key, n) => ({
        stream: "orders",
        type: "order_placed",
        key,
        aggregateType: "order",
        aggregateId: `${key}${n}`,
        payload: { n },
      }));
      const enqueued = await outbox.enqueue(client, messages);
      await client.query("commit");
      return enqueued.map(({ id }) => id);
    } finally {
      client.release();
    }
  }

  /** Messages of these keys die at once. */
  async function drain(schema: string, poison: readonly string[] = []): Promise<void> {
    const relay = createRelay({
      store: storeOf(schema),
      name: "bus",
      maintenance: false,
      publisher: {
        keepsKeyOrder: false,
        publish: async (messages) =>
          messages.map(({ key }) =>
            poison.includes(key ?? "")
              ? { status: "rejected", error: new Error(`cannot handle ${key}`) }
              : { status: "published" },
          ),
      },
    });
    await relay.drainOnce();
  }

  test("migrate: once, then nothing to do; status wants it first", async () => {
    const { run, must } = cliOf("first");
    const early = await run("status");
    expect(early).toMatchObject({ code: 3, stdout: "" });
    expect(early.stderr).toContain("Run `txbox migrate`");
    expect((await run("status", "--json")).json).toMatchObject({ error: { code: "schema_missing", exitCode: 3 } });
    expect((await must("migrate")).stdout).toContain("Applied 0001_init");
    expect((await must("migrate", "--json")).json).toEqual({ applied: [] });
    expect((await must("migrate", "--dry-run")).stdout).toBe("-- The schema is up to date.\n");
    expect((await must("status")).stdout).toContain("No relay has been started yet");
    await pool.query("insert into first.migration (version, name) values (9999, 'future')");
    const late = await run("migrate");
    expect(late).toMatchObject({ code: 3 });
    expect(late.stderr).toContain("Upgrade the txbox package");
  });

  test.each(["plain", "od\"d na'me"])(
    "migrate --dry-run prints SQL that makes a working schema: %s",
    async (schema) => {
      const { must, list } = cliOf(schema);
      const prefix = ["--table-prefix", "p_"];
      const script = (await must("migrate", "--dry-run", ...prefix)).stdout;
      const steps = (await must("migrate", "--dry-run", "--json", ...prefix)).json as {
        pending: { version: number; script: string }[];
      };
      expect(steps.pending[0]).toMatchObject({ version: 1, name: "init" });
      const client = new pg.Client({ connectionString: database.url });
      await client.connect();
      await client.query(script);
      await client.end();
      expect((await must("migrate", ...prefix)).stdout).toBe("The schema is up to date.\n");
      const published = (await must("relay", "look", "--publisher", "stdout", "--once", ...prefix)).stderr;
      expect(published).toContain("look: published 0 messages");
      expect(await list("status", ...prefix)).toMatchObject({ relays: [{ name: "look" }] });
    },
  );

  test("status: relays, and messages by id, key, aggregate and correlation", async () => {
    const { must, list, run } = cliOf("st");
    await must("migrate");
    const [first, second] = await enqueue("st", ["a", "b", "b"]);
    await drain("st");
    await enqueue("st", ["c"]);
    const { relays } = await list("status");
    expect(relays).toMatchObject([{ name: "bus", published: "3", pending: 1, dead: 0, paused: false }]);
    expect(typeof relays[0]?.lanes[0]?.epoch).toBe("string");
    const table = (await must("status", "--relay", "bus")).stdout;
    expect(table).toMatch(/^relay +state +processes +rate +pending/);
    expect(table).toMatch(/bus +no process +0 +\S+ +1 /);
    expect((await run("status", "--relay", "buss")).stderr).toContain('Did you mean "bus"?');

    expect((await list("status", "--id", first!)).messages).toMatchObject([
      { id: first, status: "published", relay: "bus", payload: { n: 0 } },
    ]);
    expect((await list("status", "--key", "b")).messages.map(({ payload }) => payload)).toEqual([{ n: 1 }, { n: 2 }]);
    expect((await list("status", "--key", "b", "--limit", "1")).messages).toHaveLength(1);
    expect((await list("status", "--aggregate", "order:b1")).messages).toMatchObject([{ id: second }]);
    expect((await list("status", "--aggregate", "c0")).messages).toMatchObject([{ status: "pending" }]);
    expect((await list("status", "--correlation", first!)).messages).toMatchObject([{ id: first }]);
    expect((await list("status", "--key", "b", "--stream", "none")).messages).toEqual([]);
    expect((await must("status", "--id", first!)).stdout).toContain(first);
    expect(await run("status", "--limit", "3")).toMatchObject({ code: 2 });
  });

  test("status --watch goes on until it is stopped", async () => {
    const { must, env } = cliOf("watched");
    await must("migrate");
    await drain("watched");
    await using watch = startCli(["status", "--watch", "0.2", "--json"], { env });
    await until(() => watch.stdout.length >= 3, { what: "three looks", timeoutMs: 60_000 });
    expect(JSON.parse(watch.stdout[2]!)).toMatchObject({ relays: [{ name: "bus" }] });
    watch.signal("SIGINT");
    expect(await watch.waitForExit()).toEqual({ code: 0, signal: null });
  });

  test("dead: list, show, requeue by id and by key, discard", async () => {
    const { must, list, run } = cliOf("mortal");
    await must("migrate");
    const ids = await enqueue("mortal", ["x", "y", "x", "z", "y", "good"]);
    await drain("mortal", ["x", "y", "z"]);
    const { dead } = await list("dead", "list");
    expect(dead.map(({ key }) => key)).toEqual(["x", "y", "x", "z", "y"]);
    expect(dead[0]).toMatchObject({ id: ids[0], state: "dead", command: null, payload: { n: 0 } });
    expect(typeof dead[0]?.position).toBe("string");
    expect((await must("dead", "list", "--key", "z")).stdout).toContain("cannot handle z");
    expect((await list("dead", "list", "--type", "none")).dead).toEqual([]);
    expect((await list("dead", "list", "--position", dead[3]!.position, "--relay", "bus")).dead).toMatchObject([
      { id: ids[3] },
    ]);

    const shown = (await must("dead", "show", ids[0]!)).stdout;
    expect(shown).toContain('payload    {"n":0}');
    expect(shown).toContain("cannot handle x");
    expect(await run("dead", "show", "nothing")).toMatchObject({ code: 1 });
    expect(await run("dead", "show")).toMatchObject({ code: 2 });

    expect((await run("dead", "requeue")).stderr).toContain("Which ones?");
    expect(await run("dead", "requeue", "--all", "--key", "x")).toMatchObject({ code: 2 });
    const told = await must("dead", "requeue", ids[3]!);
    expect(told.stdout).toContain("1 dead letter will be requeued");
    expect(told.stdout).toContain("No process of bus runs now");
    expect((await must("dead", "requeue", "--stream", "orders", "--key", "x", "--json")).json).toEqual({
      requeued: 2,
      relaysWithoutProcess: ["bus"],
    });
    expect((await list("dead", "list", "--key", "x")).dead.map(({ command }) => command)).toEqual([
      "requeue",
      "requeue",
    ]);
    await drain("mortal");
    expect((await list("dead", "list", "--state", "requeued")).dead.map(({ key }) => key)).toEqual(["x", "x", "z"]);
    expect((await list("status", "--key", "x")).messages).toMatchObject([
      { status: "published" },
      { status: "published" },
    ]);

    const refused = await run("dead", "discard", "--all");
    expect(refused).toMatchObject({ code: 2 });
    expect(refused.stderr).toContain("Discard 2 dead letters? Add --yes");
    expect((await must("dead", "discard", "--all", "--yes", "--json")).json).toMatchObject({ discarded: 2 });
    await drain("mortal");
    expect((await list("dead", "list")).dead).toEqual([]);
    expect((await list("dead", "list", "--state", "discarded")).dead).toHaveLength(2);
  });

  test("relays: pause, resume, rewind, drop", async () => {
    const { must, list, run } = cliOf("rel");
    await must("migrate");
    await enqueue("rel", ["a", "b", "c"]);
    await drain("rel");
    await must("relays", "pause", "bus");
    expect((await list("relays", "list")).relays).toMatchObject([{ name: "bus", paused: true }]);
    expect((await must("relays", "list")).stdout).toContain("paused");
    await must("relays", "resume", "bus");
    expect((await list("relays", "list")).relays[0]?.paused).toBe(false);

    expect((await must("relays", "rewind", "bus", "--to", "earliest", "--json")).json).toEqual({
      relay: "bus",
      done: "rewind",
      to: "earliest",
    });
    expect((await list("relays", "list")).relays[0]?.pending).toBe(3);
    const skip = await run("relays", "rewind", "bus", "--to", "now");
    expect(skip).toMatchObject({ code: 2 });
    expect(skip.stderr).toContain('Let relay "bus" skip 3 pending messages?');
    await must("relays", "rewind", "bus", "--to", "now", "--yes");
    expect((await list("relays", "list")).relays[0]?.pending).toBe(0);
    await must("relays", "rewind", "bus", "--to", "position", "2");
    expect((await list("relays", "list")).relays[0]?.pending).toBe(2);
    await must("relays", "rewind", "bus", "--to", "3");
    expect((await list("relays", "list")).relays[0]?.pending).toBe(1);
    await must("relays", "rewind", "bus", "--to", "2020-01-01T00:00:00Z");
    expect((await list("relays", "list")).relays[0]?.pending).toBe(3);
    expect((await run("relays", "rewind", "bus", "--to", "yesterday")).stderr).toContain(
      "Use earliest, now, a position",
    );
    expect(await run("relays", "rewind", "bus")).toMatchObject({ code: 2 });

    expect((await run("relays", "drop", "bsu", "--yes")).stderr).toContain('Did you mean "bus"?');
    expect((await run("relays", "drop", "bus")).stderr).toContain("3 pending messages and 0 dead letters? Add --yes");
    await must("relays", "drop", "bus", "--yes");
    expect((await list("relays", "list")).relays).toEqual([]);
    expect(await run("relays", "drop", "bus", "--yes")).toMatchObject({ code: 1 });
  });

  test("maintain and grants", async () => {
    const { must } = cliOf("kept");
    await must("migrate");
    await enqueue("kept", ["a"]);
    expect((await must("maintain", "--json")).json).toEqual({ rotated: false, droppedSegments: [], heldBackBy: [] });
    const config = `export default { database: { segmentMs: 1, retentionMs: 0 } }`;
    using folder = projectFolder({ "txbox.config.mjs": config });
    const settings = ["--config", `${folder.path}/txbox.config.mjs`, "--json"];
    expect((await must("maintain", ...settings)).json).toMatchObject({ rotated: true });
    await drain("kept");
    expect((await must("maintain", ...settings)).json).toMatchObject({ droppedSegments: ["message_0"] });

    const role = `role_${database.name}`;
    await pool.query(`create role ${role}`);
    try {
      await pool.query(
        (await must("grants", "--writer", role, "--relay", role, "--consumer", role, "--maintainer", role)).stdout,
      );
      const { rows } = await pool.query("select has_table_privilege($1, 'kept.cursor', 'update') as may", [role]);
      expect(rows).toEqual([{ may: true }]);
    } finally {
      await pool.query(`drop owned by ${role}; drop role ${role}`);
    }
    // No connection is needed for it.
    expect((await runCli(["grants", "--writer", 'a"b', "--schema", "s"])).stdout).toContain('on schema "s" to "a""b";');
  });

  test("a restored copy is refused until it is rebased", async () => {
    const { must, run } = cliOf("copy");
    await must("migrate");
    await enqueue("copy", ["a", "b"]);
    const once = ["--publisher", "stdout", "--once"];
    await must("relay", "look", ...once, "--max", "1", "--batch-size", "1");
    await must("relay", "other", ...once);
    await pool.query("update copy.cursor set stamp = '7'::xid8");
    const refused = await run("relay", "other", ...once);
    expect(refused).toMatchObject({ code: 5, stdout: "" });
    expect(refused.stderr).toContain("Run `txbox rebase`");
    expect((await run("rebase")).stderr).toContain("Add --yes");
    // Only the cursor was forged, so every row looks as if it had been written since the restore.
    expect((await must("rebase", "--yes", "--json")).json).toMatchObject({ republished: 2 });
    const again = (await must("relay", "look", ...once)).stdout.trim().split("\n");
    expect(again.map((line) => (JSON.parse(line) as { key: string }).key)).toEqual(["a", "b"]);
  });
});
