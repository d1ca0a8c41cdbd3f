import { setTimeout as sleep } from "node:timers/promises";
import { MongoClient } from "mongodb";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createOutbox, createRelay, publishEach, type Relay, type RelayEvent } from "../../../src/index.ts";
import { createMongoStore, type SourceEvent } from "../../../src/stores/mongodb/index.ts";
import { type MongodbServer, serverOrSkip, type ServerSlot, startMongodb, until } from "../../harness/index.ts";
import { freeze, signal } from "../../harness/processes.ts";
import { mongoDatabase } from "../../support/mongodb-database.ts";
import { bySource } from "../../support/by-source.ts";

let slot: ServerSlot<MongodbServer>;
beforeAll(async () => {
  slot = await serverOrSkip("MongoDB", () => startMongodb({ owned: true }));
}, 240_000);
afterAll(() => slot.stop());

const KEYS = ["a", "b", "c", "d", "e", "f"];
const LEASE_MS = 1500;

interface Show extends AsyncDisposable {
  readonly journal: { key: string; n: number; relay: number }[];
  readonly events: RelayEvent[];
  readonly streams: SourceEvent[];
  written: number;
  /** Writes on until told to stop. */
  stopWriting(): Promise<void>;
  /** Every message came, and first deliveries of each key in order. */
  check(): Promise<void>;
}

type Source = "polling" | "stream";

/** Two relays over one server, each with a client of its own, and a writer. */
async function show(source: Source): Promise<Show> {
  const database = await mongoDatabase(slot.server.url);
  await createMongoStore({ client: database.client }).migrator.migrate();
  const journal: { key: string; n: number; relay: number }[] = [];
  const events: RelayEvent[] = [];
  const streams: SourceEvent[] = [];
  const clients = [1, 2].map(() => new MongoClient(database.url, { serverSelectionTimeoutMS: 2000 }));
  const relays: Relay[] = [];
  for (const [relay, client] of clients.entries()) {
    relays.push(
      createRelay({
        store: bySource(createMongoStore({ client }), source, (event) => streams.push(event)),
        name: "r",
        leaseMs: LEASE_MS,
        batchSize: 20,
        maintenance: false,
        onEvent: (event) => events.push(event),
        publisher: publishEach(async ({ key, body }) => {
          await sleep(Math.random() * 5);
          journal.push({ key: String(key), n: Number(body), relay });
        }),
      }),
    );
  }
  await Promise.all(relays.map((relay) => relay.start()));
  const outbox = createOutbox({ store: createMongoStore({ client: database.client }) });
  const stop = new AbortController();
  const result = { written: 0 };
  const writing = (async () => {
    while (!stop.signal.aborted) {
      const n = result.written + 1;
      try {
        await database.client.withSession((session) =>
          session.withTransaction(() =>
            outbox.enqueue(
              session,
              KEYS.map((key) => ({ id: `${key}:${n}`, stream: "s", type: "t", key, payload: n })),
            ),
          ),
        );
        result.written = n;
      } catch {
        // Whether it was written is open; the ids make the next try safe.
      }
      await sleep(20);
    }
  })();
  return Object.assign(result, {
    journal,
    events,
    streams,
    async stopWriting() {
      stop.abort();
      await writing;
    },
    async check() {
      const all = result.written * KEYS.length;
      const distinct = () => new Set(journal.map(({ key, n }) => `${key}${n}`)).size;
      await until(() => distinct() >= all, { what: `delivery of ${all}`, timeoutMs: 40_000 });
      for (const key of KEYS) {
        const firsts = [...new Set(journal.filter((one) => one.key === key).map(({ n }) => n))];
        expect(firsts.slice(0, result.written), `order of ${key}`).toEqual(
          Array.from({ length: result.written }, (_, i) => i + 1),
        );
      }
    },
    async [Symbol.asyncDispose]() {
      stop.abort();
      await writing;
      await Promise.all(relays.map((relay) => relay.stop()));
      await Promise.all(clients.map((client) => client.close()));
      await database[Symbol.asyncDispose]();
    },
  });
}

describe.each<Source>(["polling", "stream"])("a database that is in trouble, with messages by %s", (source) => {
  it("stops answering for longer than the lease, again and again: all comes, in order", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    await using on = await show(source);
    await until(() => on.journal.length > 30, { what: "messages" });
    for (let i = 0; i < 3; i++) {
      const { pid } = slot.server;
      freeze(pid ?? 0);
      await sleep(LEASE_MS + 700 * i);
      signal(pid ?? 0, "SIGCONT");
      const before = on.journal.length;
      await until(() => on.journal.length > before + 20, { what: "messages afterwards", timeoutMs: 60_000 });
    }
    await on.stopWriting();
    await on.check();
  });

  it("is killed in the middle of everything, again and again: all comes, in order", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    await using on = await show(source);
    for (let i = 0; i < 3; i++) {
      const before = on.journal.length;
      await until(() => on.journal.length > before + 20, { what: "messages", timeoutMs: 60_000 });
      await slot.server.kill();
      await sleep(i * 800);
      await slot.server.restart();
    }
    await sleep(500);
    await on.stopWriting();
    await on.check();
    expect(on.events.some(({ type }) => type === "failed")).toBe(false);
  });
});

describe("a change stream that is in trouble", () => {
  it("loses its cursors, its sessions and its primary in mid-flow: all comes, in order", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    await using on = await show("stream");
    const admin = new MongoClient(slot.server.url);
    try {
      for (const kill of [killCursors, killSessions, () => slot.server.stepDown(), killCursors, killSessions]) {
        const before = on.journal.length;
        await until(() => on.journal.length > before + 30, { what: "messages", timeoutMs: 60_000 });
        await kill(admin);
      }
      await sleep(500);
      await on.stopWriting();
      await on.check();
      expect(on.streams.filter(({ type }) => type === "stream_started").length).toBeGreaterThanOrEqual(2);
      expect(on.events.some(({ type }) => type === "failed")).toBe(false);
    } finally {
      await admin.close();
    }
  });
});

/** Those of the relays: they are idle, or wait for something to happen. */
async function killCursors(client: MongoClient): Promise<void> {
  const ops = await client
    .db("admin")
    .aggregate([{ $currentOp: { idleCursors: true } }, { $match: { "cursor.tailable": true } }])
    .toArray();
  for (const { ns, cursor } of ops) {
    const [name, ...rest] = String(ns).split(".");
    const { cursorId } = cursor as { cursorId: bigint };
    await client.db(name).command({ killCursors: rest.join("."), cursors: [cursorId] });
  }
}

async function killSessions(client: MongoClient): Promise<void> {
  await client.db("admin").command({ killAllSessions: [] });
}
