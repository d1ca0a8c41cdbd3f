import { blocks, type Page } from "./markdown.ts";

/** A call of `txbox` in a page or a manifest. */
export interface CommandLine {
  /** Page and line. */
  readonly where: string;
  /** What follows `txbox`. */
  readonly argv: readonly string[];
}

const CALL = /^(?:npx txbox|txbox|.*node_modules\/\.bin\/txbox)(?= |$)/;

/** The calls in blocks of shell commands. */
export function commandLines(page: Page): CommandLine[] {
  return blocks(page)
    .filter(({ language }) => language === "sh")
    .flatMap(({ code, line }) =>
      code
        .replaceAll(/\\\n/g, " ")
        .split("\n")
        .flatMap((text, at) =>
          words(text).flatMap((call) => {
            const [found] = CALL.exec(call.join(" ")) ?? [];
            if (found === undefined) return [];
            return [{ where: `${page.path}:${line + at + 1}`, argv: call.slice(found.split(" ").length) }];
          }),
        ),
    );
}

/** The words of each command of a line, without its comment. Quotes and redirections as far as our pages use them. */
function words(line: string): string[][] {
  const calls: string[][] = [[]];
  for (const [token, quoted] of line.matchAll(/'([^']*)'|[^\s|&;>]+|[|&;>]+/g)) {
    if (token.startsWith("#")) break;
    if (/^[|&;>]/.test(token)) calls.push([]);
    else calls.at(-1)!.push(quoted ?? token);
  }
  return calls;
}
