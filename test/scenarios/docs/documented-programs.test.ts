import { afterAll, describe, expect, test } from "vitest";
import { serverOrSkip, startMongodb } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import { blocks, page } from "../../support/docs/markdown.ts";
import { programsOf, runProgram } from "../../support/docs/run-program.ts";
import { mongoDatabase } from "../../support/mongodb-database.ts";

const START = "docs/getting-started.md";
const mongodb = await serverOrSkip("MongoDB", startMongodb);
afterAll(() => mongodb.stop());

/** What the page shows of the output, in blocks without a language. */
function shown(path: string): string {
  const output = /^```\n(┌[\s\S]*?)^```$/m.exec(page(path).text)?.[1];
  if (output === undefined) throw new Error(`${path} shows no output`);
  return output;
}

function programWith(text: string): string {
  const found = programsOf(START).filter((code) => code.includes(text) && !code.includes("declare const"));
  expect(found).toHaveLength(1);
  return found[0]!;
}

/** Rows of tables without what is drawn by chance or by the driver: order ids and positions in order of appearance, plain numbers. */
function rows(output: string): string[][] {
  const ids: string[] = [];
  const positions: string[] = [];
  return output
    .split("\n")
    .filter((line) => line.startsWith("│"))
    .map((line) =>
      line
        .split("│")
        .slice(1, -1)
        .map((cell) => cell.trim())
        .map((cell) => {
          if (/^'(?:o-\d|[\da-f-]{36})'$/.test(cell)) return `order ${numberOf(cell, ids)}`;
          if (/^\d{12,}n$/.test(cell)) return String(numberOf(cell, positions)); // MongoDB
          return /^'?\d+'?n?$/.test(cell) ? cell.replaceAll(/['n]/g, "") : cell;
        }),
    );
}

function numberOf(value: string, seen: string[]): number {
  if (!seen.includes(value)) seen.push(value);
  return seen.indexOf(value) + 1;
}

describe("getting started", () => {
  const expected = rows(shown(START));

  test("shows two payments and two messages", () => {
    expect(expected).toHaveLength(6);
    expect(expected[1]).toEqual(["0", "order 1", "42"]);
  });

  test("with PGlite it prints what the page shows", async () => {
    const { stdout, stderr, code } = await runProgram(programWith("new PGlite()"));
    expect(code, stderr).toBe(0);
    expect(stdout).toBe(shown(START));
  });

  test.skipIf(!hasPostgres()).each(["new pg.Pool", "= postgres("])(
    "with %s it ends the same way, again and again",
    async (driver) => {
      await using database = await testDatabase();
      const program = programWith(driver);
      const first = await runProgram(program, { env: { DATABASE_URL: database.url } });
      expect(first.code, first.stderr).toBe(0);
      expect(rows(first.stdout)).toEqual(expected);
      const second = await runProgram(program, { env: { DATABASE_URL: database.url } });
      expect(second.code, second.stderr).toBe(0);
      expect(rows(second.stdout)).toHaveLength(expected.length + 4);
    },
  );

  test.skipIf(mongodb.skipped)("with MongoDB it ends the same way", async () => {
    await using database = await mongoDatabase(mongodb.server.url);
    const { stdout, stderr, code } = await runProgram(programWith("new MongoClient("), {
      env: { MONGODB_URL: database.url },
    });
    expect(code, stderr).toBe(0);
    expect(rows(stdout)).toEqual(expected);
  });
});

test("the saga ends as its page shows", async () => {
  const [program = ""] = programsOf("docs/sagas.md");
  const { stdout, stderr, code } = await runProgram(program);
  expect(code, stderr).toBe(0);
  expect(stdout).toBe(shown("docs/sagas.md"));
});

test("the tests of the page on testing pass", async () => {
  const [program = ""] = programsOf("docs/testing.md");
  const tests = blocks(page("docs/testing.md")).flatMap(({ code }) => code.match(/^test\(/gm) ?? []).length;
  expect(tests).toBeGreaterThan(4);
  const { stdout, code } = await runProgram(program, { nodeArgs: ["--test", "--test-reporter=tap"] });
  expect(code, stdout).toBe(0);
  expect(stdout).toContain(`# pass ${tests}\n`);
});
