import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { hasPostgres, migratedDatabase } from "../../harness/shared-postgres.ts";
import { captureCli } from "../../support/captured-cli.ts";
import { projectFolder, startCli } from "../../support/run-cli.ts";

const TOKEN = "a token of more than sixteen characters";

async function urlOf(cli: ReturnType<typeof startCli>): Promise<string> {
  const line = await cli.waitForLine(/The page is at/);
  return /http:\/\/[\d.:]+\//.exec(line)![0];
}

describe.skipIf(!hasPostgres())("txbox admin", () => {
  test("refuses to serve other machines without a token, naming the fix", async () => {
    const { code, stderr } = await captureCli(["admin", "--listen", "0.0.0.0:0", "--database-url", "postgres://h/d"]);
    expect([code, stderr]).toEqual([2, expect.stringContaining("give --token-file FILE, or listen on 127.0.0.1:4466")]);
  });

  test.each([
    ["missing", undefined, "--token-file cannot be read"],
    ["short", "abc\n", "at least 16 characters"],
  ])("a token file that is %s is an error", async (_, text, says) => {
    using project = projectFolder();
    await using database = await migratedDatabase();
    if (text !== undefined) writeFileSync(join(project.path, "token"), text);
    const { code, stderr } = await captureCli(["admin", "--token-file", "token", "--database-url", database.url], {
      cwd: project.path,
    });
    expect(code).not.toBe(0);
    expect(stderr).toContain(says);
  });

  test("serves this machine, and ends on SIGTERM though a page is open", async () => {
    await using database = await migratedDatabase();
    const cli = startCli(["admin", "--listen", "127.0.0.1:0", "--read-only", "--database-url", database.url]);
    const url = await urlOf(cli);
    const session = await fetch(`${url}api/session`);
    expect(await session.json()).toMatchObject({ tokenNeeded: false, may: [], stores: ["main"] });
    const live = await fetch(`${url}api/live`);
    const reader = live.body!.getReader();
    await reader.read();
    cli.signal("SIGTERM");
    expect(await cli.exited).toMatchObject({ code: 0 });
    await reader.cancel().catch(() => undefined);
  });

  test("asks for the token of the file", async () => {
    using project = projectFolder({ token: `${TOKEN}\n` });
    await using database = await migratedDatabase();
    const flags = ["--token-file", join(project.path, "token"), "--database-url", database.url];
    const cli = startCli(["admin", "--listen", "127.0.0.1:0", ...flags]);
    const url = await urlOf(cli);
    expect((await fetch(`${url}api/overview`)).status).toBe(401);
    const headers = { authorization: `Bearer ${TOKEN}` };
    expect((await fetch(`${url}api/overview`, { headers })).status).toBe(200);
    cli.signal("SIGTERM");
    expect(await cli.exited).toMatchObject({ code: 0 });
  });
});

test("txbox demo --page serves a shop where messages flow, and ends on SIGINT", async () => {
  const cli = startCli(["demo", "--page", "--port", "0"]);
  const url = await urlOf(cli);
  const endsAt = Date.now() + 30_000;
  for (;;) {
    const overview = (await (await fetch(`${url}api/overview`)).json()) as {
      stores: { relays: { published: string }[] }[];
    };
    if (overview.stores[0]!.relays.every(({ published }) => Number(published) > 2)) break;
    expect(Date.now()).toBeLessThan(endsAt);
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
  cli.signal("SIGINT");
  expect(await cli.exited).toMatchObject({ code: 0 });
});
