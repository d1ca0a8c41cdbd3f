import pg from "pg";
import { describe, expect, test } from "vitest";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import { createPostgresStore } from "../../../src/stores/postgres/postgres-store.ts";
import { freePort } from "../../harness/index.ts";
import { hasPostgres, sharedPostgresUrl, testDatabase } from "../../harness/shared-postgres.ts";
import { captureCli } from "../../support/captured-cli.ts";
import { INDEX_URL, projectFolder, runCli } from "../../support/run-cli.ts";

const SECRET = "S3cr3t";

const MALFORMED = [
  `postgres://u:${SECRET}/x@h/db`,
  `postgres://u:12/${SECRET}@h/db`,
  `postgres://u:12?${SECRET}@h/db`,
  `postgres://u:12#${SECRET}@h/db`,
  `postgres://u:${SECRET} x@[h/db`,
  `postgres://u:${SECRET}\nx@h:1x/db`,
  `postgres://u:${SECRET}@h:99999/db`,
  `postgres://u:${SECRET}`,
  `postgres:u:${SECRET}@h/db`,
  `postgres://u:${SECRET}@127.0.0.1/db?sslcert=/nowhere/cert.pem`,
  `host=h user=u password=${SECRET}`,
  `host=h user=u password='blank ${SECRET}'`,
  `jdbc:postgresql://h/db?user=u&password=${SECRET}`,
  `mysql://u:${SECRET}@h/d`,
  `mongodb://u:${SECRET}/x@h/db`,
  `mongodb://u:12/${SECRET}@h/db`,
  `mongodb://u:x@${SECRET}@h/db`,
  `mongodb://u:${SECRET}@h:99999/db`,
  `mongodb://u:${SECRET}@h/db?bogus=1`,
  `mongodb://u:${SECRET}@h/db?tls=maybe`,
  `mongodb://u:${SECRET}@/db`,
  `pglite://u:${SECRET}@h/db`,
  SECRET,
];

const COMMANDS = [
  "migrate",
  "migrate --dry-run",
  "relay x --publisher stdout",
  "relay x --publisher stdout --once",
  "status",
  "status --watch",
  "status --id a",
  "find --key a",
  "story a",
  "dead list",
  "dead show a",
  "dead requeue --all",
  "dead discard --all --yes",
  "relays list",
  "relays pause r",
  "relays rewind r --to now --yes",
  "relays drop r --yes",
  "maintain",
  "rebase --yes",
].map((command) => command.split(" "));

