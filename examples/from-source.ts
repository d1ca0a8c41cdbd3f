import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";

/**
 * Lets the examples import "txbox" and "txbox/…" as an installed package would be imported, and run the sources of this
 * repository: `node --import ./examples/from-source.ts …`. Not needed where txbox is installed from npm.
 */
const root = new URL("../", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL("package.json", root), "utf8")) as {
  exports: Record<string, { default: string } | string>;
};

function sourceOf(specifier: string): string {
  if (specifier !== "txbox" && !specifier.startsWith("txbox/")) return specifier;
  const target = manifest.exports[`.${specifier.slice("txbox".length)}`];
  if (typeof target !== "object") return specifier;
  return new URL(target.default.replace("./dist/", "src/").replace(/\.js$/, ".ts"), root).href;
}

registerHooks({ resolve: (specifier, context, next) => next(sourceOf(specifier), context) });
