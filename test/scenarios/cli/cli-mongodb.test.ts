import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createOutbox } from "../../../src/index.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import {
  freePort,
  type MongodbServer,
  serverOrSkip,
  type ServerSlot,
  startMongodb,
  until,
} from "../../harness/index.ts";
import { type MongoDatabase, mongoDatabase } from "../../support/mongodb-database.ts";
import { INDEX_URL, projectFolder, runCli, startCli, type CliResult } from "../../support/run-cli.ts";

let slot: ServerSlot<MongodbServer>;
beforeAll(async () => {
  slot = await serverOrSkip("MongoDB", () => startMongodb());
}, 240_000);
afterAll(() => slot.stop());

async function enqueue({ client }: MongoDatabase, ...types: string[]): Promise<void> {
  const outbox = createOutbox({ store: createMongoStore({ client }) });
  const messages = types.map((type, n) => ({ stream: "s", type, key: type, payload: n, id: `${type}-${n}` }));
  await client.withSession((session) => session.withTransaction(() => outbox.enqueue(session, messages)));
}

describe("txbox on MongoDB", () => {
  it("migrates, relays, shows and mends", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    await using database = await mongoDatabase(slot.server.url);
    using project = projectFolder({
      "txbox.config.ts": `
        import { defineConfig, publishEach, PermanentError } from ${JSON.stringify(INDEX_URL)};
        export default defineConfig({
          database: { url: ${JSON.stringify(database.url)} },
          relays: { main: { publisher: publishEach(async ({ type }) => {
            if (type === "bad" && process.env.HEALED === undefined) throw new PermanentError("never");
          }) } },
        });`,
    });
    const cli = (args: string[], env: Record<string, string> = {}): Promise<CliResult> =>
      runCli(args, { cwd: project.path, env });
    const must = async (...args: string[]): Promise<CliResult> => {
      const result = await cli(args);
      expect(result.code, `${args.join(" ")}: ${result.stderr}`).toBe(0);
      return result;
    };
    expect((await cli(["status"])).code).toBe(3);
    const script = (await must("migrate", "--dry-run")).stdout;
    expect(script).toMatch(/^\/\/ 0001_init\ndb\.getCollection\("outbox"\)\.createIndex/);
    expect((await must("migrate")).stdout).toBe("Applied 0001_init\n");
    expect((await must("migrate")).stdout).toBe("The schema is up to date.\n");
    await enqueue(database, "good", "bad", "good");
    expect((await must("relay", "main", "--once", "--json")).stdout).toContain('"published":2');
    const { relays } = (await must("status", "--json")).json as { relays: object[] };
    expect(relays).toMatchObject([{ name: "main", published: "2", pending: 0, dead: 1 }]);
    const { messages } = (await must("status", "--key", "bad", "--json")).json as { messages: object[] };
    expect(messages).toMatchObject([{ id: "bad-1", status: "dead", payload: 1, relay: "main" }]);
    expect((await must("dead", "list")).stdout).toContain("never");
    expect((await must("dead", "show", "bad-1")).stdout).toContain("PermanentError");
    await must("dead", "requeue", "bad-1");
    expect((await cli(["relay", "main", "--once"], { HEALED: "1" })).code).toBe(0);
    const after = (await must("status", "--id", "bad-1", "--json")).json as { messages: object[] };
    expect(after.messages).toMatchObject([{ status: "published", attempts: 2 }]);
    await must("relays", "pause", "main");
    expect((await must("relays", "list")).stdout).toMatch(/main .*paused/i);
    await must("relays", "resume", "main");
    expect((await cli(["relays", "rewind", "main", "--to", "earliest"])).stderr).toMatch(/cannot be rewound/);
    await must("maintain");
    expect((await cli(["rebase", "--yes"])).stderr).toMatch(/has no such command/);
    const port = await freePort();
    await using exporter = startCli(["exporter", "--listen", `127.0.0.1:${port}`], { cwd: project.path });
    await until(() => exporter.stderr.join().includes("Metrics and health at"), { what: "metrics", timeoutMs: 60_000 });
    const metrics = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    expect(metrics).toContain('outbox_pending_records{relay="main"} 0');
    expect(metrics).toMatch(/^outbox_log_bytes [1-9]/m);
    expect(metrics).toMatch(/^txbox_up 1$/m);
    await exporter.kill("SIGTERM");
    await must("relays", "drop", "main", "--yes");
    expect(((await must("status", "--json")).json as { relays: object[] }).relays).toEqual([]);
  });

  it("names a server that cannot be reached", async () => {
    const url = "mongodb://127.0.0.1:1/nowhere";
    const { code, stderr } = await runCli(["status", "--database-url", url], { timeoutMs: 40_000 });
    expect(code).toBe(4);
    expect(stderr).toMatch(/Cannot reach 127\.0\.0\.1:1\/nowhere/);
  });
});
