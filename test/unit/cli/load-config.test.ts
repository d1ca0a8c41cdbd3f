import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { loadConfig } from "../../../src/cli/load-config.ts";
import { projectFolder } from "../../support/run-cli.ts";

const load = async (text: string, name = "txbox.config.mjs") => {
  using folder = projectFolder({ [name]: text });
  return await loadConfig(folder.path, undefined);
};

describe("loadConfig", () => {
  test("without a file the configuration is empty", async () => {
    using folder = projectFolder();
    expect(await loadConfig(folder.path, undefined)).toEqual({ config: {}, file: undefined });
  });

  test("takes the file in the folder, or the one named", async () => {
    using folder = projectFolder({
      "txbox.config.js": 'export default { database: { schema: "a" } }',
      "other.mjs": 'export default { database: { schema: "b" } }',
    });
    expect((await loadConfig(folder.path, undefined)).config.database?.schema).toBe("a");
    expect((await loadConfig(folder.path, "other.mjs")).config.database?.schema).toBe("b");
    expect((await loadConfig("/", join(folder.path, "other.mjs"))).file).toBe(join(folder.path, "other.mjs"));
    await expect(loadConfig(folder.path, "third.mjs")).rejects.toThrow("There is no configuration file");
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
    ["export const config = {}", "has no default export"],
    ["throw new Error('broken')", "txbox.config.mjs cannot be loaded: broken"],
    ["export default {", "txbox.config.mjs cannot be loaded"],
  ])("%s is refused", async (text, message) => {
    await expect(load(text)).rejects.toThrow(message);
  });
});
