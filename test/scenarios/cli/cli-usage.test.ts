import { cpSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import manifest from "../../../package.json" with { type: "json" };
import { freePort } from "../../harness/index.ts";
import { hasPostgres, migratedDatabase, sharedPostgresUrl } from "../../harness/shared-postgres.ts";
import { captureCli } from "../../support/captured-cli.ts";
import { projectFolder, runCli } from "../../support/run-cli.ts";

const HURRIED = fileURLToPath(new URL("../../support/hurried-cli.ts", import.meta.url));
const COMMANDS = [
  "demo",
  "migrate",
  "relay",
  "status",
  "find",
  "story",
  "blocked",
  "exporter",
  "dead",
  "relays",
  "audit",
  "doctor",
  "maintain",
  "replay",
  "rebase",
  "grants",
];

describe.concurrent("txbox, used rightly and wrongly", () => {
  test("help and version", async () => {
    const help = await runCli(["help"]);
    expect(help).toMatchObject({ code: 0, stderr: "" });
    for (const command of COMMANDS) expect(help.stdout).toContain(`  ${command} `);
    expect(help.stdout).toContain("Exit codes");
    expect((await runCli([])).code).toBe(2);
    expect((await runCli(["help", "dead"])).stdout).toContain("Usage: txbox dead list");
    expect((await runCli(["--version"])).stdout).toBe(`${manifest.version}\n`);
    expect((await runCli(["--version", "--json"])).json).toEqual({ version: manifest.version });
  });

  test.each(COMMANDS)("%s --help has usage, flags, examples and exit codes", async (command) => {
    const { code, stdout } = await captureCli([command, "--help"]);
    expect(code).toBe(0);
    for (const part of [`Usage: txbox ${command}`, "--json", "Examples", `  txbox ${command}`, "Exit codes"]) {
      expect(stdout).toContain(part);
    }
  });

  test.each([
    [["statsu"], 'There is no command "statsu". Did you mean "status"?'],
    [["status", "--jsno"], "There is no flag --jsno. Did you mean --json?"],
    [["--jsno", "status"], "There is no flag --jsno. Did you mean --json?"],
    [["dead", "requeu"], 'There is no "txbox dead requeu". Did you mean "requeue"?'],
    [["relays"], "txbox relays what? list, pause, resume, rewind, drop"],
    [["relays", "list", "extra"], '"extra" is too much'],
    [["relay", "x", "--publisher", "stdut"], '--publisher cannot be "stdut". Did you mean "stdout"?'],
    [["relay", "x"], "Describe it in txbox.config.ts, or try --publisher stdout"],
    [["relay", "--publisher", "stdout"], "Give the relay a name"],
    [["grants"], "Name at least one role"],
    [["audit"], "Whose receipts? Give --consumer NAME"],
    [["audit", "--consumer", "c", "--since", "soon"], "--since must be a time ago such as 1h or 7d"],
    [["audit", "--consumer", "c", "--late", "5"], "--late must be a time such as 90s, 5m, 1h or 7d"],
    [
      ["audit", "--consumer", "c", "--from", "ordrs"],
      '--from: "ordrs" is neither a database URL nor a name of `stores`',
    ],
    [["audit", "--consumer", "c", "--from", "host=h password=secret"], "--from: its value is neither a database URL"],
    [["audit", "--consumer", "c", "--from", "mysql://u:secret@h/d"], "--from is no database URL"],
    [["audit", "--consumer", "c", "--yes"], "--yes goes with --requeue"],
    [["audit", "--consumer", "c", "--requeue"], "--requeue sends by a relay of the configuration. It has none"],
    [
      ["status"],
      "Which database? Give --database-url, set TXBOX_DATABASE_URL or DATABASE_URL, or write txbox.config.ts",
    ],
    [
      ["status", "--database-url", "mysql://u:secret@h/d"],
      "--database-url is no database URL, but one of MySQL. Stores of txbox are PostgreSQL, PGlite and MongoDB. Use postgres://",
    ],
    [["status", "--database-url", "pglite:"], "pglite: needs a folder"],
    [["status", "--config", "missing.ts"], "There is no configuration file"],
    [["migrate", "--schema", "--dry-run"], "--schema needs a value, and --dry-run is a flag"],
    [["status", "--database-url", "--json=x"], "--database-url needs a value"],
    [["--schema", "status"], "Which command?"],
    [["status", "--schema", "a", "--schema", "b"], "--schema is given twice"],
    [["status", "extra"], '"extra" is too much'],
    [["migrate", "now", "please"], '"now please" is too much'],
    [["demo", "extra"], '"extra" is too much'],
    [["maintain", "extra"], '"extra" is too much'],
    [["rebase", "extra", "--yes"], '"extra" is too much'],
    [["grants", "extra", "--writer", "w"], '"extra" is too much'],
    [["help", "dead", "extra"], '"extra" is too much'],
    [["--version", "extra"], '"extra" is too much'],
    [["dead", "list", "extra"], '"extra" is too much'],
    [["relays", "pause", "a", "b"], '"b" is too much'],
    [["dead", "list", "--all"], "--all goes with dead requeue, dead redrive and dead discard"],
    [["dead", "requeue", "--all", "--yes"], "--yes goes with dead discard"],
    [["dead", "requeue", "a", "--id", "b"], "--id goes with no other ID"],
    [["relays", "list", "--yes"], "--yes goes with relays rewind and relays drop"],
    [["relay", "x", "--publisher", "stdout", "--max", "5"], "--max goes with --once"],
    [["relay", "x", "x", "--publisher", "stdout"], '"x" is named twice'],
    [["status", "--database-url", "mongodb://u:secret@h/db?bogus=1"], "option bogus is not supported"],
    [["status", "--database-url", "postgres://u:secret@h/db?sslcert=/nowhere"], "no such file"],
  ])("%j is a usage error", async (args, message) => {
    const { code, stdout, stderr } = await captureCli(args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toContain(`txbox: `);
    expect(stderr).toContain(message);
    expect(stderr).not.toContain("secret");
    expect(stderr).not.toMatch(/^ +at /m);
  });

  test("a wrong configuration names the nearest key", async () => {
    using folder = projectFolder({ "txbox.config.mjs": "export default { databse: {} };" });
    const { code, stderr } = await runCli(["status"], { cwd: folder.path });
    expect(code).toBe(2);
    expect(stderr).toContain('txbox.config.mjs has no option "databse". Did you mean "database"?');
  });

  test.skipIf(!hasPostgres())("a configuration whose promises never settle ends with an error", async () => {
    const never = "new Promise(() => {})";
    await using database = await migratedDatabase();
    const env = { DATABASE_URL: database.url };
    for (const [config, args, exitCode, message] of [
      [`await ${never}; export default {};`, ["status"], 2, "txbox.config.mjs was not loaded within 500 ms"],
      [
        `export default { store: () => ${never} };`,
        ["status"],
        1,
        "store() of the configuration took longer than 500 ms",
      ],
      [
        `export default { relays: { r: { publisher: () => ${never} } } };`,
        ["relay", "r"],
        1,
        "relays.r.publisher() took longer than 500 ms",
      ],
    ] as const) {
      using folder = projectFolder({ "txbox.config.mjs": config });
      const result = await runCli(args, { cwd: folder.path, env: { ...env, HURRY_MS: "500" }, file: HURRIED });
      expect(result, result.stderr).toMatchObject({ code: exitCode });
      expect(result.stderr).toContain(message);
    }
  });

  test("a configuration with a URL that is no text", async () => {
    using folder = projectFolder({ "txbox.config.mjs": "export default { database: { url: 5 } };" });
    const { code, stderr } = await runCli(["status"], { cwd: folder.path });
    expect(code).toBe(2);
    expect(stderr).toContain("txbox.config.mjs: database.url must be a string, got 5");
  });

  test("a runtime without a compile cache, such as Deno, is no hindrance", async () => {
    using folder = projectFolder({
      "without-cache.mjs": `import module from "node:module"; delete module.enableCompileCache;`,
    });
    const preload = `--import=${join(folder.path, "without-cache.mjs")}`;
    const { code, stdout, stderr } = await runCli(["--version"], { env: { NODE_OPTIONS: preload } });
    expect(code, stderr).toBe(0);
    expect(stdout).toBe(`${manifest.version}\n`);
  });

  test("an unreachable server is one line, and a stack with --verbose", async () => {
    const url = `postgres://me:secret@127.0.0.1:${await freePort()}/app`;
    const { code, stderr, stdout } = await runCli(["status", "--json"], { env: { DATABASE_URL: url } });
    expect(code).toBe(4);
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: "ECONNREFUSED", exitCode: 4 } });
    expect(stderr.trim().split("\n")).toHaveLength(1);
    expect(stderr).toContain("the connection was refused");
    expect(stderr).not.toContain("secret");
    const verbose = await runCli(["status", "--verbose"], { env: { DATABASE_URL: url } });
    expect(verbose.stderr).toMatch(/^ +at /m);
  });

  test.skipIf(!hasPostgres())("a database or user that does not exist", async () => {
    const there = new URL(sharedPostgresUrl());
    there.pathname = "/nothing_here";
    const missing = await runCli(["status", "--database-url", there.href]);
    expect(missing.code).toBe(4);
    expect(missing.stderr).toContain('database "nothing_here" does not exist');
    there.username = "stranger";
    there.password = "guess";
    expect(await runCli(["status", "--database-url", there.href])).toMatchObject({ code: 4 });
  });

  test("a folder of PGlite needs no server", async () => {
    using folder = projectFolder();
    const env = { TXBOX_DATABASE_URL: "pglite:./data" };
    const cwd = folder.path;
    expect((await runCli(["migrate"], { cwd, env })).stdout).toContain("Applied 0001_init");
    expect((await runCli(["status", "--json"], { cwd, env })).json).toMatchObject({
      relays: [],
      activity: [],
      unread: [],
    });
  });

  test("a missing driver is named with the command that installs it", async () => {
    using folder = projectFolder({ "package.json": '{ "type": "module", "version": "1.2.3" }' });
    const root = fileURLToPath(new URL("../../../src", import.meta.url));
    cpSync(root, join(folder.path, "src"), { recursive: true });
    const options = { cwd: folder.path, file: join(folder.path, "src/cli/main.ts") };
    const status = await runCli(["status", "--database-url", "postgres://localhost/x"], options);
    expect(status.code).toBe(2);
    expect(status.stderr).toContain("Run `npm install pg`");
    expect((await runCli(["demo"], options)).stderr).toContain("Run `npm install @electric-sql/pglite`");
    const exporter = await runCli(["exporter", "--database-url", "postgres://localhost/x"], options);
    expect(exporter).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("Run `npm install prom-client`") as string,
    });
    expect((await runCli(["--version"], options)).stdout).toBe("1.2.3\n");
  });

  test("the demo ends well, and its figures add up", async () => {
    const { code, json, stderr } = await runCli(["demo", "--json"], { timeoutMs: 100_000 });
    expect(code, stderr).toBe(0);
    const summary = json as Record<string, number> & { killedRelay: { delivered: number; settled: number } };
    expect(summary).toMatchObject({
      orders: 24,
      payments: 24,
      unpaidOrders: 0,
      ordersPaidMoreThanOnce: 0,
      paymentsWithoutOrder: 0,
      wrongAmounts: 0,
      paymentsOutOfOrder: 0,
      everyOrderPaidOnce: true,
      rolledBack: { orders: 0, messages: 0 },
      failedAttempts: 3,
      deadLetters: 1,
      requeued: 1,
    });
    const { delivered, settled } = summary.killedRelay;
    expect(delivered).toBeGreaterThan(settled);
    // What was delivered and not settled came again, and so did the one repeated on purpose.
    expect(summary["duplicatesDropped"]).toBeGreaterThanOrEqual(delivered - settled + 1);
    expect(summary["deliveries"]).toBe(24 + summary["failedAttempts"]! + summary["duplicatesDropped"]!);
  });
});
