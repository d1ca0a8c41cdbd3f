import { cpSync, globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { mustRun } from "../harness/index.ts";

export const root: string = fileURLToPath(new URL("../..", import.meta.url));

export interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly bin: Record<string, string>;
  readonly exports: Record<string, { types: string; default: string } | string>;
}

export interface EntryPoint {
  /** As written in `exports`, such as "./postgres". */
  readonly subpath: string;
  /** As imported, such as "txbox/postgres". */
  readonly specifier: string;
  readonly types: string;
  readonly file: string;
  readonly source: string;
}

/** A project that has installed the packed tarball, and nothing else. */
export interface PackedPackage {
  readonly tarball: string;
  readonly consumer: string;
  /** The installed package: consumer/node_modules/txbox. */
  readonly installed: string;
  /** Runs a tool in the consumer's folder, with this process's Node and the repository's tools on PATH. */
  run(command: string, args: readonly string[]): Promise<string>;
  remove(): void;
}

export const manifest: Manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as Manifest;

export const entryPoints: readonly EntryPoint[] = Object.entries(manifest.exports).flatMap(([subpath, target]) => {
  if (typeof target === "string") return [];
  const source = target.default.replace("./dist/", "src/").replace(/\.js$/, ".ts");
  const specifier = join(manifest.name, subpath);
  return [{ subpath, specifier, types: target.types, file: target.default, source }];
});

export const bins: readonly { name: string; file: string }[] = Object.entries(manifest.bin).map(([name, file]) => ({
  name,
  file,
}));

/** Builds and packs a copy of the sources, so that suites that use dist/ at the same time do not see it vanish. */
export async function packPackage(): Promise<PackedPackage> {
  const folder = mkdtempSync(join(tmpdir(), "txbox-package-"));
  const remove = (): void => rmSync(folder, { recursive: true, force: true });
  try {
    const tarball = await buildAndPack(join(folder, "checkout"));
    const consumer = join(folder, "consumer");
    mkdirSync(consumer);
    writeFileSync(join(consumer, "package.json"), JSON.stringify({ name: "consumer", private: true, type: "module" }));
    const run = async (command: string, args: readonly string[]): Promise<string> =>
      (await mustRun(command, args, { cwd: consumer, env: toolEnv(), timeoutMs: 120_000 })).stdout;
    // Offline on purpose: the package has no dependencies, and its peers are optional.
    await run("npm", ["install", "--offline", "--no-audit", "--no-fund", tarball]);
    return { tarball, consumer, installed: join(consumer, "node_modules", manifest.name), run, remove };
  } catch (error) {
    remove();
    throw error;
  }
}

async function buildAndPack(checkout: string): Promise<string> {
  mkdirSync(checkout);
  const names = [
    "src",
    "scripts",
    "ops",
    ...globSync(["package.json", "tsconfig*.json", "*.md", "LICENSE"], { cwd: root }),
  ];
  for (const name of names) cpSync(join(root, name), join(checkout, name), { recursive: true });
  symlinkSync(join(root, "node_modules"), join(checkout, "node_modules"));
  const options = { cwd: checkout, env: toolEnv(), timeoutMs: 120_000 };
  await mustRun("npm", ["run", "build"], options);
  const { stdout } = await mustRun("npm", ["pack", "--json", "--ignore-scripts"], options);
  return join(checkout, tarballName(stdout));
}

// npm 11 prints an array, and may print an object by package name; both name the file.
function tarballName(json: string): string {
  const name = /"filename":\s*"([^"]+)"/.exec(json)?.[1];
  if (name === undefined) throw new Error(`npm pack named no file:\n${json}`);
  return name;
}

function toolEnv(): NodeJS.ProcessEnv {
  const path = [dirname(process.execPath), join(root, "node_modules", ".bin"), process.env["PATH"] ?? ""];
  // npm passes its own settings to its children as npm_*; an npm started below must read its own folder instead.
  const entries = Object.entries(process.env).filter(([name]) => !/^npm_(config|package|lifecycle)_/i.test(name));
  return { ...Object.fromEntries(entries), PATH: path.join(delimiter), NODE_ENV: "production" };
}
