import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "rolldown";
import type { PageBundle, PageFile } from "../src/admin/page-bundle.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const folder = join(root, "src", "admin", "page");

/** Code and style of the page, bundled and compressed. */
export async function buildPage(): Promise<PageBundle> {
  const { output } = await build({
    input: join(folder, "main.tsx"),
    cwd: root,
    platform: "browser",
    tsconfig: join(folder, "tsconfig.json"),
    transform: { target: "es2022" },
    output: { format: "esm", minify: true, codeSplitting: false, comments: false },
    write: false,
    logLevel: "warn",
  });
  const code = output[0].code;
  const plot = readFileSync(join(root, "node_modules", "uplot", "dist", "uPlot.min.css"), "utf8");
  const style = plot + minified(readFileSync(join(folder, "page.css"), "utf8"));
  return {
    script: fileOf("page", "js", "text/javascript; charset=utf-8", code),
    style: fileOf("page", "css", "text/css; charset=utf-8", style),
  };
}

/** Puts a module with the finished bytes in the place of the one that builds them. */
export async function writePageModule(file: string): Promise<void> {
  const { script, style } = await buildPage();
  const literal = ({ name, type, gzip }: PageFile): string =>
    `{ name: ${JSON.stringify(name)}, type: ${JSON.stringify(type)}, gzip: Buffer.from("${Buffer.from(gzip).toString("base64")}", "base64") }`;
  const text = `/** Made by npm run build: code and style of the page, compressed. */
const bundle = {
  script: ${literal(script)},
  style: ${literal(style)},
};
export async function pageBundle() {
  return bundle;
}
`;
  writeFileSync(file, text);
}

function fileOf(name: string, ending: string, type: string, text: string): PageFile {
  const hash = createHash("sha256").update(text).digest("hex").slice(0, 12);
  return { name: `${name}-${hash}.${ending}`, type, gzip: gzipSync(text, { level: 9 }) };
}

/** Comments and the blanks of indentation; strings of this file have neither. */
function minified(css: string): string {
  return css
    .replaceAll(/\/\*[^]*?\*\//g, "")
    .replaceAll(/\s+/g, " ")
    .replaceAll(/ ?([{};,]) ?/g, "$1");
}
