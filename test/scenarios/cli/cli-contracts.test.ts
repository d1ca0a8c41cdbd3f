import { cpSync, existsSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { CONFIG_URL, INDEX_URL, projectFolder, runCli, type ProjectFolder } from "../../support/run-cli.ts";

const modules = new URL("../../../node_modules", import.meta.url).pathname;

const ORDERS = `{ stream: "orders", schema: z.object({ orderId: z.string(), total: z.number() }) }`;
const PAID = `{ stream: "payments", schema: z.object({ orderId: z.string() }) }`;
const events = (definitions: Readonly<Record<string, string>>): string => `
import { z } from "zod";
import { defineEvents } from ${JSON.stringify(INDEX_URL)};
export const events = defineEvents({ ${Object.entries(definitions)
  .map(([type, definition]) => `${JSON.stringify(type)}: ${definition}`)
  .join(", ")} });
`;

/** A project whose packages are those of this one. */
function project(files: Readonly<Record<string, string>>): ProjectFolder {
  const folder = projectFolder({ "package.json": '{"type":"module"}', ...files });
  symlinkSync(modules, join(folder.path, "node_modules"));
  return folder;
}

const run = (folder: ProjectFolder, line: string) => runCli(line.split(" "), { cwd: folder.path });
const write = (folder: ProjectFolder, file: string, text: string) => writeFileSync(join(folder.path, file), text);

describe("txbox contracts export", () => {
  test("writes the document and the schemas of a module, and says whether they are up to date", async () => {
    using folder = project({ "events.ts": events({ order_created: ORDERS, "order/paid": PAID }) });
    expect(await run(folder, "contracts export events.ts --check")).toMatchObject({ code: 6 });
    expect(existsSync(join(folder.path, "contracts"))).toBe(false);
    const first = await run(folder, "contracts export events.ts --title Shop");
    expect(first).toMatchObject({ code: 0, stderr: "" });
    expect(first.stdout).toContain("Wrote contracts/asyncapi.json");
    const names = ["asyncapi.json", "order%2Fpaid.schema.json", "order_created.schema.json"];
    expect(readdirSync(join(folder.path, "contracts")).sort()).toEqual(names);
    const read = (name: string) => JSON.parse(readFileSync(join(folder.path, "contracts", name), "utf8")) as unknown;
    expect(read("asyncapi.json")).toMatchObject({
      asyncapi: "3.0.0",
      info: { title: "Shop" },
      channels: {
        orders: { address: "orders", messages: { order_created: { $ref: "#/components/messages/order_created" } } },
        payments: { address: "payments" },
      },
    });
    expect(read("order_created.schema.json")).toEqual({
      $schema: "http://json-schema.org/draft-07/schema#",
      title: "order_created, version 1",
      type: "object",
      properties: { orderId: { type: "string" }, total: { type: "number" } },
      required: ["orderId", "total"],
    });
    const again = await run(folder, "contracts export events.ts --title Shop --check --json");
    expect(again).toMatchObject({ code: 0, json: { folder: "contracts", differ: [] } });

    // An event that is gone leaves no schema behind, and nothing else is touched.
    write(folder, "contracts/mine.schema.json", "{}");
    write(folder, "events.ts", events({ order_created: ORDERS }));
    const check = await run(folder, "contracts export events.ts --title Shop --check --json");
    expect(check).toMatchObject({ code: 6, json: { differ: ["asyncapi.json", "order%2Fpaid.schema.json"] } });
    const second = await run(folder, "contracts export events.ts --title Shop --json");
    expect(second).toMatchObject({
      code: 0,
      json: { events: 1, written: ["asyncapi.json"], removed: ["order%2Fpaid.schema.json"] },
    });
    expect(readdirSync(join(folder.path, "contracts")).sort()).toEqual([
      "asyncapi.json",
      "mine.schema.json",
      "order_created.schema.json",
    ]);
  });

  test("takes the events of the configuration", async () => {
    using folder = project({
      "events.ts": events({ order_created: ORDERS }),
      "txbox.config.ts": `import { defineConfig } from ${JSON.stringify(CONFIG_URL)};
        import { events } from "./events.ts";
        export default defineConfig({ events });`,
    });
    expect(await run(folder, "contracts export --out docs/agreed --json")).toMatchObject({
      code: 0,
      json: { folder: "docs/agreed", events: 1, written: ["asyncapi.json", "order_created.schema.json"] },
    });
  });

  test.each<[what: string, files: Record<string, string>, line: string, says: RegExp]>([
    [
      "no events anywhere",
      {},
      "contracts export",
      /no configuration, so there are no events with schemas. Give it `events/,
    ],
    ["a module that is not there", {}, "contracts export nowhere.ts", /There is no module nowhere.ts/],
    [
      "a module without events",
      { "a.ts": "export const a = 1" },
      "contracts export a.ts",
      /a.ts exports no events with schemas/,
    ],
    [
      "a module that throws",
      { "a.ts": "throw new Error('mine')" },
      "contracts export a.ts",
      /a.ts cannot be loaded: mine/,
    ],
    [
      "an event without a schema",
      { "a.ts": events({ order_created: '{ stream: "orders" } as never' }) },
      "contracts export a.ts",
      /a.ts cannot be loaded: order_created has no schema/,
    ],
    [
      "a schema that has no JSON Schema",
      {
        "a.ts": events({ a: ORDERS })
          .replace('from "zod"', 'from "zod"; import * as v from "valibot"')
          .replace(ORDERS, '{ stream: "s", schema: v.string() }'),
      },
      "contracts export a.ts",
      /The schema of a \(valibot\) cannot say itself in JSON Schema. .*toStandardJsonSchema\(schema\) of @valibot/,
    ],
    [
      "two names of one file",
      { "a.ts": events({ Paid: PAID, paid: PAID }) },
      "contracts export a.ts",
      /The events Paid and paid would share the file paid.schema.json/,
    ],
    [
      "a configuration with other events",
      { "txbox.config.ts": "export default { events: { a: 1 } }" },
      "contracts export",
      /events is an object that defineEvents did not give/,
    ],
    ["no subcommand", {}, "contracts", /txbox contracts what\? export, diff/],
    ["a flag of the other", {}, "contracts export --strict", /--strict goes with contracts diff/],
    ["one document", {}, "contracts diff a", /needs two folders or documents/],
    ["a folder that is not there", {}, "contracts diff a b", /There is no file or folder .*a/],
    ["what is no JSON", { "a.json": "{" }, "contracts diff a.json a.json", /a.json cannot be read: SyntaxError/],
    ["what is no AsyncAPI", { "a.json": "{}" }, "contracts diff a.json a.json", /a.json is no AsyncAPI document/],
  ])("says what is wrong with %s", async (_, files, line, says) => {
    using folder = project(files);
    const { code, stderr, stdout } = await run(folder, line);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(says);
    expect(existsSync(join(folder.path, "contracts"))).toBe(false);
  });

  test("leaves a document alone that was written by hand", async () => {
    using folder = project({ "events.ts": events({ order_created: ORDERS }), "asyncapi.json": '{"asyncapi":"3.0.0"}' });
    const { code, stderr } = await run(folder, "contracts export events.ts --out .");
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: expect.stringMatching(/was not written by this command. Give another/),
    });
    expect(readFileSync(join(folder.path, "asyncapi.json"), "utf8")).toBe('{"asyncapi":"3.0.0"}');
  });
});

describe("txbox contracts diff", () => {
  test("fails on a change that breaks, and lets others through", async () => {
    using folder = project({ "events.ts": events({ order_created: ORDERS, paid: PAID }) });
    expect(await run(folder, "contracts export events.ts")).toMatchObject({ code: 0 });
    cpSync(join(folder.path, "contracts"), join(folder.path, "old"), { recursive: true });
    expect(await run(folder, "contracts diff old contracts")).toMatchObject({
      code: 0,
      stdout: "Nothing has changed.\n",
    });

    const wider = ORDERS.replace("total:", "note: z.string().optional(), total:");
    write(folder, "events.ts", events({ order_created: wider, paid: PAID, sent: PAID }));
    await run(folder, "contracts export events.ts");
    expect(await run(folder, "contracts diff old contracts/asyncapi.json --json")).toMatchObject({
      code: 0,
      json: {
        breaking: 0,
        changes: [
          { event: "order_created", path: "payload.note", severity: "harmless", says: "is new, and optional" },
          { event: "sent", severity: "harmless", says: "is new" },
        ],
      },
    });

    const without = ORDERS.replace(", total: z.number()", "");
    write(folder, "events.ts", events({ order_created: without }));
    await run(folder, "contracts export events.ts");
    const broken = await run(folder, "contracts diff old contracts");
    expect(broken.code).toBe(6);
    expect(broken.stdout.split("\n")).toEqual([
      "breaking  order_created: payload.total was removed: consumers that were not changed refuse the message",
      "breaking  paid was removed: its consumers hear of it no more",
      "",
    ]);
    expect(broken.stderr).toMatch(/2 breaking changes of order_created, paid/);
    expect(broken.stderr).toMatch(/raise the `version` of these events and add an `upcast`/);

    const versioned = without.replace("{ stream", "{ version: 2, upcast: { 1: (old: unknown) => old }, stream");
    write(folder, "events.ts", events({ order_created: versioned, paid: PAID }));
    await run(folder, "contracts export events.ts");
    expect(await run(folder, "contracts diff old contracts")).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^versioned order_created: payload.total was removed/m),
    });
    expect(await run(folder, "contracts diff old contracts --strict")).toMatchObject({ code: 6 });
  });
});
