import { defineConfig } from "vitepress";
import { deadLinks } from "../lib/dead-links.ts";
import { diagrams } from "../lib/diagrams.ts";
import { githubSlug } from "../lib/github-slug.ts";
import { plainSources } from "../lib/plain-sources.ts";
import { placeOf } from "../lib/repository.ts";
import { repositoryLinks } from "../lib/repository-links.ts";
import { sidebar } from "../lib/sidebar.ts";

const TAGLINE = "Messages that leave if and only if their transaction committed, and take effect once.";

const FEATURES = [
  {
    title: "In your own transaction",
    details: "The message and your rows are written together, or not at all.",
    link: "/outbox",
  },
  {
    title: "Nothing skipped, in order",
    details: "Whatever order transactions commit in, and with any number of relays.",
    link: "/guarantees",
  },
  {
    title: "Effects that happen once",
    details: "The inbox writes a receipt in the transaction of the handler.",
    link: "/inbox",
  },
  {
    title: "Outages cost nothing",
    details: "Messages wait. What can never work is put aside and can be brought back.",
    link: "/relay",
  },
  {
    title: "Your database, your ORM",
    details: "PostgreSQL, PGlite and MongoDB, through the client that you have.",
    link: "/orms",
  },
  { title: "For those on call", details: "A page, commands, metrics, alerts, and a playbook.", link: "/playbook" },
];

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
      md.use(repositoryLinks).use(diagrams).use(plainSources);
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
    search: {
      provider: "local",
      options: {
        miniSearch: {
          // All words of a search; misspelt ones if they are long, so that "of" is not found in "often".
          searchOptions: {
            combineWith: "AND",
            fuzzy: (term: string) => (term.length > 4 ? 0.2 : false),
            prefix: (term: string) => term.length > 2,
          },
        },
      },
    },
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
    page.frontmatter["features"] = FEATURES;
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
