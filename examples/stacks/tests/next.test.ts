import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { createDatabase, mustRun } from "../../../test/harness/index.ts";
import { startApplication } from "./support/application.ts";
import { followsLive, mendsALetter, opensThePage, refusesOthers, signIn } from "./support/page-visitor.ts";
import { nothingIsLeft, ordersArePaidOnce } from "./support/orders-and-payments.ts";
import { bin, stacks } from "./support/stacks.ts";

const folder = join(stacks, "next");
const TOKEN = "a token of more than sixteen characters";

describe.each(["turbopack", "webpack"])("a Next application, built by %s", (bundler) => {
  let empty: string;

  beforeAll(async () => {
    const distDir = `.next-${bundler}`;
    rmSync(join(folder, distDir), { recursive: true, force: true });
    const env = {
      ...process.env,
      NODE_ENV: "production",
      NEXT_DIST_DIR: distDir,
      NEXT_TELEMETRY_DISABLED: "1",
    } as const;
    const build = [bin("next"), "build", `--${bundler}`];
    await mustRun(process.execPath, build, { cwd: folder, env, timeoutMs: 540_000 });
    // The standalone output alone, beside migrations that are nobody's business.
    empty = mkdtempSync(join(tmpdir(), "txbox-next-"));
    cpSync(join(folder, distDir, "standalone"), empty, { recursive: true, verbatimSymlinks: true });
    mkdirSync(join(empty, "next", "migrations"));
    writeFileSync(join(empty, "next", "migrations", "0001_init.sql"), "create table public.foreign_table ();");
  }, 600_000);
  afterAll(() => rmSync(empty, { recursive: true, force: true }));

  test("takes orders, pays each once when the schedule calls, and stops cleanly", async () => {
    await using database = await createDatabase(inject("postgresUrl")!);
    const env = { DATABASE_URL: database.url, CRON_SECRET: "open sesame" };
    const options = { cwd: join(empty, "next"), env, ready: /Ready/ };
    await using app = await startApplication(process.execPath, ["server.js"], options);
    const headers = { authorization: "Bearer open sesame" };
    await expect(app.get("/cron")).rejects.toThrow(/: 401 /);
    const isOver = new AbortController();
    const schedule = (async () => {
      while (!isOver.signal.aborted) {
        await app.get("/cron", headers);
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    })();
    try {
      await Promise.race([ordersArePaidOnce(app), schedule]);
    } finally {
      isOver.abort();
    }
    await schedule;
    expect(await app.get("/cron", headers)).toEqual({ published: 0 });
    expect([0, 143, "SIGTERM"]).toContain(await app.stop());
    await nothingIsLeft(database.url);
  });

  test.each([
    { way: "a token", env: { PAGE_TOKEN: TOKEN } },
    { way: "the login of the application", env: {} },
  ])("shows the page behind $way, and stops while it is open", async ({ env }) => {
    await using database = await createDatabase(inject("postgresUrl")!);
    await using app = await startApplication(process.execPath, ["server.js"], {
      cwd: join(empty, "next"),
      env: { DATABASE_URL: database.url, CRON_SECRET: "open sesame", ...env },
      ready: /Ready/,
    });
    const hasToken = "PAGE_TOKEN" in env;
    const login = hasToken ? await signIn(app, TOKEN) : { cookie: "session=of-ada" };
    await opensThePage(app, login);
    await refusesOthers(app, login);
    await app.post("/orders", { orderId: "o-bad", total: -1 });
    const headers = { authorization: "Bearer open sesame" };
    await app.get("/cron", headers);
    const leave = await followsLive(app, login);
    const isOver = new AbortController();
    const schedule = (async () => {
      while (!isOver.signal.aborted) {
        await app.get("/cron", headers);
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    })();
    try {
      await Promise.race([mendsALetter(app, login, hasToken ? undefined : "ada"), schedule]);
    } finally {
      isOver.abort();
    }
    await schedule;
    expect([0, 143, "SIGTERM"]).toContain(await app.stop());
    leave();
  });
});
