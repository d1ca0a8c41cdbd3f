import { createServer as createHttpServer } from "node:http";
import { connect, createServer, type ClientHttp2Session, type OutgoingHttpHeaders } from "node:http2";
import { type AddressInfo, connect as connectSocket } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createAdmin, toNodeHandler } from "../../../src/admin/index.ts";
import { PAGE_HEADER } from "../../../src/admin/page-api.ts";

const TOKEN = "a token of more than sixteen characters";
const admin = createAdmin({
  token: TOKEN,
  hosts: ["ops.example.com"],
  stores: { shop: { admin: { figures: async () => undefined } } as never },
});
const handle = toNodeHandler(admin);

describe("over HTTP/2", () => {
  const server = createServer((request, response) => void handle(request, response));
  let client: ClientHttp2Session;
  beforeAll(async () => {
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    client = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  });
  afterAll(() => {
    client.close();
    server.close();
  });

  async function ask(headers: OutgoingHttpHeaders, body?: unknown): Promise<{ status: number; text: string }> {
    const stream = client.request({ ":path": "/api/session", ...headers });
    stream.end(body === undefined ? undefined : JSON.stringify(body));
    const status = new Promise<number>((resolve) => stream.once("response", (given) => resolve(given[":status"]!)));
    const parts: Buffer[] = [];
    for await (const part of stream) parts.push(part as Buffer);
    return { status: await status, text: Buffer.concat(parts).toString() };
  }

  test("the name in :authority is the one that is checked", async () => {
    expect(await ask({ ":authority": "ops.example.com" })).toMatchObject({ status: 200 });
    expect(await ask({ ":authority": "127.0.0.1:4466" })).toMatchObject({ status: 200 });
    expect(await ask({ ":authority": "evil.example.com" })).toMatchObject({ status: 421 });
    // A second name beside it helps nothing.
    expect(await ask({ ":authority": "evil.example.com", host: "localhost" })).toMatchObject({ status: 400 });
    expect(await ask({ ":authority": "localhost", host: "evil.example.com" })).toMatchObject({ status: 400 });
  });

  test("a change works, and that of another site does not", async () => {
    const signIn = {
      ":method": "POST",
      ":path": "/api/sign-in",
      ":authority": "ops.example.com",
      "content-type": "application/json",
      [PAGE_HEADER]: "1",
    };
    const body = { token: TOKEN };
    expect(await ask({ ...signIn, origin: "https://ops.example.com" }, body)).toMatchObject({ status: 200 });
    expect(await ask({ ...signIn, origin: "https://evil.example.com" }, body)).toMatchObject({ status: 403 });
    expect(await ask({ ...signIn, ":authority": "evil.example.com" }, body)).toMatchObject({ status: 421 });
  });
});

test("a request without a name is refused", async () => {
  const server = createHttpServer({ requireHostHeader: false }, (request, response) => void handle(request, response));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    const socket = connectSocket((server.address() as AddressInfo).port, "127.0.0.1");
    socket.end("GET /api/session HTTP/1.0\r\n\r\n");
    let text = "";
    for await (const part of socket) text += String(part);
    expect(text).toMatch(/^HTTP\/1\.1 400 /);
  } finally {
    server.close();
  }
});
