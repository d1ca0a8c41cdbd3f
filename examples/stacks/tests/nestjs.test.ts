import { join } from "node:path";
import { beforeAll, describe, expect, inject, test } from "vitest";
import { createDatabase, mustRun } from "../../../test/harness/index.ts";
import { startApplication } from "./support/application.ts";
import { nothingIsLeft, ordersArePaidOnce } from "./support/orders-and-payments.ts";
import { bin, NODE_22, NODE_24, stacks } from "./support/stacks.ts";

const folder = join(stacks, "nest");

describe("a Nest application of CommonJS", () => {
  beforeAll(async () => {
    await mustRun(process.execPath, [bin("tsc"), "-p", folder], { timeoutMs: 120_000 });
  });

  test.each([NODE_22, NODE_24])("takes orders, pays each once and stops cleanly on $version", async ({ path }) => {
    await using database = await createDatabase(inject("postgresUrl")!);
    const env = { DATABASE_URL: database.url };
    await using app = await startApplication(path, ["dist/main.js"], { cwd: folder, env, ready: /^listening/m });
    await ordersArePaidOnce(app);
    expect(await app.get("/readyz")).toEqual({ messages: { status: "up", reasons: [] } });
    // Nest ends the process by the signal that it got.
    expect(await app.stop()).toBe("SIGTERM");
    expect(app.output()).toMatch(/LOG.*payments: started[\s\S]*payments: stopped[\s\S]*pool ended/);
    await nothingIsLeft(database.url);
  });

  test.each([NODE_22, NODE_24])("is tested under Jest on $version", async ({ path }) => {
    await using database = await createDatabase(inject("postgresUrl")!);
    const env = { ...process.env, DATABASE_URL: database.url, NODE_ENV: "test" };
    const jest = join(stacks, "node_modules", "jest", "bin", "jest.js");
    const args = [jest, "--config", "jest.config.cjs", "--ci"];
    const { stderr } = await mustRun(path, args, { cwd: folder, env, timeoutMs: 240_000 });
    expect(stderr).toMatch(/Tests: +12 passed, 12 total/);
    expect(stderr).not.toMatch(/did not exit|open handle/);
  });

  test("is tested under Jest on Node 24 with the flag alone", async () => {
    await using database = await createDatabase(inject("postgresUrl")!);
    const env = { ...process.env, DATABASE_URL: database.url, NODE_ENV: "test" };
    const jest = join(stacks, "node_modules", "jest", "bin", "jest.js");
    const args = ["--experimental-vm-modules", jest, "--config", "jest.vm-modules.config.cjs", "--ci"];
    const { stderr } = await mustRun(NODE_24.path, args, { cwd: folder, env, timeoutMs: 240_000 });
    expect(stderr).toMatch(/Tests: +12 passed, 12 total/);
    expect(stderr).not.toMatch(/did not exit|open handle/);
  });
});
