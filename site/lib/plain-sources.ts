import type { MarkdownRenderer } from "vitepress";

/** Fences of "source": a whole file, without colours. */
export function plainSources(md: MarkdownRenderer): void {
  const fence = md.renderer.rules.fence!;
  md.renderer.rules.fence = (tokens, index, options, env, self) => {
    const { info, content } = tokens[index]!;
    if (info !== "source") return fence(tokens, index, options, env, self);
    return `<pre class="source" v-pre tabindex="0"><code>${md.utils.escapeHtml(content)}</code></pre>\n`;
  };
}
