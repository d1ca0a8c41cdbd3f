import { renderMermaidSVG } from "beautiful-mermaid";
import type { MarkdownRenderer } from "vitepress";

/** Colours are variables of the theme, so that a diagram follows the scheme of the page. */
const OPTIONS = {
  bg: "var(--vp-c-bg)",
  fg: "var(--vp-c-text-1)",
  line: "var(--vp-c-text-2)",
  muted: "var(--vp-c-text-2)",
  accent: "var(--vp-c-brand-1)",
  surface: "var(--vp-c-bg-soft)",
  border: "var(--vp-c-text-3)",
  font: "Inter",
  padding: 8,
  transparent: true,
};

/** What a screen reader says of the picture; GitHub reads it too. */
const TITLE = /^\s*accTitle:\s*(.+)\n/m;

/** Fences of mermaid become pictures when the site is built: nothing is drawn or fetched in the browser. */
export function diagrams(md: MarkdownRenderer): void {
  const fence = md.renderer.rules.fence!;
  md.renderer.rules.fence = (tokens, index, options, env, self) => {
    const { info, content } = tokens[index]!;
    if (info.trim() !== "mermaid") return fence(tokens, index, options, env, self);
    // The renderer asks for fonts of another site; the theme has its own.
    const drawn = renderMermaidSVG(content.replace(TITLE, ""), OPTIONS);
    const svg = drawn.replaceAll(/@import url\([^)]*\);/g, "");
    const label = TITLE.exec(content)?.[1];
    if (label === undefined) throw new Error(`${String(env.relativePath)}: a diagram needs a line accTitle: …`);
    // As a string: templates of Vue refuse the <style> of the picture.
    const html = md.utils.escapeHtml(JSON.stringify(svg));
    const name = md.utils.escapeHtml(label);
    return `<div class="diagram" role="img" aria-label="${name}" v-html="${html}"></div>\n`;
  };
}
