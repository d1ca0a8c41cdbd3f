import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, inject, test } from "vitest";
import { createDatabase, mustRun } from "../../../test/harness/index.ts";
import { NODE_22, NODE_24, stacks } from "./support/stacks.ts";

const PROGRAM = `
const pg = require("pg");
const { createOutbox, createRelay, publishEach } = require("txbox");
const { createPostgresStore } = require("txbox/postgres");

(async () => {
  const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
  const store = createPostgresStore({ client: pool });
  await store.migrator.migrate();
  const tx = await pool.connect();
  await tx.query("begin");
  await createOutbox({ store }).enqueue(tx, { stream: "s", type: "t", payload: { n: 1 } });
  await tx.query("commit");
  tx.release();
  const got = [];
  await createRelay({ store, name: "r", publisher: publishEach(async ({ body }) => void got.push(body)) }).drainOnce();
  await pool.end();
  // All of the package; the same module whether it was imported or required.
  for (const name of Object.keys(require("txbox/package.json").exports)) require("txbox" + name.slice(1));
  const same = (await import("txbox")).createOutbox === createOutbox;
  console.log(JSON.stringify({ got, same }));
})();
`;

test.each([NODE_22, NODE_24])("CommonJS requires every entry point on $version", async ({ path }) => {
  const folder = mkdtempSync(join(tmpdir(), "txbox-commonjs-"));
  try {
    mkdirSync(join(folder, "node_modules"));
    for (const name of ["txbox", "pg"])
      symlinkSync(join(stacks, "node_modules", name), join(folder, "node_modules", name));
    writeFileSync(join(folder, "package.json"), JSON.stringify({ name: "old", private: true }));
    writeFileSync(join(folder, "app.js"), PROGRAM);
    await using database = await createDatabase(inject("postgresUrl")!);
    const env = { ...process.env, DATABASE_URL: database.url, NODE_OPTIONS: "" };
    const { stdout, stderr } = await mustRun(path, ["app.js"], { cwd: folder, env });
    expect(JSON.parse(stdout)).toEqual({ got: ['{"n":1}'], same: true });
    expect(stderr).toBe("");
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
