import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./markdown.ts";

export interface Manifest {
  /** File and number of the document in it. */
  readonly where: string;
  readonly text: string;
}

export const manifestFiles: readonly string[] = globSync("examples/kubernetes/*.yaml", { cwd: root }).sort();

/** The documents of all files. */
export function manifests(): Manifest[] {
  return manifestFiles.flatMap((file) =>
    readFileSync(join(root, file), "utf8")
      .split(/^---$/m)
      .map((text, i) => ({ where: `${file} (${i + 1})`, text })),
  );
}

/** The value of a field that fits into its line, at any depth, as text. */
export function field({ text }: Manifest, name: string): string | undefined {
  return new RegExp(`^ *(?:- )?${name}: (.+)$`, "m").exec(text)?.[1];
}

/** The lists of `args`: our manifests write them as JSON, which is YAML too. */
export function argsOf({ text }: Manifest): string[][] {
  return Array.from(text.matchAll(/^ *args:(.*)$/gm), ([, list = ""]) => JSON.parse(list) as string[]);
}
