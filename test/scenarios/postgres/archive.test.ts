import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import type { Message } from "../../../src/index.ts";
import { createOutbox, createRelay, listen, replay } from "../../../src/index.ts";
import { type ArchiveSegment, createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { isLong } from "../../support/is-long.ts";
import { outboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher, upTo } from "../support/recording-publisher.ts";
import { archiveScene, EAGER } from "../support/archive-scene.ts";

describe.skipIf(!hasPostgres())("segments are archived before they are dropped", () => {
  const scene = archiveScene();
  const { storeWith, maintain, segments, deliver, fill, drop, refused, archived, files } = scene;

  it("30 segments, one relay behind: only those go that it has passed, and a replay of them reaches a new target", async () => {
    await fill(20, 10);
    await deliver("behind");
    await fill(10, 10, 201);
    await deliver("ahead");
    const size = () =>
      scene.database.value(
        "select sum(pg_total_relation_size(c.oid))::bigint from pg_class c where c.relname ~ '^message_[0-9]+$'",
      );
    const before = Number(await size());
    expect(await drop(20)).toEqual(upTo(20, 0).map((n) => `message_${n}`));
    expect(await maintain()).toMatchObject({ droppedSegments: [], heldBackBy: ["behind"] });
    expect(files()).toEqual(upTo(20, 0).map((n) => `txbox.message_${n}.jsonl.gz`));
    expect((await segments())[0]).toBe(20);
    expect(Number(await size())).toBeLessThan(before / 2);

    const publisher = createMemoryPublisher();
    const from = files().map((file) => join(scene.directory, file));
    const replayed = await replay({ from, publisher, rate: 100_000 });
    expect(replayed).toMatchObject({ found: 200, sent: 200, streams: { orders: 200 } });
    expect(publisher.published.map(({ body }) => (JSON.parse(String(body)) as { n: number }).n)).toEqual(upTo(200));
    // What is left goes the usual way.
    expect((await deliver("behind")).firsts("k")).toEqual(upTo(100, 201));
    expect(await drop(10)).toHaveLength(10);
    expect(files()).toHaveLength(30);
  });

  it("has every message as it was", async () => {
    const outbox = createOutbox({ store: scene.database.store });
    const client = await scene.database.pool.connect();
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
    const store = storeWith({ directory: scene.directory });
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
    const blocked = join(scene.directory, "file");
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
    // What others do on the server may keep the second segment from being due for a moment.
    await until(
      async () => {
        await store.maintenance.run();
        return (await store.admin.figures()).unarchivedSegments === 2;
      },
      { what: "both segments to wait for their archive" },
    );
    expect(await segments()).toContain(0);
    await scene.database.enqueue(series("k", 5, 11));
    await until(() => publisher.firsts("k").length === 15, { what: "the others" });
    await relay.stop();
    expect((await drop(2)).slice(0, 2)).toEqual(["message_0", "message_1"]);
    // One that was closed only now may become due after that.
    await until(
      async () => {
        await maintain();
        return (await store.admin.figures()).unarchivedSegments === 0;
      },
      { what: "no segment to wait for its archive" },
    );
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

  it("writes over no file of another log, nor counts a damaged one as done", async () => {
    await fill(1, 5);
    await deliver("r");
    await drop(1);
    const file = join(scene.directory, "txbox.message_0.jsonl.gz");
    const bytes = readFileSync(file);
    await using other = await outboxDatabase(EAGER);
    const store = createPostgresStore({ client: other.pool, ...EAGER, archive: { directory: scene.directory } });
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

  it("refuses an option that it does not understand", () => {
    for (const archive of [true, "folder", {}, { directory: "" }, { directory: "a", more: 1 }, null])
      expect(() => storeWith(archive as never)).toThrow(/archive must be a directory, a function or false/);
  });

  it(
    "a large segment: writing it pauses no writer and no relay, dropping it takes less than a second",
    { timeout: 300_000 },
    async () => {
      const count = isLong ? 1_000_000 : 50_000;
      await scene.database.query(
        `insert into txbox.message (id, size, lane, stream, type, key, payload)
       select 'm-' || n, 250, (n % 64)::smallint, 'orders', 'changed', 'k' || (n % 1000), ('{"n":' || n || ',"text":"' || repeat('x', 200) || '"}')::json
       from generate_series(1, $1::int) n`,
        [count],
      );
      await createPostgresStore({ client: scene.database.pool, segmentMs: 1 }).maintenance.run();
      await createRelay({
        store: scene.database.store,
        name: "r",
        publisher: { keepsKeyOrder: true, publish: async (all) => all.map(() => ({ status: "published" }) as const) },
      }).drainOnce({ deadlineMs: 120_000 });
      const publisher = new RecordingPublisher();
      const relay = createRelay({ store: scene.database.store, name: "r", publisher, maintenance: false });
      await relay.start();
      const ended = new AbortController();
      let [longest, sent, archivedAt] = [0, 0, 0];
      const delivery = (async () => {
        while (!ended.signal.aborted) {
          const startedAt = performance.now();
          await scene.database.enqueue(series("live", 1, ++sent));
          await until(() => publisher.sent.length >= sent, { what: "a live message", timeoutMs: 60_000 });
          longest = Math.max(longest, performance.now() - startedAt);
        }
      })();
      const heapBefore = process.memoryUsage().rss;
      const base = { directory: scene.directory };
      const startedAt = performance.now();
      const noted = async () => {
        while (archivedAt === 0 && !ended.signal.aborted) {
          const done = await scene.database.value("select archived_at is not null from txbox.segment where n = 0");
          if (done === true || done === undefined) archivedAt = performance.now();
          await new Promise((resolve) => setTimeout(resolve, 10));
        }
      };
      const noting = noted();
      const dropped = await drop(1, base);
      const endedAt = performance.now();
      ended.abort();
      await Promise.all([delivery, noting]);
      await relay.stop();
      const figures = `archive of ${count}: ${(archivedAt - startedAt).toFixed(0)} ms, drop ${(endedAt - archivedAt).toFixed(0)} ms, longest delivery meanwhile ${longest.toFixed(0)} ms, memory +${((process.memoryUsage().rss - heapBefore) / 1e6).toFixed(0)} MB`;
      process.stdout.write(`${figures}\n`);
      expect(dropped).toContain("message_0");
      expect(endedAt - archivedAt, figures).toBeLessThan(isLong ? 1000 : 5000);
      expect(longest, figures).toBeLessThan(3000);
      expect(publisher.firsts("live")).toEqual(upTo(sent));
    },
  );
});
