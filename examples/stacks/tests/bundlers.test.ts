import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { createDatabase, mustRun } from "../../../test/harness/index.ts";
import { bin, NODE_22, NODE_24, stacks } from "./support/stacks.ts";

const entry = join(stacks, "bundled", "main.ts");
const DONE = { published: 1, payments: [{ order_id: "o-1", amount: 42 }], foreign: null, page: true };

interface Bundler {
  readonly name: string;
  /** What it makes, in the folder that it is given. */
  readonly file: string;
  build(out: string): readonly string[];
}

const BUNDLERS: readonly Bundler[] = [
  {
    name: "esbuild to ES modules",
    file: "main.mjs",
    build: (out) => [
      ...["esbuild", entry, "--bundle", "--platform=node", "--format=esm", `--outfile=${join(out, "main.mjs")}`],
      // pg is CommonJS and requires modules of Node.
      "--banner:js=import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);",
    ],
  },
  {
    name: "esbuild to CommonJS, minified",
    file: "main.cjs",
    build: (out) => [
      ...["esbuild", entry, "--bundle", "--minify", "--platform=node", "--format=cjs"],
      `--outfile=${join(out, "main.cjs")}`,
    ],
  },
  {
    name: "webpack",
    file: "main.cjs",
    build: (out) => ["webpack", "--config", join(stacks, "bundled", "webpack.config.cjs"), "--output-path", out],
  },
  {
    name: "tsup",
    file: "main.cjs",
    build: (out) => ["tsup", "--config", join(stacks, "bundled", "tsup.config.ts"), "--out-dir", out],
  },
  {
    name: "Vite SSR",
    file: "main.mjs",
    build: (out) => ["vite", "build", "--config", join(stacks, "bundled", "vite.config.ts"), "--outDir", out],
  },
];

describe("in a bundle that runs from an empty folder", () => {
  let folder: string;

  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "txbox-bundles-"));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  /** A folder with the output alone, and migrations of an application that are nobody's business. */
  async function build(name: string, command: readonly string[], built: string, file: string): Promise<string> {
    const [tool, ...args] = command;
    const options = { cwd: join(stacks, "bundled"), timeoutMs: 120_000 };
    // A program of its own; the others are scripts.
    if (tool === "esbuild") await mustRun(bin(tool), args, options);
    else await mustRun(process.execPath, [bin(tool!), ...args], options);
    const empty = join(folder, `run-${name}`);
    mkdirSync(join(empty, "migrations"), { recursive: true });
    cpSync(join(built, file), join(empty, file));
    writeFileSync(join(empty, "migrations", "0001_init.sql"), "create table public.foreign_table ();");
    writeFileSync(join(empty, "migrations", "0001-init.js"), "throw new Error('not ours');");
    return empty;
  }

  test.each(BUNDLERS)(
    "$name: migrates, enqueues, relays, handles and serves its page",
    async ({ name, file, build: of }) => {
      const out = join(folder, name);
      const empty = await build(name, of(out), out, file);
      for (const { path } of [NODE_22, NODE_24]) {
        await using database = await createDatabase(inject("postgresUrl")!);
        const env = { ...process.env, DATABASE_URL: database.url, NODE_PATH: "" };
        const { stdout } = await mustRun(path, [file], { cwd: empty, env });
        expect(JSON.parse(stdout)).toEqual(DONE);
      }
    },
  );

  test("a function in the shape of AWS Lambda enqueues, and drains within its time", async () => {
    const out = join(folder, "lambda");
    const source = join(stacks, "bundled", "lambda.ts");
    const args = [
      "esbuild",
      source,
      "--bundle",
      "--platform=node",
      "--format=cjs",
      `--outfile=${join(out, "lambda.cjs")}`,
    ];
    const empty = await build("lambda", args, out, "lambda.cjs");
    await using database = await createDatabase(inject("postgresUrl")!);
    // The runtime of a function: it calls the handlers of a module again and again, and ends it without a word.
    const runtime = `
      const { placeOrder, drain } = require("./lambda.cjs");
      const context = { getRemainingTimeInMillis: () => 10000 };
      (async () => {
        const told = [];
        for (let call = 1; call <= 3; call++) {
          told.push(await placeOrder({ orderId: "o-" + call }), await drain({}, context));
        }
        told.push(await drain({}, context));
        console.log(JSON.stringify(told));
        process.exit(0);
      })();`;
    const env = { ...process.env, DATABASE_URL: database.url };
    const migrate = [join(stacks, "node_modules", "txbox", "dist", "cli", "main.js"), "migrate"];
    await mustRun(NODE_24.path, migrate, { cwd: stacks, env });
    const { stdout } = await mustRun(NODE_22.path, ["-e", runtime], { cwd: empty, env });
    const call = (n: number) => [{ statusCode: 202 }, { published: 1, sent: [{ orderId: `o-${n}` }] }];
    expect(JSON.parse(stdout)).toEqual([...call(1), ...call(2), ...call(3), { published: 0, sent: [] }]);
  });
});
