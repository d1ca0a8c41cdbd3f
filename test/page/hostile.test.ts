import { createServer } from "node:http";
import { connect, type AddressInfo } from "node:net";
import { afterAll, describe, expect, test } from "vitest";
import { createAdmin } from "../../src/admin/index.ts";
import { createRelay } from "../../src/relay/relay.ts";
import { serverOrSkip, startPostgres } from "../harness/index.ts";
import { hasPostgres } from "../harness/shared-postgres.ts";
import { startBrowser } from "../harness/start-browser.ts";
import { outboxDatabase } from "../scenarios/support/outbox-database.ts";
import { adminScene, judging } from "../support/admin-scene.ts";
import { servePage, WIDE } from "./page-scene.ts";

/** Names of other sites that lead to this machine, as an attacker's name server would have it. */
const slot = await serverOrSkip("Chromium", () =>
  startBrowser({ args: ["--host-resolver-rules=MAP *.example 127.0.0.1"] }),
);
afterAll(() => slot.stop());

const TOKEN = "a token of more than sixteen characters";
const WAIT = { timeout: 60_000 };

/** What a client that is no browser may write. */
async function raw(port: number, request: string): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  socket.setTimeout(20_000, () => socket.destroy(new Error("no answer")));
  socket.write(request.replaceAll("\n", "\r\n"));
  let text = "";
  for await (const part of socket.setEncoding("utf8")) text += String(part);
  return text;
}

