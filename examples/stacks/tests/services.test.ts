import { join } from "node:path";
import { describe, expect, inject, test } from "vitest";
import { createDatabase } from "../../../test/harness/index.ts";
import { startApplication } from "./support/application.ts";
import { nothingIsLeft, ordersArePaidOnce } from "./support/orders-and-payments.ts";
import { NODE_22, NODE_24, stacks } from "./support/stacks.ts";

const folder = join(stacks, "services");

describe.each([NODE_22, NODE_24])("services on $version", ({ path }) => {
  test.each(["fastify", "express", "hono"])("%s takes orders, pays each once and stops cleanly", async (name) => {
    await using database = await createDatabase(inject("postgresUrl")!);
    const env = { DATABASE_URL: database.url };
    await using app = await startApplication(path, [`${name}.ts`], { cwd: folder, env, ready: /listening/ });
    await ordersArePaidOnce(app);
    expect(await app.get("/readyz")).toMatchObject({ ok: true });
    expect(await app.stop()).toBe(0);
    expect(app.output()).toMatch(/payments: started[\s\S]*payments: stopped/);
    await nothingIsLeft(database.url);
  });
});
