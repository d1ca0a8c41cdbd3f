import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { MaintenanceReport, Message } from "../../../src/index.ts";
import { createOutbox, createRelay, listen, replay } from "../../../src/index.ts";
import { readArchive } from "../../../src/core/read-archive.ts";
import { type Archive, type ArchiveSegment, createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { isLong } from "../../support/is-long.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher, upTo } from "../support/recording-publisher.ts";

const EAGER = { segmentMs: 1, retentionMs: 0 };

describe.skipIf(!hasPostgres())("segments are archived before they are dropped", () => {
  let database: OutboxDatabase;
  let directory: string;

  beforeEach(async () => {
    database = await outboxDatabase(EAGER);
    directory = mkdtempSync(join(tmpdir(), "txbox-archive-"));
  });
  afterEach(async () => {
    await database[Symbol.asyncDispose]();
    rmSync(directory, { recursive: true, force: true });
  });

  const storeWith = (archive: Archive | undefined) =>
    createPostgresStore({ client: database.pool, ...EAGER, ...(archive === undefined ? {} : { archive }) });
  const maintain = (archive: Archive | undefined = { directory }): Promise<MaintenanceReport> =>
    storeWith(archive).maintenance.run();
  const segments = async (): Promise<number[]> =>
    (await database.query<{ n: string }>("select n from txbox.segment order by n")).map(({ n }) => Number(n));
  const deliver = async (name: string, max?: number): Promise<RecordingPublisher> => {
    const publisher = new RecordingPublisher();
    const relay = createRelay({ store: database.store, name, publisher, batchSize: 10 });
    await relay.drainOnce(max === undefined ? {} : { max });
    return publisher;
  };
  /** Segments with so many messages each; the present one is empty. */
  async function fill(count: number, each: number, from = 1): Promise<void> {
    for (let i = 0; i < count; i++) {
      await database.enqueue(series("k", each, from + i * each));
      await new Promise((resolve) => setTimeout(resolve, 3));
      expect((await createPostgresStore({ client: database.pool, segmentMs: 1 }).maintenance.run()).rotated).toBe(true);
    }
  }
  /** Runs until so many were dropped: what others do on the server may hold back a segment for a moment. */
  async function drop(count: number, archive: Archive | undefined = { directory }): Promise<string[]> {
    const dropped: string[] = [];
    const enough = async () => dropped.push(...(await maintain(archive)).droppedSegments) >= count;
    await until(enough, { what: `${count} segments to go`, timeoutMs: 20_000 });
    return dropped;
  }
  /** The first report that tells of the archive. */
  async function refused(run: () => Promise<MaintenanceReport>): Promise<MaintenanceReport> {
    let report = await run();
    const told = async () =>
      (report = report.archiveError === undefined ? await run() : report).archiveError !== undefined;
    await until(told, { what: "an error of the archive", timeoutMs: 20_000 });
    return report;
  }
  const archived = async (file: string): Promise<Message[]> => {
    const found: Message[] = [];
    for await (const { message } of readArchive(join(directory, file))) if ("position" in message) found.push(message);
    return found;
  };
  const files = () => readdirSync(directory).toSorted((a, b) => Number(/\d+/.exec(a)) - Number(/\d+/.exec(b)));

  it("30 segments, one relay behind: only those go that it has passed, and a replay of them reaches a new target", async () => {
    await fill(20, 10);
    await deliver("behind");
    await fill(10, 10, 201);
    await deliver("ahead");
    const size = () =>
      database.value(
        "select sum(pg_total_relation_size(c.oid))::bigint from pg_class c where c.relname ~ '^message_[0-9]+$'",
      );
    const before = Number(await size());
    expect(await drop(20)).toEqual(upTo(20, 0).map((n) => `message_${n}`));
    expect(await maintain()).toMatchObject({ droppedSegments: [], heldBackBy: ["behind"] });
    expect(files()).toEqual(upTo(20, 0).map((n) => `txbox.message_${n}.jsonl.gz`));
    expect((await segments())[0]).toBe(20);
    expect(Number(await size())).toBeLessThan(before / 2);

    const publisher = createMemoryPublisher();
    const from = files().map((file) => join(directory, file));
    const replayed = await replay({ from, publisher, rate: 100_000 });
    expect(replayed).toMatchObject({ found: 200, sent: 200, streams: { orders: 200 } });
    expect(publisher.published.map(({ body }) => (JSON.parse(String(body)) as { n: number }).n)).toEqual(upTo(200));
    // What is left goes the usual way.
    expect((await deliver("behind")).firsts("k")).toEqual(upTo(100, 201));
    expect(await drop(10)).toHaveLength(10);
    expect(files()).toHaveLength(30);
  });

  it("has every message as it was", async () => {
    const outbox = createOutbox({ store: database.store });
    const client = await database.pool.connect();
    await client.query("begin");
    await outbox.enqueue(client, [
      {
        stream: "a",
        type: "t",
        key: "k",
        payload: { text: "line\nbreak", n: 1.5 },
        headers: { payload: "x", traceparent: "00-1-1-01" },
      },
      {
        stream: "b",
        type: "t",
        payload: new Uint8Array([1, 2, 255]),
        aggregateType: "order",
        aggregateId: "7",
        id: "chosen",
      },
    ]);
    await client.query("commit");
    client.release();
    const store = storeWith({ directory });
    await store.maintenance.run();
    const expected: Message[] = [];
    for await (const message of store.readLog({ since: new Date(0) })) expected.push(message);
    expect(expected).toHaveLength(2);
    await createRelay({ store, name: "r", publisher: createMemoryPublisher() }).drainOnce();
    expect(await drop(1)).toEqual(["message_0"]);
    const found = await archived("txbox.message_0.jsonl.gz");
    const plain = (all: readonly Message[]) => all.map((one) => ({ ...one, body: Buffer.from(one.body as string) }));
    expect(plain(found)).toEqual(plain(expected));
  });

  it("an archive that cannot be written holds back retention, is told, and delivery goes on", async () => {
    await fill(2, 5);
    const blocked = join(directory, "file");
    writeFileSync(blocked, "not a directory");
    const told: unknown[] = [];
    const end = listen("txbox:maintenance:done", ({ report }) => told.push(report));
    const publisher = new RecordingPublisher();
    const store = storeWith({ directory: join(blocked, "archive") });
    const relay = createRelay({ store, name: "r", publisher, maintenance: false });
    await relay.start();
    await until(() => publisher.firsts("k").length === 10, { what: "the first ones" });
    const report = await refused(() => store.maintenance.run());
    end();
    expect(report).toMatchObject({ droppedSegments: [], heldBackBy: ["(archive)"] });
    expect(report.archiveError).toMatch(/message_0 could not be archived: .*ENOTDIR/);
    expect(told.at(-1)).toEqual(report);
    expect(await store.admin.figures()).toMatchObject({ unarchivedSegments: 2 });
    expect(await segments()).toContain(0);
    await database.enqueue(series("k", 5, 11));
    await until(() => publisher.firsts("k").length === 15, { what: "the others" });
    await relay.stop();
    expect((await drop(2)).slice(0, 2)).toEqual(["message_0", "message_1"]);
    expect(await store.admin.figures()).toMatchObject({ unarchivedSegments: 0 });
  });

  it("a stream of the user's: the segment goes when it is closed, and stays when it fails", async () => {
    await fill(2, 5);
    await deliver("r");
    const wrong = await refused(() => maintain((() => "no stream") as never));
    expect(wrong.archiveError).toContain("must give a WritableStream");
    const chunks: Uint8Array[] = [];
    const asked: ArchiveSegment[] = [];
    let state = "open";
    const archive = (segment: ArchiveSegment): WritableStream<Uint8Array> => {
      asked.push(segment);
      return new WritableStream({
        write: (chunk) => void chunks.push(chunk),
        async close() {
          await new Promise((resolve) => setTimeout(resolve, 200));
          expect(await segments()).toContain(0);
          if (asked.length === 1) throw new Error("the upload was refused");
          state = "closed";
        },
      });
    };
    expect((await refused(() => maintain(archive))).archiveError).toContain("the upload was refused");
    expect(await segments()).toContain(0);
    chunks.length = 0;
    expect((await drop(1, archive))[0]).toBe("message_0");
    expect(state).toBe("closed");
    expect(asked[0]).toMatchObject({ log: "txbox.", segment: "message_0", fileName: "txbox.message_0.jsonl.gz" });
    const lines = gunzipSync(Buffer.concat(chunks)).toString().split("\n");
    expect(lines.findIndex((line) => line.startsWith('{"end"'))).toBe(6);
  });

  it("is written once by several processes that maintain at the same time", async () => {
    await fill(4, 200);
    await deliver("r");
    const opened: string[] = [];
    const archive = (segment: ArchiveSegment): WritableStream<Uint8Array> => {
      opened.push(segment.segment);
      return new WritableStream({ write: () => new Promise((resolve) => setTimeout(resolve, 20)) });
    };
    const all = async () => {
      await Promise.all(Array.from({ length: 4 }, () => maintain(archive)));
      return !(await segments()).includes(3);
    };
    await until(all, { what: "four segments to go", timeoutMs: 20_000 });
    expect(opened.toSorted()).toEqual(["message_0", "message_1", "message_2", "message_3"]);
  });

  it("takes over from a process that died, and clears away what it left", async () => {
    await fill(1, 50);
    await deliver("r");
    writeFileSync(join(directory, ".txbox.message_0.jsonl.gz.0199-dead.partial"), "half");
    await database.query(
      "update txbox.segment set archive_owner = 'dead', archive_until = clock_timestamp() + interval '1 s' where n = 0",
    );
    expect((await maintain()).droppedSegments).toEqual([]);
    await drop(1);
    expect(readdirSync(directory)).toEqual(["txbox.message_0.jsonl.gz"]);
    expect(statSync(join(directory, "txbox.message_0.jsonl.gz")).mode & 0o777).toBe(0o600);
    expect(await archived("txbox.message_0.jsonl.gz")).toHaveLength(50);
  });

  it("a process that slept past its lease harms nothing and blames nobody", async () => {
    await fill(1, 5000);
    await deliver("r");
    const resumed = Promise.withResolvers<void>();
    let begun = false;
    const asleep = (): WritableStream<Uint8Array> =>
      new WritableStream({
        async write() {
          begun = true;
          await resumed.promise;
        },
      });
    let sleeper: Promise<MaintenanceReport> | undefined;
    await until(
      async () => {
        sleeper ??= maintain(asleep);
        const pause = new Promise<boolean>((resolve) => setTimeout(() => resolve(false), 200));
        if (await Promise.race([sleeper.then(() => true), pause])) sleeper = undefined;
        return begun;
      },
      { what: "the first process to begin" },
    );
    await database.query("update txbox.segment set archive_until = clock_timestamp() where n = 0");
    expect(await drop(1)).toEqual(["message_0"]);
    resumed.resolve();
    expect(await sleeper).toMatchObject({ droppedSegments: [], heldBackBy: [] });
    expect(await archived("txbox.message_0.jsonl.gz")).toHaveLength(5000);
  });

  it("a process that slept past its lease does not take the segment back by renewing it", async () => {
    await fill(1, 5000);
    await deliver("r");
    const [begun, resumed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const asleep = (): WritableStream<Uint8Array> =>
      new WritableStream({
        async write() {
          begun.resolve();
          await resumed.promise;
        },
      });
    // Only the renewal runs on an interval.
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    try {
      let report: MaintenanceReport | undefined;
      const run = async () => {
        while (report === undefined || (report.droppedSegments.length === 0 && (await owner()) === ""))
          report = await maintain(asleep);
      };
      const owner = () => database.value("select archive_owner from txbox.segment where n = 0");
      const sleeper = run();
      await begun.promise;
      await database.query(
        "update txbox.segment set archive_owner = 'other', archive_until = clock_timestamp() + interval '1 min' where n = 0",
      );
      await vi.advanceTimersByTimeAsync(20_000);
      await new Promise((resolve) => setTimeout(resolve, 300));
      resumed.resolve();
      await sleeper;
      expect(report).toMatchObject({ droppedSegments: [], heldBackBy: [] });
      expect(await owner()).toBe("other");
      expect(await database.value("select archived_at from txbox.segment where n = 0")).toBeNull();
    } finally {
      vi.useRealTimers();
    }
  });

  it("a process without the option drops nothing that another began to archive meanwhile", async () => {
    await fill(1, 5);
    await deliver("r");
    const reader = await database.pool.connect();
    await reader.query("begin");
    await reader.query("select 1 from txbox.message limit 1");
    // It waits for the reader before it detaches.
    const dropping = storeWith(undefined).maintenance.run();
    await new Promise((resolve) => setTimeout(resolve, 700));
    await database.query("update txbox.segment set archive_owner = '' where archive_owner is null");
    await reader.query("commit");
    reader.release();
    const report = await dropping;
    expect(report.droppedSegments).toEqual([]);
    expect(await segments()).toContain(0);
    expect((await refused(() => storeWith(undefined).maintenance.run())).archiveError).toContain(
      "waits for its archive",
    );
  });

  it.each(["open", "write", "close"])("an archive that hangs at %s does not hold up a stop", async (at) => {
    await fill(1, 50);
    await deliver("r");
    const hangs = Promise.withResolvers<void>();
    const step = (name: string) => {
      if (name !== at) return Promise.resolve();
      hangs.resolve();
      return new Promise<void>(() => undefined);
    };
    const archive = async (): Promise<WritableStream<Uint8Array>> => {
      await step("open");
      return new WritableStream({ write: () => step("write"), close: () => step("close") });
    };
    const stop = new AbortController();
    const running = (async () => {
      let report: MaintenanceReport | undefined;
      while (!stop.signal.aborted) report = await storeWith(archive).maintenance.run({ signal: stop.signal });
      return report;
    })();
    await hangs.promise;
    const stoppedAt = performance.now();
    stop.abort();
    expect(await running).toMatchObject({ droppedSegments: [], heldBackBy: [] });
    expect(performance.now() - stoppedAt).toBeLessThan(5000);
    expect(await drop(1)).toEqual(["message_0"]);
  });

  it("takes a whole file for done that a process left without a note in the database", async () => {
    await fill(1, 5);
    await deliver("r");
    // It wrote the file, and died before the segment was dropped.
    const copy = createPostgresStore({ client: database.pool, ...EAGER, archive: { directory } });
    await database.query(
      "create function txbox.refuse() returns trigger language plpgsql as $$ begin raise exception 'killed'; end $$",
    );
    await database.query(
      "create trigger refuse before update on txbox.segment for each row when (new.archived_at is not null) execute function txbox.refuse()",
    );
    expect((await refused(() => copy.maintenance.run())).archiveError).toContain("killed");
    await database.query("drop trigger refuse on txbox.segment");
    const before = statSync(join(directory, "txbox.message_0.jsonl.gz")).ino;
    expect(await drop(1)).toEqual(["message_0"]);
    expect(statSync(join(directory, "txbox.message_0.jsonl.gz")).ino).toBe(before);
    expect(await archived("txbox.message_0.jsonl.gz")).toHaveLength(5);
  });

  it("writes over no file of another log, nor takes a damaged one for done", async () => {
    await fill(1, 5);
    await deliver("r");
    await drop(1);
    const file = join(directory, "txbox.message_0.jsonl.gz");
    const bytes = readFileSync(file);
    await using other = await outboxDatabase(EAGER);
    const store = createPostgresStore({ client: other.pool, ...EAGER, archive: { directory } });
    await other.enqueue(series("k", 3));
    await store.maintenance.run();
    await createRelay({ store, name: "r", publisher: new RecordingPublisher() }).drainOnce();
    expect((await refused(() => store.maintenance.run())).archiveError).toContain("is the archive of another log");
    expect(readFileSync(file)).toEqual(bytes);
    writeFileSync(file, bytes.subarray(0, bytes.length - 5));
    expect((await refused(() => store.maintenance.run())).archiveError).toContain("was cut");
    rmSync(file);
    await until(async () => (await store.maintenance.run()).droppedSegments.length > 0, { what: "the segment to go" });
  });

  it("a process without the option drops nothing that others archive, unless it says so", async () => {
    await fill(1, 5);
    await deliver("r");
    const failing = () => Promise.reject(new Error("not now"));
    await maintain(failing);
    const report = await refused(() => storeWith(undefined).maintenance.run());
    expect(report).toMatchObject({ droppedSegments: [], heldBackBy: ["(archive)"] });
    expect(report.archiveError).toContain("archive: false");
    expect(await drop(1, false)).toEqual(["message_0"]);
  });

  it("is given up when told to stop, and begun anew by the next run", async () => {
    await fill(1, 500);
    await deliver("r");
    const stop = new AbortController();
    const archive = (): WritableStream<Uint8Array> => new WritableStream({ write: () => stop.abort() });
    const run = async () => {
      const report = await storeWith(archive).maintenance.run({ signal: stop.signal });
      expect(report).toMatchObject({ droppedSegments: [], heldBackBy: [] });
      return stop.signal.aborted;
    };
    await until(run, { what: "the stop" });
    expect(await drop(1)).toEqual(["message_0"]);
  });

  it("from the log goes only what a relay has delivered", async () => {
    const outbox = createOutbox({ store: database.store });
    const client = await database.pool.connect();
    const enqueue = async (...types: string[]) => {
      await client.query("begin");
      await outbox.enqueue(
        client,
        types.map((type) => ({ stream: type === "other" ? "other" : "orders", type, key: type, payload: 1 })),
      );
      await client.query("commit");
    };
    await enqueue("sent", "failed", "failed", "dead", "discarded", "requeued", "other");
    const publisher = createMemoryPublisher();
    publisher.fail(({ type }) => type === "failed");
    publisher.reject(({ type }) => ["dead", "discarded", "requeued"].includes(type));
    const options = {
      store: database.store,
      name: "r",
      streams: ["orders"],
      backoff: { baseMs: 3_600_000, maxMs: 3_600_000 },
    };
    await createRelay({ ...options, publisher }).drainOnce();
    await database.store.admin.discard({ type: "discarded" });
    await database.store.admin.requeue({ type: "requeued" });
    publisher.reject(() => false);
    await createRelay({ ...options, publisher }).drainOnce();
    await until(
      async () => {
        await createRelay({ ...options, publisher }).drainOnce();
        return publisher.published.some(({ type }) => type === "requeued");
      },
      { what: "the requeued letter" },
    );
    await enqueue("pending");
    client.release();
    const types = async (deliveredBy?: string) => {
      const found: string[] = [];
      const query = { since: new Date(0), ...(deliveredBy === undefined ? {} : { deliveredBy }) };
      for await (const { type } of database.store.readLog(query)) found.push(type);
      return found;
    };
    expect(await types("r")).toEqual(["sent", "requeued"]);
    expect(await types()).toEqual(["sent", "failed", "failed", "dead", "discarded", "requeued", "other", "pending"]);
    expect(await types("never ran")).toHaveLength(8);
  });

  it("from the log goes nothing that a relay skipped by starting or rewinding to now", async () => {
    const relay = () => {
      const publisher = new RecordingPublisher();
      return { publisher, relay: createRelay({ store: database.store, name: "late", publisher, start: "now" }) };
    };
    await database.enqueue(series("k", 3));
    await relay().relay.drainOnce();
    await database.enqueue(series("k", 3, 4));
    const { publisher, relay: second } = relay();
    await second.drainOnce();
    expect(publisher.firsts("k")).toEqual([4, 5, 6]);
    await database.enqueue(series("k", 3, 7));
    await database.store.admin.rewind("late", "now");
    const found: number[] = [];
    for await (const { body } of database.store.readLog({ since: new Date(0), deliveredBy: "late" }))
      found.push((JSON.parse(String(body)) as { n: number }).n);
    expect(found).toEqual([4, 5, 6]);
  });

  it("refuses an option that it does not understand", () => {
    for (const archive of [true, "folder", {}, { directory: "" }, { directory: "a", more: 1 }, null])
      expect(() => storeWith(archive as never)).toThrow(/archive must be a directory, a function or false/);
  });

  it(
    "a large segment: writing it pauses nobody, dropping it takes less than a second",
    { timeout: 300_000 },
    async () => {
      const count = isLong ? 1_000_000 : 50_000;
      await database.query(
        `insert into txbox.message (id, size, lane, stream, type, key, payload)
       select 'm-' || n, 250, (n % 64)::smallint, 'orders', 'changed', 'k' || (n % 1000), ('{"n":' || n || ',"text":"' || repeat('x', 200) || '"}')::json
       from generate_series(1, $1::int) n`,
        [count],
      );
      await createPostgresStore({ client: database.pool, segmentMs: 1 }).maintenance.run();
      await createRelay({
        store: database.store,
        name: "r",
        publisher: { keepsKeyOrder: true, publish: async (all) => all.map(() => ({ status: "published" }) as const) },
      }).drainOnce({ deadlineMs: 120_000 });
      const publisher = new RecordingPublisher();
      const relay = createRelay({ store: database.store, name: "r", publisher, maintenance: false });
      await relay.start();
      const ended = new AbortController();
      let [longest, sent, archivedAt] = [0, 0, 0];
      const delivery = (async () => {
        while (!ended.signal.aborted) {
          const startedAt = performance.now();
          await database.enqueue(series("live", 1, ++sent));
          await until(() => publisher.sent.length >= sent, { what: "a live message", timeoutMs: 20_000 });
          longest = Math.max(longest, performance.now() - startedAt);
        }
      })();
      const heapBefore = process.memoryUsage().rss;
      const base = { directory };
      const startedAt = performance.now();
      const noted = async () => {
        while (archivedAt === 0 && !ended.signal.aborted) {
          const done = await database.value("select archived_at is not null from txbox.segment where n = 0");
          if (done === true || done === undefined) archivedAt = performance.now();
          await new Promise((resolve) => setTimeout(resolve, 10));
        }
      };
      const noting = noted();
      const report = await maintain(base);
      const endedAt = performance.now();
      ended.abort();
      await Promise.all([delivery, noting]);
      await relay.stop();
      const figures = `archive of ${count}: ${(archivedAt - startedAt).toFixed(0)} ms, drop ${(endedAt - archivedAt).toFixed(0)} ms, longest delivery meanwhile ${longest.toFixed(0)} ms, memory +${((process.memoryUsage().rss - heapBefore) / 1e6).toFixed(0)} MB`;
      process.stdout.write(`${figures}\n`);
      expect(report.droppedSegments).toContain("message_0");
      expect(endedAt - archivedAt, figures).toBeLessThan(isLong ? 1000 : 5000);
      expect(longest, figures).toBeLessThan(3000);
      expect(publisher.firsts("live")).toEqual(upTo(sent));
    },
  );
});
