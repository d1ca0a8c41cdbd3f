import { defineConfig } from "vitepress";
import { deadLinks } from "../lib/dead-links.ts";
import { diagrams } from "../lib/diagrams.ts";
import { githubSlug } from "../lib/github-slug.ts";
import { placeOf } from "../lib/repository.ts";
import { repositoryLinks } from "../lib/repository-links.ts";
import { sidebar } from "../lib/sidebar.ts";

const TAGLINE = "Messages that leave if and only if their transaction committed, and take effect once.";

export default defineConfig({
  lang: "en",
  title: "txbox",
  description: "Transactional outbox and inbox for TypeScript. " + TAGLINE,
  // The pages stay where GitHub shows them: docs/, and the READMEs of the repository.
  srcDir: "..",
  srcExclude: [
    "{bench,ops,scripts,src,test}/**",
    ".*/**",
    "site/!(source)/**",
    "site/*.md",
    "examples/**/!(README).md",
    "!(README|CHANGELOG|CONTRIBUTING).md",
  ],
  rewrites: (page) => placeOf(page),
  head: [["link", { rel: "icon", href: "data:," }]],
  markdown: {
    attrs: { disable: true },
    anchor: { slugify: githubSlug },
    theme: { light: "github-light-high-contrast", dark: "github-dark-high-contrast" },
    config(md) {
      md.use(repositoryLinks).use(diagrams);
    },
  },
  themeConfig: {
    nav: [
      { text: "Getting started", link: "/getting-started" },
      { text: "Guarantees", link: "/guarantees" },
      { text: "Playbook", link: "/playbook" },
      { text: "Changelog", link: "/changelog" },
    ],
    sidebar: sidebar(),
    outline: { level: [2, 3], label: "On this page" },
    search: { provider: "local" },
    docFooter: { prev: "Before", next: "Next" },
  },
  transformPageData(page) {
    if (page.relativePath !== "index.md") return;
    const action = (text: string, link: string, theme: "brand" | "alt") => ({ text, link, theme });
    page.title = "txbox";
    page.frontmatter["layout"] = "home";
    page.frontmatter["hero"] = {
      name: "txbox",
      text: "Transactional outbox and inbox for TypeScript",
      tagline: TAGLINE,
      actions: [
        action("Getting started", "/getting-started", "brand"),
        action("Why an outbox", "/why", "alt"),
        action("Guarantees", "/guarantees", "alt"),
      ],
    };
  },
  buildEnd({ outDir, site }) {
    const dead = deadLinks(outDir, site.base);
    if (dead.length > 0) throw new Error(`${dead.length} dead links:\n${dead.join("\n")}`);
  },
  vite: {
    // Pages of other parts of the repository are none of this site.
    optimizeDeps: { entries: [] },
    build: { chunkSizeWarningLimit: 2000 },
    plugins: [
      {
        // Pages lie outside of this folder, where Vite does not find it.
        name: "vue-of-this-folder",
        enforce: "pre",
        resolveId: (id, _, { ssr }) => (ssr === true && /^vue(?:\/|$)/.test(id) ? { id, external: true } : undefined),
      },
    ],
  },
});
