import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect } from "vitest";
import { readArchive } from "../../../src/core/read-archive.ts";
import type { MaintenanceReport, Message } from "../../../src/index.ts";
import { createRelay } from "../../../src/index.ts";
import { type Archive, createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { outboxDatabase, type OutboxDatabase, series } from "./outbox-database.ts";
import { RecordingPublisher } from "./recording-publisher.ts";

export const EAGER = { segmentMs: 1, retentionMs: 0 };

/** For each test a database whose segments go as soon as they may, and a folder for their archives. */
export function archiveScene() {
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
    await until(enough, { what: `${count} segments to go`, timeoutMs: 60_000 });
    return dropped;
  }
  /** The first report that tells of the archive. */
  async function refused(run: () => Promise<MaintenanceReport>): Promise<MaintenanceReport> {
    let report = await run();
    const told = async () =>
      (report = report.archiveError === undefined ? await run() : report).archiveError !== undefined;
    await until(told, { what: "an error of the archive", timeoutMs: 60_000 });
    return report;
  }
  const archived = async (file: string): Promise<Message[]> => {
    const found: Message[] = [];
    for await (const { message } of readArchive(join(directory, file))) if ("position" in message) found.push(message);
    return found;
  };
  const files = () => readdirSync(directory).toSorted((a, b) => Number(/\d+/.exec(a)) - Number(/\d+/.exec(b)));

  return {
    get database() {
      return database;
    },
    get directory() {
      return directory;
    },
    storeWith,
    maintain,
    segments,
    deliver,
    fill,
    drop,
    refused,
    archived,
    files,
  };
}
