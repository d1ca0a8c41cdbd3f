import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import type { RelayEvent } from "../../../src/core/events.ts";
import { until } from "../../harness/deadline.ts";
import type { PostgresServer } from "../../harness/start-postgres.ts";
import { smallDisk } from "../../support/small-disk.ts";
import { outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";
import { RecordingPublisher } from "../support/recording-publisher.ts";

const disk = await smallDisk("disk-full");

describe.skipIf(disk === undefined)("a disk that is full", () => {
  let server: PostgresServer;
  let database: OutboxDatabase;
  let relay: Relay;

  beforeAll(async () => {
    server = await disk!.startPostgres();
    database = await outboxDatabase({ serverUrl: server.url });
  });
  afterEach(() => disk!.free());
  afterAll(async () => {
    await relay.stop({ deadlineMs: 1000 });
    await database.close();
    await server.stop();
    await disk!.unmount();
  });

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

    disk!.fill();
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

    disk!.free();
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
