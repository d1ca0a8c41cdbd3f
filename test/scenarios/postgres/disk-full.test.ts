import { mkdtempSync, rmdirSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import type { RelayEvent } from "../../../src/core/events.ts";
import { until } from "../../harness/deadline.ts";
import { runCommand } from "../../harness/run-command.ts";
import { type PostgresServer, startPostgres } from "../../harness/start-postgres.ts";
import { outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";
import { RecordingPublisher } from "../support/recording-publisher.ts";

const SIZE_MB = 200;

/** A small file system of our own; undefined where we may not mount one. */
async function smallDisk(): Promise<string | undefined> {
  const folder = mkdtempSync(join(tmpdir(), "txbox-disk-"));
  const mounted = await runCommand("mount", ["-t", "tmpfs", "-o", `size=${SIZE_MB}m,mode=0755`, "tmpfs", folder]).catch(
    () => undefined,
  );
  if (mounted?.code === 0) return folder;
  rmdirSync(folder);
  process.stderr.write(
    "\n*** SKIPPED: disk-full. Mounting a tmpfs needs root: run the tests as root, or in a container with SYS_ADMIN\n\n",
  );
  return undefined;
}

const disk = process.platform === "linux" ? await smallDisk() : undefined;

describe.skipIf(disk === undefined)("a disk that is full", () => {
  const folder = disk ?? "";
  const filler = join(folder, "filler");
  let server: PostgresServer;
  let database: OutboxDatabase;
  let relay: Relay;

  beforeAll(async () => {
    const { TMPDIR } = process.env;
    process.env["TMPDIR"] = folder;
    try {
      server = await startPostgres({
        owned: true,
        fsync: true,
        settings: { max_wal_size: "64MB", min_wal_size: "32MB" },
      });
    } finally {
      if (TMPDIR === undefined) delete process.env["TMPDIR"];
      else process.env["TMPDIR"] = TMPDIR;
    }
    database = await outboxDatabase({ serverUrl: server.url });
  });
  afterEach(() => rmSync(filler, { force: true }));
  afterAll(async () => {
    await relay.stop({ deadlineMs: 1000 });
    await database.close();
    await server.stop();
    await runCommand("umount", ["-l", folder]);
    rmdirSync(folder);
  });

  function fill(): void {
    const { bavail, bsize } = statfsSync(folder);
    try {
      writeFileSync(filler, Buffer.alloc((bavail + 16) * bsize));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
    }
  }

  it("stops the relay only until there is room again; nothing is lost, nothing is out of order", async () => {
    const publisher = new RecordingPublisher();
    const events: RelayEvent[] = [];
    relay = createRelay({
      store: database.store,
      name: "orders",
      publisher,
      leaseMs: 1000,
      maintenance: false,
      onEvent: (event) => void events.push(event),
    });
    await relay.start();
    await database.enqueue([{ key: "a", n: 1 }]);
    await until(() => publisher.firsts("a").length === 1, { what: "the first message" });

    fill();
    let n = 1;
    const refused = await until(
      async () => {
        const pad = "x".repeat(300_000);
        const payload = { key: "a", n: n + 1, pad };
        const client = await database.pool.connect();
        try {
          await client.query("begin");
          await database.outbox.enqueue(client, { stream: "orders", type: "changed", key: "a", payload });
          await client.query("commit");
          n++;
          return undefined;
        } catch (error) {
          return error as Error;
        } finally {
          client.release(true);
        }
      },
      { what: "the disk to be full", timeoutMs: 60_000, intervalMs: 0 },
    );
    expect(refused.message).toMatch(/space|terminat|shut|recovery|ECONN|closed|unexpected/i);
    await new Promise((resolve) => setTimeout(resolve, 2000));

    rmSync(filler);
    // The server gives up when its own log has no room; an operator would start it again.
    if (server.pid === undefined || (await database.value("select 1").catch(() => undefined)) === undefined)
      await server.restart();
    const kept = await until(
      async () => database.value("select count(*)::int from txbox.message").catch(() => undefined),
      {
        what: "the database",
        timeoutMs: 60_000,
      },
    );
    await database.enqueue([{ key: "a", n: Number(kept) + 1 }]);
    await until(() => publisher.firsts("a").length >= Number(kept) + 1, { what: "all messages", timeoutMs: 60_000 });
    const committed = await database.query<{ n: number }>(
      "select (payload ->> 'n')::int as n from txbox.message order by position",
    );
    expect(publisher.firsts("a")).toEqual(committed.map((row) => row.n));
    expect(relay.state().running).toBe(true);
  });
});
