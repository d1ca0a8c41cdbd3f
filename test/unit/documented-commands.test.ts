import { describe, expect, test } from "vitest";
import { COMMANDS } from "../../src/cli/commands/index.ts";
import { commandLines } from "../support/docs/command-lines.ts";
import { pages } from "../support/docs/markdown.ts";

const documented = pages().flatMap(commandLines);
const known = new Set([...COMMANDS.map(({ name }) => name), "help", "--version"]);

describe("calls of txbox in the docs", () => {
  test("are found", () => {
    expect(documented.map(({ argv }) => argv.join(" "))).toEqual(
      expect.arrayContaining(["migrate --dry-run", "relays pause webhooks", "status --watch", "demo"]),
    );
  });

  test("name commands that exist", () => {
    const unknown = documented.filter(({ argv: [first = ""] }) => !known.has(first));
    expect(unknown.map(({ where, argv }) => `${where}: txbox ${argv.join(" ")}`)).toEqual([]);
  });

  test.each(COMMANDS.map(({ name }) => [name] as const))(
    "%s: every flag is known, and has a value that fits",
    (name) => {
      const command = COMMANDS.find((candidate) => candidate.name === name)!;
      const refused = documented
        .filter(({ argv: [first] }) => first === name)
        .flatMap(({ where, argv }) => {
          try {
            command.parse(argv.slice(1));
            return [];
          } catch (error) {
            return [`${where}: txbox ${argv.join(" ")}: ${(error as Error).message}`];
          }
        });
      expect(refused).toEqual([]);
    },
  );
});
