import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { root } from "../support/docs/markdown.ts";
import { compile } from "../support/docs/snippets.ts";

const files = globSync("*.test-d.ts", { cwd: join(root, "test/types") });
const EXPECTED_ERROR = /^\s*\/\/ @ts-expect-error.*$/gm;

function program(file: string) {
  const code = readFileSync(join(root, "test/types", file), "utf8");
  return { file: file.replace("-d.ts", ".ts"), code: code.replaceAll("../../src/", join(root, "src/")) };
}

test("there are promises about types", () => {
  expect(files).not.toEqual([]);
});

test.each(files)("%s holds", async (file) => {
  expect(await compile([program(file)])).toBe("");
});

test.each(files)("%s: what must not compile is what the compiler refuses", async (file) => {
  const { file: name, code } = program(file);
  const expected = code.match(EXPECTED_ERROR)?.length ?? 0;
  expect(expected).toBeGreaterThan(0);
  const said = await compile([{ file: name, code: code.replaceAll(EXPECTED_ERROR, "") }]);
  const lines = new Set(Array.from(said.matchAll(/^[^\s(]+\((\d+),\d+\): error TS/gm), (match) => match[1]));
  expect(lines.size).toBe(expected);
});

describe("what the compiler says of a wrong payload", () => {
  const head = `
import { z } from "zod";
import { createOutbox, defineEvents } from "../../src/index.ts";
import { createPostgresStore } from "../../src/stores/postgres/index.ts";
declare const store: ReturnType<typeof createPostgresStore>;
declare const tx: import("pg").PoolClient;
interface Plain { created: { id: string; total: number }; paid: { paidAt: string }; sent: { carrier: string } }
const plain = createOutbox<Plain>({ store });
const events = defineEvents({
  created: { stream: "s", schema: z.object({ id: z.string(), total: z.number() }) },
  paid: { stream: "s", schema: z.object({ paidAt: z.string() }) },
  sent: { stream: "s", schema: z.object({ carrier: z.string() }) },
});
const typed = createOutbox({ store, events });
declare const injected: import("../../src/frameworks/nestjs/index.ts").TxboxOutbox<Plain>;
declare const injectedTyped: import("../../src/frameworks/nestjs/index.ts").TxboxOutbox<typeof events>;
`;
  test.each([
    ["of a message", `await plain.enqueue(tx, { stream: "s", type: "created", payload: { id: "1" } });`],
    ["of one of many", `await plain.enqueue(tx, [{ stream: "s", type: "created", payload: { id: "1" } }]);`],
    ["with a contract", `await typed.enqueue(tx, { type: "created", payload: { id: "1" } });`],
    ["of one of many with a contract", `await typed.enqueue(tx, [{ type: "created", payload: { id: "1" } }]);`],
    ["in Nest", `await injected.enqueue(tx, { stream: "s", type: "created", payload: { id: "1" } });`],
    ["of one of many in Nest", `await injected.enqueue(tx, [{ stream: "s", type: "created", payload: { id: "1" } }]);`],
    ["in Nest with a contract", `await injectedTyped.enqueue(tx, { type: "created", payload: { id: "1" } });`],
    [
      "in Nest, far from the transaction",
      `await injectedTyped.enqueueHere({ type: "created", payload: { id: "1" } });`,
    ],
  ])("%s: what is missing of its type, and nothing of others", async (_, line) => {
    const code = (head + line).replaceAll("../../src/", join(root, "src/"));
    const said = await compile([{ file: "wrong.ts", code }]);
    expect(said.match(/error TS/g)).toHaveLength(1);
    expect(said).toContain(
      "Property 'total' is missing in type '{ id: string; }' but required in type '{ id: string; total: number; }'",
    );
    expect(said).not.toMatch(/paidAt|carrier/);
  });
});
