import { gunzipSync } from "node:zlib";
import { AdminApi } from "./admin-api.ts";
import { AdminGuard, type Connection, type Visitor } from "./admin-guard.ts";
import { type AdminOptions, checkAdminOptions } from "./admin-options.ts";
import { eventStream } from "./event-stream.ts";
import { LiveReadings } from "./live-readings.ts";
import type { PageSession } from "./page-api.ts";
import { pageBundle, type PageBundle, type PageFile } from "./page-bundle.ts";
import { failureAnswer, PageFailure } from "./page-failure.ts";
import { RedriveJobs } from "./redrive-jobs.ts";

/** The page as a function of a web server. Never rejects. */
export interface AdminHandler {
  (request: Request, connection?: Connection): Promise<Response>;
  /** Ends live connections and redrives; the stores stay open. */
  close(): Promise<void>;
}

const SCREENS = ["", "messages", "story", "dead", "relays", "doctor"];
const MOST_URL = 16_384;
const MOST_BODY_BYTES = 2_500_000;

const SAFE_HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "cache-control": "no-store",
};

/**
 * The page of txbox, to be mounted in any server. Without `token` and `authorize` it serves this machine alone. Throws
 * `invalid_option` for options that are wrong.
 */
export function createAdmin(options: AdminOptions): AdminHandler {
  checkAdminOptions(options);
  const page = new AdminPage(options);
  const handler = (request: Request, connection?: Connection): Promise<Response> => page.respond(request, connection);
  return Object.assign(handler, { close: () => page.close() });
}

class AdminPage {
  readonly #options: AdminOptions;
  readonly #prefix: string;
  readonly #guard: AdminGuard;
  readonly #jobs = new RedriveJobs();
  readonly #readings: LiveReadings;
  readonly #api: AdminApi;
  readonly #ending = new AbortController();
  #bundle: Promise<PageBundle> | undefined;

  constructor(options: AdminOptions) {
    this.#options = options;
    this.#prefix = (options.prefix ?? "").replace(/\/$/, "");
    this.#guard = new AdminGuard(options);
    this.#readings = new LiveReadings(options.stores, () => this.#jobs.views());
    this.#api = new AdminApi({ options, readings: this.#readings, jobs: this.#jobs });
  }

  async respond(request: Request, connection: Connection | undefined): Promise<Response> {
    try {
      const response = await this.#answer(request, connection);
      return request.method === "HEAD" ? new Response(null, response) : response;
    } catch (error) {
      const { status, retryAfterMs, ...failure } = failureAnswer(error);
      const retry = retryAfterMs === undefined ? {} : { "retry-after": String(Math.ceil(retryAfterMs / 1000)) };
      return json(failure, status, retry);
    }
  }

  async close(): Promise<void> {
    this.#ending.abort();
    this.#readings.close();
    await this.#jobs.close();
  }

  async #answer(request: Request, connection: Connection | undefined): Promise<Response> {
    const { method } = request;
    if (request.url.length > MOST_URL) throw new PageFailure(414, "The address is too long");
    if (method !== "GET" && method !== "HEAD" && method !== "POST")
      throw new PageFailure(405, "Only GET, HEAD and POST");
    this.#guard.checkOrigin(request);
    const { pathname, searchParams } = new URL(request.url);
    // No redirect to a slash: hosts like Next redirect the other way.
    if (pathname === this.#prefix) {
      if (method === "POST") throw new PageFailure(405, "Only GET and HEAD");
      return this.#file("", request, connection, `${this.#prefix.slice(this.#prefix.lastIndexOf("/") + 1)}/`);
    }
    if (!pathname.startsWith(`${this.#prefix}/`)) throw new PageFailure(404, "There is nothing here");
    const path = pathname.slice(this.#prefix.length + 1);
    if (!path.startsWith("api/")) {
      if (method === "POST") throw new PageFailure(405, "Only GET and HEAD");
      return this.#file(path, request, connection);
    }
    const name = path.slice("api/".length);
    return method === "POST"
      ? this.#post(name, request, connection)
      : this.#get(name, searchParams, request, connection);
  }