describe.skipIf(slot.skipped || !hasPostgres())("a hostile client of the real server", () => {
  test.each([
    ["a foreign Host", "GET /api/overview HTTP/1.1\nHost: evil.example\nConnection: close\n\n", 421],
    [
      "a foreign host in the address",
      "GET http://evil.example/api/overview HTTP/1.1\nHost: evil.example\nConnection: close\n\n",
      421,
    ],
    ["no Host", "GET /api/overview HTTP/1.1\nConnection: close\n\n", 400],
    ["no Host, as HTTP/1.0", "GET /api/doctor HTTP/1.0\nX-Forwarded-For: 10.0.0.1\n\n", 400],
    [
      "two lines of Host",
      "GET /api/overview HTTP/1.1\nHost: evil.example\nHost: 127.0.0.1\nConnection: close\n\n",
      421,
    ],
    ["a Host with a user", "GET /api/overview HTTP/1.1\nHost: 127.0.0.1@evil.example\nConnection: close\n\n", 400],
    ["a path of another host", "GET //evil.example/api/overview HTTP/1.1\nHost: 127.0.0.1\nConnection: close\n\n", 404],
    ["through a proxy", "GET /api/overview HTTP/1.1\nHost: 127.0.0.1\nVia: 1.1 proxy\nConnection: close\n\n", 403],
    [
      "a simple form",
      "POST /api/act HTTP/1.1\nHost: 127.0.0.1\nContent-Type: text/plain\nContent-Length: 2\nConnection: close\n\n{}",
      403,
    ],
    ["TRACE", "TRACE / HTTP/1.1\nHost: 127.0.0.1\nConnection: close\n\n", 400],
    ["no HTTP at all", "\u0016\u0003\u0001 hello\n\n", 400],
  ])("%s is refused", async (_, request, status) => {
    await using scene = await adminScene();
    await using served = await servePage(scene);
    const answer = await raw(Number(new URL(served.url).port), request);
    expect(answer.slice(0, 12)).toBe(`HTTP/1.1 ${status}`);
    expect(answer).not.toMatch(/evil\.example\/|access-control-allow/i);
  });

  test("DNS rebinding: a name of another site that leads here shows nothing", async () => {
    await using scene = await adminScene();
    await using served = await servePage(scene);
    const context = await slot.server.browser.newContext(WIDE);
    const page = await context.newPage();
    const port = new URL(served.url).port;
    const answer = await page.goto(`http://rebound.example:${port}/`);
    expect([answer?.status(), await page.title()]).toEqual([421, ""]);
    const overview = await page.evaluate(`fetch("/api/overview").then((response) => response.status)`);
    expect(overview).toBe(421);
    await context.close();
  });

  test("a foreign site in the same browser, where the page is signed in, changes and reads nothing", async () => {
    await using scene = await adminScene();
    await scene.enqueue({ stream: "s", type: "t", key: "k", payload: 1 });
    await scene.relayOnce("r", () => ({ status: "rejected", error: new Error("broken") }));
    await using served = await servePage(scene, { token: TOKEN });
    const act = JSON.stringify({ action: "requeue", store: "shop", choice: { all: true }, actor: "eve" });
    const evil = createServer((_, response) => {
      response.setHeader("content-type", "text/html");
      response.end(`<iframe src="${served.url}"></iframe><img src="${served.url}api/doctor">
        <form id="form" method="post" enctype="text/plain" action="${served.url}api/act" target="out"><input name='${act.slice(0, -1)},"x":"' value='"}'></form>
        <iframe name="out"></iframe>`);
    });
    await new Promise<void>((resolve) => evil.listen(0, "127.0.0.1", resolve));
    const context = await slot.server.browser.newContext(WIDE);
    try {
      const page = await context.newPage();
      await page.goto(served.url);
      await page.getByLabel("Token").fill(TOKEN);
      await page.getByRole("button", { name: "Open the page" }).click();
      await page.getByText("live", { exact: true }).waitFor(WAIT);
      const answers: [string, number][] = [];
      const attacker = await context.newPage();
      attacker.on("response", (response) => {
        if (response.url().includes("/api/")) answers.push([response.request().method(), response.status()]);
      });
      await attacker.goto(`http://evil.example:${(evil.address() as AddressInfo).port}/`);
      const tries = await attacker.evaluate(`Promise.all([
        fetch("${served.url}api/overview", { credentials: "include" }),
        fetch("${served.url}api/act", { method: "POST", mode: "no-cors", credentials: "include", body: ${JSON.stringify(act)} }),
        fetch("${served.url}api/act", { method: "POST", credentials: "include", headers: { "content-type": "application/json", "x-txbox-page": "1" }, body: ${JSON.stringify(act)} }),
        new Promise((resolve, reject) => { const live = new EventSource("${served.url}api/live", { withCredentials: true }); live.onmessage = resolve; live.onerror = reject; }),
      ].map((one) => one.then(() => "let through", () => "refused")))`);
      expect(tries).toEqual(["refused", "refused", "refused", "refused"]);
      await attacker.evaluate(`document.querySelector("#form").submit()`);
      await attacker.waitForTimeout(500);
      expect(answers.filter(([, status]) => status < 400)).toEqual([]);
      // The frame of the page itself stays empty.
      for (const frame of attacker.frames().slice(1)) expect(await frame.locator("#page").count()).toBe(0);
      expect(await scene.store.admin.dead({})).toMatchObject([{ state: "dead", command: null }]);
    } finally {
      await context.close();
      evil.close();
      evil.closeAllConnections();
    }
  });

  test("two people have the same question open: the second is told that the letter was dealt with", async () => {
    await using scene = await adminScene();
    await scene.enqueue({ stream: "s", type: "t", key: "k", payload: 1, id: "m-1" });
    await scene.relayOnce("r", () => ({ status: "rejected", error: new Error("broken") }));
    await using served = await servePage(scene);
    const open = async (name: string) => {
      const context = await slot.server.browser.newContext(WIDE);
      const page = await context.newPage();
      await page.goto(`${served.url}dead?store=shop&relay=r&letter=1`);
      await page.getByRole("button", { name: "Requeue", exact: true }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("Your name").fill(name);
      return { context, dialog };
    };
    const [ada, ben] = [await open("ada"), await open("ben")];
    await ada.dialog.getByRole("button", { name: "Requeue 1 letter" }).click();
    await ada.dialog.waitFor({ ...WAIT, state: "detached" });
    await ben.dialog.getByRole("button", { name: "Requeue 1 letter" }).click();
    await ben.dialog
      .getByText(/Nothing was changed: the letter waits to be requeued already\. Another person/)
      .waitFor(WAIT);
    const { changes } = await scene.store.admin.changes({});
    expect(changes.map(({ actor, action, count }) => [actor, action, count])).toEqual([["ada", "requeue", 1]]);
    await ada.context.close();
    await ben.context.close();
  });

  test("a database that is killed while the page is open is named, a change is refused, and it is back by itself", async () => {
    await using server = await startPostgres({ owned: true });
    await using database = await outboxDatabase({ serverUrl: server.url });
    const { store } = database;
    await database.enqueue([{ key: "k", n: 1 }]);
    const publisher = judging(() => ({ status: "rejected", error: new Error("broken") }));
    await createRelay({ store, name: "r", publisher, maxAttempts: 1 }).drainOnce();
    await using served = await servePage({ admin: (options) => createAdmin({ stores: { shop: store }, ...options }) });
    const context = await slot.server.browser.newContext(WIDE);
    try {
      const page = await context.newPage();
      await page.goto(`${served.url}dead`);
      const requeue = page.getByRole("button", { name: /Requeue the/ });
      await requeue.waitFor(WAIT);
      await server.kill();
      await requeue.click();
      await page
        .getByRole("dialog")
        .getByText(/The store gave no answer/)
        .waitFor(WAIT);
      await page.keyboard.press("Escape");
      await page.getByRole("link", { name: "Overview" }).click();
      const verdict = page.getByRole("region", { name: "Verdict" });
      await verdict.getByText("The store shop gives no answer.").waitFor(WAIT);
      await server.restart();
      await verdict.getByText("Relay r: 1 dead letter.").first().waitFor(WAIT);
    } finally {
      await context.close();
    }
  });
});