describe("no password is printed", () => {
  test.each(MALFORMED)("of %j, which is a usage error of every command", async (url) => {
    for (const command of COMMANDS) {
      for (const more of [[], ["--json"], ["--verbose"]]) {
        const argv = [...command, ...more, `--database-url=${url}`];
        const { code, stdout, stderr } = await captureCli(argv);
        expect(stdout + stderr, argv.join(" ")).not.toContain(SECRET);
        expect({ code, stderr }, argv.join(" ")).toMatchObject({ code: 2 });
        expect(stderr).toContain("--database-url is no database URL");
      }
    }
  });

  test.each(["DATABASE_URL", "TXBOX_DATABASE_URL"])("from %s, by the process itself", async (name) => {
    for (const url of [MALFORMED[0]!, MALFORMED[1]!, MALFORMED[10]!, MALFORMED[12]!, MALFORMED[16]!]) {
      const { code, stdout, stderr } = await runCli(["status", "--json", "--verbose"], { env: { [name]: url } });
      expect(stdout + stderr).not.toContain(SECRET);
      expect(code, stderr).toBe(2);
      expect(stderr).toContain(`txbox: ${name} is no database URL`);
    }
  });

  test("of a server that cannot be reached, or refuses the login", async () => {
    const away = `127.0.0.1:${await freePort()}/db`;
    const urls = [`postgres://u:${SECRET}@${away}`, `postgres://${away}?user=u&password=${SECRET}`];
    if (hasPostgres()) {
      const there = new URL(sharedPostgresUrl());
      [there.username, there.password] = ["stranger", SECRET];
      urls.push(there.href);
    }
    for (const url of urls) {
      for (const command of COMMANDS) {
        for (const more of [[], ["--json"], ["--verbose"]]) {
          const argv = [...command, ...more];
          const { code, stdout, stderr } = await captureCli(argv, { env: { DATABASE_URL: url } });
          expect(stdout + stderr, argv.join(" ")).not.toContain(SECRET);
          expect(code, `${argv.join(" ")}: ${stderr}`).toBe(4);
        }
      }
    }
    const mongo = { env: { DATABASE_URL: `mongodb://u:${SECRET}@${away}` }, timeoutMs: 40_000 };
    const results = await Promise.all([["--json"], ["--verbose"]].map((more) => runCli(["status", ...more], mongo)));
    for (const { code, stdout, stderr } of results) {
      expect(stdout + stderr).not.toContain(SECRET);
      expect(code, stderr).toBe(4);
    }
    const env = { PGHOST: "127.0.0.1", PGPORT: "1", PGPASSWORD: SECRET };
    const byEnvironment = await runCli(["status", "--verbose"], { env });
    expect(byEnvironment.code, byEnvironment.stderr).toBe(4);
    expect(byEnvironment.stdout + byEnvironment.stderr).not.toContain(SECRET);
  });

  test("of a URL in the wrong place", async () => {
    for (const url of MALFORMED.slice(0, -1).filter((one) => !one.startsWith("pglite:"))) {
      for (const argv of [
        [url],
        ["help", url],
        ["status", url],
        ["status", `--${url}`],
        ["status", "--limit", url],
        ["relay", url],
        ["relay", "x", "--publisher", url],
        ["dead", url],
        ["relays", "rewind", "r", "--to", url],
        ["--config", url, "status"],
        ["reconcile", url],
        ["--json", "status", url],
      ]) {
        const { code, stdout, stderr } = await captureCli(argv);
        expect(stdout + stderr, argv.join(" ")).not.toContain(SECRET);
        expect(code, argv.join(" ")).toBe(2);
      }
    }
  });

  test.skipIf(!hasPostgres())("of a URL where a name is expected", async () => {
    await using database = await testDatabase();
    const env = { DATABASE_URL: database.url };
    const url = `postgres://u:${SECRET}@h/db`;
    expect((await captureCli(["migrate"], { env })).code).toBe(0);
    for (const argv of [
      ["status", "--schema", url],
      ["status", "--relay", url],
      ["dead", "show", url],
      ["dead", "requeue", url],
      ["relays", "pause", url],
      ["relays", "drop", url, "--yes"],
      ["relay", url, "--publisher", "stdout"],
    ]) {
      for (const more of [[], ["--json"]]) {
        const { code, stdout, stderr } = await captureCli([...argv, ...more], { env });
        expect(stdout + stderr, argv.join(" ")).not.toContain(SECRET);
        expect(code, argv.join(" ")).toBeGreaterThan(0);
      }
    }
  });

  const url = `amqp://user:blank and/${SECRET}@broker:5672/vhost`;
  const text = JSON.stringify(`connect to ${url} failed`);
  test.each([
    ["throws", `throw new Error(${text});`, "status", 2],
    ["throws what is no error", `throw ${text};`, "status", 2],
    ["is not well-formed", `const url = "${url}" export default {};`, "status", 2],
    ["has a URL that is none", `export default { database: { url: "postgres://u:12/${SECRET}@h/db" } };`, "status", 2],
    [
      "has a URL of an unreachable server",
      `export default { database: { url: "postgres://u:${SECRET}@127.0.0.1:1/d" } };`,
      "status",
      4,
    ],
    ["has a store() that throws", `export default { store: () => { throw new Error(${text}); } };`, "status", 1],
    ["has a store() that is none", `export default { store: () => "${url}" };`, "status", 2],
    [
      "leaves a rejection behind",
      `void Promise.reject(new Error(${text})); await new Promise((r) => setTimeout(r, 500)); export default {};`,
      "status",
      1,
    ],
    [
      "throws later",
      `setTimeout(() => { throw new Error(${text}); }, 50); await new Promise((r) => setTimeout(r, 2000)); export default {};`,
      "status",
      1,
    ],
    [
      "warns",
      `process.emitWarning(${text}); await new Promise((r) => setTimeout(r, 100)); export default {};`,
      "status",
      2,
    ],
    [
      "has a close() that throws",
      `export default { store: {}, close: () => { throw new Error(${text}); } };`,
      "status",
      2,
    ],
  ])("of a configuration that %s", async (_, config, command, exitCode) => {
    using folder = projectFolder({ "txbox.config.mjs": config });
    for (const more of [[], ["--json"], ["--verbose"]]) {
      const { code, stdout, stderr } = await runCli([command, ...more], { cwd: folder.path });
      expect(stdout + stderr).not.toContain(SECRET);
      expect(code, stderr).toBe(exitCode);
      expect(more.includes("--verbose") || !/^ +at /m.test(stderr), stderr).toBe(true);
    }
  });

  test.skipIf(!hasPostgres())(
    "of a broker, when it cannot be reached at the start or while the relay runs",
    async () => {
      await using database = await testDatabase();
      using folder = projectFolder({
        "txbox.config.ts": `
        import { defineConfig, UnavailableError } from ${JSON.stringify(INDEX_URL)};
        export default defineConfig({
          relays: {
            start: { publisher: () => { throw new Error(${text}); } },
            running: {
              publisher: { keepsKeyOrder: true, publish: async () => { throw new UnavailableError(${text}); } },
              onEvent: () => { throw new Error(${text}); },
            },
          },
        });`,
      });
      const options = { cwd: folder.path, env: { DATABASE_URL: database.url } };
      expect((await runCli(["migrate"], options)).code).toBe(0);
      const pool = new pg.Pool({ connectionString: database.url });
      const client = await pool.connect();
      await client.query("begin");
      const outbox = createOutbox({ store: createPostgresStore({ client: pool }) });
      await outbox.enqueue(client, { stream: "s", type: "t", payload: 1 });
      await client.query("commit");
      client.release();
      await pool.end();
      for (const more of [[], ["--json"], ["--verbose"]]) {
        const start = await runCli(["relay", "start", ...more], options);
        expect(start.stdout + start.stderr).not.toContain(SECRET);
        expect(start.code, start.stderr).toBe(1);
        expect(start.stderr).toContain("txbox: relays.start.publisher() failed: connect to amqp://…");
        const running = await runCli(["relay", "running", "--once", "--deadline-ms", "1500", ...more], options);
        expect(running.stdout + running.stderr).not.toContain(SECRET);
        expect(running.stdout + running.stderr).toMatch(/the target is out .*amqp:|"type":"outage".*amqp:/);
      }
    },
  );
});
