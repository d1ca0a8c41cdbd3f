import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runCommand } from "../../harness/index.ts";
import { manifest } from "../../package/packed-package.ts";
import { type Block, blocks, type Page, root } from "./markdown.ts";

export interface Program {
  /** Such as `docs_relay.md_7.ts`: the page and the line where it begins. */
  readonly file: string;
  readonly code: string;
}

/**
 * The programs of a page. A `ts` block is a whole program; `ts continued` goes on with the one before it; `ts fragment`
 * is not meant to compile.
 */
export function programs(page: Page): Program[] {
  const found: { first: Block; code: string }[] = [];
  for (const block of blocks(page)) {
    if (block.language !== "ts" || block.mark === "fragment") continue;
    const last = found.at(-1);
    if (block.mark === "continued" && last !== undefined) last.code += `\n${block.code}`;
    else if (block.mark === "") found.push({ first: block, code: block.code });
    else throw new Error(`${block.page}:${block.line}: there is no mark "${block.mark}"`);
  }
  return found.map(({ first, code }) => ({ file: `${first.page.replaceAll("/", "_")}_${first.line}.ts`, code }));
}

/** What the compiler says about them, in a strict project that has the sources in the place of the package. */
export async function compile(all: readonly Program[]): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "txbox-docs-"));
  try {
    symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
    writeFileSync(join(folder, "package.json"), JSON.stringify({ private: true, type: "module" }));
    for (const { file, code } of all) writeFileSync(join(folder, file), code);
    const config = {
      extends: join(root, "tsconfig.json"),
      compilerOptions: { paths: sources(), typeRoots: [join(root, "node_modules", "@types")], noUnusedLocals: false },
      include: ["*.ts"],
    };
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(config));
    const tsc = join(root, "node_modules", "typescript", "bin", "tsc");
    const { stdout, stderr } = await runCommand(process.execPath, [tsc, "-p", folder], { timeoutMs: 60_000 });
    return (stdout + stderr).trim();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function sources(): Record<string, string[]> {
  const paths: Record<string, string[]> = {};
  for (const [subpath, target] of Object.entries(manifest.exports)) {
    if (typeof target === "string") continue;
    const source = target.default.replace("./dist/", "src/").replace(/\.js$/, ".ts");
    paths[join(manifest.name, subpath)] = [join(root, source)];
  }
  return paths;
}
