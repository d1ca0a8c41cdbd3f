import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { AdminHandler, AdminOptions } from "../../../src/admin/index.ts";
import { PAGE_HEADER } from "../../../src/admin/page-api.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { type AdminScene, adminScene, ask, type Asked } from "../../support/admin-scene.ts";

const TOKEN = "a token of more than sixteen characters";
const BEARER = { authorization: `Bearer ${TOKEN}` };
const REQUEUE = { action: "requeue", store: "shop", choice: { all: true }, actor: "eve" };

interface Attempt extends Asked {
  readonly what: string;
  readonly options?: Partial<AdminOptions>;
  readonly path?: string;
  readonly status: number;
  readonly says: RegExp;
}

const token = { token: TOKEN };
const attempts: readonly Attempt[] = [
  // Who it is.
  { what: "no token", options: token, path: "/api/overview", status: 401, says: /needs its token/ },
  {
    what: "a wrong token",
    options: token,
    path: "/api/overview",
    headers: { authorization: "Bearer wrong" },
    status: 401,
    says: /needs its token/,
  },
  {
    what: "a wrong token at the sign-in",
    options: token,
    path: "/api/sign-in",
    body: { token: "wrong" },
    status: 401,
    says: /not the token/,
  },
  {
    what: "a token that is no text",
    options: token,
    path: "/api/sign-in",
    body: { token: { $ne: "" } },
    status: 401,
    says: /not the token/,
  },
  {
    what: "a forged cookie",
    options: token,
    path: "/api/overview",
    headers: { cookie: "txbox_page=99999999999999.abc" },
    status: 401,
    says: /needs its token/,
  },
  {
    what: "a cookie of another token",
    options: token,
    path: "/api/overview",
    headers: { cookie: `txbox_page=${Date.now() + 1000}.xyz; other=1` },
    status: 401,
    says: /needs its token/,
  },
  {
    what: "another machine without a login",
    path: "/api/overview",
    from: "10.1.2.3",
    status: 403,
    says: /this machine alone.*token/s,
  },
  {
    what: "another machine that claims to be localhost",
    path: "/api/overview",
    from: "10.1.2.3",
    headers: { host: "localhost:4466" },
    status: 403,
    says: /this machine alone/,
  },
  {
    what: "another machine asks for the page itself",
    path: "/",
    from: "10.1.2.3",
    status: 403,
    says: /this machine alone/,
  },
  {
    what: "through a proxy of this machine without a login",
    path: "/api/overview",
    headers: { "x-forwarded-for": "10.1.2.3" },
    status: 403,
    says: /a proxy stands before it/,
  },
  {
    what: "the host's login says no",
    options: { authorize: () => null },
    path: "/api/overview",
    status: 403,
    says: /does not let you/,
  },
  {
    what: "the host's login throws",
    options: {
      authorize: () => {
        throw new Error("postgres://u:secret@h/d");
      },
    },
    path: "/api/overview",
    status: 403,
    says: /^(?!.*secret).*does not let you/s,
  },
  // By which name, and from which site.
  {
    what: "a foreign Host (DNS rebinding)",
    path: "/api/overview",
    headers: { host: "evil.example:4466" },
    status: 421,
    says: /Host header.*hosts/s,
  },
  {
    what: "a foreign Host with the token",
    options: token,
    path: "/api/overview",
    headers: { ...BEARER, host: "evil.example" },
    status: 421,
    says: /Host header/,
  },
  {
    what: "a Host that only begins like ours",
    path: "/api/overview",
    headers: { host: "127.0.0.1.evil.example" },
    status: 421,
    says: /Host header/,
  },
  {
    what: "a forged Origin",
    path: "/api/act",
    body: REQUEUE,
    headers: { origin: "https://evil.example" },
    status: 403,
    says: /Another site/,
  },
  {
    what: "an Origin of null",
    path: "/api/act",
    body: REQUEUE,
    headers: { origin: "null" },
    status: 403,
    says: /Another site/,
  },
  {
    what: "another port of this machine",
    path: "/api/act",
    body: REQUEUE,
    headers: { origin: "http://127.0.0.1:9999", host: "127.0.0.1:4466" },
    status: 403,
    says: /Another site/,
  },
  {
    what: "a browser that says it is cross-site",
    path: "/api/act",
    body: REQUEUE,
    headers: { "sec-fetch-site": "cross-site" },
    status: 403,
    says: /Another site/,
  },
  {
    what: "a picture of another site that asks for data",
    path: "/api/doctor",
    headers: { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors" },
    status: 403,
    says: /Another site/,
  },
  {
    what: "a form of another site",
    path: "/api/act",
    method: "POST",
    body: "a=1",
    headers: { [PAGE_HEADER]: "", "content-type": "application/x-www-form-urlencoded" },
    status: 403,
    says: new RegExp(PAGE_HEADER),
  },
  {
    what: "a simple request as text/plain",
    path: "/api/act",
    body: REQUEUE,
    headers: { "content-type": "text/plain" },
    status: 415,
    says: /application\/json/,
  },
  { what: "a change by GET", path: "/api/act?action=requeue", status: 404, says: /nothing here/ },
  { what: "PUT", path: "/api/act", method: "PUT", status: 405, says: /Only GET/ },
  // What it may.
  {
    what: "a change of a read-only page",
    options: { readOnly: true },
    path: "/api/act",
    body: REQUEUE,
    status: 403,
    says: /read-only/,
  },
  {
    what: "an action without the right",
    options: { permissions: ["pause"] },
    path: "/api/act",
    body: REQUEUE,
    status: 403,
    says: /may not requeue/,
  },
  {
    what: "an action beyond the person's rights",
    options: { authorize: () => ({ actor: "eve", permissions: ["pause"] }) },
    path: "/api/act",
    body: REQUEUE,
    status: 403,
    says: /may not requeue/,
  },
  {
    what: "an edit where bodies are hidden",
    options: { redact: "hide" },
    path: "/api/act",
    body: { action: "edit", store: "shop", choice: { relay: "r", position: "1" }, payload: "{}", actor: "eve" },
    status: 403,
    says: /cannot edit/,
  },
  {
    what: "a discard without a reason",
    path: "/api/act",
    body: { ...REQUEUE, action: "discard" },
    status: 400,
    says: /needs a reason/,
  },
  ...["pause", "drop", "rewind", "edit"].map((action) => ({
    what: `${action} without a reason`,
    path: "/api/act",
    body: {
      action,
      store: "shop",
      relay: "r",
      to: "now",
      actor: "eve",
      reason: " ",
      ...(action === "edit" ? { payload: "{}" } : {}),
    },
    status: 400,
    says: /needs a reason/,
  })),
  {
    what: "a redrive stopped without a name",
    path: "/api/stop",
    body: { job: "x" },
    status: 400,
    says: /Who are you/,
  },
  {
    what: "a redrive stopped under a name that is no text",
    path: "/api/stop",
    body: { job: "x", actor: 1 },
    status: 400,
    says: /actor must be a text/,
  },
  {
    what: "a change without a name",
    path: "/api/act",
    body: { ...REQUEUE, actor: " " },
    status: 400,
    says: /Who are you/,
  },
  // Absurd input.
  { what: "a store that is not there", path: "/api/letters?store=constructor", status: 404, says: /no such store/ },
  {
    what: "a store named __proto__",
    path: "/api/act",
    body: `{"action":"requeue","store":"__proto__","choice":{"all":true},"actor":"e"}`,
    status: 404,
    says: /no such store/,
  },
  { what: "a page of a billion", path: "/api/messages?limit=1000000000", status: 400, says: /limit must be/ },
  { what: "a page of minus one", path: "/api/letters?store=shop&limit=-1", status: 400, says: /limit must be/ },
  { what: "a filter that is not there", path: "/api/messages?where=1%3D1", status: 400, says: /no field/ },
  { what: "a filter twice", path: "/api/messages?key=a&key=b", status: 400, says: /twice/ },
  {
    what: "a filter of 5,000 characters",
    path: `/api/messages?key=${"x".repeat(5000)}`,
    status: 400,
    says: /more than 4096/,
  },
  {
    what: "an address of 20,000 characters",
    path: `/api/messages?key=${"x".repeat(20_000)}`,
    status: 414,
    says: /too long/,
  },
  { what: "a NUL in a filter", path: "/api/messages?key=a%00b", status: 400, says: /NUL/ },
  {
    what: "SQL in a filter",
    path: "/api/messages?key=%27%3B%20drop%20schema%20txbox%20cascade%3B--",
    status: 200,
    says: /"messages":\[\]/,
  },
  { what: "a status that is not there", path: "/api/messages?status=gone", status: 400, says: /no such status/ },
  { what: "a time that is none", path: "/api/messages?since=yesterday", status: 400, says: /must be a time/ },
  {
    what: "a place that is none",
    path: "/api/letters?store=shop&after=AAAA",
    status: 400,
    says: /no place|must be|is not/,
  },
  {
    what: "a place with a huge position",
    path: `/api/letters?store=shop&after=${Buffer.from('{"relay":"r","stream":"s","id":"i","position":"99999999999999999999999"}').toString("base64url")}`,
    status: 400,
    says: /position/,
  },
  { what: "a body that is no JSON", path: "/api/act", body: "{", status: 400, says: /no JSON/ },
  { what: "a body that is a list", path: "/api/act", body: [], status: 400, says: /must be an object/ },
  { what: "a body of 3 MB", path: "/api/act", body: `"${"x".repeat(3_000_000)}"`, status: 413, says: /at most/ },
  {
    what: "an unknown action",
    path: "/api/act",
    body: { ...REQUEUE, action: "migrate" },
    status: 400,
    says: /no such action/,
  },
  { what: "an unknown field", path: "/api/act", body: { ...REQUEUE, force: true }, status: 400, says: /no field/ },
  {
    what: "a choice of nothing",
    path: "/api/act",
    body: { ...REQUEUE, choice: {} },
    status: 400,
    says: /Which letters/,
  },
  {
    what: "a choice of objects",
    path: "/api/act",
    body: { ...REQUEUE, choice: { key: { $gt: "" } } },
    status: 400,
    says: /must be a text/,
  },
  {
    what: "a rate of 10 million",
    path: "/api/act",
    body: { ...REQUEUE, perSecond: 10_000_000 },
    status: 400,
    says: /perSecond/,
  },
  {
    what: "an actor of 10,000 characters",
    path: "/api/act",
    body: { ...REQUEUE, actor: "x".repeat(10_000) },
    status: 400,
    says: /actor/,
  },
  {
    what: "a rewind to nonsense",
    path: "/api/act",
    body: { action: "rewind", store: "shop", relay: "r", to: "1; drop", actor: "e", reason: "r" },
    status: 400,
    says: /must be a time/,
  },
  {
    what: "a relay that is not there",
    path: "/api/act",
    body: { action: "pause", store: "shop", relay: "missing", actor: "e", reason: "r" },
    status: 404,
    says: /relay/,
  },
  { what: "a file of the server", path: "/../../etc/passwd", status: 404, says: /nothing here/ },
  { what: "a file by an encoded path", path: "/%2e%2e%2fpackage.json", status: 404, says: /nothing here/ },
];

describe.skipIf(!hasPostgres())("a hostile client", () => {
  let scene: AdminScene;
  beforeAll(async () => {
    scene = await adminScene();
    await scene.enqueue({ stream: "orders", type: "order_placed", key: "k", payload: { n: 1 } });
    await scene.relayOnce("r", () => ({ status: "rejected", error: new Error("broken") }));
  });
  afterAll(async () => scene[Symbol.asyncDispose]());

  test.each(attempts)("$what: $status", async ({ options = {}, path = "/", status, says, ...asked }) => {
    const answer = await ask(scene.admin(options), path, asked);
    expect(`${answer.status} ${answer.text}`).toMatch(new RegExp(`^${status} `));
    expect(answer.text).toMatch(says);
    expect(answer.headers.get("content-security-policy")).toContain("default-src 'none'");
    // Nothing of it changed anything.
    expect(await scene.store.admin.dead({})).toMatchObject([{ state: "dead", command: null }]);
    expect(await scene.store.admin.relays()).toMatchObject([{ name: "r", paused: false, dead: 1 }]);
  });

  test("the token is guessed at most ten times in a row", async () => {
    const admin = scene.admin(token);
    const answers = [];
    for (let i = 0; i < 12; i++) answers.push(await ask(admin, "/api/sign-in", { body: { token: `guess ${i}` } }));
    expect(answers.map(({ status }) => status)).toEqual([...Array.from({ length: 10 }, () => 401), 429, 429]);
    expect(Number(answers.at(-1)!.headers.get("retry-after"))).toBeGreaterThan(0);
    const bearer = await ask(admin, "/api/overview", { headers: { authorization: "Bearer another guess" } });
    expect(bearer.status).toBe(429);
  });

  test("expensive questions are answered twenty times in a row, then at a rate", async () => {
    const admin = scene.admin();
    // All at once: a slow machine would be given more in the time that it takes.
    const answers = await Promise.all(Array.from({ length: 30 }, () => ask(admin, "/api/messages?type=x")));
    const refused = answers.filter(({ status }) => status === 429);
    expect(refused.length).toBeGreaterThan(0);
    expect(answers.filter(({ status }) => status === 200).length).toBeGreaterThanOrEqual(20);
    // What an index finds goes on.
    expect((await ask(admin, "/api/messages?id=x")).status).toBe(200);
  });

  test("every answer forbids scripts of others, frames, sniffing and caches", async () => {
    const admin: AdminHandler = scene.admin();
    for (const path of ["/", "/messages", "/api/session", "/api/overview", "/nothing"]) {
      const { headers } = await ask(admin, path);
      const csp = headers.get("content-security-policy");
      expect(csp, path).toContain("script-src 'self'");
      expect(csp, path).toContain("frame-ancestors 'none'");
      expect(csp, path).not.toMatch(/unsafe|\*/);
      expect(headers.get("x-content-type-options"), path).toBe("nosniff");
      expect(headers.get("cache-control"), path).toMatch(/^no-store\b/);
      expect(headers.get("access-control-allow-origin"), path).toBeNull();
    }
  });
});
