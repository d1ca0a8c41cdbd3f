import { existsSync, globSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { publint } from "publint";
import { formatMessage } from "publint/utils";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { bins, entryPoints, packPackage, type PackedPackage, root } from "./packed-package.ts";

/** An application in one file, as bundlers make it. */
const BUNDLED = `
import { PGlite } from "@electric-sql/pglite";
import { createOutbox, createRelay, publishEach } from "txbox";
import { createAdmin } from "txbox/admin";
import { createPostgresStore } from "txbox/postgres";

const db = new PGlite();
const store = createPostgresStore({ client: db });
await store.migrator.migrate();
const foreign = await db.query("select to_regclass('public.foreign_table') as found");
await db.transaction((tx) => createOutbox({ store }).enqueue(tx, { stream: "s", type: "t", key: "k", payload: { n: 1 } }));
const got = [];
await createRelay({ store, name: "r", publisher: publishEach(async ({ body }) => void got.push(body)) }).drainOnce();
const admin = createAdmin({ stores: { shop: store } });
const page = async (path) => (await admin(new Request("http://localhost/" + path), { remoteAddress: "127.0.0.1" })).text();
const html = await page("");
const files = await Promise.all(html.match(/page-[0-9a-f]{12}\\.(?:js|css)/g).map(page));
const { verdict } = JSON.parse(await page("api/overview"));
await db.close();
console.log(JSON.stringify({ foreign: foreign.rows[0].found, got, files: files.map((file) => file.length > 5000), verdict: verdict.level }));
`;

describe("the packed tarball", () => {
  let packed: PackedPackage;

  beforeAll(async () => {
    packed = await packPackage();
  }, 240_000);
  afterAll(() => packed?.remove());

  test.each(entryPoints)("$specifier has code and types", ({ file, types }) => {
    expect(existsSync(join(packed.installed, file)), file).toBe(true);
    expect(existsSync(join(packed.installed, types)), types).toBe(true);
  });

  test("every store, every broker, everything to observe with, the adapter kit, the page, config and testing are exported", () => {
    const folders = "{stores,brokers,observability,frameworks}/*/index,{adapter,admin,config,testing}/index";
    const sources = globSync(`src/{index,${folders}}.ts`, { cwd: root });
    expect(entryPoints.map(({ source }) => source)).toEqual(expect.arrayContaining(sources));
  });

  test("carries the licence and the changelog, no tests, and no SQL beside the code", () => {
    const files = globSync("**/*", { cwd: packed.installed });
    expect(files).toEqual(
      expect.arrayContaining(["LICENSE", "CHANGELOG.md", "package.json", "ops/prometheus-rules.yaml"]),
    );
    expect(files.filter((file) => /\.test\.|tsbuildinfo|^test|\.sql$/.test(file))).toEqual([]);
  });

  test("compiled imports name .js files that exist", () => {
    const dist = join(packed.installed, "dist");
    const broken = globSync("**/*.js", { cwd: dist }).flatMap((file) => {
      const code = readFileSync(join(dist, file), "utf8");
      const imports = [...code.matchAll(/(?:from|import\()\s*"(\.[^"]+)"/g)].map((match) => match[1] ?? "");
      return imports
        .filter((path) => !path.endsWith(".js") || !existsSync(join(dist, dirname(file), path)))
        .map((path) => `${file}: ${path}`);
    });
    expect(broken).toEqual([]);
  });

  test.each(entryPoints)("$specifier can be imported", async ({ specifier }) => {
    const script = `const m = await import(${JSON.stringify(specifier)}); console.log(Object.keys(m).length)`;
    expect(Number(await packed.run("node", ["--input-type=module", "-e", script]))).toBeGreaterThan(0);
  });

  test.each(["nodenext", "bundler"])("type-checks in a strict project, module resolution %s", async (resolution) => {
    const lines = entryPoints.map(({ specifier }, i) => `import * as m${i} from "${specifier}";`);
    const names = entryPoints.map((_, i) => `m${i}`).join(", ");
    lines.push(`export const names: string[] = [${names}].flatMap((m) => Object.keys(m));`);
    writeFileSync(join(packed.consumer, "consumer.ts"), lines.join("\n"));
    const options = {
      target: "es2024",
      lib: ["es2024", "esnext.disposable"],
      module: resolution === "nodenext" ? "nodenext" : "esnext",
      moduleResolution: resolution,
      strict: true,
      exactOptionalPropertyTypes: true,
      noUncheckedIndexedAccess: true,
      // Declarations that lean on a driver's types do not survive this: no driver is installed here.
      skipLibCheck: false,
      noEmit: true,
      types: ["node"],
      typeRoots: [join(root, "node_modules", "@types")],
    };
    writeFileSync(
      join(packed.consumer, "tsconfig.json"),
      JSON.stringify({ compilerOptions: options, files: ["consumer.ts"] }),
    );
    await packed.run("tsc", ["-p", "."]);
  });

  test("the README's example type-checks under strict and runs", async () => {
    const example = /```ts\n([\s\S]*?)```/.exec(readFileSync(join(root, "README.md"), "utf8"))?.[1];
    writeFileSync(join(packed.consumer, "readme.ts"), example ?? "");
    const scope = join(packed.consumer, "node_modules", "@electric-sql");
    mkdirSync(scope, { recursive: true });
    symlinkSync(join(root, "node_modules", "@electric-sql", "pglite"), join(scope, "pglite"));
    const options = {
      strict: true,
      noEmit: true,
      target: "es2024",
      module: "nodenext",
      skipLibCheck: true,
      types: ["node"],
      typeRoots: [join(root, "node_modules", "@types")],
    };
    writeFileSync(
      join(packed.consumer, "tsconfig.readme.json"),
      JSON.stringify({ compilerOptions: options, files: ["readme.ts"] }),
    );
    await packed.run("tsc", ["-p", "tsconfig.readme.json"]);
    expect(await packed.run("node", ["readme.ts"])).toContain("order_id: 'o-1'");
  });

  test.each(bins)("npx $name --help prints its usage", async ({ name }) => {
    expect(await packed.run("npx", ["--no-install", name, "--help"])).toMatch(/usage/i);
  });

  test("satisfies publint", async () => {
    const { messages, pkg } = await publint({ pkgDir: packed.installed, pack: false, strict: true });
    expect(messages.map((message) => formatMessage(message, pkg, { color: false }))).toEqual([]);
  });

  test("satisfies attw", async () => {
    await packed.run("attw", [
      packed.tarball,
      "--profile",
      "esm-only",
      "--no-emoji",
      "--exclude-entrypoints",
      "./package.json",
    ]);
  });

  test("in a bundle, runs its own migrations and serves its own page, not the files that lie beside it", async () => {
    const out = join(packed.consumer, "bundled");
    mkdirSync(join(out, "migrations"), { recursive: true });
    mkdirSync(join(packed.consumer, "node_modules", "@electric-sql"), { recursive: true });
    const pglite = join("node_modules", "@electric-sql", "pglite");
    if (!existsSync(join(packed.consumer, pglite))) symlinkSync(join(root, pglite), join(packed.consumer, pglite));
    writeFileSync(join(out, "migrations", "0001_init.sql"), "create table public.foreign_table ();");
    writeFileSync(join(packed.consumer, "program.mjs"), BUNDLED);
    const file = join(out, "program.mjs");
    const how = ["--format", "esm", "--platform", "node", "--external", "@electric-sql/pglite"];
    await packed.run("rolldown", ["program.mjs", "--file", file, ...how]);
    const printed = JSON.parse((await packed.run("node", [file])).trim().split("\n").at(-1)!) as unknown;
    expect(printed).toEqual({ foreign: null, got: ['{"n":1}'], files: [true, true], verdict: "good" });
  });
});
