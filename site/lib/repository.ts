import { existsSync, globSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT: string = fileURLToPath(new URL("../..", import.meta.url));

const IMAGE = /\.(?:webp|png|svg)$/;
/** Markdown that becomes pages, relative to the repository. */
const PAGES = ["docs/**/*.md", "examples/**/README.md", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"];

export const pages: ReadonlySet<string> = new Set(globSync(PAGES, { cwd: ROOT, exclude: ["**/node_modules/**"] }));

/** Where a page of the repository is on the site. */
export function placeOf(page: string): string {
  if (/^[A-Z]+\.md$/.test(page)) return page.toLowerCase();
  if (page.startsWith("site/")) return page.slice("site/".length);
  return page.replace(/^docs\//, "").replace(/(^|\/)README\.md$/, "$1index.md");
}

export interface FoundLink {
  /** Relative to the repository. */
  readonly file: string;
  readonly hash: string;
}

/** What a link of a page leads to; undefined for other sites, for headings of the page itself, and for what is not there. */
export function follow(page: string, target: string): FoundLink | undefined {
  if (/^(?:[a-z]+:|#|\/)/i.test(target)) return undefined;
  const [path = "", anchor] = target.split("#");
  const file = relative(ROOT, join(ROOT, dirname(page), decodeURI(path)));
  if (file.startsWith("..") || !existsSync(join(ROOT, file))) return undefined;
  const hash = anchor === undefined ? "" : `#${anchor}`;
  const readme = join(file, "README.md");
  return { file: pages.has(readme) ? readme : file, hash };
}

/** Where a file or folder of the repository is on the site: a page, an image, or a page that shows it as it is. */
export function addressOf(file: string): string {
  if (pages.has(file) || IMAGE.test(file)) return `/${placeOf(file)}`;
  return isFolder(file) ? `/source/${file}/index.md` : `/source/${file}.md`;
}

/** What pages link to and is no page itself, such as tests and examples; of folders also the files in them. */
export function sources(): string[] {
  const linked = [...pages].flatMap((page) => {
    const links = readFileSync(join(ROOT, page), "utf8").matchAll(/\]\(([^()\s]+)\)/g);
    return Array.from(links, ([, target = ""]) => follow(page, target)?.file ?? []).flat();
  });
  const found = linked.filter((file) => !pages.has(file) && !IMAGE.test(file));
  return [...new Set(found.flatMap((file) => (isFolder(file) ? [file, ...filesIn(file)] : [file])))].sort();
}

export function isFolder(file: string): boolean {
  return statSync(join(ROOT, file)).isDirectory();
}

export function filesIn(folder: string): string[] {
  const entries = readdirSync(join(ROOT, folder), { withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map(({ name }) => `${folder}/${name}`);
}
