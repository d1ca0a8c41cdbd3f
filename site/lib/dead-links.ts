import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";

interface BuiltPage {
  readonly ids: ReadonlySet<string>;
  readonly targets: readonly string[];
}

/** Links and sources in the built pages that lead to no file of the site, or to no element of a page. */
export function deadLinks(folder: string, base: string): string[] {
  const read = new Map<string, BuiltPage>();
  const built = (file: string): BuiltPage => {
    const known = read.get(file) ?? parse(readFileSync(file, "utf8"));
    read.set(file, known);
    return known;
  };
  return globSync("**/*.html", { cwd: folder })
    .sort()
    .flatMap((page) => {
      const from = join(folder, page);
      return built(from)
        .targets.filter((target) => !isAlive(target, from))
        .map((target) => `${page}: ${target}`);
    });

  function isAlive(target: string, from: string): boolean {
    if (/^[a-z]+:/i.test(target)) return true;
    const [path = "", hash = ""] = target.split("#");
    const file = path === "" ? from : fileOf(decodeURI(path.replace(/\?.*$/, "")), from);
    if (file === undefined) return false;
    return hash === "" || !file.endsWith(".html") || built(file).ids.has(decodeURIComponent(hash));
  }

  function fileOf(path: string, from: string): string | undefined {
    if (path.startsWith("/") && !path.startsWith(base)) return undefined;
    const file = path.startsWith("/") ? join(folder, path.slice(base.length)) : resolve(dirname(from), path);
    if (relative(folder, file).startsWith("..")) return undefined;
    const found = path.endsWith("/") || file === folder ? join(file, "index.html") : file;
    return existsSync(found) ? found : undefined;
  }
}

function parse(html: string): BuiltPage {
  const body = html.replaceAll(/<script\b[\s\S]*?<\/script>/g, "");
  const values = (attribute: string): string[] =>
    Array.from(body.matchAll(new RegExp(`<[^>]*\\s(?:${attribute})="([^"]*)"`, "g")), ([, value = ""]) => plain(value));
  return { ids: new Set(values("id")), targets: [...new Set([...values("href"), ...values("src")])] };
}

function plain(value: string): string {
  return value.replaceAll("&quot;", '"').replaceAll("&#39;", "'").replaceAll("&amp;", "&");
}
