import { type Captured, captureCli } from "../../support/captured-cli.ts";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createRelay, type Relay } from "../../../src/index.ts";
import { createMemoryPublisher, type MemoryPublisher } from "../../../src/testing/index.ts";
import { until } from "../../harness/index.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { projectFolder, runCli } from "../../support/run-cli.ts";
import { outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";

interface Listed {
  groups: { group: string; count: number; type: string; error: string; example: { id: string } }[];
  dead: { id: string; relay: string; group: string; edited: boolean; command: string | null; payload: unknown }[];
  changes: { actor: string; reason: string | null; action: string; relay: string | null; count: number | null }[];
}

/** Letters of two kinds, of relay "bus". */
describe.skipIf(!hasPostgres())("txbox dead groups, edit and redrive; txbox changes", () => {
  let database: OutboxDatabase;
  let publisher: MemoryPublisher;
  let relay: Relay;
  let folder: string;

  beforeAll(() => (folder = mkdtempSync(join(tmpdir(), "txbox-letters-"))));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  beforeEach(async () => {
    database = await outboxDatabase();
    publisher = createMemoryPublisher();
    relay = createRelay({ store: database.store, name: "bus", publisher, maxPollMs: 20, leaseMs: 3000 });
    publisher.reject(({ key }) => new Error(key === "odd" ? "it has no price" : `order ${key} is unknown`));
    await relay.start();
    await database.enqueue(["o-1", "o-2", "odd", "o-3"].map((key, i) => ({ key, n: i + 1 })));
    await until(async () => (await database.store.admin.dead({})).length === 4, { what: "letters" });
    publisher.heal();
  });
  afterEach(async () => {
    await relay.stop();
    await database[Symbol.asyncDispose]();
  });

  const run = (...args: string[]): Promise<Captured> =>
    captureCli(args, { cwd: folder, env: { TXBOX_DATABASE_URL: database.url } });
  const must = async (...args: string[]): Promise<Captured> => {
    const result = await run(...args);
    expect(result.code, result.stderr).toBe(0);
    return result;
  };
  const list = async (...args: string[]): Promise<Listed> => (await must(...args, "--json")).json as Listed;

  test("a group is found, tried with one letter and then redriven; changes tell who did it", async () => {
    const { groups } = await list("dead", "groups");
    expect(groups.map(({ count }) => count)).toEqual([3, 1]);
    const [{ group }] = groups as [Listed["groups"][number]];
    const table = (await must("dead", "groups", "--relay", "bus")).stdout;
    expect(table).toContain(group);
    expect(table).toContain("it has no price");
    expect((await must("dead", "groups", "--type", "none")).stdout).toBe("There are no dead letters.\n");
    expect((await must("dead", "list", "--type", "none")).stderr).toBe("");
    expect((await list("dead", "list", "--group", group)).dead.map((letter) => letter.group)).toEqual([
      group,
      group,
      group,
    ]);

    const by = ["--actor", "anna", "--reason", "orders are there"];
    await must("dead", "requeue", "--group", group, "--limit", "1", ...by);
    await until(() => publisher.published.length === 1, { what: "one" });
    const told = await must(
      "dead",
      "redrive",
      "--relay",
      "bus",
      "--group",
      group,
      "--rate",
      "100",
      "--rounds",
      "2",
      ...by,
    );
    expect(told.stdout).toBe("Requeued 2 letters.\nNone died again.\n");
    expect(publisher.published).toHaveLength(3);
    await must("relays", "pause", "bus", "--actor", "bert");
    await must("dead", "discard", "--all", "--yes");

    const { changes } = await list("changes");
    expect(changes).toMatchObject([
      { action: "discard", reason: null, count: 1 },
      { actor: "bert", action: "pause", relay: "bus", count: null },
      { actor: "anna", reason: "orders are there", action: "redrive", relay: "bus", count: 2 },
      { actor: "anna", reason: "orders are there", action: "requeue", count: 1 },
    ]);
    expect((await must("changes", "--relay", "bus")).stdout).toMatch(/anna +redrive +bus +2 +orders are there/);
    expect((await must("changes", "--since", "2999-01-01")).stdout).toBe("Nothing was changed.\n");
    expect((await run("changes", "--limit", "1")).stderr).toContain("There are more than these 1");
  });

  test("a letter is edited from files, shown as it was and as it is, and goes out so", async () => {
    const [{ id }] = (await list("dead", "list", "--key", "odd")).dead as [Listed["dead"][number]];
    writeFileSync(join(folder, "mended.json"), '{"key":"odd","n":3,"price":12345678901234567890}\n');
    writeFileSync(join(folder, "headers.json"), '{"by":"hand"}');
    writeFileSync(join(folder, "broken.json"), "{");
    expect((await run("dead", "edit", id)).stderr).toContain("Edit what?");
    expect((await run("dead", "edit", id, "--payload", "none.json")).stderr).toContain("none.json");
    const broken = await run("dead", "edit", id, "--payload", "broken.json");
    expect([broken.code, broken.stderr.includes("not JSON")]).toEqual([1, true]);
    expect(await run("dead", "edit", "no-such-id", "--payload", "mended.json")).toMatchObject({ code: 1 });
    expect(await run("dead", "edit", id, "--payload", "mended.json", "--rate", "5")).toMatchObject({ code: 2 });

    const said = (await must("dead", "edit", id, "--payload", "mended.json", "--headers", "headers.json")).stdout;
    expect(said).toContain(`txbox dead requeue ${id} --relay bus`);
    expect((await must("dead", "show", id)).stdout).toMatch(/edited +yes[^]*"price":12345678901234567890/);
    expect((await must("dead", "show", id, "--original")).stdout).toContain('payload    {"key":"odd","n":3}');
    const answer = await must(
      "dead",
      "edit",
      id,
      "--headers",
      "headers.json",
      "--requeue",
      "--json",
      "--actor",
      "anna",
    );
    expect(answer.json).toEqual({ edited: id, relay: "bus", requeued: 1 });
    await until(() => publisher.published.length === 1, { what: "the letter" });
    expect(publisher.published[0]).toMatchObject({ id, key: "odd", headers: { by: "hand" } });
    expect(publisher.published[0]?.body).toContain("12345678901234567890");
    expect((await run("dead", "edit", id, "--payload", "mended.json")).code).toBe(1);
  });

  test("an edit that breaks the contract of the configuration is refused, with what does not fit", async () => {
    const [{ id }] = (await list("dead", "list", "--key", "odd")).dead as [Listed["dead"][number]];
    writeFileSync(join(folder, "letter.json"), '{"key":"odd","n":4}');
    writeFileSync(join(folder, "priced.json"), '{"key":"odd","n":3,"price":5}');
    writeFileSync(
      join(folder, "with-events.mjs"),
      `const validate = (value) => (value.price === 5 ? { value } : { issues: [{ path: ["price"], message: "is missing" }] });
       const schema = { "~standard": { version: 1, vendor: "test", validate } };
       const changed = { type: "changed", stream: "orders", version: 1, schema, upcasts: [] };
       export default { database: { url: ${JSON.stringify(database.url)} }, events: { contracts: new Map([["changed", changed]]) } };`,
    );
    const edit = (file: string) => run("dead", "edit", id, "--payload", file, "--config", "with-events.mjs");
    const refused = await edit("letter.json");
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining("payload.price: is missing")]);
    expect((await list("dead", "list", "--key", "odd")).dead[0]?.edited).toBe(false);
    expect((await edit("priced.json")).code).toBe(0);
  });

  test("--store works on another store of the configuration", async () => {
    await using own = await outboxDatabase();
    const stores = { letters: { url: database.url } };
    using project = projectFolder({
      "txbox.config.mjs": `export default ${JSON.stringify({ database: { url: own.url }, stores })};`,
    });
    const inProject = (...args: string[]) => runCli(args, { cwd: project.path });
    const dead = async (...args: string[]) =>
      ((await inProject("dead", "list", "--json", ...args)).json as Listed).dead.length;
    expect([await dead(), await dead("--store", "main"), await dead("--store", "letters")]).toEqual([0, 0, 4]);
    const done = await inProject("dead", "requeue", "--key", "odd", "--store", "letters", "--actor", "ada");
    expect([done.code, done.stderr]).toEqual([0, ""]);
    await until(() => publisher.published.length === 1, { what: "the letter" });
    const wrong = await inProject("status", "--store", "leters");
    expect([wrong.code, wrong.stderr]).toEqual([
      2,
      expect.stringMatching(/--store: "leters" is .* Did you mean "letters"/),
    ]);
    const both = await inProject("status", "--store", "letters", "--database-url", database.url);
    expect([both.code, both.stderr]).toEqual([2, expect.stringContaining("Give one of them")]);
    const grants = await inProject("grants", "--relay", "r", "--store", "letters");
    expect([grants.code, grants.stdout]).toEqual([0, expect.stringContaining("txbox")]);
  });

  test("a redrive needs a rate and letters, and can be told when to begin", async () => {
    expect((await run("dead", "redrive", "--all")).stderr).toContain("--rate");
    expect((await run("dead", "redrive", "--rate", "5")).stderr).toContain("Which ones?");
    expect((await run("dead", "redrive", "--all", "--rate", "5", "--start-at", "soon")).stderr).toContain("--start-at");
    const begun = Date.now();
    const late = await must("dead", "redrive", "--key", "odd", "--rate", "5", "--start-at", "2s", "--json");
    expect(Date.now() - begun).toBeGreaterThan(1900);
    expect(late.json).toEqual({ requeued: 1, rounds: 1, diedAgain: null, stopped: false });
    expect((await run("dead", "list", "--actor", "anna")).stderr).toContain("--actor goes with");
    expect((await run("relays", "list", "--reason", "why")).stderr).toContain("--reason goes with");
  });
});
