import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createAdmin, toNodeHandler } from "../../../src/admin/index.ts";
import { pageBundle } from "../../../src/admin/page-bundle.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import type {
  ChangesAnswer,
  GroupsAnswer,
  LetterAnswer,
  LettersAnswer,
  MessagesAnswer,
  Overview,
  StoryAnswer,
} from "../../../src/admin/page-api.ts";
import { eventually } from "../../../src/testing/eventually.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { type AdminScene, adminScene, ask, judging } from "../../support/admin-scene.ts";

/** A slow look at the store is followed by a long pause. */
const PATIENCE = { timeoutMs: 40_000, intervalMs: 100 };
const HTML = `<img src=x onerror="alert(1)">`;
const ESCAPES = "\u001B[31mred\u001B[0m\u202Etxt\u0007";

describe("options", () => {
  const store = { admin: { figures: async () => undefined } } as never;
  test.each([
    [{}, /stores must have at least one/],
    [{ stores: {} }, /stores must have at least one/],
    [{ stores: { "a b": store } }, /the name of a store/],
    [{ stores: { a: {} } }, /stores\.a must be a function/],
    [{ stores: { a: store }, tokn: "x" }, /Did you mean "token"/],
    [{ stores: { a: store }, token: "short" }, /at least 16 characters.*openssl/],
    [{ stores: { a: store }, token: "x".repeat(20), authorize: () => null }, /both given/],
    [{ stores: { a: store }, hosts: ["https://x"] }, /hosts must be names/],
    [{ stores: { a: store }, permissions: ["sudo"] }, /permissions.*requeue/],
    [{ stores: { a: store }, color: "red" }, /#rrggbb/],
    [{ stores: { a: store }, prefix: "txbox" }, /prefix must be a path/],
    [{ stores: { a: store }, redact: "all" }, /redact must be a function/],
    [{ stores: { a: store }, traceUrl: "javascript:alert(1)" }, /traceUrl must be a URL/],
  ])("%o is refused with field and fix", (options, says) => {
    expect(() => createAdmin(options as never)).toThrow(says);
  });
});

test("the page is below 150 KB compressed, and asks for nothing from elsewhere", async () => {
  const { script, style } = await pageBundle();
  expect(script.gzip.byteLength + style.gzip.byteLength).toBeLessThan(150_000);
  const code = gunzipSync(script.gzip).toString() + gunzipSync(style.gzip).toString();
  expect(code).not.toMatch(/\bimport\s*\(|@import|url\(http|innerHTML\s*=(?!=)\s*[^"'`]*\b(?:type|key|error|body)\b/);
  const addresses = new Set(code.match(/https?:\/\/[\w.]+/g));
  expect([...addresses].filter((address) => address !== "http://www.w3.org")).toEqual([]);
});

describe.skipIf(!hasPostgres())("the page's server", () => {
  let scene: AdminScene;
  beforeAll(async () => {
    scene = await adminScene();
  });
  afterAll(async () => scene[Symbol.asyncDispose]());

  test("serves its screens and files under a prefix, and nothing else", async () => {
    const admin = scene.admin({ prefix: "/ops/txbox" });
    // Some hosts take the last slash away: the page is there without it too.
    const root = await ask(admin, "/ops/txbox");
    expect([root.status, root.text.match(/(?:href|src)="[^d"][^"]*"/g)]).toEqual([
      200,
      [expect.stringMatching(/^href="txbox\/page-\w+\.css"$/), expect.stringMatching(/^src="txbox\/page-\w+\.js"$/)],
    ]);
    expect((await ask(admin, "/ops/txbox", { body: {} })).status).toBe(405);
    for (const screen of ["", "messages", "story", "dead", "relays", "doctor"]) {
      const { status, text } = await ask(admin, `/ops/txbox/${screen}`);
      expect([status, text.slice(0, 15)]).toEqual([200, "<!doctype html>"]);
    }
    const { text } = await ask(admin, "/ops/txbox/");
    for (const name of text.match(/page-[0-9a-f]{12}\.(?:js|css)/g)!) {
      const packed = await ask(admin, `/ops/txbox/${name}`, { headers: { "accept-encoding": "br, gzip" } });
      expect([packed.status, packed.headers.get("content-encoding")]).toEqual([200, "gzip"]);
      const plain = await ask(admin, `/ops/txbox/${name}`, { headers: { "accept-encoding": "identity" } });
      expect([plain.status, plain.headers.get("content-encoding")]).toEqual([200, null]);
    }
    expect((await ask(admin, "/")).status).toBe(404);
    expect((await ask(admin, "/ops/txboxes/")).status).toBe(404);
  });

  test("with a token: the page without data, then a cookie that no script can read", async () => {
    const token = "a token of more than sixteen characters";
    const admin = scene.admin({ token, title: "secret title", hosts: ["ops.example.com"] });
    const from = "10.0.0.9";
    const headers = { host: "ops.example.com", origin: "https://ops.example.com", "x-forwarded-proto": "https" };
    expect((await ask(admin, "/", { from, headers })).status).toBe(200);
    const before = await ask(admin, "/api/session", { from, headers });
    expect(before.json).toMatchObject({ tokenNeeded: true, title: "txbox", stores: [], may: [] });
    const signedIn = await ask(admin, "/api/sign-in", { from, headers, body: { token } });
    const cookie = signedIn.headers.get("set-cookie")!;
    expect(cookie).toMatch(/; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure$/);
    expect(cookie).not.toContain(token);
    const session = await ask(admin, "/api/session", { from, headers: { ...headers, cookie: cookie.split(";")[0]! } });
    expect(session.json).toMatchObject({ tokenNeeded: false, title: "secret title", stores: ["shop"] });
    const bearer = await ask(admin, "/api/overview", { from, headers: { authorization: `Bearer ${token}` } });
    expect(bearer.status).toBe(200);
  });

  test("the host's own login names the actor, and narrows what may be done", async () => {
    const admin = scene.admin({
      authorize: (request) =>
        request.headers.get("x-user") === "ada" ? { actor: "ada", permissions: ["pause", "drop"] } : null,
      permissions: ["pause", "resume"],
    });
    const { json } = await ask(admin, "/api/session", { from: "10.0.0.9", headers: { "x-user": "ada" } });
    expect(json).toMatchObject({ actor: "ada", may: ["pause"] });
  });
});

describe.skipIf(!hasPostgres())("what is shown", () => {
  test("hostile data is data: cut with its length, secrets masked, never an error of the page", async () => {
    await using scene = await adminScene();
    const megabyte = `${"A".repeat(1_000_000)}END`;
    await scene.enqueue(
      {
        stream: "s",
        type: HTML,
        key: ESCAPES,
        payload: { text: megabyte, password: "hunter2", nested: { apiKey: "k", n: 1 } },
      },
      {
        stream: "s",
        type: "plain",
        key: "k",
        payload: { html: HTML, big: 1 },
        headers: { authorization: "Bearer abc", note: HTML },
      },
      {
        stream: "s",
        type: "bytes",
        key: "b",
        payload: new Uint8Array(100_000),
        headers: { contentType: "application/octet-stream" },
      },
    );
    await scene.relayOnce("r", () => ({
      status: "rejected",
      error: new Error(`${HTML} ${ESCAPES} postgres://user:hunter2@db/x password=hunter2 ${megabyte}`),
    }));
    const admin = scene.admin();
    const groups = (await ask(admin, "/api/groups")).json as unknown as GroupsAnswer;
    expect(groups.groups.length).toBeGreaterThan(0);
    const letters = (await ask(admin, "/api/letters?store=shop")).json as unknown as LettersAnswer;
    expect(letters.letters.map(({ type }) => type)).toEqual([HTML, "plain", "bytes"]);
    const texts = [];
    for (const { relay, position, id } of letters.letters) {
      const letter = await ask(admin, `/api/letter?store=shop&relay=${relay}&position=${position}`);
      const story = await ask(admin, `/api/story?id=${id}`);
      expect([letter.status, story.status]).toEqual([200, 200]);
      texts.push(letter.text, story.text);
    }
    texts.push(
      (await ask(admin, "/api/overview")).text,
      (await ask(admin, "/api/messages")).text,
      JSON.stringify(groups),
    );
    for (const text of texts) {
      expect(text.length).toBeLessThan(400_000);
      expect(text).not.toContain("hunter2");
      expect(text).not.toContain("Bearer abc");
      expect(text).not.toContain('"k"}');
    }
    expect(texts[0]).toMatch(/"length":1000\d\d\d/);
    expect(texts[0]).toContain("Some values are masked");
  });

  test("a redact function decides, and hides what it throws at; bodies may be hidden at all", async () => {
    await using scene = await adminScene();
    await scene.enqueue({ stream: "s", type: "t", key: "k", payload: { card: "4111", city: "Rome" }, id: "m-1" });
    const shown = async (redact: NonNullable<Parameters<typeof scene.admin>[0]>["redact"]) => {
      const { json } = await ask(scene.admin(redact === undefined ? {} : { redact }), "/api/story?id=m-1");
      return JSON.stringify((json as unknown as StoryAnswer).roots[0]?.contents);
    };
    expect(await shown(undefined)).toContain("4111");
    const redacted = await shown(({ payload, headers }) => ({
      payload: { ...(payload as object), card: "hidden" },
      headers,
    }));
    expect(redacted).toContain("Rome");
    expect(redacted).not.toContain("4111");
    const thrown = await shown(() => {
      throw new Error("4111");
    });
    expect(thrown).not.toMatch(/4111|Rome/);
    expect(await shown("hide")).not.toMatch(/4111|Rome/);
  });

  test("the search box takes an id, a key, an aggregate, a correlation or a type", async () => {
    await using scene = await adminScene();
    const headers = { correlationId: "corr-1" };
    await scene.enqueue(
      {
        stream: "s",
        type: "order_placed",
        key: "ada",
        aggregateType: "order",
        aggregateId: "4711",
        payload: 1,
        id: "m-1",
        headers,
      },
      { stream: "s", type: "other", key: "ben", payload: 2, id: "m-2" },
    );
    await scene.relayOnce("r");
    const admin = scene.admin();
    for (const q of ["m-1", "ada", "order:4711", "4711", "corr-1"]) {
      const { messages } = (await ask(admin, `/api/messages?q=${encodeURIComponent(q)}`))
        .json as unknown as MessagesAnswer;
      expect(
        messages.map(({ id }) => id),
        q,
      ).toEqual(["m-1"]);
    }
    const typed = (await ask(admin, "/api/messages?q=other")).json as unknown as MessagesAnswer;
    expect(typed.messages.map(({ id, status }) => [id, status])).toEqual([["m-2", "published"]]);
  });

  test("two people who requeue one letter: the second is told that it is done", async () => {
    await using scene = await adminScene();
    await scene.enqueue({ stream: "s", type: "t", key: "k", payload: 1 });
    await scene.relayOnce("r", () => ({ status: "rejected", error: new Error("broken") }));
    const admin = scene.admin();
    const body = { action: "requeue", store: "shop", choice: { relay: "r", position: "1" }, atMost: 1 };
    const preview = await ask(admin, "/api/preview", { body });
    expect(preview.json).toMatchObject({
      question: "Requeue 1 dead letter?",
      count: 1,
      command: "txbox dead requeue --relay r --position 1",
    });
    const first = await ask(admin, "/api/act", { body: { ...body, actor: "ada", reason: "mended" } });
    expect(first.json).toMatchObject({ count: 1 });
    await scene.relayOnce("r");
    const second = await ask(admin, "/api/act", { body: { ...body, actor: "ben" } });
    expect([second.status, second.json["error"]]).toEqual([409, expect.stringContaining("Nothing was changed")]);
    expect(await scene.store.admin.dead({ state: "requeued" })).toHaveLength(1);
  });

  test("the command beside an action names the store, where there are several", async () => {
    await using scene = await adminScene();
    await using other = await adminScene();
    await other.enqueue({ stream: "s", type: "t", key: "k", payload: 1 });
    await other.relayOnce("r", () => ({ status: "rejected", error: new Error("broken") }));
    const admin = scene.admin({ stores: { orders: scene.store, payments: other.store } });
    const of = { store: "payments", relay: "r" };
    const commands = await Promise.all(
      [
        { ...of, action: "requeue", choice: { relay: "r", position: "1" } },
        { ...of, action: "pause" },
        { ...of, action: "rewind", to: "earliest" },
      ].map(async (body) => (await ask(admin, "/api/preview", { body })).json["command"]),
    );
    expect(commands).toEqual([
      "txbox dead requeue --relay r --position 1 --store payments",
      "txbox relays pause r --store payments",
      "txbox relays rewind r --to earliest --store payments",
    ]);
    const { groups } = (await ask(admin, "/api/groups")).json as unknown as GroupsAnswer;
    expect(groups[0]!.command).toMatch(/ --store payments$/);
    const { verdict } = (await ask(admin, "/api/overview")).json as unknown as Overview;
    expect(verdict.causes[0]!.command).toMatch(/^txbox dead list --relay r --store payments$/);
  });

  test("an edited letter keeps its place and its original; who did it and why is noted", async () => {
    await using scene = await adminScene();
    await scene.enqueue({
      stream: "s",
      type: "t",
      key: "k",
      payload: { iban: "x", big: 1 },
      id: "m-1",
      headers: { note: "a" },
    });
    await scene.enqueue({ stream: "s", type: "t", key: "other", payload: { amount: 1 }, id: "m-2" });
    await scene.relayOnce("r", () => ({ status: "rejected", error: new Error("broken") }));
    const admin = scene.admin();
    const [masked, plain] = await Promise.all(
      ["1", "2"].map(
        async (position) => (await ask(admin, `/api/letter?store=shop&relay=r&position=${position}`)).json,
      ),
    );
    // What is masked must not be written back.
    expect(masked!["notEditable"]).toMatch(/masked/);
    expect(plain!["notEditable"]).toBeNull();
    const choice = { relay: "r", position: "2" };
    const edit = {
      action: "edit",
      store: "shop",
      choice,
      payload: '{ "amount": 12345678901234567890 }',
      actor: "ada",
      reason: "wrong amount",
    };
    expect((await ask(admin, "/api/act", { body: { ...edit, payload: "{ not json" } })).status).toBe(400);
    expect((await ask(admin, "/api/act", { body: { ...edit, payload: undefined } })).json["error"]).toBe(
      "Nothing is different",
    );
    expect((await ask(admin, "/api/act", { body: edit })).status).toBe(200);
    const after = (await ask(admin, "/api/letter?store=shop&relay=r&position=2")).json as unknown as LetterAnswer;
    expect(after.letter).toMatchObject({ id: "m-2", position: "2", edited: true });
    expect(after.contents.body.text).toContain("12345678901234567890");
    expect(after.original?.body.text).toContain('"amount": 1');
    await ask(admin, "/api/act", { body: { action: "requeue", store: "shop", choice, atMost: 1, actor: "ada" } });
    const got: unknown[] = [];
    await scene.relayOnce("r", ({ body }) => (got.push(body), { status: "published" }));
    expect(got).toEqual(['{"amount":12345678901234567890}']);
    const { changes } = (await ask(admin, "/api/changes")).json as unknown as ChangesAnswer;
    expect(changes.map(({ action, actor, reason, count }) => [action, actor, reason, count])).toEqual([
      ["requeue", "ada", null, 1],
      ["edit", "ada", "wrong amount", 1],
    ]);
  });

  test("a rewind shows what would be sent again", async () => {
    await using scene = await adminScene();
    for (let n = 1; n <= 3; n++) await scene.enqueue({ stream: "s", type: "t", key: "k", payload: n });
    await scene.relayOnce("r");
    const body = { action: "rewind", store: "shop", relay: "r", to: "earliest" };
    const { json } = await ask(scene.admin(), "/api/preview", { body });
    expect(json).toMatchObject({
      question: "Send 3 messages of relay r again?",
      count: 3,
      command: "txbox relays rewind r --to earliest",
    });
  });

  test("a redrive requeues at its rate, is seen in the overview and can be stopped", async () => {
    await using scene = await adminScene();
    const many = Array.from({ length: 12 }, (_, n) => ({ stream: "s", type: "t", key: `k${n}`, payload: n }));
    await scene.enqueue(...many);
    await scene.relayOnce("r", () => ({ status: "rejected", error: new Error("broken") }));
    // Commands are carried out by a process: here by one that runs beside.
    const relay = createRelay({ store: scene.store, name: "r", publisher: judging(() => ({ status: "published" })) });
    await relay.start();
    try {
      const admin = scene.admin();
      const body = { action: "requeue", store: "shop", choice: { relay: "r", all: true }, perSecond: 4, actor: "ada" };
      const { json } = await ask(admin, "/api/act", { body });
      expect(json["job"]).toEqual(expect.any(String));
      await eventually(async () => {
        const overview = (await ask(admin, "/api/overview")).json as unknown as Overview;
        expect(overview.jobs[0]?.requeued).toBeGreaterThan(0);
      });
      const early = (await scene.store.admin.dead({ limit: 100 })).filter(({ command }) => command === null).length;
      expect(early).toBeGreaterThan(0);
      expect((await ask(admin, "/api/stop", { body: { job: json["job"], actor: "ben" } })).status).toBe(200);
      expect((await ask(admin, "/api/stop", { body: { job: json["job"], actor: "ben" } })).status).toBe(409);
      const { changes } = (await ask(admin, "/api/changes")).json as unknown as ChangesAnswer;
      expect(changes.map(({ action, actor, reason }) => [action, actor, reason])).toEqual([
        ["stop", "ben", null],
        ["redrive", "ada", null],
      ]);
      await eventually(async () => {
        const overview = (await ask(admin, "/api/overview")).json as unknown as Overview;
        expect(overview.jobs[0]?.state).toBe("stopped");
      });
    } finally {
      await relay.stop();
    }
  });
});

describe.skipIf(!hasPostgres())("live", () => {
  test("one reading for all pages, none without a page, a clean end", { timeout: 120_000 }, async () => {
    await using scene = await adminScene();
    let looks = 0;
    const counting = new Proxy(scene.store, {
      get: (store, name) =>
        name === "admin"
          ? { ...store.admin, figures: () => (looks++, store.admin.figures()) }
          : (Reflect.get(store, name) as unknown),
    });
    const admin = createAdmin({ stores: { shop: counting } });
    const server = createServer((request, response) => void toNodeHandler(admin)(request, response));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const open = async () => {
      const page = new AbortController();
      const response = await fetch(`http://127.0.0.1:${port}/api/live`, { signal: page.signal });
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      let heard = "";
      const reading = (async () => {
        for (;;) {
          const { done, value } = await reader.read();
          if (done) return "ended";
          heard += value;
        }
      })().catch(() => "cut");
      return { close: () => page.abort(), heard: () => heard, ended: reading };
    };
    try {
      expect(looks).toBe(0);
      const pages = await Promise.all([open(), open(), open()]);
      await eventually(() => {
        for (const page of pages) expect(page.heard().match(/event: overview/g)?.length ?? 0).toBeGreaterThan(1);
      }, PATIENCE);
      const events = Math.max(...pages.map((page) => page.heard().match(/event: overview/g)!.length));
      expect(looks).toBeLessThanOrEqual(events + 1);
      expect(pages[0].heard()).toContain("event: history");
      for (const page of pages) page.close();
      await eventually(async () => {
        const before = looks;
        await new Promise((resolve) => setTimeout(resolve, 1500));
        expect(looks).toBe(before);
      }, PATIENCE);
      const last = await open();
      await eventually(() => expect(last.heard()).toContain("event: overview"), PATIENCE);
      await admin.close();
      expect(await last.ended).toBe("ended");
    } finally {
      server.close();
      server.closeAllConnections();
    }
  });

  test("a store that goes down while a page is open is named, with since when, and is back by itself", async () => {
    await using scene = await adminScene();
    await scene.relayOnce("r");
    let isDown = false;
    const broken = new Proxy(scene.store, {
      get: (store, name) =>
        name === "admin"
          ? {
              ...store.admin,
              figures: () =>
                isDown ? Promise.reject(new Error("connect ECONNREFUSED postgres://u:pw@db/x")) : store.admin.figures(),
              search: () => Promise.reject(new Error("connect ECONNREFUSED")),
            }
          : (Reflect.get(store, name) as unknown),
    });
    const admin = createAdmin({ stores: { shop: broken, other: scene.store } });
    const overview = async () => (await ask(admin, "/api/overview")).json as unknown as Overview;
    expect((await overview()).verdict.level).toBe("good");
    isDown = true;
    const down = await eventually(async () => {
      const now = await overview();
      expect(now.verdict).toMatchObject({ level: "bad", text: "The store shop gives no answer." });
      return now;
    });
    expect(down.stores[0]!.down!.since).toBeLessThanOrEqual(Date.now());
    expect(JSON.stringify(down)).not.toContain("u:pw");
    // What was known last is still there, and the other store is not held up.
    expect(down.stores.map(({ relays }) => relays.length)).toEqual([1, 1]);
    const found = (await ask(admin, "/api/messages?key=x")).json as unknown as MessagesAnswer;
    expect(found.missing.map(({ store }) => store)).toEqual(["shop"]);
    const alone = await ask(admin, "/api/messages?key=x&store=shop");
    expect([alone.status, alone.json["fix"]]).toEqual([503, "Look at Doctor"]);
    isDown = false;
    await eventually(async () => expect((await overview()).verdict.level).toBe("good"));
    await admin.close();
  });
});
