import { readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import type { MaintenanceReport } from "../../../src/index.ts";
import { type ArchiveSegment, createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { archiveScene, EAGER } from "../support/archive-scene.ts";

describe.skipIf(!hasPostgres())("an archive is written by one process at a time", () => {
  const scene = archiveScene();
  const { storeWith, maintain, segments, deliver, fill, drop, refused, archived } = scene;

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
    await until(all, { what: "four segments to go", timeoutMs: 60_000 });
    expect(opened.toSorted()).toEqual(["message_0", "message_1", "message_2", "message_3"]);
  });

  it("takes over from a process that died, and clears away what it left", async () => {
    await fill(1, 50);
    await deliver("r");
    writeFileSync(join(scene.directory, ".txbox.message_0.jsonl.gz.0199-dead.partial"), "half");
    await scene.database.query(
      "update txbox.segment set archive_owner = 'dead', archive_until = clock_timestamp() + interval '1 s' where n = 0",
    );
    expect((await maintain()).droppedSegments).toEqual([]);
    await drop(1);
    expect(readdirSync(scene.directory)).toEqual(["txbox.message_0.jsonl.gz"]);
    expect(statSync(join(scene.directory, "txbox.message_0.jsonl.gz")).mode & 0o777).toBe(0o600);
    expect(await archived("txbox.message_0.jsonl.gz")).toHaveLength(50);
  });

  it("a process that slept past its lease harms nothing and reports no failure", async () => {
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
    await scene.database.query("update txbox.segment set archive_until = clock_timestamp() where n = 0");
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
      const owner = () => scene.database.value("select archive_owner from txbox.segment where n = 0");
      const sleeper = run();
      await begun.promise;
      await scene.database.query(
        "update txbox.segment set archive_owner = 'other', archive_until = clock_timestamp() + interval '1 min' where n = 0",
      );
      await vi.advanceTimersByTimeAsync(20_000);
      await new Promise((resolve) => setTimeout(resolve, 300));
      resumed.resolve();
      await sleeper;
      expect(report).toMatchObject({ droppedSegments: [], heldBackBy: [] });
      expect(await owner()).toBe("other");
      expect(await scene.database.value("select archived_at from txbox.segment where n = 0")).toBeNull();
    } finally {
      vi.useRealTimers();
    }
  });

  it("a process without the option drops nothing that another began to archive meanwhile", async () => {
    await fill(1, 5);
    await deliver("r");
    const reader = await scene.database.pool.connect();
    await reader.query("begin");
    await reader.query("select 1 from txbox.message limit 1");
    // It waits for the reader before it detaches.
    const dropping = storeWith(undefined).maintenance.run();
    await new Promise((resolve) => setTimeout(resolve, 700));
    await scene.database.query("update txbox.segment set archive_owner = '' where archive_owner is null");
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

  it("counts a complete file as done that a process left without a note in the database", async () => {
    await fill(1, 5);
    await deliver("r");
    // It wrote the file, and died before the segment was dropped.
    const copy = createPostgresStore({
      client: scene.database.pool,
      ...EAGER,
      archive: { directory: scene.directory },
    });
    await scene.database.query(
      "create function txbox.refuse() returns trigger language plpgsql as $$ begin raise exception 'killed'; end $$",
    );
    await scene.database.query(
      "create trigger refuse before update on txbox.segment for each row when (new.archived_at is not null) execute function txbox.refuse()",
    );
    expect((await refused(() => copy.maintenance.run())).archiveError).toContain("killed");
    await scene.database.query("drop trigger refuse on txbox.segment");
    const before = statSync(join(scene.directory, "txbox.message_0.jsonl.gz")).ino;
    expect(await drop(1)).toEqual(["message_0"]);
    expect(statSync(join(scene.directory, "txbox.message_0.jsonl.gz")).ino).toBe(before);
    expect(await archived("txbox.message_0.jsonl.gz")).toHaveLength(5);
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
});
