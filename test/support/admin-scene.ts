import pg from "pg";
import { createAdmin, type AdminHandler, type AdminOptions } from "../../src/admin/index.ts";
import { PAGE_HEADER } from "../../src/admin/page-api.ts";
import type { Publisher, PublishResult } from "../../src/core/contracts.ts";
import type { Message, NewMessage } from "../../src/core/message.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { createRelay } from "../../src/relay/relay.ts";
import { createPostgresStore, type PostgresStore } from "../../src/stores/postgres/index.ts";
import { migratedDatabase } from "../harness/shared-postgres.ts";

export const LOCAL = { remoteAddress: "127.0.0.1" };

/** A database with its store, and ways to fill it as services and relays do. */
export interface AdminScene extends AsyncDisposable {
  readonly url: string;
  readonly pool: pg.Pool;
  readonly store: PostgresStore<pg.PoolClient>;
  enqueue(...messages: readonly NewMessage[]): Promise<void>;
  /** A relay publishes all there is once; `judge` says what becomes of each. */
  relayOnce(name: string, judge?: (message: Message) => PublishResult): Promise<void>;
  admin(options?: Partial<AdminOptions>): AdminHandler;
}

export async function adminScene(): Promise<AdminScene> {
  const database = await migratedDatabase();
  const pool = new pg.Pool({ connectionString: database.url, max: 5 });
  pool.on("error", () => undefined);
  const store = createPostgresStore({ client: pool });
  const outbox = createOutbox({ store });
  const admins: AdminHandler[] = [];
  return {
    url: database.url,
    pool,
    store,
    async enqueue(...messages) {
      const client = await pool.connect();
      try {
        await client.query("begin");
        for (const message of messages) await outbox.enqueue(client, message);
        await client.query("commit");
      } finally {
        client.release();
      }
    },
    async relayOnce(name, judge = () => ({ status: "published" })) {
      await createRelay({ store, name, publisher: judging(judge), maxAttempts: 1, onDead: "block" }).drainOnce();
    },
    admin(options = {}) {
      const admin = createAdmin({ stores: { shop: store }, ...options });
      admins.push(admin);
      return admin;
    },
    async [Symbol.asyncDispose]() {
      for (const admin of admins) await admin.close();
      await pool.end();
      await database[Symbol.asyncDispose]();
    },
  };
}

export function judging(judge: (message: Message) => PublishResult): Publisher {
  return { keepsKeyOrder: true, publish: async (messages) => inOrder(messages, judge) };
}

/** After a failed message none of its key may go out. */
function inOrder(messages: readonly Message[], judge: (message: Message) => PublishResult): PublishResult[] {
  const failed = new Set<string>();
  return messages.map((message) => {
    if (message.key !== null && failed.has(message.key)) return { status: "held" };
    const result = judge(message);
    if (result.status !== "published" && message.key !== null) failed.add(message.key);
    return result;
  });
}

export interface Asked {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  readonly from?: string;
}

/** Asks as the page does; headers of the caller win. */
export async function ask(
  admin: AdminHandler,
  path: string,
  { method, headers = {}, body, from = "127.0.0.1" }: Asked = {},
): Promise<{ status: number; text: string; json: Record<string, unknown>; headers: Headers }> {
  const isPost = body !== undefined || method === "POST";
  const own = isPost ? { [PAGE_HEADER]: "1", "content-type": "application/json" } : {};
  const given = Object.fromEntries(Object.entries({ ...own, ...headers }).filter(([, value]) => value !== ""));
  const request = new Request(`http://127.0.0.1:4466${path}`, {
    method: method ?? (isPost ? "POST" : "GET"),
    headers: given,
    ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
  });
  const response = await admin(request, { remoteAddress: from });
  const text = await response.text();
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    json = {};
  }
  return { status: response.status, text, json: json as Record<string, unknown>, headers: response.headers };
}
