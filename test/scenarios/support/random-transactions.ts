import { createHash } from "node:crypto";
import type pg from "pg";
import type { Headers, NewMessage } from "../../../src/core/message.ts";
import { Random } from "../../histories/random.ts";
import type { OutboxDatabase } from "./outbox-database.ts";

/** What a consumer has to get of a message that was committed. */
export interface Committed {
  readonly id: string;
  readonly stream: string;
  readonly type: string;
  readonly key: string | null;
  readonly aggregateType: string | null;
  readonly aggregateId: string | null;
  readonly headers: Headers;
  /** Its digest. */
  readonly body: string;
}

export function digestOf(body: string | Uint8Array): string {
  return createHash("sha256").update(body).digest("base64");
}

interface Open {
  readonly client: pg.PoolClient;
  readonly messages: Committed[];
  steps: number;
}

const OPEN = 4;
const STREAMS = ["orders", "payments", "audit.log", "wide-stream_2"];
const TYPES = ["order_created", "оплачен", 'with "quotes" and \\', "🎉"];
const KEYS = ["a", "b", "c", "ключ", "🔑 with spaces", '{"like":"json"}', "12"];
const HEADERS: (Headers | undefined)[] = [
  undefined,
  undefined,
  { correlationId: "corr-ü" },
  { traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", tenant: "ü", nested: { a: [1, "二"] } },
  { correlationId: "c", causationPath: [["module", "type"]], schemaVersion: 3, constructor: "own", empty: "" },
];

/** Transactions beside each other, with rollbacks, savepoints and preparation, whose outcome is known. */
export class RandomTransactions {
  /** In the order of commits, and within a transaction in the order of enqueueing. */
  readonly committed: Committed[] = [];
  rolledBack = 0;
  prepared = 0;
  readonly #database: OutboxDatabase;
  readonly #seed: number;
  readonly #random: Random;
  readonly #open: Open[] = [];
  readonly #inDoubt: { readonly name: string; readonly messages: Committed[] }[] = [];
  #n = 0;

  constructor(database: OutboxDatabase, seed: number) {
    this.#database = database;
    this.#seed = seed;
    this.#random = new Random(seed);
  }

  /** Goes on until so many more are committed, and ends all that is open. */
  async commit(count: number): Promise<void> {
    const enough = this.committed.length + count;
    while (this.committed.length < enough) await this.#step();
    for (const open of this.#open.splice(0)) await this.#end(open);
    while (this.#inDoubt.length > 0) await this.#decide();
  }

  async #step(): Promise<void> {
    if (this.#open.length < OPEN && this.#random.chance(40)) {
      const client = await this.#database.pool.connect();
      await client.query("begin");
      this.#open.push({ client, messages: [], steps: 0 });
    }
    if (this.#inDoubt.length > 0 && this.#random.chance(20)) await this.#decide();
    if (this.#open.length === 0) return;
    const open = this.#random.oneOf(this.#open);
    open.steps++;
    if (open.steps > 2 && this.#random.chance(40)) {
      this.#open.splice(this.#open.indexOf(open), 1);
      await this.#end(open);
    } else if (this.#random.chance(25)) await this.#savepoint(open);
    else open.messages.push(...(await this.#enqueue(open)));
  }

  async #savepoint(open: Open): Promise<void> {
    await open.client.query("savepoint s");
    const messages = await this.#enqueue(open);
    if (this.#random.chance(50)) {
      await open.client.query("release savepoint s");
      open.messages.push(...messages);
    } else {
      await open.client.query("rollback to savepoint s");
      this.rolledBack += messages.length;
    }
  }

  async #end({ client, messages }: Open): Promise<void> {
    const chance = this.#random.below(100);
    if (chance < 15) {
      await client.query("rollback");
      this.rolledBack += messages.length;
    } else if (chance < 25) {
      const name = `p${++this.prepared}`;
      await client.query(`prepare transaction '${name}'`);
      this.#inDoubt.push({ name, messages });
    } else {
      await client.query("commit");
      this.committed.push(...messages);
    }
    client.release();
  }

  async #decide(): Promise<void> {
    const { name, messages } = this.#inDoubt.shift()!;
    if (this.#random.chance(30)) {
      await this.#database.query(`rollback prepared '${name}'`);
      this.rolledBack += messages.length;
    } else {
      await this.#database.query(`commit prepared '${name}'`);
      this.committed.push(...messages);
    }
  }

  async #enqueue({ client }: Open): Promise<Committed[]> {
    const size = this.#random.chance(3) ? 60 : 1 + this.#random.below(4);
    const messages = Array.from({ length: size }, () => this.#message());
    const results = await this.#database.outbox.enqueue(client, messages);
    return messages.map((message, i) => expectedOf(message, results[i]!.id));
  }

  #message(): NewMessage {
    const random = this.#random;
    const n = ++this.#n;
    const headers = random.oneOf(HEADERS);
    const [payload, contentType] = this.#payload(n);
    const all = contentType === undefined ? headers : { ...headers, contentType };
    return {
      stream: random.oneOf(STREAMS),
      type: random.oneOf(TYPES),
      payload,
      ...(random.chance(15) ? {} : { key: random.oneOf(KEYS) }),
      ...(random.chance(30) ? { aggregateType: "order", aggregateId: `o-${random.below(9)}` } : {}),
      ...(random.chance(10) ? { id: `chosen-${this.#seed}-${n}-é` } : {}),
      ...(all === undefined ? {} : { headers: all }),
    };
  }

  #payload(n: number): [payload: unknown, contentType?: string] {
    const random = this.#random;
    switch (random.below(12)) {
      case 0:
        return [Uint8Array.from({ length: random.below(300) }, () => random.below(256))];
      case 1:
        return [new Uint8Array(0)];
      case 2:
        return [`text ${n}, при\u0000вет`, "text/plain"];
      case 3:
        return [Buffer.from(`{ "spaced": ${n} }`), "application/vnd.own+json"];
      case 4:
        return [random.oneOf([null, "", 0, false, [], {}, 1e21])];
      case 5:
        return [{ n, long: "слово ".repeat(5000) }];
      case 6:
        return [{ n, half: "\ud800", nul: "\u0000", quotes: '"\\', [`ключ ${n}`]: "\u2028" }];
      default:
        return [{ n, name: "Привет 🎉" }];
    }
  }
}

function expectedOf({ payload, headers = {}, ...message }: NewMessage, id: string): Committed {
  const isBytes = payload instanceof Uint8Array;
  const isText = headers.contentType === "text/plain";
  const body = isBytes ? payload : isText ? String(payload) : JSON.stringify(payload);
  const contentType = isBytes ? { contentType: headers.contentType ?? "application/octet-stream" } : {};
  const aggregateId = message.aggregateId ?? null;
  return {
    id,
    stream: message.stream,
    type: message.type,
    key: message.key ?? aggregateId,
    aggregateType: message.aggregateType ?? null,
    aggregateId,
    headers: { ...headers, ...contentType },
    body: digestOf(body),
  };
}
