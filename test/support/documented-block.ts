import { blocks, page } from "./docs/markdown.ts";

/** The only block of a page in this language that has a text in it. */
export function documentedBlock(path: string, language: string, text: string): string {
  const found = blocks(page(path)).filter((block) => block.language === language && block.code.includes(text));
  if (found.length !== 1) throw new Error(`${path} has ${found.length} blocks of ${language} with ${text}`);
  return found[0]!.code;
}
