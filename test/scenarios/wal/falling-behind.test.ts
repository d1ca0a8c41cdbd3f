import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import type { PostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { series } from "../support/outbox-database.ts";
import { type Streaming, verdict, walScene } from "../support/wal-scene.ts";

const NONE = { lost: 0, doubled: 0, reordered: 0 };
const KEYS = 10;
const BATCH = { batchSize: 20, batchBytes: 8 * 1024 };

describe.skipIf(!hasPostgres())("a relay that cannot keep up with the stream", () => {
  const scene = walScene();
  const committed = new Map<string, number>();

  /** Much more than the stream holds in memory. */
  const enqueueMuch = async (store: PostgresStore, each: number, filler = ""): Promise<void> => {
    for (let k = 0; k < KEYS; k++) {
      const key = `k${k}`;
      const from = (committed.get(key) ?? 0) + 1;
      const messages = series(key, each, from).map((message) => ({ ...message, filler }));
      await scene.enqueue(store, messages);
      committed.set(key, from + each - 1);
    }
  };
  const fallsBehind = async (streaming: Streaming): Promise<void> => {
    const { events } = streaming;
    await until(() => events.at(-1)?.type === "stream_lost", { what: "the end of the stream", timeoutMs: 20_000 });
    expect(streaming.lost()).toMatch(/cannot keep up/);
  };
  const catchesUp = async (streaming: Streaming): Promise<void> => {
    const total = [...committed.values()].reduce((sum, n) => sum + n, 0);
    await until(() => streaming.publisher.sent.length >= total, { what: "all of it", timeoutMs: 30_000 });
    await streaming.streams();
    expect(verdict(streaming.publisher, committed)).toEqual(NONE);
  };

  it("polls until it has caught up, and streams again: one whose publisher is slow with every page", async () => {
    committed.clear();
    const store = await scene.open();
    const streaming = await scene.start(store, { batchBytes: 256 * 1024 });
    await streaming.streams();
    let slow = true;
    streaming.publisher.before = () => (slow ? sleep(250) : undefined);
    await enqueueMuch(store, 100, "x".repeat(20_000));
    await fallsBehind(streaming);
    slow = false;
    await catchesUp(streaming);
    await enqueueMuch(store, 3);
    await catchesUp(streaming);
  }, 90_000);

  it("polls until it has caught up, and streams again: one whose publisher stood still", async () => {
    committed.clear();
    const store = await scene.open();
    const streaming = await scene.start(store, BATCH);
    await streaming.streams();
    const { promise, resolve } = Promise.withResolvers<void>();
    streaming.publisher.before = () => promise;
    await enqueueMuch(store, 50);
    await fallsBehind(streaming);
    resolve();
    await catchesUp(streaming);
  }, 90_000);

  it("is told by the server how much it has not sent yet, though nothing of it is for this relay", async () => {
    committed.clear();
    const store = await scene.open();
    const streaming = await scene.start(store, { ...BATCH, streams: ["orders"] });
    await streaming.streams();
    await scene.query("create table other (filler text)");
    await scene.query("alter table other alter column filler set storage external");
    // The reader is stopped by the server, as one that decodes more slowly than others write.
    const [slot] = await scene.slots();
    const pid = slot!.active_pid!;
    process.kill(pid, "SIGSTOP");
    try {
      await scene.query(
        "insert into other select repeat(md5(n::text), 2500) from generate_series(1, 1100) n", // 84 MB
      );
      await fallsBehind(streaming);
    } finally {
      process.kill(pid, "SIGCONT");
    }
    await enqueueMuch(store, 5);
    await catchesUp(streaming);
  }, 90_000);
});
