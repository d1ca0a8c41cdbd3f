import { relative } from "node:path";
import type { MarkdownRenderer } from "vitepress";
import { addressOf, follow, ROOT } from "./repository.ts";

/** Pages link to each other and to sources as files of the repository: the links that GitHub follows lead to pages here. */
export function repositoryLinks(md: MarkdownRenderer): void {
  md.core.ruler.push("repository_links", (state) => {
    const page = relative(ROOT, String(state.env.realPath ?? state.env.path));
    for (const token of state.tokens.flatMap(({ children }) => children ?? [])) {
      const target = token.type === "link_open" ? token.attrGet("href") : null;
      const found = target === null ? undefined : follow(page, target);
      if (found === undefined) continue;
      token.attrSet("href", addressOf(found.file) + found.hash);
    }
  });
}
