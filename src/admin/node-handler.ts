import type { AdminHandler } from "./create-admin.ts";

/** What is used of node:http's IncomingMessage; Express and Fastify hand on the same. */
export interface NodeRequest extends AsyncIterable<Uint8Array> {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  /** Express takes the path of the mount away from `url` and keeps all of it here. */
  readonly originalUrl?: string | undefined;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** What a parser of the host has read already. */
  readonly body?: unknown;
  readonly socket: { readonly remoteAddress?: string | undefined; readonly encrypted?: boolean };
}

/** What is used of node:http's ServerResponse. */
export interface NodeResponse {
  readonly headersSent: boolean;
  destroy(): unknown;
  writeHead(status: number, headers: Record<string, string | string[]>): unknown;
  write(chunk: Uint8Array): boolean;
  end(): unknown;
  once(event: "close" | "drain" | "error", listener: () => void): unknown;
}

const MOST_BODY_BYTES = 4_000_000;

/** The page for servers of Node: node:http, Express, Fastify. Never rejects. */
export function toNodeHandler(admin: AdminHandler): (request: NodeRequest, response: NodeResponse) => Promise<void> {
  return async (request, response) => {
    const gone = new AbortController();
    response.once("close", () => gone.abort());
    response.once("error", () => gone.abort());
    try {
      const asked = await requestOf(request, gone.signal);
      const answer = await admin(asked, { remoteAddress: request.socket.remoteAddress });
      await send(answer, response, gone.signal);
    } catch {
      if (response.headersSent) {
        response.destroy();
        return;
      }
      response.writeHead(400, { "content-type": "text/plain; charset=utf-8" });
      response.end();
    }
  };
}

async function requestOf(request: NodeRequest, signal: AbortSignal): Promise<Request> {
  const { method = "GET", headers } = request;
  const host = hostOf(headers);
  const scheme = request.socket.encrypted === true ? "https" : "http";
  const given = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined && !name.startsWith(":")) given.set(name, Array.isArray(value) ? value.join(", ") : value);
  }
  given.set("host", host);
  const path = request.originalUrl ?? request.url ?? "/";
  // A path such as //evil would be read as another host.
  const url = new URL(`${scheme}://${host}${path.startsWith("/") ? path.replace(/^\/{2,}/, "/") : "/"}`);
  if (method === "GET" || method === "HEAD") return new Request(url, { method, headers: given, signal });
  return new Request(url, { method, headers: given, body: new Uint8Array(await bodyOf(request)), signal });
}

/** By HTTP/2 the name stands in `:authority`. Without a name it is not known whether it is ours. */
function hostOf(headers: NodeRequest["headers"]): string {
  const [authority, host] = [headers[":authority"], headers["host"]].map((name) => (name === "" ? undefined : name));
  const name = authority ?? host;
  if (typeof name !== "string") throw new Error("There is no Host header and no :authority");
  if (typeof host === "string" && host.toLowerCase() !== name.toLowerCase())
    throw new Error("Host and :authority differ");
  return name;
}

async function bodyOf(request: NodeRequest): Promise<Uint8Array> {
  if (typeof request.body === "object" && request.body !== null) return Buffer.from(JSON.stringify(request.body));
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of request) {
    bytes += part.byteLength;
    if (bytes <= MOST_BODY_BYTES) parts.push(part);
  }
  return Buffer.concat(parts);
}

async function send(answer: Response, response: NodeResponse, signal: AbortSignal): Promise<void> {
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  const reader = answer.body?.getReader();
  if (reader === undefined) {
    response.end();
    return;
  }
  signal.addEventListener("abort", () => void reader.cancel().catch(() => undefined), { once: true });
  if (signal.aborted) await reader.cancel().catch(() => undefined);
  for (;;) {
    const { done, value } = await reader.read();
    if (done || signal.aborted) break;
    if (!response.write(value)) {
      await new Promise<void>((resolve) => {
        response.once("drain", resolve);
        response.once("close", resolve);
      });
    }
  }
  response.end();
}
