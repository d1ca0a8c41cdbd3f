import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, inject, test } from "vitest";
import { createDatabase, mustRun } from "../../../test/harness/index.ts";
import { page } from "../../../test/support/docs/markdown.ts";
import { programs } from "../../../test/support/docs/snippets.ts";
import { bin, NODE_22, NODE_24, stacks } from "./support/stacks.ts";

interface Runtime {
  readonly runtime: string;
  readonly command: readonly string[];
}

const RUNTIMES: readonly Runtime[] = [
  { runtime: NODE_22.version, command: [NODE_22.path] },
  { runtime: NODE_24.version, command: [NODE_24.path] },
  { runtime: "Bun", command: [bin("bun"), "run"] },
  { runtime: "Deno", command: [bin("deno"), "run", "-A", "--node-modules-dir=manual", "--no-lock"] },
];

/** The programs of the pages that run by themselves on PostgreSQL, by the driver that they use. */
const PROGRAMS = [...programs(page("README.md")), ...programs(page("docs/getting-started.md"))].flatMap(
  ({ file, code }) => {
    const [, driver] = /from "(pg|postgres|@electric-sql\/pglite)"/.exec(code) ?? [];
    if (driver === undefined) return [];
    return [{ name: `${file.replace(/_\d+\.ts$/, "").replaceAll("_", "/")} with ${driver}`, code }];
  },
);

describe.each(RUNTIMES)("$runtime", ({ command }) => {
  let folder: string;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "txbox-runtime-"));
    writeFileSync(join(folder, "package.json"), JSON.stringify({ name: "shop", private: true, type: "module" }));
    const modules = join(folder, "node_modules");
    mkdirSync(join(modules, "@electric-sql"), { recursive: true });
    cpSync(join(stacks, "node_modules", "txbox"), join(modules, "txbox"), { recursive: true });
    for (const name of readdirSync(join(stacks, "node_modules"))) {
      if (!/^(pg|postgres|split2|xtend|pgpass)/.test(name)) continue;
      symlinkSync(join(stacks, "node_modules", name), join(modules, name));
    }
    symlinkSync(join(stacks, "node_modules", "@electric-sql", "pglite"), join(modules, "@electric-sql", "pglite"));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  test.each(PROGRAMS)("runs $name", async ({ code }) => {
    await using database = await createDatabase(inject("postgresUrl")!);
    writeFileSync(join(folder, "app.ts"), code);
    const env = { ...process.env, DATABASE_URL: database.url, NO_COLOR: "1", NODE_OPTIONS: "" };
    const [file, ...args] = command;
    const { stdout } = await mustRun(file!, [...args, "app.ts"], { cwd: folder, env, timeoutMs: 120_000 });
    if (/from "(?:pg|postgres)"/.test(code)) {
      const client = new pg.Client({ connectionString: database.url });
      await client.connect();
      const { rows } = await client.query("select stream, type from txbox.message");
      await client.end();
      expect(rows).toEqual(Array.from({ length: 2 }, () => ({ stream: "orders", type: "order_created" })));
      expect(stdout.match(/published/g)).toHaveLength(2);
    } else expect(stdout).toMatch(/o-1/);
  });
});
