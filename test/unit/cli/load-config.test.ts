import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { loadConfig } from "../../../src/cli/load-config.ts";
import { projectFolder, runCli } from "../../support/run-cli.ts";

const load = async (text: string, name = "txbox.config.mjs") => {
  using folder = projectFolder({ [name]: text });
  return await loadConfig(folder.path, undefined, 10_000);
};

describe("loadConfig", () => {
  test("without a file the configuration is empty", async () => {
    using folder = projectFolder();
    expect(await loadConfig(folder.path, undefined, 10_000)).toEqual({ config: {}, file: undefined });
  });

  test("takes the file in the folder, or the one named", async () => {
    using folder = projectFolder({
      "txbox.config.js": 'export default { database: { schema: "a" } }',
      "other.mjs": 'export default { database: { schema: "b" } }',
    });
    expect((await loadConfig(folder.path, undefined, 10_000)).config.database?.schema).toBe("a");
    expect((await loadConfig(folder.path, "other.mjs", 10_000)).config.database?.schema).toBe("b");
    expect((await loadConfig("/", join(folder.path, "other.mjs"), 10_000)).file).toBe(join(folder.path, "other.mjs"));
    await expect(loadConfig(folder.path, "third.mjs", 10_000)).rejects.toThrow("There is no configuration file");
  });

  test.each([
    ["export default { relay: {} }", 'txbox.config.mjs has no option "relay". Did you mean "relays"?'],
    [
      "export default { database: { urll: '' } }",
      'txbox.config.mjs: database has no option "urll". Did you mean "url"?',
    ],
    [
      "export default { relays: { a: { publisher: {}, batchsize: 3 } } }",
      'txbox.config.mjs: relays.a has no option "batchsize". Did you mean "batchSize"?',
    ],
    ["export default { relays: { a: {} } }", "relays.a.publisher must be a publisher"],
    ["export default { relays: { a: 3 } }", "relays.a must be an object"],
    ["export default { relays: [] }", "relays must be an object"],
    ["export default { store: {}, database: {} }", 'has both "store" and "database"'],
    ["export default { close: 1 }", "close must be a function"],
    ["export const config = {}", "has no default export that is an object, got undefined"],
    ["throw new Error('broken')", "txbox.config.mjs cannot be loaded: broken"],
    ["export default {", "txbox.config.mjs cannot be loaded"],
    ["export default { database: { url: 5 } }", "txbox.config.mjs: database.url must be a string, got 5"],
    ["export default { database: { schema: [] } }", "database.schema must be a string, got an array"],
    ["export default { database: 'postgres://u:secret@h' }", "database must be an object, got a string"],
    ["export default { stores: { payments: {} } }", "txbox.config.mjs: stores.payments needs a url"],
    [
      "export default { stores: { payments: { ulr: 'x' } } }",
      'stores.payments has no option "ulr". Did you mean "url"?',
    ],
    [
      "export default { stores: { payments: 'postgres://u:secret@h' } }",
      "stores.payments must be an object, got a string",
    ],
    ["export default 5", "has no default export that is an object, got 5"],
  ])("%s is refused", async (text, message) => {
    await expect(load(text)).rejects.toThrow(message);
  });

  // By Node itself, which is what refuses the file.
  test.each([
    ["import './events'; export default {};", 'such as "./events.ts", or set NODE_OPTIONS="--import tsx"'],
    ["import '@/events'; export default {};", 'such as "./events.ts", or set NODE_OPTIONS="--import tsx"'],
    [
      "enum Color { red }; export default Color;",
      "leave out what is not erasable, such as enums and decorators, or set",
    ],
  ])("%s: the error says how Node wants it", async (text, fix) => {
    using folder = projectFolder({ "txbox.config.ts": text });
    const { code, stderr } = await runCli(["status"], { cwd: folder.path });
    expect([code, stderr]).toEqual([2, expect.stringContaining(fix)]);
  });

  test.each(["no-such-package", "@no/such"])(
    "the package %s is missing, and nothing is written wrongly",
    async (name) => {
      using folder = projectFolder({ "txbox.config.ts": `import '${name}'; export default {};` });
      const { code, stderr } = await runCli(["status"], { cwd: folder.path });
      expect([code, stderr]).toEqual([2, expect.stringMatching(/Cannot find package '\S+' imported from \S+\n$/)]);
    },
  );

  test("a file that never ends loading is an error after the deadline", async () => {
    using folder = projectFolder({ "txbox.config.mjs": "await new Promise(() => {}); export default {};" });
    await expect(loadConfig(folder.path, undefined, 200)).rejects.toThrow(
      "txbox.config.mjs was not loaded within 200 ms",
    );
  });
});
