import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { DefaultTheme } from "vitepress";
import { follow, placeOf, ROOT } from "./repository.ts";

const INDEX = "docs/index.md";

/** The sections of the index and the pages in their tables, in the order of the index. */
export function sidebar(): DefaultTheme.SidebarItem[] {
  const [, ...sections] = readFileSync(join(ROOT, INDEX), "utf8").split(/^## /m);
  return sections.map((section) => {
    const [text = "", ...lines] = section.split("\n");
    const cells = lines.filter((line) => line.startsWith("| [")).map((line) => line.split("|")[1] ?? "");
    const items = cells.flatMap((cell) =>
      Array.from(cell.matchAll(/\[([^\]]+)\]\(([^)]+)\)/g), ([, title = "", target = ""]) => {
        const found = follow(INDEX, target);
        if (found === undefined) throw new Error(`${INDEX}: ${target} is not there`);
        return {
          text: title,
          link: `/${placeOf(found.file)
            .replace(/\.md$/, "")
            .replace(/(^|\/)index$/, "$1")}`,
        };
      }),
    );
    return { text, items };
  });
}