  async #get(
    name: string,
    values: URLSearchParams,
    request: Request,
    connection: Connection | undefined,
  ): Promise<Response> {
    if (name === "session") return json(await this.#session(request, connection));
    await this.#guard.visitor(request, connection);
    if (name === "live") {
      const headers = {
        ...SAFE_HEADERS,
        "content-type": "text/event-stream; charset=utf-8",
        // A proxy that compresses it holds events back until there are many.
        "cache-control": "no-store, no-transform",
        "x-accel-buffering": "no",
      };
      if (request.method === "HEAD") return new Response(null, { headers });
      return new Response(eventStream(this.#readings, this.#ending.signal), { headers });
    }
    return json(await this.#api.get(name, values));
  }

  async #post(name: string, request: Request, connection: Connection | undefined): Promise<Response> {
    if (name === "sign-in") {
      const body = await bodyOf(request);
      const token = typeof body === "object" && body !== null && "token" in body ? body.token : undefined;
      return json({ done: "Signed in." }, 200, { "set-cookie": this.#guard.signIn(request, token, connection) });
    }
    if (name === "sign-out") return json({ done: "Signed out." }, 200, { "set-cookie": this.#guard.signOut(request) });
    const visitor = await this.#guard.visitor(request, connection);
    return json(await this.#api.post(name, await bodyOf(request), visitor));
  }

  async #session(request: Request, connection: Connection | undefined): Promise<PageSession> {
    const { title = "txbox", color = null, redact, stores, traceUrl = null } = this.#options;
    let visitor: Visitor | undefined;
    try {
      visitor = await this.#guard.visitor(request, connection);
    } catch (error) {
      if (!(error instanceof PageFailure && error.status === 401)) throw error;
    }
    const isKnown = visitor !== undefined;
    return {
      title: isKnown ? title : "txbox",
      color: isKnown ? color : null,
      tokenNeeded: !isKnown,
      canSignOut: isKnown && this.#guard.tokenNeeded,
      actor: visitor?.actor ?? null,
      may: [...(visitor?.may ?? [])],
      payloads: redact === undefined ? "shown" : redact === "hide" ? "hidden" : "redacted",
      stores: isKnown ? Object.keys(stores) : [],
      traceUrl: isKnown ? traceUrl : null,
    };
  }

  /** The page without data: with a token it has to be there before the token is given. */
  async #file(path: string, request: Request, connection: Connection | undefined, folder = ""): Promise<Response> {
    if (!this.#guard.tokenNeeded) await this.#guard.visitor(request, connection);
    this.#bundle ??= pageBundle();
    const { script, style } = await this.#bundle;
    if (SCREENS.includes(path)) {
      return new Response(html(script.name, style.name, folder), {
        headers: { ...SAFE_HEADERS, "content-type": "text/html; charset=utf-8" },
      });
    }
    const file = [script, style].find(({ name }) => name === path);
    if (file === undefined) throw new PageFailure(404, "There is nothing here");
    return fileAnswer(file, request, connection !== undefined);
  }
}

/** Without a connection to send it on, the host may pack it, and may drop the header that says that it is packed, as Next does. */
function fileAnswer({ type, gzip }: PageFile, request: Request, mayPack: boolean): Response {
  const headers = { ...SAFE_HEADERS, "content-type": type, "cache-control": "private, max-age=31536000, immutable" };
  const accepts =
    mayPack && /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?(?:,|$))/i.test(request.headers.get("accept-encoding") ?? "");
  const body = accepts ? gzip : gunzipSync(gzip);
  return new Response(new Uint8Array(body), {
    headers: { ...headers, vary: "accept-encoding", ...(accepts ? { "content-encoding": "gzip" } : {}) },
  });
}

/** Names of files are relative, so that the page works under every prefix, also under one that a proxy adds. */
function html(script: string, style: string, folder: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>txbox</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${folder}${style}">
<script type="module" src="${folder}${script}"></script>
</head>
<body><div id="page"></div><noscript>This page needs JavaScript. The command line shows the same: txbox status</noscript></body>
</html>
`;
}

function json(value: unknown, status = 200, headers: Readonly<Record<string, string>> = {}): Response {
  return new Response(JSON.stringify(value), {
    status,
    headers: { ...SAFE_HEADERS, "content-type": "application/json; charset=utf-8", ...headers },
  });
}

async function bodyOf(request: Request): Promise<unknown> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const value of request.body ?? []) {
    bytes += value.byteLength;
    if (bytes > MOST_BODY_BYTES)
      throw new PageFailure(413, `A request has at most ${MOST_BODY_BYTES} bytes`, { fix: "Use the command line" });
    parts.push(value);
  }
  try {
    return JSON.parse(Buffer.concat(parts).toString("utf8")) as unknown;
  } catch {
    throw new PageFailure(400, "The request is no JSON");
  }
}
