import { join } from "node:path";
import { describe, inject, expect, test } from "vitest";
import { createDatabase } from "../../../test/harness/index.ts";
import { startApplication } from "./support/application.ts";
import { followsLive, mendsALetter, opensThePage, refusesOthers, signIn } from "./support/page-visitor.ts";
import { NODE_24, stacks } from "./support/stacks.ts";

const folder = join(stacks, "services");
const TOKEN = "a token of more than sixteen characters";

describe.each(["node", "express", "fastify", "hono"])("the page, mounted in %s", (name) => {
  test.each([
    { way: "a token", env: { PAGE_TOKEN: TOKEN } },
    { way: "the login of the application", env: {} },
  ])("behind $way: it opens, lives, mends a letter, and lets the service stop", async ({ env }) => {
    await using database = await createDatabase(inject("postgresUrl")!);
    await using app = await startApplication(NODE_24.path, [`${name}.ts`], {
      cwd: folder,
      env: { DATABASE_URL: database.url, ...env },
      ready: /listening/,
    });
    const hasToken = "PAGE_TOKEN" in env;
    const login = hasToken ? await signIn(app, TOKEN) : { cookie: "session=of-ada" };
    await opensThePage(app, login);
    await refusesOthers(app, login);
    await app.post("/orders", { orderId: "o-bad", total: -1 });
    const leave = await followsLive(app, login);
    await mendsALetter(app, login, hasToken ? undefined : "ada");
    // The page is still open.
    expect(await app.stop()).toBe(0);
    leave();
  });
});
