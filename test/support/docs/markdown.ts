import { globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root: string = fileURLToPath(new URL("../../..", import.meta.url));

export interface Page {
  /** Relative to the repository. */
  readonly path: string;
  readonly text: string;
}

export interface Block {
  readonly page: string;
  readonly line: number;
  readonly language: string;
  /** What follows the language: `ts continued`. */
  readonly mark: string;
  readonly code: string;
}

export interface Link {
  readonly page: string;
  readonly target: string;
  /** The file it points to, relative to the repository; undefined for the page itself. */
  readonly file: string | undefined;
  readonly anchor: string | undefined;
}

export function pages(): Page[] {
  const files = globSync(["*.md", "docs/**/*.md", "examples/**/*.md"], { cwd: root, exclude: ["**/node_modules"] });
  const paths = files.sort();
  return paths.map((path) => ({ path, text: readFileSync(join(root, path), "utf8") }));
}

export function page(path: string): Page {
  return { path, text: readFileSync(join(root, path), "utf8") };
}

/** Fenced blocks, also indented ones in lists. */
export function blocks({ path, text }: Page): Block[] {
  const found = text.matchAll(/^( *)```(\w+)([^\n`]*)\n([\s\S]*?)^\1```$/gm);
  return Array.from(found, ({ 1: indent = "", 2: language = "", 3: mark = "", 4: code = "", index }) => ({
    page: path,
    line: text.slice(0, index).split("\n").length,
    language,
    mark: mark.trim(),
    code: code.replaceAll(new RegExp(`^${indent}`, "gm"), ""),
  }));
}

/** Links to files of the repository and to headings. */
export function links({ path, text }: Page): Link[] {
  const prose = withoutCode(text);
  const found = Array.from(prose.matchAll(/\]\(([^()\s]+)\)/g), (match) => match[1] ?? "");
  return found
    .filter((target) => !/^[a-z]+:/.test(target))
    .map((target) => {
      const [file = "", anchor] = target.split("#");
      return { page: path, target, file: file === "" ? undefined : join(dirname(path), file), anchor };
    });
}

/** The anchors that GitHub makes of the headings. */
export function anchors({ text }: Page): Set<string> {
  const headings = Array.from(withoutCode(text).matchAll(/^#+ (.+)$/gm), (match) => match[1] ?? "");
  return new Set(
    headings.map((heading) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
        .replaceAll(" ", "-"),
    ),
  );
}

function withoutCode(text: string): string {
  return text.replaceAll(/^( *)```[\s\S]*?^\1```$/gm, "");
}
