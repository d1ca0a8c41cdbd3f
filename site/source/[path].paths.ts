import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { filesIn, isFolder, ROOT, sources } from "../lib/repository.ts";

/** A page for each file and folder of the repository that other pages link to. */
export default {
  paths: () =>
    sources().map((source) => {
      const path = isFolder(source) ? `${source}/index` : source;
      return { params: { path }, content: `# ${basename(source)}\n\n\`${source}\`\n\n${contentOf(source)}\n` };
    }),
};

function contentOf(source: string): string {
  if (isFolder(source)) return filesIn(source).map(listed).join("\n");
  // Without colours: there are more of these than of all other pages, and they would be most of the site.
  return `~~~~source\n${readFileSync(join(ROOT, source), "utf8")}~~~~`;
}

function listed(file: string): string {
  return `- [${basename(file)}](/source/${file}.md)`;
}
