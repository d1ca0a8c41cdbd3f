import { request, type IncomingHttpHeaders } from "node:http";
import { gunzipSync } from "node:zlib";
import { expect } from "vitest";
import { until, withDeadline } from "../../../../test/harness/index.ts";
import type { Application } from "./application.ts";

export interface Asked {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: unknown;
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** What a browser sends with everything; a host may pack what it answers. */
const BROWSER = { "accept-encoding": "gzip, deflate, br" };
const AS_PAGE = { "x-txbox-page": "1", "content-type": "application/json" };
const BEHIND_A_PROXY = {
  host: "ops.example.com",
  origin: "https://ops.example.com",
  "x-forwarded-proto": "https",
  "x-forwarded-host": "ops.example.com",
  "x-forwarded-for": "203.0.113.7",
};

/** Asks with any Host, which fetch does not. */
export async function ask(app: Application, path: string, { method, headers, body }: Asked = {}): Promise<Answer> {
  const answer = new Promise<Answer>((resolve, reject) => {
    const asking = request(app.url + path, {
      method: method ?? (body === undefined ? "GET" : "POST"),
      headers: { ...BROWSER, ...headers },
    });
    asking.once("error", reject);
    asking.once("response", (response) => {
      const parts: Buffer[] = [];
      response.on("data", (part: Buffer) => parts.push(part));
      response.once("error", reject);
      response.once("end", () => {
        const bytes = Buffer.concat(parts);
        const text = String(response.headers["content-encoding"] === "gzip" ? gunzipSync(bytes) : bytes);
        resolve({ status: response.statusCode ?? 0, headers: response.headers, text });
      });
    });
    asking.end(body === undefined ? undefined : JSON.stringify(body));
  });
  return withDeadline(answer, 30_000, `${path}\n${app.output()}`);
}

async function json<T>(app: Application, path: string, asked: Asked): Promise<T> {
  const { status, text } = await ask(app, path, asked);
  expect([status, text.slice(0, 500)]).toEqual([200, expect.any(String)]);
  return JSON.parse(text) as T;
}

/** Signs in with the token; gives what a browser sends from then on. */
export async function signIn(app: Application, token: string): Promise<Record<string, string>> {
  const refused = await ask(app, "/txbox/api/sign-in", { headers: AS_PAGE, body: { token: "a wrong one" } });
  expect(refused.status).toBe(401);
  const { status, headers } = await ask(app, "/txbox/api/sign-in", { headers: AS_PAGE, body: { token } });
  const [cookie = ""] = headers["set-cookie"] ?? [];
  expect([status, cookie]).toEqual([200, expect.stringMatching(/; Path=\/txbox\/; .*HttpOnly; SameSite=Strict$/)]);
  return { cookie: cookie.split(";")[0]! };
}

/** Its document and files are there, with and without the last slash, and no host touches them. */
export async function opensThePage(app: Application, login: Readonly<Record<string, string>>): Promise<void> {
  for (const path of ["/txbox", "/txbox/", "/txbox/dead?tab=blocked"]) {
    let at = new URL(path, app.url);
    let answer = await ask(app, at.pathname + at.search, { headers: login });
    // A host may take the slash away, and must not turn in circles with the page.
    if (answer.status === 308) {
      at = new URL(answer.headers.location!, at);
      answer = await ask(app, at.pathname + at.search, { headers: login });
    }
    expect([path, answer.status, answer.text.slice(0, 15)]).toEqual([path, 200, "<!doctype html>"]);
    expect(answer.headers["content-security-policy"]).toContain("default-src 'none'");
    const files = Array.from(answer.text.matchAll(/(?:href|src)="([^"]+\.(?:css|js))"/g), ([, name]) => name!);
    expect(files).toHaveLength(2);
    for (const name of files) {
      const file = new URL(name, at);
      const { status, text } = await ask(app, file.pathname, { headers: login });
      expect([file.pathname, status]).toEqual([expect.stringMatching(/^\/txbox\/page-/), 200]);
      expect(text).toContain(name.endsWith("js") ? "EventSource" : "prefers-color-scheme");
    }
  }
}

/** Nobody gets in without the login, by another name, or from another site. */
export async function refusesOthers(app: Application, login: Readonly<Record<string, string>>): Promise<void> {
  const status = async (path: string, asked: Asked): Promise<number> => (await ask(app, path, asked)).status;
  expect([401, 403]).toContain(await status("/txbox/api/overview", {}));
  expect(await status("/txbox/api/overview", { headers: { ...login, host: "evil.example" } })).toBe(421);
  expect(await status("/txbox/api/overview", { headers: { ...login, origin: "https://evil.example" } })).toBe(403);
  const act = { action: "requeue", store: "orders", choice: { all: true }, actor: "eve" };
  const json = { "content-type": "application/json" };
  expect(await status("/txbox/api/act", { headers: { ...login, ...json }, body: act })).toBe(403);
  const foreign = { ...login, ...AS_PAGE, origin: "https://evil.example", "sec-fetch-site": "cross-site" };
  expect(await status("/txbox/api/act", { headers: foreign, body: act })).toBe(403);
  const form = { ...login, "x-txbox-page": "1", "content-type": "text/plain" };
  expect(await status("/txbox/api/act", { headers: form, body: act })).toBe(415);
}

/** Events come one by one, as they happen. Gives what ends it. */
export async function followsLive(app: Application, login: Readonly<Record<string, string>>): Promise<() => void> {
  const asking = request(`${app.url}/txbox/api/live`, { headers: { ...BROWSER, ...login } });
  const times: number[] = [];
  let [text, status] = ["", 0];
  asking.once("response", (response) => {
    status = response.statusCode ?? 0;
    response.setEncoding("utf8").on("data", (part: string) => {
      if (part.includes("event: overview\n")) times.push(performance.now());
      text += part;
    });
    response.on("error", () => undefined);
  });
  asking.on("error", () => undefined);
  asking.end();
  await until(() => times.length >= 3, {
    what: `three events of the page; there came ${status}`,
    timeoutMs: 30_000,
  }).catch((error: unknown) => {
    throw new Error(`${String(error)}\n${text.slice(0, 1000)}`, { cause: error });
  });
  expect(times[2]! - times[0]!).toBeGreaterThan(300);
  return () => asking.destroy();
}

interface Letters {
  letters: { relay: string; position: string; stream: string; id: string }[];
}

/** A letter is found, mended and requeued behind a proxy; its order is paid, and it is noted who did it. */
export async function mendsALetter(
  app: Application,
  login: Readonly<Record<string, string>>,
  actor?: string,
): Promise<void> {
  const headers = { ...BEHIND_A_PROXY, ...login };
  let letters: Letters["letters"] = [];
  await until(
    async () => {
      ({ letters } = await json<Letters>(app, "/txbox/api/letters?store=orders", { headers }));
      return letters.length > 0;
    },
    { what: "a dead letter", timeoutMs: 30_000 },
  );
  expect(letters).toHaveLength(1);
  const { relay, position, stream, id } = letters[0]!;
  const choice = { relay, position };
  const who = actor === undefined ? { actor: "grace" } : {};
  const act = (body: object): Promise<{ done: string }> =>
    json(app, "/txbox/api/act", {
      headers: { ...headers, ...AS_PAGE },
      body: { store: "orders", choice, ...who, reason: "a typing error", ...body },
    });
  await act({ action: "edit", payload: JSON.stringify({ orderId: "o-bad", total: 5 }) });
  await act({ action: "requeue" });
  const paid = JSON.stringify({ order_id: "o-bad", amount: 5 });
  await until(async () => JSON.stringify(await app.get("/payments")).includes(paid), {
    what: `the payment of ${stream} ${id}`,
    timeoutMs: 30_000,
  });
  const { changes } = await json<{ changes: { actor: string; action: string; reason: string }[] }>(
    app,
    "/txbox/api/changes",
    { headers },
  );
  expect(changes.map((change) => [change.action, change.actor, change.reason])).toEqual(
    ["requeue", "edit"].map((action) => [action, actor ?? "grace", "a typing error"]),
  );
}
